//! The path under which this program was started, for other programs that are to start it, too.
//!
//! Package managers put a link in a folder of `PATH` and move what it leads to with every upgrade. So what was typed is
//! kept, and never what it leads to.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The path that was typed, or found in `PATH`; where neither leads here, the program itself.
pub(crate) fn own_path() -> io::Result<PathBuf> {
    let real = env::current_exe()?;
    Ok(typed(env::args_os().next(), env::var_os("PATH"), &real).unwrap_or(real))
}

fn typed(word: Option<OsString>, folders: Option<OsString>, real: &Path) -> Option<PathBuf> {
    let word = PathBuf::from(word?);
    let real = real.canonicalize().ok()?;
    let leads_here = |path: &PathBuf| path.canonicalize().is_ok_and(|found| found == real);
    if word.components().count() > 1 || word.is_absolute() {
        return std::path::absolute(word).ok().filter(leads_here);
    }
    let folders = folders?;
    env::split_paths(&folders).filter(|folder| folder.is_absolute()).map(|folder| folder.join(&word)).find(leads_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_kept_whether_it_is_typed_or_found() {
        let folder = tempfile::tempdir().unwrap();
        let (real, bin) = (folder.path().join("versions-1"), folder.path().join("bin"));
        std::fs::write(&real, "").unwrap();
        std::fs::create_dir(&bin).unwrap();
        let link = bin.join("tool");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let path = |word: &Path, folders: &Path| typed(Some(word.into()), Some(folders.into()), &real);
        assert_eq!(path(&link, folder.path()), Some(link.clone()));
        assert_eq!(path(Path::new("tool"), &bin), Some(link));
        assert_eq!(path(Path::new("tool"), folder.path()), None, "it is not there");
        assert_eq!(path(Path::new("/bin/sh"), &bin), None, "that is another program");
    }
}
