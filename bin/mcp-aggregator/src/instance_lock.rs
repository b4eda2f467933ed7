//! Ensures that one service uses a registry: a second one would start every server again, and neither would see the
//! changes of the other.
//!
//! The lock is on a file next to the database, and ends with the process in every case. Several services, on several
//! machines, may share a PostgreSQL database; but each has its own data directory, where it writes its address.
//!
//! Next to the lock is a file with the id of the instance: unlike a path, it stays the same wherever the folder is
//! moved, and is unique to this machine.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use registry::{Location, ServerId};
use upstream::Holder;

use crate::failure::Failure;
use crate::service_file;

/// The lock file in the data directory, for a database elsewhere.
const FOLDER_LOCK: &str = "service.lock";

/// How long to wait for a command that changes the registry, and how often the lock is tried.
const SHARED_LOCK_WAIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The shared locks of this command, held until it ends.
static SHARED_LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// The exclusive right to serve a registry, until this is dropped.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    _lock: Option<File>,
    instance: String,
}

impl InstanceLock {
    /// Acquires the registry at `location`, unless another service has it. `folder` contains the address of that
    /// service.
    pub(crate) fn take(location: &Location, folder: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = lock_of(location, folder) else {
            return Ok(Self { _lock: None, instance: new_instance() });
        };
        let failed = |error: std::io::Error| Failure::new(format!("could not lock {}: {error}", path.display()));
        if let Some(folder) = path.parent() {
            private_folder(folder).map_err(failed)?;
        }
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut lock = opened.map_err(failed)?;
        match lock_exclusively(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(already_taken(location, &path, folder)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // For another process that finds the lock taken.
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(failed)?;
        let instance = instance_in(&path.with_extension("id"))?;
        Ok(Self { _lock: Some(lock), instance })
    }

    /// The unique id of the instance.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }
}

/// The process that serves the registry at `location`, in words, if known. It may not listen yet, or not answer.
pub(crate) fn lock_holder(location: &Location, folder: Option<&Path>) -> Option<String> {
    let path = lock_of(location, folder)?;
    is_locked(&path).then(|| holder(&path))
}

/// Whether the process with that id serves the registry at `location`.
pub(crate) fn is_locked_by(pid: u32, location: &Location, folder: Option<&Path>) -> bool {
    let Some(path) = lock_of(location, folder) else { return false };
    is_locked(&path) && fs::read_to_string(&path).is_ok_and(|holder| holder.trim() == pid.to_string())
}

/// Whether a service has the lock. The check uses a shared lock and releases it at once, so concurrent checks do not
/// disturb each other.
fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The process that has a lock, in words. A service writes its process id into the file after locking it.
fn holder(lock: &Path) -> String {
    let written: Option<u32> = fs::read_to_string(lock).ok().and_then(|pid| pid.trim().parse().ok());
    // A service that was killed leaves its process id behind, and the next owner of the lock may be a command.
    let is_over = |pid: &u32| Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{pid}")).exists();
    let found = written.filter(|pid| !is_over(pid)).map(Holder::Process).or_else(|| Holder::of_file(lock));
    found.map_or_else(|| "a process that is just starting".to_owned(), |holder| holder.to_string())
}

fn lock_of(location: &Location, folder: Option<&Path>) -> Option<PathBuf> {
    match location {
        Location::File(database) => Some(lock_path_of(database)),
        Location::Postgres(_) => folder.map(|folder| folder.join(FOLDER_LOCK)),
    }
}

/// Acquires the lock. Commands that read or change the registry without a service take little time, so it waits for
/// them.
fn lock_exclusively(lock: &File) -> Result<(), TryLockError> {
    let deadline = Instant::now() + SHARED_LOCK_WAIT;
    loop {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {}
            done => return done,
        }
        // Commands share the lock with us; a service does not.
        lock.try_lock_shared()?;
        lock.unlock().map_err(TryLockError::Error)?;
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Acquires a shared lock on the registry at `location`, so that no service starts until this command ends. Returns
/// false if a service has it.
pub(crate) fn share_lock(location: &Location) -> bool {
    let Some(path) = lock_of(location, None) else { return true };
    let folder = path.parent().map(private_folder);
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    // Opening the registry gives a better error about such a path.
    let (None | Some(Ok(())), Ok(lock)) = (folder, opened) else { return true };
    if matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return false;
    }
    SHARED_LOCKS.lock().expect("nothing panics while it holds this").push(lock);
    true
}

/// Creates a folder for the user only, and its missing parents.
pub(crate) fn private_folder(folder: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn new_instance() -> String {
    ServerId::fresh().to_string()
}

/// The instance id, created on first use. Called with the lock held.
fn instance_in(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Ok(kept) if !kept.trim().is_empty() => return Ok(kept.trim().to_owned()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::new(format!("could not read {}: {error}", file.display())));
        }
        Ok(_) | Err(_) => {}
    }
    let instance = new_instance();
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    opened
        .and_then(|mut file| writeln!(file, "{instance}"))
        .map_err(|error| Failure::new(format!("could not write {}: {error}", file.display())))?;
    Ok(instance)
}

fn lock_path_of(database: &Path) -> PathBuf {
    // The same path for every spelling, with links resolved.
    let whole = database.canonicalize().unwrap_or_else(|_| database.to_owned());
    let mut name = whole.into_os_string();
    name.push(".lock");
    name.into()
}

fn already_taken(location: &Location, lock: &Path, folder: Option<&Path>) -> Failure {
    let pid = fs::read_to_string(lock).unwrap_or_default();
    let running = folder.and_then(service_file::read).filter(|running| running.pid.to_string() == pid.trim());
    let who = match running {
        Some(running) => format!("{}, at {}", holder(lock), running.url),
        None => holder(lock),
    };
    let what = match location {
        Location::File(_) => format!("keeps the registry at {location}"),
        Location::Postgres(_) => format!("has the data directory {}", folder.unwrap_or(lock).display()),
    };
    Failure::new(format!("another service {what} already: {who}"))
        .with_hint("use that service, stop it first, or use a separate folder with --data-dir")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_file::{ServiceFile, Written};

    #[test]
    fn two_services_on_one_postgresql_need_separate_folders() {
        let folder = std::env::temp_dir().join(format!("instance-lock-postgres-{}", std::process::id()));
        let location = Location::parse("postgres://me@localhost/mcp").unwrap();
        let first = InstanceLock::take(&location, Some(&folder)).unwrap();
        let refused = InstanceLock::take(&location, Some(&folder)).unwrap_err().message;
        assert!(refused.contains("has the data directory"), "{refused}");
        InstanceLock::take(&location, Some(&folder.join("other"))).unwrap();
        drop(first);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_lock_holder_of_a_registry_is_known_while_it_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::in_folder(folder.path());
        assert_eq!(lock_holder(&location, None), None);
        let instance_lock = InstanceLock::take(&location, None).unwrap();
        let shown = lock_holder(&location, None).unwrap();
        let program = std::env::args().next().unwrap();
        assert!(shown.starts_with(&format!("process {} (`{program}", std::process::id())), "{shown}");
        assert!(is_locked_by(std::process::id(), &location, None) && !is_locked_by(1, &location, None));
        drop(instance_lock);
        assert_eq!(lock_holder(&location, None), None);
        assert!(!is_locked_by(std::process::id(), &location, None), "its number is still in the file");
        InstanceLock::take(&location, None).expect("who looked has let go of it");
    }

    #[test]
    fn a_service_waits_for_shared_locks_and_no_lock_is_shared_while_it_holds_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::in_folder(&folder.path().join("new"));
        assert!(share_lock(&location) && share_lock(&location), "several may come");
        let starting = std::thread::spawn({
            let location = location.clone();
            move || InstanceLock::take(&location, None)
        });
        SHARED_LOCKS.lock().unwrap().clear();
        let instance_lock = starting.join().unwrap().unwrap();
        assert!(!share_lock(&location));
        drop(instance_lock);
    }

