//! What a program that we start inherits from this process besides its streams, and nothing else.
//!
//! Limits and open descriptors are inherited as they are at the moment of the start, and `posix_spawn`, the fast way to
//! start a program, runs no code of ours in between. So they are set for that moment, one start at a time.

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

/// The limit may be lowered for the length of a start only while so many descriptors are free below it, because other
/// threads may open some meanwhile.
const FREE_DESCRIPTORS: u64 = 256;

/// What one program inherits.
#[derive(Debug, Default)]
pub(crate) struct Inherited<'a> {
    pub(crate) read_end: Option<&'a ReadEnd>,
    pub(crate) tag: Option<Tag>,
}

/// Lets this process open up to `wanted` files, as far as the hard limit allows. Programs that we start keep the limit
/// that there was.
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

/// Runs `spawn` while what the program is to inherit is in place; `process_of` is the number of what it started.
pub(crate) fn spawn_with<C>(
    inherited: &Inherited<'_>,
    spawn: impl FnOnce() -> io::Result<C>,
    process_of: impl FnOnce(&C) -> Option<Pid>,
) -> io::Result<C> {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let _tag = inherited.tag.map(|tag| Lowered::new(Resource::Locks, tag.value()));
    let _read_end = inherited.read_end.map(|read_end| Inheritable::new(read_end.as_fd()));
    let open_files = OPEN_FILES.get();
    // Descriptors are numbered from below, so a new one shows how many are taken.
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
        tracing::debug!(%error, "a program keeps our limit of open files");
    }
    Ok(child)
}

/// A soft limit of ours that is lower for a while.
struct Lowered {
    resource: Resource,
    before: Rlimit,
}

impl Lowered {
    fn new(resource: Resource, current: u64) -> Self {
        let before = getrlimit(resource);
        let is_lower = before.maximum.is_none_or(|maximum| current <= maximum);
        if is_lower && let Err(error) = setrlimit(resource, Rlimit { current: Some(current), ..before }) {
            tracing::debug!(?resource, %error, "could not lower a limit for a program");
        }
        Self { resource, before }
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        if let Err(error) = setrlimit(self.resource, self.before) {
            tracing::warn!(resource = ?self.resource, %error, "could not restore a limit");
        }
    }
}

/// A descriptor that is inherited for a while.
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
