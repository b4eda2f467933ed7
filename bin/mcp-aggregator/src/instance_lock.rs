//! One service for one registry: a second would start every server again, and neither would see what the other writes.
//!
//! It is a lock on a file beside the database, which ends with the process, however that ends. PostgreSQL several may
//! share, on several machines; but each has a data directory of its own, where it says where it is.
//!
//! Beside the lock is a file that says who it is: other than a path, it is the same wherever the folder is moved to, and
//! on no other machine.

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

/// Locked in the data directory where the database is elsewhere.
const FOLDER_LOCK: &str = "service.lock";

/// How long a command that works on the registry is waited for, and how often is looked whether it is done.
const SHARED_LOCK_WAIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Locks that this command shares with others, until it ends.
static SHARED_LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// The right to keep a registry, for as long as this lives.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    _lock: Option<File>,
    instance: String,
}

impl InstanceLock {
    /// Takes the registry at `location` over, unless another service keeps it. In `folder` that one says where it is.
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
        // For whoever comes and finds it locked.
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(failed)?;
        let instance = instance_in(&path.with_extension("id"))?;
        Ok(Self { _lock: Some(lock), instance })
    }

    /// Who keeps the registry, unlike anybody else.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }
}

/// Who keeps the registry at `location`, as far as can be told: a process, in words. It may not listen yet, or not answer.
pub(crate) fn lock_holder(location: &Location, folder: Option<&Path>) -> Option<String> {
    let path = lock_of(location, folder)?;
    is_locked(&path).then(|| holder(&path))
}

/// Whether the process with that number keeps the registry at `location`.
pub(crate) fn is_kept_by(pid: u32, location: &Location, folder: Option<&Path>) -> bool {
    let Some(path) = lock_of(location, folder) else { return false };
    is_locked(&path) && fs::read_to_string(&path).is_ok_and(|holder| holder.trim() == pid.to_string())
}

/// Whether a service has the lock. Shared, and given back at once: several may look at the same time, and nobody is kept
/// out.
fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The process that has a lock, in words. It writes its number into the file once it has it.
fn holder(lock: &Path) -> String {
    let written: Option<u32> = fs::read_to_string(lock).ok().and_then(|pid| pid.trim().parse().ok());
    // A service that was killed leaves its number behind, and the next who has the lock may only be a visitor.
    let is_over = |pid: &u32| Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{pid}")).exists();
    let found = written.filter(|pid| !is_over(pid)).map(Holder::Process).or_else(|| Holder::of_file(lock));
    found.map_or_else(|| "a process that is just starting".to_owned(), |holder| holder.to_string())
}

fn lock_of(location: &Location, folder: Option<&Path>) -> Option<PathBuf> {
    match location {
        Location::File(database) => Some(lock_beside(database)),
        Location::Postgres(_) => folder.map(|folder| folder.join(FOLDER_LOCK)),
    }
}

/// Locks it. Who only looks at the registry, or changes something in it without a service, is soon done, and waited for.
fn lock_exclusively(lock: &File) -> Result<(), TryLockError> {
    let deadline = Instant::now() + SHARED_LOCK_WAIT;
    loop {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {}
            done => return done,
        }
        // Visitors share it with us; a service does not.
        lock.try_lock_shared()?;
        lock.unlock().map_err(TryLockError::Error)?;
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Comes to the registry at `location`, beside others who do but not beside a service; none begins to keep it before this
/// command is over. Whether that could be.
pub(crate) fn share_lock(location: &Location) -> bool {
    let Some(path) = lock_of(location, None) else { return true };
    let folder = path.parent().map(private_folder);
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    // Whoever opens the registry next tells better what is wrong with such a place.
    let (None | Some(Ok(())), Ok(lock)) = (folder, opened) else { return true };
    if matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return false;
    }
    SHARED_LOCKS.lock().expect("nothing panics while it holds this").push(lock);
    true
}

/// Makes a folder that is nobody else's business, and those above it that are missing.
pub(crate) fn private_folder(folder: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn new_instance() -> String {
    ServerId::fresh().to_string()
}

/// Who we were before, or from now on. Called by who has the lock.
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

fn lock_beside(database: &Path) -> PathBuf {
    // However it is spelled, and whatever links lead to it.
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
        .with_hint("use that one, stop it first, or give this one a folder of its own with --data-dir")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_file::ServiceFile;

    #[test]
    fn two_services_on_one_postgresql_need_folders_of_their_own() {
        let folder = std::env::temp_dir().join(format!("tenancy-postgres-{}", std::process::id()));
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
        assert!(is_kept_by(std::process::id(), &location, None) && !is_kept_by(1, &location, None));
        drop(instance_lock);
        assert_eq!(lock_holder(&location, None), None);
        assert!(!is_kept_by(std::process::id(), &location, None), "its number is still in the file");
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
    fn a_second_service_is_refused_and_told_where_the_first_is() {
        let folder = std::env::temp_dir().join(format!("tenancy-{}", std::process::id()));
        let location = Location::in_folder(&folder);
        let first = InstanceLock::take(&location, Some(&folder)).unwrap();
        let word = ServiceFile::write(&folder, "http://127.0.0.1:1", "db", None).unwrap();
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
    fn a_number_that_a_killed_service_left_behind_is_not_taken_for_who_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("lock");
        // No process has a number beyond what the system can count to.
        fs::write(&lock, "4194305\n").unwrap();
        assert_eq!(holder(&lock), "a process that is just starting");
        let held = File::open(&lock).unwrap();
        let mut visitor = std::process::Command::new("sleep").arg("600").stdin(held).spawn().unwrap();
        let told = holder(&lock);
        visitor.kill().unwrap();
        visitor.wait().unwrap();
        assert!(told.starts_with(&format!("process {}", visitor.id())), "{told}");
    }
}
