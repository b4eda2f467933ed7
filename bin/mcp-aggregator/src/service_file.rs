//! `service.json` in the data directory: where the service that keeps a registry listens, as long as it runs.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use registry::Location;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use crate::tenancy;

const NAME: &str = "service.json";

/// A service that says where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) pid: u32,
    /// The registry it keeps, without a password.
    pub(crate) database: String,
    /// The local token, if it has no other tokens.
    pub(crate) local_token: Option<LocalTokenUse>,
}

/// What commands need to know of the local token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalTokenUse {
    pub(crate) file: PathBuf,
    /// Every client has to send it: the system does not tell which user a connection belongs to.
    pub(crate) is_needed: bool,
}

/// The file of this process. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ServiceFile {
    path: PathBuf,
}

impl ServiceFile {
    /// Says in `folder` that this process serves the registry `database` at `url`.
    pub(crate) fn write(
        folder: &Path,
        url: &str,
        database: &str,
        local_token: Option<&LocalTokenUse>,
    ) -> io::Result<Self> {
        crate::tenancy::private_folder(folder)?;
        let (path, pid) = (folder.join(NAME), std::process::id());
        // Under another name first: whoever reads it sees all of it or nothing.
        let draft = folder.join(format!("{NAME}.{pid}"));
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let mut text = json!({"url": url, "pid": pid, "database": database});
        if let Some(token) = local_token {
            text["local_token"] = json!({"file": token.file, "is_needed": token.is_needed});
        }
        writeln!(file, "{text:#}")?;
        fs::rename(&draft, &path)?;
        Ok(Self { path })
    }
}

impl Drop for ServiceFile {
    fn drop(&mut self) {
        // Another service may have taken over the folder meanwhile.
        let is_ours = read_file(&self.path).is_some_and(|running| running.pid == std::process::id());
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "could not remove the file that says where we are");
        }
    }
}

/// What `folder` says about a service, whether it still runs or not.
pub(crate) fn read(folder: &Path) -> Option<Running> {
    read_file(&folder.join(NAME))
}

/// Where a service says where it is to nobody but its own user, who is another one.
pub(crate) fn of_another_user(folder: &Path) -> Option<PathBuf> {
    let path = folder.join(NAME);
    let error = fs::File::open(&path).err()?;
    (error.kind() == io::ErrorKind::PermissionDenied).then_some(path)
}

fn read_file(path: &Path) -> Option<Running> {
    let text = fs::read_to_string(path).ok()?;
    let said: Value = serde_json::from_str(&text).ok()?;
    Some(Running {
        url: said["url"].as_str()?.to_owned(),
        pid: said["pid"].as_u64()?.try_into().ok()?,
        database: said["database"].as_str()?.to_owned(),
        local_token: local_token_in(&said["local_token"]),
    })
}

fn local_token_in(said: &Value) -> Option<LocalTokenUse> {
    Some(LocalTokenUse { file: said["file"].as_str()?.into(), is_needed: said["is_needed"].as_bool()? })
}

impl Running {
    /// Who keeps its registry now: itself, if it still runs.
    pub(crate) fn keeper(&self, folder: &Path) -> Option<String> {
        Location::parse(&self.database).ok().and_then(|place| tenancy::keeper(&place, Some(folder)))
    }

    /// Whether its process exists. After a crash the file stays behind, and somebody else may listen there by now.
    pub(crate) fn is_alive(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_is_private_and_goes_with_the_service() {
        let folder = std::env::temp_dir().join(format!("service-file-{}", std::process::id()));
        let file = ServiceFile::write(&folder, "http://127.0.0.1:1", "db", None).unwrap();
        let running = read(&folder).unwrap();
        assert_eq!((running.url.as_str(), running.database.as_str()), ("http://127.0.0.1:1", "db"));
        assert!(running.is_alive());
        assert_eq!(fs::metadata(folder.join(NAME)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(running.local_token, None);
        drop(file);
        assert_eq!(read(&folder), None);
        let token = LocalTokenUse { file: folder.join("local.token"), is_needed: true };
        let file = ServiceFile::write(&folder, "http://127.0.0.1:1", "db", Some(&token)).unwrap();
        assert_eq!(read(&folder).unwrap().local_token, Some(token));
        drop(file);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_not_alive() {
        let gone = Running { url: String::new(), pid: 0, database: String::new(), local_token: None };
        assert!(!gone.is_alive());
        assert!(!Running { pid: i32::MAX.unsigned_abs(), ..gone }.is_alive());
    }
}
