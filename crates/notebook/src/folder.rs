//! A folder whose documents clients may list, read and run: nothing outside of it is ever accessed.
//!
//! A path is opened step by step from the folder itself, and no step may be a symbolic link: what is checked is what is
//! opened, so no link can be inserted in between.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{self, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::document::MAX_DOCUMENT_BYTES;
use crate::file::{FileError, Saved, assets_folder, check_writable, save};
use crate::run::Report;

/// The limit of bytes of a document or a file next to one.
const MAX_FILE_BYTES: u64 = MAX_DOCUMENT_BYTES as u64;
/// The limit of listed documents.
const MAX_LISTED: usize = 10_000;
/// The limit of nested folders.
const MAX_DEPTH: usize = 24;

/// A folder with documents.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
}

/// A document in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The path relative to the folder, with `/` as separator.
    pub path: String,
    /// The size.
    pub bytes: u64,
    /// When it was last written.
    pub modified_at: Option<String>,
    /// Why this entry is not a document, but a place with documents that are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Listing {
    fn of_problem(path: String, problem: impl Into<String>) -> Self {
        Self { path, bytes: 0, modified_at: None, problem: Some(problem.into()) }
    }
}

/// Why a document of a folder is not available.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It does not exist, or may not be read.
    #[error("there is no document `{path}`: {why}")]
    NoDocument {
        /// The path.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// It exists, but cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Identifies a version of a document without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Folder {
    /// Opens an existing folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = path.canonicalize()?;
        if !root.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder"));
        }
        Ok(Self { root })
    }

    /// The path of the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The documents, by path. Hidden files and folders, symbolic links, and files other than `.md` are not listed. A
    /// folder that cannot be read is listed with the reason.
    pub fn list(&self) -> io::Result<Vec<Listing>> {
        let mut found = Vec::new();
        collect(&self.root_folder()?, "", 0, &mut found)?;
        found.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(found)
    }

    /// The absolute path of a document. It need not exist.
    pub fn whole_path(&self, path: &str) -> Result<PathBuf, FolderError> {
        Ok(self.root.join(steps(path)?.iter().collect::<PathBuf>()))
    }

    /// The relative path for an absolute one inside the folder.
    pub fn relative(&self, path: &str) -> Option<String> {
        Path::new(path).strip_prefix(&self.root).ok()?.to_str().map(str::to_owned)
    }

    /// The text of a document.
    pub fn read(&self, path: &str) -> Result<String, FolderError> {
        check_is_document(path)?;
        String::from_utf8(self.bytes(path)?).map_err(|_| FileError::NotText { path: self.root.join(path) }.into())
    }

    /// A picture next to a document, and its media type.
    pub fn picture(&self, path: &str) -> Result<(&'static str, Vec<u8>), FolderError> {
        let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
        let mime = match extension.as_deref() {
            Some("png") => "image/png",
            Some("jpg" | "jpeg") => "image/jpeg",
            Some("gif") => "image/gif",
            Some("webp") => "image/webp",
            // SVG can contain scripts: the caller must make sure that they do not run.
            Some("svg") => "image/svg+xml",
            _ => return Err(no_document(path, "only PNG, JPEG, GIF, WebP and SVG are pictures")),
        };
        Ok((mime, self.bytes(path)?))
    }

    /// A file that a tool created, in the folder next to a document. Other files are not served.
    pub fn attachment(&self, path: &str) -> Result<Vec<u8>, FolderError> {
        let is_beside =
            steps(path)?.iter().rev().nth(1).is_some_and(|step| step.to_string_lossy().ends_with(".assets"));
        if !is_beside {
            return Err(no_document(path, "only files in the `.assets` folder of a document are served"));
        }
        self.bytes(path)
    }

    /// What changes when a document is written: file, size and time.
    pub fn stamp(&self, path: &str) -> Result<Stamp, FolderError> {
        use std::os::unix::fs::MetadataExt;
        check_is_document(path)?;
        let there = self.find(path)?.metadata();
        let there = there.map_err(|source| FileError::Read { path: self.root.join(path), source })?;
        Ok(Stamp { file: there.ino(), bytes: there.len(), changed: (there.mtime(), there.mtime_nsec()) })
    }

    fn bytes(&self, path: &str) -> Result<Vec<u8>, FolderError> {
        let mut bytes = Vec::new();
        let read = self.find(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|source| FileError::Read { path: self.root.join(path), source })?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(no_document(path, "it is too long"));
        }
        Ok(bytes)
    }

    /// Writes the results of a run into a document as it is on disk now.
    pub fn save(&self, path: &str, report: &Report, force: bool) -> Result<Saved, FolderError> {
        // Only a check: anyone who can insert a link at this moment can write the file anyway.
        self.check_writable(path)?;
        Ok(save(&self.whole_path(path)?, None, report, force)?)
    }

    /// Checks that a document can be written, before a run whose results would be lost.
    pub fn check_writable(&self, path: &str) -> Result<(), FolderError> {
        check_is_document(path)?;
        drop(self.find(path)?);
        let whole = self.whole_path(path)?;
        let assets = whole.with_file_name(assets_folder(&whole));
        if std::fs::symlink_metadata(assets).is_ok_and(|there| there.is_symlink()) {
            return Err(no_document(path, "the folder of its pictures is a symbolic link, and those are not followed"));
        }
        Ok(check_writable(&whole, None)?)
    }

    fn root_folder(&self) -> io::Result<OwnedFd> {
        Ok(fs::open(&self.root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Opens a file step by step.
    fn find(&self, path: &str) -> Result<File, FolderError> {
        let steps = steps(path)?;
        let (name, folders) = steps.split_last().ok_or_else(|| no_document(path, "it is not a valid path"))?;
        let failed = |error: Errno| match error {
            Errno::LOOP | Errno::MLINK => no_document(path, "symbolic links are not followed"),
            Errno::NOENT | Errno::NOTDIR => no_document(path, "it does not exist"),
            other => FileError::Read { path: self.root.join(path), source: other.into() }.into(),
        };
        let unreadable = |source: io::Error| FileError::Read { path: self.root.clone(), source };
        let mut folder = self.root_folder().map_err(unreadable)?;
        for step in folders {
            folder = open_folder(&folder, step).map_err(failed)?;
        }
        // Opening a pipe without a writer would block forever.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&folder, name, flags, Mode::empty()).map_err(failed)?;
        let kind = fs::fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode)).map_err(failed)?;
        if kind != FileType::RegularFile {
            return Err(no_document(path, "it is not a file"));
        }
        Ok(File::from(file))
    }
}