    #[test]
    fn a_second_service_is_refused_with_the_address_of_the_first() {
        let folder = std::env::temp_dir().join(format!("instance-lock-{}", std::process::id()));
        let location = Location::in_folder(&folder);
        let first = InstanceLock::take(&location, Some(&folder)).unwrap();
        let word = ServiceFile::write(
            &folder,
            &Written { url: "http://127.0.0.1:1", public_url: "http://127.0.0.1:1", database: "db" },
            None,
        )
        .unwrap();
        let refused = InstanceLock::take(&location, Some(&folder)).unwrap_err().message;
        assert!(refused.contains("http://127.0.0.1:1"), "{refused}");
        let own = Holder::Process(std::process::id()).to_string();
        assert!(own.contains('`') && refused.contains(&own), "{refused} does not say {own}");
        let instance = first.instance().to_owned();
        drop((word, first));
        let moved = folder.with_extension("moved");
        fs::rename(&folder, &moved).unwrap();
        let again = InstanceLock::take(&Location::in_folder(&moved), Some(&moved)).unwrap();
        assert_eq!(again.instance(), instance, "it is the same one, wherever it is");
        fs::remove_dir_all(&moved).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_id_of_a_killed_service_is_not_reported_as_the_lock_holder() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("lock");
        // No process has a larger id than the system supports.
        fs::write(&lock, "4194305\n").unwrap();
        assert_eq!(holder(&lock), "a process that is just starting");
        let held = File::open(&lock).unwrap();
        let mut visitor = std::process::Command::new("sleep").arg("600").stdin(held).spawn().unwrap();
        let description = holder(&lock);
        visitor.kill().unwrap();
        visitor.wait().unwrap();
        assert!(description.starts_with(&format!("process {}", visitor.id())), "{description}");
    }
}
