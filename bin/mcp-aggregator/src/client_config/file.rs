//! The file of a client: read, replaced in one step, and given back as it was.
//!
//! Beside it are kept `FILE.before-mcp-aggregator`, what it would be without us (empty if it would not be there), and
//! `FILE.by-mcp-aggregator`, what we made of it, by which is seen whether anybody changed it since.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::undo::Made;

/// For its user only. What is kept beside the file has the token in it, or what others put there before.
const PRIVATE: u32 = 0o600;

/// Folders that hold nothing but what a client keeps.
const FOLDERS: [&str; 2] = [".cursor", ".vscode"];

/// A file that may not be there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientFile {
    path: PathBuf,
}

impl ClientFile {
    /// The file at `path`. Where that is a link, what it leads to, even if that is not there yet: a link must stay one.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let mut path = std::path::absolute(path)?;
        // A circle of links is no "not found": it has failed before.
        loop {
            match path.canonicalize() {
                Ok(path) => return Ok(Self { path }),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Err(_) => match fs::read_link(&path) {
                    // A relative target starts at the folder of the link.
                    Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
                    Err(_) => return Ok(Self { path }),
                },
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it; nothing if it is not there.
    pub(crate) fn read(&self) -> io::Result<Option<String>> {
        if_there(&self.path)
    }

    /// Where what it was before is kept.
    pub(crate) fn backup(&self) -> PathBuf {
        self.beside("before")
    }

    fn written(&self) -> PathBuf {
        self.beside("by")
    }

    fn beside(&self, word: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{word}-mcp-aggregator"));
        name.into()
    }

    /// What we made of it, if we did. `without_us` is asked what it was before if somebody has removed the backup.
    pub(crate) fn made<E: From<io::Error>>(
        &self,
        without_us: impl FnOnce(&str) -> Result<String, E>,
    ) -> Result<Option<Made>, E> {
        let Some(written) = if_there(&self.written())? else { return Ok(None) };
        let before = match if_there(&self.backup())? {
            Some(before) => Some(before).filter(|before| !before.is_empty()),
            None => Some(without_us(&written)?),
        };
        Ok(Some(Made { written, before }))
    }

    /// Writes it anew, and keeps what it would be without us.
    pub(crate) fn replace(&self, text: &str, before: Option<&str>) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        put(&self.backup(), before.unwrap_or_default(), PRIVATE)?;
        // The note is first: a file of ours that we do not know as such could not be given back.
        put(&self.written(), text, PRIVATE)?;
        put(&self.path, text, self.mode())
    }

    /// Gives it back as it was, and forgets that it was ours.
    pub(crate) fn give_back(&self, before: Option<&str>) -> io::Result<()> {
        match before {
            Some(before) => put(&self.path, before, self.mode())?,
            None => remove_if_there(&self.path)?,
        }
        self.forget()?;
        if before.is_none() {
            self.remove_empty_folder();
        }
        Ok(())
    }

    /// The folder of a client that has nothing in it now most likely was made by us. If it has, it stays.
    fn remove_empty_folder(&self) {
        let folder = self.path.parent().filter(|folder| FOLDERS.iter().any(|name| folder.ends_with(name)));
        if let Some(folder) = folder
            && let Err(error) = fs::remove_dir(folder)
        {
            tracing::debug!(folder = %folder.display(), %error, "the folder stays");
        }
    }

    /// Writes it, and forgets that it was ours.
    pub(crate) fn release(&self, text: &str) -> io::Result<()> {
        put(&self.path, text, self.mode())?;
        self.forget()
    }

    /// Forgets that it was ours.
    pub(crate) fn forget(&self) -> io::Result<()> {
        // The backup is last: without it, the note would say that the file was not there before.
        remove_if_there(&self.written())?;
        remove_if_there(&self.backup())
    }

    /// Who may read it stays as it was. There may be a token in it, so what is new is for its user only.
    fn mode(&self) -> u32 {
        fs::metadata(&self.path).map_or(PRIVATE, |metadata| metadata.permissions().mode() & 0o777)
    }

    /// Whether others on this machine can read it.
    pub(crate) fn is_open(&self) -> bool {
        self.mode() & 0o044 != 0
    }
}

/// Under another name first: whoever reads it sees all of it or nothing.
fn put(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut draft = path.to_path_buf().into_os_string();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&draft)?;
    // What others may do with it must not depend on how this process makes new files.
    let allowed = file.set_permissions(fs::Permissions::from_mode(mode));
    let written = allowed.and_then(|()| file.write_all(text.as_bytes())).and_then(|()| file.sync_all());
    let written = written.and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // Why it could not be written is told; that half of it stays, too, if it does, helps nobody.
        remove_if_there(&draft).ok();
    }
    written
}

fn if_there(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_given_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/mcp.json");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "first").unwrap();
        let file = ClientFile::at(&path).unwrap();
        let made = || file.made(|_| io::Result::Ok("lost".to_owned())).unwrap();
        assert!(made().is_none());
        file.replace("second", Some("first")).unwrap();
        let known = made().unwrap();
        assert_eq!((known.written.as_str(), known.before.as_deref()), ("second", Some("first")));
        fs::remove_file(file.backup()).unwrap();
        assert_eq!(
            made().unwrap().before.as_deref(),
            Some("lost"),
            "that the backup is gone does not mean there was none"
        );
        file.give_back(known.before.as_deref()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_was_not_there_is_for_its_user_only_and_goes_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = ClientFile::at(&folder.path().join("mcp.json")).unwrap();
        file.replace("ours", None).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(file.made(|_| io::Result::Ok("lost".to_owned())).unwrap().unwrap().before, None);
        file.give_back(None).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn copies_are_private_even_of_a_file_that_others_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        fs::write(&path, "first").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let file = ClientFile::at(&path).unwrap();
        file.replace("second", Some("first")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file.backup()), mode(&file.written())), (0o600, 0o600));
        assert_eq!((mode(file.path()), file.is_open()), (0o644, true), "that is for its owner to decide");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "x").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        ClientFile::at(&link).unwrap().replace("y", Some("x")).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "y");
    }

    #[test]
    fn a_link_that_leads_nowhere_yet_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("dotfiles/mcp.json"), folder.path().join("link"));
        std::os::unix::fs::symlink("dotfiles/mcp.json", &link).unwrap();
        let file = ClientFile::at(&link).unwrap();
        assert_eq!((file.read().unwrap(), file.path()), (None, real.as_path()));
        file.replace("y", None).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&link).unwrap(), "y");
        let circle = folder.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle).unwrap();
        assert!(ClientFile::at(&circle).is_err());
    }

    #[test]
    fn who_may_write_it_stays_whatever_new_files_are_made_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        ClientFile::at(&path).unwrap().replace("y", Some("x")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    }
}