fn open_folder(parent: &OwnedFd, step: &OsString) -> rustix::io::Result<OwnedFd> {
    fs::openat(parent, step, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// The steps of a path that stays inside the folder.
fn steps(path: &str) -> Result<Vec<OsString>, FolderError> {
    let mut steps = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(step) if !step.to_string_lossy().starts_with('.') => steps.push(step.to_owned()),
            Component::Normal(_) => return Err(no_document(path, "hidden files and folders are not shown")),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(no_document(path, "a path is relative to the documents folder and stays inside it"));
            }
        }
    }
    if path.contains('\0') || steps.is_empty() {
        return Err(no_document(path, "it is not a valid path"));
    }
    Ok(steps)
}

fn collect(folder: &OwnedFd, prefix: &str, depth: usize, found: &mut Vec<Listing>) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        // A name that is not UTF-8 could not be requested.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') || found.len() > MAX_LISTED {
            continue;
        }
        let path = format!("{prefix}{name}");
        let stat = match fs::statat(folder, name, fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(error) => {
                found.push(Listing::of_problem(path, format!("it cannot be accessed: {}", io::Error::from(error))));
                continue;
            }
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_listed = kind == FileType::Directory || kind == FileType::RegularFile && is_document(name);
        if is_listed && found.len() == MAX_LISTED {
            let what = format!("the list ends here: there are more than {MAX_LISTED} documents");
            found.push(Listing::of_problem(path, what));
        } else if is_listed && kind == FileType::RegularFile {
            let modified_at = Timestamp::from_second(stat.st_mtime).ok().map(|at| at.to_string());
            let bytes = u64::try_from(stat.st_size).unwrap_or_default();
            found.push(Listing { path, bytes, modified_at, problem: None });
        } else if is_listed {
            collect_inner(folder, name, &path, depth + 1, found);
        }
    }
    Ok(())
}

/// The documents of a subfolder. One that cannot be read hides no others.
fn collect_inner(parent: &OwnedFd, name: &str, path: &str, depth: usize, found: &mut Vec<Listing>) {
    let place = format!("{path}/");
    if depth > MAX_DEPTH {
        found.push(Listing::of_problem(place, format!("folders deeper than {MAX_DEPTH} levels are not searched")));
        return;
    }
    let collected = match open_folder(parent, &name.into()) {
        // It was removed or replaced in the meantime.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => return,
        Err(error) => Err(error.into()),
        Ok(inner) => collect(&inner, &place, depth, found),
    };
    if let Err(error) = collected {
        found.push(Listing::of_problem(place, format!("this folder cannot be read: {error}")));
    }
}

fn is_document(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("md" | "markdown"))
}

fn check_is_document(path: &str) -> Result<(), FolderError> {
    if is_document(path) { Ok(()) } else { Err(no_document(path, "only Markdown files (`.md`) are documents")) }
}

