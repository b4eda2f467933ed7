//! The config file of a client: reads it, replaces it in one step, and restores it.
//!
//! Next to it are two files: `FILE.before-mcp-aggregator`, the file without our changes (empty if it would not exist),
//! and `FILE.by-mcp-aggregator`, a copy of what was written, which shows whether the file was edited since.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::undo::Made;

/// The mode for the user only. The files contain the token, and other credentials of the user.
const PRIVATE: u32 = 0o600;

/// Folders that only contain files of a client.
const FOLDERS: [&str; 2] = [".cursor", ".vscode"];

/// A file, which may not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientFile {
    path: PathBuf,
}

impl ClientFile {
    /// The file at `path`. If that is a symbolic link, its target, even if it does not exist yet: the link must stay a
    /// link.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let mut path = std::path::absolute(path)?;
        // A circle of links does not get here: it fails with another error.
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

    /// Its content; `None` if it does not exist.
    pub(crate) fn read(&self) -> io::Result<Option<String>> {
        if_there(&self.path)
    }

    /// The path of the backup.
    pub(crate) fn backup(&self) -> PathBuf {
        self.sibling("before")
    }

    fn written(&self) -> PathBuf {
        self.sibling("by")
    }

    fn sibling(&self, word: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{word}-mcp-aggregator"));
        name.into()
    }

    /// What we wrote, if we did. `without_us` computes the original if the backup is missing.
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

    /// Writes the file, and keeps the version without our changes.
    pub(crate) fn replace(&self, text: &str, before: Option<&str>) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        put(&self.backup(), before.unwrap_or_default(), PRIVATE)?;
        // The note comes first: without it, our file could not be recognised and restored.
        put(&self.written(), text, PRIVATE)?;
        put(&self.path, text, self.mode())
    }

    /// Restores the original, and removes backup and note.
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

    /// If the folder of a client is empty now, we probably created it. If it is not empty, it stays.
    fn remove_empty_folder(&self) {
        let folder = self.path.parent().filter(|folder| FOLDERS.iter().any(|name| folder.ends_with(name)));
        if let Some(folder) = folder
            && let Err(error) = fs::remove_dir(folder)
        {
            tracing::debug!(folder = %folder.display(), %error, "the folder stays");
        }
    }

    /// Writes the file, and removes backup and note.
    pub(crate) fn release(&self, text: &str) -> io::Result<()> {
        put(&self.path, text, self.mode())?;
        self.forget()
    }

    /// Removes backup and note.
    pub(crate) fn forget(&self) -> io::Result<()> {
        // The backup comes last: without it, the note would mean that the file did not exist before.
        remove_if_there(&self.written())?;
        remove_if_there(&self.backup())
    }

    /// The mode of the file stays. It may contain a token, so a new file is for the user only.
    fn mode(&self) -> u32 {
        fs::metadata(&self.path).map_or(PRIVATE, |metadata| metadata.permissions().mode() & 0o777)
    }

    /// Whether other users can read it.
    pub(crate) fn is_open(&self) -> bool {
        self.mode() & 0o044 != 0
    }
}

/// Written under another name first, so that readers see all of it or nothing.
fn put(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut draft = path.to_path_buf().into_os_string();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&draft)?;
    // The mode must not depend on the umask of this process.
    let allowed = file.set_permissions(fs::Permissions::from_mode(mode));
    let written = allowed.and_then(|()| file.write_all(text.as_bytes())).and_then(|()| file.sync_all());
    let written = written.and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // Reports why writing failed. A temporary file that cannot be removed either is not worth another error.
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
    fn a_file_is_restored_unchanged() {
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
    fn a_created_file_is_private_and_removed_by_undo() {
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
    fn the_mode_of_a_file_stays_whatever_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        ClientFile::at(&path).unwrap().replace("y", Some("x")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    }
}
