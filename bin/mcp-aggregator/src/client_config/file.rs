//! The file of a client: read, replaced in one step, and given back as it was.
//!
//! Beside it are kept `FILE.before-mcp-aggregator`, what it was before our first change, and
//! `FILE.by-mcp-aggregator`, what we made of it, by which is seen whether anybody changed it since.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// For its user only. What is kept beside the file has the token in it, or what others put there before.
const PRIVATE: u32 = 0o600;

/// Folders that hold nothing but what a client keeps.
const FOLDERS: [&str; 2] = [".cursor", ".vscode"];

/// A file that may not be there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientFile {
    path: PathBuf,
}

/// How a file stands to what we made of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// It is as we left it; this is what it was before, if it was there.
    Untouched { before: Option<String> },
    /// Somebody has changed it.
    Changed,
    /// We never changed it, or it was given back.
    NotOurs,
}

impl ClientFile {
    /// The file at `path`. Where that is a link, what it leads to: a link must stay one.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        match path.canonicalize() {
            Ok(path) => Ok(Self { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self { path: std::path::absolute(path)? }),
            Err(error) => Err(error),
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

    pub(crate) fn since(&self) -> io::Result<Since> {
        let Some(written) = if_there(&self.written())? else { return Ok(Since::NotOurs) };
        if self.read()?.as_ref() != Some(&written) {
            return Ok(Since::Changed);
        }
        Ok(Since::Untouched { before: if_there(&self.backup())? })
    }

    /// What we made of it, and what it was before, if we did and remember.
    pub(crate) fn made(&self) -> io::Result<Option<(String, Option<String>)>> {
        let Some(written) = if_there(&self.written())? else { return Ok(None) };
        Ok(Some((written, if_there(&self.backup())?)))
    }

    /// Writes it anew. What it was before us is kept, unless an older backup still says so.
    pub(crate) fn replace(&self, text: &str, before: Option<&str>) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        if !matches!(self.since()?, Since::Untouched { .. }) {
            match before {
                Some(before) => put(&self.backup(), before, PRIVATE)?,
                None => remove_if_there(&self.backup())?,
            }
        }
        put(&self.path, text, self.mode())?;
        put(&self.written(), text, PRIVATE)
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
        remove_if_there(&self.backup())?;
        remove_if_there(&self.written())
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
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
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
    fn a_file_is_given_back_as_it_was_however_often_it_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/mcp.json");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "first").unwrap();
        let file = ClientFile::at(&path).unwrap();
        assert_eq!(file.since().unwrap(), Since::NotOurs);
        file.replace("second", Some("first")).unwrap();
        file.replace("third", Some("second")).unwrap();
        let Since::Untouched { before } = file.since().unwrap() else { panic!() };
        file.give_back(before.as_deref()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_was_not_there_goes_and_a_changed_one_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = ClientFile::at(&folder.path().join("mcp.json")).unwrap();
        file.replace("ours", None).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(file.path(), "theirs").unwrap();
        assert_eq!(file.since().unwrap(), Since::Changed);
        fs::write(file.path(), "ours").unwrap();
        assert_eq!(file.since().unwrap(), Since::Untouched { before: None });
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
}
