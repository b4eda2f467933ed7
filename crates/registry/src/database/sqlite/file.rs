//! The file of a SQLite database: created in one step, and monitored while it is open.
//!
//! While it is open, this module reads only its metadata: closing any descriptor of the file would release the locks
//! that SQLite holds on it.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::error::OpenError;

/// Identifies the opened file.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    id: FileId,
}

/// Distinguishes a file from another one at the same path.
type FileId = (u64, u64);

impl OpenFile {
    /// The file that is at `path` now.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let id = id(&fs::metadata(&path)?);
        Ok(Self { path, id })
    }

    /// The problem of the file, if further writes would be lost.
    pub(super) fn problem(&self) -> Option<String> {
        let what = match fs::metadata(&self.path) {
            Ok(metadata) if id(&metadata) != self.id => "was replaced by another file",
            Ok(metadata) if metadata.len() == 0 => "was emptied",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "was deleted or moved",
            // A file that cannot be inspected may still exist; SQLite reports better errors.
            Ok(_) | Err(_) => return None,
        };
        let path = self.path.display();
        Some(format!(
            "the registry file {path} {what}; put it back, or stop the service, restore a backup and start it again"
        ))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(unix)]
fn id(metadata: &fs::Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn id(_: &fs::Metadata) -> FileId {
    (0, 0)
}

/// Creates the file and its folder if they do not exist, accessible only to their owner. Refuses an empty file: a
/// registry is never empty, so its contents were lost.
pub(super) fn prepare(path: &Path) -> Result<(), OpenError> {
    let failed = |source: io::Error| OpenError::File { path: path.to_owned(), source: source.into() };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder).map_err(failed)?;
    }
    match fs::metadata(path) {
        Ok(_) => {
            refuse_empty(path)?;
            // Check whether it can be written.
            OpenOptions::new().append(true).open(path).map(drop).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path).map_err(|source| match source {
            CreateError::Io(source) => failed(source),
            CreateError::Sqlite(source) => OpenError::File { path: path.to_owned(), source: source.into() },
        }),
        Err(error) => Err(failed(error)),
    }
}

/// Refuses an empty file.
pub(super) fn refuse_empty(path: &Path) -> Result<(), OpenError> {
    let is_empty = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    if is_empty { Err(OpenError::Empty { path: path.to_owned() }) } else { Ok(()) }
}

enum CreateError {
    Io(io::Error),
    Sqlite(rusqlite::Error),
}

/// Creates an empty database under a temporary name first: a program that is killed in between leaves no empty file,
/// which would be mistaken for a lost registry. If several programs do this at the same time, one wins.
fn create(path: &Path) -> Result<(), CreateError> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let new = PathBuf::from(name);
    let made = make(&new).and_then(|()| publish(&new, path).map_err(CreateError::Io));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %new.display(), %error, "failed to remove a temporary file");
        }
        _ => {}
    }
    made
}

fn make(new: &Path) -> Result<(), CreateError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // SQLite gives its log and its index the mode of the database file.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(new).map_err(CreateError::Io)?;
    let connection = Connection::open(new).map_err(CreateError::Sqlite)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(CreateError::Sqlite)?;
    connection.close().map_err(|(_, error)| CreateError::Sqlite(error))
}

fn publish(new: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Some file systems do not support hard links.
        Err(_) if !path.exists() => fs::rename(new, path),
        done => done,
    }
}
