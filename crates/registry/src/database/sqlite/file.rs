//! The file of a SQLite database: made in one step, and looked after while it is open.
//!
//! While it is open only its metadata is read here: closing any descriptor of it would
//! release the locks that SQLite holds on it.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::error::OpenError;

/// Which file was opened.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    id: FileId,
}

/// What tells a file from any other that may be at the same path later.
type FileId = (u64, u64);

impl OpenFile {
    /// The file that is at `path` now.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let id = id(&fs::metadata(&path)?);
        Ok(Self { path, id })
    }

    /// What happened to the file since it was opened, if something did by which everything written from now on is lost.
    pub(super) fn trouble(&self) -> Option<String> {
        let what = match fs::metadata(&self.path) {
            Ok(metadata) if id(&metadata) != self.id => "was replaced by another file",
            Ok(metadata) if metadata.len() == 0 => "was emptied",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "was deleted or moved away",
            // What cannot be looked at may still be there; SQLite tells better.
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

/// Makes the file and its folder where they are missing, for nobody but their owner. A file without a byte is refused:
/// no registry of ours is ever that short, so it is what is left of one.
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
            // Whether it may be written.
            OpenOptions::new().append(true).open(path).map(drop).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path).map_err(|source| match source {
            CreateError::Io(source) => failed(source),
            CreateError::Sqlite(source) => OpenError::File { path: path.to_owned(), source: source.into() },
        }),
        Err(error) => Err(failed(error)),
    }
}

/// Refuses a file without a byte.
pub(super) fn refuse_empty(path: &Path) -> Result<(), OpenError> {
    let is_empty = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    if is_empty { Err(OpenError::Empty { path: path.to_owned() }) } else { Ok(()) }
}

enum CreateError {
    Io(io::Error),
    Sqlite(rusqlite::Error),
}

/// Makes an empty database under another name first: a program that is killed in the middle leaves no file without a
/// byte, which would be taken for a registry that was lost. Of several that do this at once, one wins.
fn create(path: &Path) -> Result<(), CreateError> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let new = PathBuf::from(name);
    let made = make(&new).and_then(|()| publish(&new, path).map_err(CreateError::Io));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %new.display(), %error, "could not remove a temporary file");
        }
        _ => {}
    }
    made
}

fn make(new: &Path) -> Result<(), CreateError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // SQLite gives its log and its index the mode of the database.
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
        // Some file systems have no links.
        Err(_) if !path.exists() => fs::rename(new, path),
        done => done,
    }
}
