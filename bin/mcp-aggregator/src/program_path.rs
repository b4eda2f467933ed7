//! The path under which this program was started, for the configs of programs that will start it.
//!
//! Package managers put a link into a folder of `PATH`, and change its target with every upgrade. So this is the path
//! of the link, never its target.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The typed path, or the one found in `PATH`; if neither refers to this program, the path of the executable.
pub(crate) fn program_path() -> io::Result<PathBuf> {
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
    fn a_link_is_kept_whether_it_is_typed_or_found_in_path() {
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