fn no_document(path: &str, why: &'static str) -> FolderError {
    FolderError::NoDocument { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("notes");
        std::fs::create_dir_all(root.join("work/.hidden")).unwrap();
        std::fs::write(root.join("b.md"), "# B").unwrap();
        std::fs::write(root.join("work/a.MD"), "# A").unwrap();
        std::fs::write(root.join("work/.hidden/c.md"), "no").unwrap();
        std::fs::write(root.join("work/d.txt"), "no").unwrap();
        std::fs::write(place.path().join("secret.md"), "secret").unwrap();
        symlink(place.path().join("secret.md"), root.join("link.md")).unwrap();
        symlink(place.path(), root.join("out")).unwrap();
        let folder = Folder::open(&root).unwrap();
        (place, folder)
    }

    #[test]
    fn documents_below_the_folder_are_listed_and_read() {
        let (_place, folder) = folder();
        let paths: Vec<String> = folder.list().unwrap().into_iter().map(|listing| listing.path).collect();
        assert_eq!(paths, ["b.md", "work/a.MD"]);
        assert_eq!(folder.read("work/a.MD").unwrap(), "# A");
        assert_eq!(folder.read("./b.md").unwrap(), "# B");
        assert!(folder.whole_path("work/a.MD").unwrap().ends_with("notes/work/a.MD"));
    }

    #[test]
    fn a_skipped_folder_is_listed_with_the_reason() {
        let (place, folder) = folder();
        let deep: PathBuf = (0..MAX_DEPTH + 2).map(|level| format!("d{level}")).collect();
        std::fs::create_dir_all(place.path().join("notes").join(deep)).unwrap();
        let listed = folder.list().unwrap();
        let problems: Vec<&Listing> = listed.iter().filter(|listing| listing.problem.is_some()).collect();
        assert!(matches!(problems[..], [only] if only.path.ends_with("/d24/")), "{problems:?}");
        assert_eq!(listed.len(), 3, "the documents are there as well: {listed:?}");
    }

    #[test]
    fn the_end_of_a_long_list_is_marked() {
        let (place, folder) = folder();
        for number in 0..MAX_LISTED {
            std::fs::write(place.path().join(format!("notes/work/{number}.md")), "").unwrap();
        }
        let listed = folder.list().unwrap();
        let problems: Vec<&str> = listed.iter().filter_map(|listing| listing.problem.as_deref()).collect();
        assert_eq!(listed.len(), MAX_LISTED + 1);
        assert!(matches!(problems[..], [only] if only.contains("more than 10000 documents")), "{problems:?}");
    }

    #[test]
    fn a_folder_that_cannot_be_read_hides_no_documents() {
        let (place, folder) = folder();
        let locked = place.path().join("notes/locked");
        std::fs::create_dir(&locked).unwrap();
        std::fs::set_permissions(&locked, Permissions::from_mode(0o000)).unwrap();
        // Whoever is root reads it all the same.
        if std::fs::read_dir(&locked).is_err() {
            let listed = folder.list().unwrap();
            let problems = listed.iter().find(|listing| listing.path == "locked/").unwrap();
            assert!(problems.problem.as_ref().unwrap().contains("cannot be read"), "{problems:?}");
            assert_eq!(listed.len(), 3, "{listed:?}");
        }
        std::fs::set_permissions(&locked, Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn nothing_outside_of_the_folder_can_be_had() {
        let (place, folder) = folder();
        let absolute = place.path().join("secret.md");
        for path in [
            "../secret.md",
            "work/../../secret.md",
            "work/../b.md",
            "link.md",
            "out/secret.md",
            absolute.to_str().unwrap(),
            "",
            ".",
            "work",
            "work/.hidden/c.md",
            "work/d.txt",
            "none.md",
            "b.md/x.md",
            "b.md\0",
        ] {
            assert!(matches!(folder.read(path), Err(FolderError::NoDocument { .. })), "{path}");
        }
    }

    #[test]
    fn pictures_are_read_and_nothing_that_only_looks_like_one() {
        let (place, folder) = folder();
        let root = place.path().join("notes");
        std::fs::create_dir(root.join("b.assets")).unwrap();
        for name in ["a.png", "b.svg", "c.txt"] {
            std::fs::write(root.join("b.assets").join(name), name).unwrap();
        }
        symlink(place.path().join("secret.md"), root.join("b.assets/link.png")).unwrap();
        assert_eq!(folder.picture("b.assets/a.png").unwrap(), ("image/png", b"a.png".to_vec()));
        assert_eq!(folder.picture("b.assets/b.svg").unwrap(), ("image/svg+xml", b"b.svg".to_vec()));
        for path in ["b.assets/c.txt", "b.assets/link.png", "../a.png", "b.md", "none.png"] {
            assert!(matches!(folder.picture(path), Err(FolderError::NoDocument { .. })), "{path}");
        }
    }

    #[test]
    fn pictures_do_not_leave_the_folder_through_a_link() {
        let (place, folder) = folder();
        assert!(folder.check_writable("b.md").is_ok());
        symlink(place.path(), place.path().join("notes/b.assets")).unwrap();
        let refused = folder.check_writable("b.md").unwrap_err();
        assert!(refused.to_string().contains("is a symbolic link"), "{refused}");
    }

    #[test]
    fn a_pipe_named_like_a_document_blocks_nothing() {
        let (place, folder) = folder();
        fs::mkfifoat(fs::CWD, place.path().join("notes/pipe.md"), Mode::RUSR | Mode::WUSR).unwrap();
        assert!(matches!(folder.read("pipe.md"), Err(FolderError::NoDocument { .. })));
    }
}
