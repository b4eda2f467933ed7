//! `service.json` in the data directory: the address of the service that uses a registry, while it runs.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use registry::Location;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use crate::instance_lock;

const NAME: &str = "service.json";

/// A service and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    /// Where commands on this machine connect.
    pub(crate) url: String,
    /// What users and their clients call it.
    pub(crate) public_url: String,
    pub(crate) pid: u32,
    /// Its registry, without a password.
    pub(crate) database: String,
    /// Its local token, if it has no other tokens.
    pub(crate) local_token: Option<LocalTokenUse>,
}

/// What commands need to know about the local token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalTokenUse {
    pub(crate) file: PathBuf,
    /// Whether every client has to send it, because the system does not report the user of a connection.
    pub(crate) is_needed: bool,
}

/// What the file says of the service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written<'w> {
    pub(crate) url: &'w str,
    pub(crate) public_url: &'w str,
    pub(crate) database: &'w str,
}

/// The file of this process. Removed on drop.
#[derive(Debug)]
pub(crate) struct ServiceFile {
    path: PathBuf,
}

impl ServiceFile {
    /// Writes to `folder` where this process serves which registry.
    pub(crate) fn write(folder: &Path, written: &Written<'_>, local_token: Option<&LocalTokenUse>) -> io::Result<Self> {
        crate::instance_lock::private_folder(folder)?;
        let (path, pid) = (folder.join(NAME), std::process::id());
        // Written under another name first, so that readers see all of it or nothing.
        let draft = folder.join(format!("{NAME}.{pid}"));
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let Written { url, public_url, database } = written;
        let mut text = json!({"url": url, "public_url": public_url, "pid": pid, "database": database});
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
        // Another service may have replaced the file.
        let is_ours = read_file(&self.path).is_some_and(|running| running.pid == std::process::id());
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "could not remove the service file");
        }
    }
}

/// The content of the file in `folder`, whether the service still runs or not.
pub(crate) fn read(folder: &Path) -> Option<Running> {
    read_file(&folder.join(NAME))
}

/// The path of the file, if it belongs to another user and cannot be read.
pub(crate) fn of_another_user(folder: &Path) -> Option<PathBuf> {
    let path = folder.join(NAME);
    let error = fs::File::open(&path).err()?;
    (error.kind() == io::ErrorKind::PermissionDenied).then_some(path)
}

fn read_file(path: &Path) -> Option<Running> {
    let text = fs::read_to_string(path).ok()?;
    let said: Value = serde_json::from_str(&text).ok()?;
    let url = said["url"].as_str()?.to_owned();
    Some(Running {
        public_url: said["public_url"].as_str().unwrap_or(&url).to_owned(),
        url,
        pid: said["pid"].as_u64()?.try_into().ok()?,
        database: said["database"].as_str()?.to_owned(),
        local_token: local_token_in(&said["local_token"]),
    })
}

fn local_token_in(said: &Value) -> Option<LocalTokenUse> {
    Some(LocalTokenUse { file: said["file"].as_str()?.into(), is_needed: said["is_needed"].as_bool()? })
}

/// Removes the file of a service that crashed. Called with the lock of the registry `database` held: whatever service
/// wrote that it serves this registry is gone, even if its process id is in use again.
pub(crate) fn remove_stale(folder: &Path, database: &str) -> io::Result<()> {
    let is_stale = |running: &Running| running.database == database || running.lock_holder(folder).is_none();
    if !read(folder).is_some_and(|running| is_stale(&running)) {
        return Ok(());
    }
    match fs::remove_file(folder.join(NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The local token of a service. Not `Debug`, because it contains the secret.
#[derive(Clone)]
pub(crate) struct LocalSecret {
    secret: String,
    running: Running,
    folder: PathBuf,
}

impl LocalSecret {
    /// The secret of the service in the file in `folder`.
    pub(crate) fn new(secret: String, running: &Running, folder: &Path) -> Self {
        Self { secret, running: running.clone(), folder: folder.to_owned() }
    }

    /// The secret, while that service still has its registry. After it ended, another program may listen at its
    /// address, so this is checked before every request.
    pub(crate) fn to_send(&self) -> Option<&str> {
        self.running.has_registry(&self.folder).then_some(&*self.secret)
    }
}

impl Running {
    /// Whether its process has the registry now. It may not answer any more.
    pub(crate) fn has_registry(&self, folder: &Path) -> bool {
        Location::parse(&self.database).is_ok_and(|place| instance_lock::is_locked_by(self.pid, &place, Some(folder)))
    }

    /// The process that has its registry now: itself, if it still runs.
    pub(crate) fn lock_holder(&self, folder: &Path) -> Option<String> {
        Location::parse(&self.database).ok().and_then(|place| instance_lock::lock_holder(&place, Some(folder)))
    }

    /// Whether its process exists. After a crash the file remains, and another program may listen at the address.
    pub(crate) fn is_alive(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn at<'w>(url: &'w str, database: &'w str) -> Written<'w> {
        Written { url, public_url: url, database }
    }

    #[test]
    fn the_file_is_private_and_removed_with_the_service() {
        let folder = std::env::temp_dir().join(format!("service-file-{}", std::process::id()));
        let file = ServiceFile::write(&folder, &at("http://127.0.0.1:1", "db"), None).unwrap();
        let running = read(&folder).unwrap();
        assert_eq!((running.url.as_str(), running.database.as_str()), ("http://127.0.0.1:1", "db"));
        assert!(running.is_alive());
        assert_eq!(fs::metadata(folder.join(NAME)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(running.local_token, None);
        drop(file);
        assert_eq!(read(&folder), None);
        let token = LocalTokenUse { file: folder.join("local.token"), is_needed: true };
        let file = ServiceFile::write(&folder, &at("http://127.0.0.1:1", "db"), Some(&token)).unwrap();
        assert_eq!(read(&folder).unwrap().local_token, Some(token));
        drop(file);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn the_file_of_a_crashed_service_is_removed_and_that_of_a_running_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::in_folder(folder.path());
        let left = |url| ServiceFile::write(folder.path(), &at(url, &location.to_string()), None).map(std::mem::forget);
        left("http://127.0.0.1:1").unwrap();
        let instance_lock = instance_lock::InstanceLock::take(&location, Some(folder.path())).unwrap();
        // The process id is that of the new service, as is common in containers.
        remove_stale(folder.path(), &location.to_string()).unwrap();
        assert_eq!(read(folder.path()), None);
        left("http://127.0.0.1:2").unwrap();
        remove_stale(folder.path(), "/elsewhere/registry.db").unwrap();
        assert!(read(folder.path()).is_some(), "its service has the registry");
        drop(instance_lock);
        remove_stale(folder.path(), "/elsewhere/registry.db").unwrap();
        assert_eq!(read(folder.path()), None);
    }

    #[test]
    fn an_ended_process_is_not_alive() {
        let gone = Running {
            url: String::new(),
            public_url: String::new(),
            pid: 0,
            database: String::new(),
            local_token: None,
        };
        assert!(!gone.is_alive());
        assert!(!Running { pid: i32::MAX.unsigned_abs(), ..gone }.is_alive());
    }
}
