//! Documents on disk: read as they are, and replaced in one step.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::apply::{Applied, ApplyOptions, apply};
use crate::render::Attachment;
use crate::run::Report;

/// How often saving is retried if the file changes in the meantime.
const MAX_SAVE_ATTEMPTS: usize = 10;

/// Why a document could not be read or written. It is not changed then.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is not UTF-8 text.
    #[error("`{}` is not UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("failed to write `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another program keeps changing it.
    #[error("`{}` changes too often to be written", path.display())]
    Restless {
        /// The file.
        path: PathBuf,
    },
}

/// The result of saving.
#[derive(Debug)]
pub struct Saved {
    /// The text, and what happened to each result.
    pub applied: Applied,
    /// Whether the file changed.
    pub is_changed: bool,
}

/// Reads a document.
pub fn read(path: &Path) -> Result<String, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    // Reading a pipe without a writer would block forever, and works only once.
    let is_odd = fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir());
    if is_odd {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device, not a file")));
    }
    let bytes = fs::read(path).map_err(failed)?;
    String::from_utf8(bytes).map_err(|_| FileError::NotText { path: path.to_owned() })
}

/// Writes the results of a run into a document as it is on disk now, or into a copy of it.
///
/// The file is replaced in one step: readers see the old or the new text, even if this program is killed. Symbolic
/// links are followed; the mode of the file and, if permitted, its owner are kept. A copy may also go to a pipe or a
/// device, which is written to and not replaced.
pub fn save(document: &Path, copy: Option<&Path>, report: &Report, force: bool) -> Result<Saved, FileError> {
    let target = followed(copy.unwrap_or(document))?;
    let is_passed_on = copy.is_some() && is_no_file(&target);
    // There is no place for files next to a device.
    let beside = if is_passed_on { followed(document)? } else { target.clone() };
    let folder = assets_folder(&beside);
    for _ in 0..MAX_SAVE_ATTEMPTS {
        let text = read(document)?;
        let applied = apply(&text, report, &ApplyOptions { force, folder: &folder });
        if copy.is_none() && applied.text == text {
            return Ok(Saved { applied, is_changed: false });
        }
        refuse_read_only(&target)?;
        // Attachments first: a document must not link to missing files.
        write_attachments(&beside, document, &applied.attachments)?;
        if is_passed_on {
            pass_on(&target, applied.text.as_bytes())?;
            return Ok(Saved { applied, is_changed: true });
        }
        let written = prepared(&target, document, applied.text.as_bytes())?;
        if copy.is_none() && read(document)? != text {
            continue;
        }
        put_in_place(written, &target)?;
        return Ok(Saved { applied, is_changed: true });
    }
    Err(FileError::Restless { path: document.to_owned() })
}

/// Checks that a document, or a copy of it, can be written, before a run whose results would be lost.
pub fn check_writable(document: &Path, copy: Option<&Path>) -> Result<(), FileError> {
    let target = followed(copy.unwrap_or(document))?;
    let failed = |path: &Path, source| FileError::Write { path: path.to_owned(), source };
    if target.is_dir() {
        return Err(failed(&target, io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")));
    }
    if is_no_file(&target) {
        return Ok(());
    }
    refuse_read_only(&target)?;
    let assets = folder_of(&target).join(assets_folder(&target));
    if fs::symlink_metadata(&assets).is_ok() && !assets.is_dir() {
        let why = "pictures of the document would be stored there, but it is not a folder";
        return Err(failed(&assets, io::Error::new(io::ErrorKind::NotADirectory, why)));
    }
    beside(&target).map(drop).map_err(|source| failed(&target, unpathed(&source)))
}

/// The folder for attachments, relative to the document: `notes.assets` for `notes.md`.
pub fn assets_folder(document: &Path) -> String {
    let stem = document.file_stem().map_or_else(|| "document".to_owned(), |stem| stem.to_string_lossy().into_owned());
    format!("{stem}.assets")
}

/// Writes attachments into the folder next to a document, with the permissions of `like`. Creates the folder if needed.
/// Existing files are kept.
pub fn write_attachments(document: &Path, like: &Path, attachments: &[Attachment]) -> Result<(), FileError> {
    if attachments.is_empty() {
        return Ok(());
    }
    let folder = folder_of(document).join(assets_folder(document));
    match fs::create_dir(&folder) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(FileError::Write { path: folder, source });
        }
        _ => {}
    }
    for attachment in attachments {
        let path = folder.join(&attachment.name);
        // Names are digests, so a file of the same name and length is the same file.
        let is_there = fs::metadata(&path).is_ok_and(|file| file.len() == attachment.bytes.len() as u64);
        if !is_there {
            put_in_place(prepared(&path, like, &attachment.bytes)?, &path)?;
        }
    }
    Ok(())
}

/// The target of a path, after symbolic links. It need not exist yet.
fn followed(path: &Path) -> Result<PathBuf, FileError> {
    match fs::canonicalize(path) {
        Ok(target) => Ok(target),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(source) => Err(FileError::Read { path: path.to_owned(), source }),
    }
}

/// Whether the target can be written to, but must not be replaced.
fn is_no_file(target: &Path) -> bool {
    fs::metadata(target).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// Writes to a pipe or a device.
fn pass_on(target: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let write = || fs::OpenOptions::new().write(true).open(target)?.write_all(bytes);
    write().map_err(|source| FileError::Write { path: target.to_owned(), source })
}

/// A temporary file in the folder of another file.
fn beside(target: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(".mcp-").suffix(".tmp").tempfile_in(folder_of(target))
}

/// The error without the path of a temporary file.
fn unpathed(error: &io::Error) -> io::Error {
    let kind = error.kind();
    error.raw_os_error().map_or_else(|| io::Error::from(kind), io::Error::from_raw_os_error)
}

/// Refuses a read-only file. Replacing it would only need permission for its folder, but it is read-only on purpose.
fn refuse_read_only(target: &Path) -> Result<(), FileError> {
    if !fs::metadata(target).is_ok_and(|there| there.permissions().readonly()) {
        return Ok(());
    }
    let source = io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only");
    Err(FileError::Write { path: target.to_owned(), source })
}

/// The replacement of a file: next to it, complete, flushed, with its mode, or that of another if it does not exist
/// yet.
fn prepared(target: &Path, like: &Path, bytes: &[u8]) -> Result<tempfile::NamedTempFile, FileError> {
    let write = || {
        let mut file = beside(target).map_err(|error| unpathed(&error))?;
        file.write_all(bytes)?;
        let there = fs::metadata(target).or_else(|_| fs::metadata(like))?;
        keep_owner(file.as_file(), &there)?;
        file.as_file().set_permissions(there.permissions())?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    write().map_err(|source| FileError::Write { path: target.to_owned(), source })
}

#[cfg(unix)]
fn keep_owner(file: &File, there: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    match fchown(file, Some(there.uid()), Some(there.gid())) {
        // Most users may not change the owner; then the new file is theirs.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

#[cfg(not(unix))]
fn keep_owner(_file: &File, _there: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

fn put_in_place(file: tempfile::NamedTempFile, target: &Path) -> Result<(), FileError> {
    let put = || {
        file.persist(target).map_err(|error| error.error)?;
        // The rename is durable only after the folder is flushed.
        if cfg!(unix) { File::open(folder_of(target))?.sync_all() } else { Ok(()) }
    };
    put().map_err(|source| FileError::Write { path: target.to_owned(), source })
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
