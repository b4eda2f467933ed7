//! Sets exactly what a started program inherits from this process besides its streams.
//!
//! Limits and open descriptors are inherited as they are at the moment of the start, and `posix_spawn`, the fast
//! system call for it, runs no code of ours in between. So they are set for that moment, one start at a time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use crate::exit_pipe::ReadEnd;
use crate::process_mark::Tag;

/// One start at a time: what is set for one program must not reach another.
static STARTING: Mutex<()> = Mutex::new(());

/// The limit of open files as we found it, if we raised it.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// The limit may be lowered during a start only while this many descriptors are free below it, because other threads
/// may open some meanwhile.
const FREE_DESCRIPTORS: u64 = 256;

/// What one program inherits.
#[derive(Debug, Default)]
pub(crate) struct Inherited<'a> {
    pub(crate) read_end: Option<&'a ReadEnd>,
    pub(crate) tag: Option<Tag>,
}

/// Raises the limit of open files of this process to `wanted`, as far as the hard limit allows. Programs that we start
/// keep the original limit.
pub fn raise_open_files(wanted: u64) -> io::Result<()> {
    let found = getrlimit(Resource::Nofile);
    let wanted = found.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if found.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: found.maximum })?;
    OPEN_FILES.get_or_init(|| found);
    Ok(())
}

/// Runs `spawn` while what the program inherits is in place; `process_of` returns the id of the started process.
pub(crate) fn spawn_with<C>(
    inherited: &Inherited<'_>,
    spawn: impl FnOnce() -> io::Result<C>,
    process_of: impl FnOnce(&C) -> Option<Pid>,
) -> io::Result<C> {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let _tag = inherited.tag.map(|tag| Lowered::new(Resource::Locks, tag.value()));
    let _read_end = inherited.read_end.map(|read_end| Inheritable::new(read_end.as_fd()));
    let open_files = OPEN_FILES.get();
    // Descriptors are numbered from below, so a new one shows how many are in use.
    let taken = inherited.read_end.map(|read_end| u64::from(read_end.as_fd().as_raw_fd().unsigned_abs()));
    let lowered = open_files.and_then(|found| {
        let current = found.current?;
        taken.is_some_and(|taken| taken + FREE_DESCRIPTORS <= current).then(|| Lowered::new(Resource::Nofile, current))
    });
    let child = spawn()?;
    if let Some(&found) = open_files
        && lowered.is_none()
        && let Some(process) = process_of(&child)
        && let Err(error) = prlimit(Some(process), Resource::Nofile, found)
    {
        tracing::debug!(%error, "a program inherits our limit of open files");
    }
    Ok(child)
}

/// A soft limit of ours that is lowered temporarily.
struct Lowered {
    resource: Resource,
    before: Rlimit,
}

impl Lowered {
    fn new(resource: Resource, current: u64) -> Self {
        let before = getrlimit(resource);
        let is_lower = before.maximum.is_none_or(|maximum| current <= maximum);
        if is_lower && let Err(error) = setrlimit(resource, Rlimit { current: Some(current), ..before }) {
            tracing::debug!(?resource, %error, "failed to lower a limit for a program");
        }
        Self { resource, before }
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        if let Err(error) = setrlimit(self.resource, self.before) {
            tracing::warn!(resource = ?self.resource, %error, "failed to restore a limit");
        }
    }
}

/// A descriptor that is inheritable temporarily.
struct Inheritable<'a>(BorrowedFd<'a>);

impl<'a> Inheritable<'a> {
    fn new(descriptor: BorrowedFd<'a>) -> Self {
        if let Err(error) = fcntl_setfd(descriptor, FdFlags::empty()) {
            tracing::debug!(%error, "a program does not inherit a descriptor");
        }
        Self(descriptor)
    }
}

impl Drop for Inheritable<'_> {
    fn drop(&mut self) {
        fcntl_setfd(self.0, FdFlags::CLOEXEC).ok();
    }
}
