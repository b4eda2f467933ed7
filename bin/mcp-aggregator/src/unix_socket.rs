//! The Unix socket of `serve --listen unix:FILE`: created with its permissions, and removed at the end.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Only the user of the service may connect.
const DEFAULT_MODE: u32 = 0o600;

/// The file of a socket that this process listens on. Removed on drop.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The inode, which distinguishes it from a later socket at the same path.
    inode: u64,
}

/// Listens on a socket at `path`. A socket that nobody listens on any more is replaced.
pub(crate) fn bind(path: &Path, mode: Option<u32>) -> Result<(UnixListener, SocketFile), Failure> {
    let failed = |error: &io::Error| not_listening(path, error);
    refuse_taken(path)?;
    // The socket appears at its path with its permissions: nobody can connect before they are set.
    let draft = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    let bound = UnixListener::bind(&draft).map_err(|error| failed(&error))?;
    let placed = fs::set_permissions(&draft, Permissions::from_mode(mode.unwrap_or(DEFAULT_MODE)))
        .and_then(|()| fs::rename(&draft, path))
        .and_then(|()| fs::symlink_metadata(path));
    let metadata = placed.map_err(|error| {
        drop(fs::remove_file(&draft));
        failed(&error)
    })?;
    let file = SocketFile { path: path.to_owned(), inode: metadata.ino() };
    bound.set_nonblocking(true).map_err(|error| failed(&error))?;
    Ok((bound, file))
}

/// Refuses a path where another program listens, and one that is no socket.
fn refuse_taken(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(not_listening(path, &error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            let message = format!("could not listen on unix:{shown}: there is a file that is not a socket");
            return Err(Failure::new(message).with_hint("choose another path with --listen, or remove the file"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        // It was left behind, or removed meanwhile.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(not_listening(path, &error)),
        // Whoever is too busy to accept a connection listens as well.
        Ok(_) | Err(_) => {
            let message = format!("could not listen on unix:{shown}: another program listens there");
            Err(Failure::new(message)
                .with_hint("stop the program that listens there, or choose another path with --listen"))
        }
    }
}

fn not_listening(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("could not listen on unix:{}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::NotFound => failure.with_hint("create the folder of the socket first"),
        io::ErrorKind::PermissionDenied => failure.with_hint("choose a path in a folder that this user may write to"),
        io::ErrorKind::InvalidInput => failure.with_hint("the path of a socket has about 90 bytes at most"),
        _ => failure,
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another service may have replaced it.
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "could not remove the socket");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_socket_has_its_permissions_and_goes_with_the_service() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        let (_listener, file) = bind(&path, None).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        let (_listener, _file) = bind(&path, Some(0o660)).unwrap();
        assert_eq!(mode(&path), 0o660);
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_anything_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        drop(UnixListener::bind(&path).unwrap());
        let (listener, file) = bind(&path, None).unwrap();
        let refused = |path: &Path| bind(path, None).err().unwrap().to_string();
        assert!(refused(&path).contains("another program listens there"), "{}", refused(&path));
        assert!(UnixStream::connect(&path).is_ok(), "it is still there");
        drop(listener);
        let (_next, next_file) = bind(&path, None).unwrap();
        drop(file);
        assert!(UnixStream::connect(&path).is_ok(), "the file is that of the next one");
        drop(next_file);
        fs::write(&path, "notes").unwrap();
        assert!(refused(&path).contains("not a socket"), "{}", refused(&path));
        assert_eq!(fs::read_to_string(&path).unwrap(), "notes");
        assert!(refused(&folder.path().join("none/x.sock")).contains("create the folder"));
        let long = folder.path().join("x".repeat(200));
        assert!(refused(&long).contains("90 bytes"), "{}", refused(&long));
    }
}
