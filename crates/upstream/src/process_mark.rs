//! The mark every process of ours carries, and how to find all that carry it.
//!
//! A process group contains the children of a server, but not a grandchild that created its own session (browsers
//! started by automation servers do). The environment is inherited by all of them, so each server is started with a
//! mark in it, and every process that still carries the mark when the server has ended is removed.
//!
//! The environment of a process that is not dumpable cannot be read, and some processes overwrite theirs. Limits are
//! inherited as well, and every process may read them. Linux has not enforced the limit of file locks (`RLIMIT_LOCKS`)
//! since 2.4, so each server is also started with a unique number as that soft limit: the [`Tag`].
//!
//! An aggregator may be a server of another one; the marks are then listed side by side, outermost first. The tag is
//! that of the innermost.

use std::fmt;
use std::os::fd::OwnedFd;

use rustix::process::{Signal, pidfd_send_signal};

/// The variable that holds the marks.
pub const INSTANCE_MARK_VARIABLE: &str = "MCP_AGGREGATOR_LINEAGE";

/// Identifies one running aggregator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceMark {
    /// The marks of the aggregators above us, if we are a server ourselves.
    above: String,
    own: String,
    seed: u64,
}

impl InstanceMark {
    /// For this process. `seed` distinguishes two processes that had the same id; `above` is the variable's value.
    pub fn new(process: u32, seed: u64, above: Option<&str>) -> Self {
        let above = above.filter(|marks| !marks.is_empty()).map_or_else(String::new, |marks| format!("{marks} "));
        Self { above, own: format!("{process}.{seed:x}"), seed }
    }

    /// The value of the variable in the environment of server number `index`.
    pub fn value_for(&self, index: usize) -> String {
        format!("{}{}", self.above, self.mark_of(index))
    }

    /// What identifies our process, and those that started us, outermost first.
    pub(crate) fn processes(&self) -> (&str, impl Iterator<Item = &str>) {
        let above = self.above.split(' ').filter_map(|mark| mark.split_once('/')).map(|(process, _)| process);
        (&self.own, above)
    }

    /// The mark of all our servers.
    pub fn mark(&self) -> Mark {
        Mark { text: format!("{}/", self.own), seed: self.seed, index: None }
    }

    /// The mark of one of our servers.
    pub(crate) fn mark_of(&self, index: usize) -> Mark {
        Mark { text: format!("{}/{index};", self.own), seed: self.seed, index: Some(index) }
    }

    /// The tag of one of our servers.
    pub fn tag_of(&self, index: usize) -> Tag {
        Tag::new(self.seed, index)
    }
}

/// The soft limit of file locks that the processes of one server have: random bits of the aggregator, then the server's
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(u64);

impl Tag {
    /// Bits for the number of the server. A server beyond them has the highest number, which identifies no server.
    const INDEX_BITS: u32 = 22;
    const NO_INDEX: u64 = (1 << Self::INDEX_BITS) - 1;
    /// Together with the number 62 bits, so that no tag is `RLIM_INFINITY`.
    const SEED_BITS: u32 = 40;

    fn new(seed: u64, index: usize) -> Self {
        let index = u64::try_from(index).map_or(Self::NO_INDEX, |index| index.min(Self::NO_INDEX));
        Self(Self::of_aggregator(seed) << Self::INDEX_BITS | index)
    }

    fn of_aggregator(seed: u64) -> u64 {
        // Not 0: a limit that a user chose is small.
        seed >> (u64::BITS - Self::SEED_BITS) | 1 << (Self::SEED_BITS - 1)
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

/// What the processes of an aggregator, or of one of its servers, and no others have in their environment and limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    text: String,
    seed: u64,
    index: Option<usize>,
}

impl Mark {
    /// Parses a mark written by [`fmt::Display`] and passed to another process; `None` if it is invalid, because an
    /// empty mark would match every process.
    pub(crate) fn from_text(text: String) -> Option<Self> {
        let (process, rest) = text.split_once('.')?;
        let (seed, index) = rest.split_once('/')?;
        let seed = u64::from_str_radix(seed, 16).ok().filter(|_| process.parse::<u32>().is_ok())?;
        let index = match index {
            "" => None,
            index => Some(index.strip_suffix(';')?.parse().ok()?),
        };
        Some(Self { text, seed, index })
    }

    fn is_in(&self, environment: &[u8]) -> bool {
        let prefix = format!("{INSTANCE_MARK_VARIABLE}=");
        environment.split(|&byte| byte == 0).any(|entry| {
            entry.starts_with(prefix.as_bytes()) && memchr::memmem::find(entry, self.text.as_bytes()).is_some()
        })
    }

    /// Whether these `limits`, as `/proc` shows them, have the tag.
    fn is_in_limits(&self, limits: &str) -> bool {
        let locks = limits.lines().find_map(|line| line.strip_prefix("Max file locks"));
        let soft = locks.and_then(|values| values.split_whitespace().next()?.parse::<u64>().ok());
        soft.is_some_and(|soft| match self.index {
            None => soft >> Tag::INDEX_BITS == Tag::of_aggregator(self.seed),
            Some(index) => soft == Tag::new(self.seed, index).0 && soft & Tag::NO_INDEX != Tag::NO_INDEX,
        })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Sends `signal` to every process that carries `mark`. A process that has already ended is no error.
pub(crate) fn signal_all(mark: &Mark, signal: Signal) {
    for process in carriers(mark) {
        pidfd_send_signal(&process, signal).ok();
    }
}

/// Whether any process still carries `mark`.
pub(crate) fn is_anyone_left(mark: &Mark) -> bool {
    carriers(mark).next().is_some()
}

/// Every process that carries `mark`, pinned before it is inspected so that a process id that is reused in between is
/// never hit by mistake. A zombie does not count.
#[cfg(target_os = "linux")]
fn carriers(mark: &Mark) -> impl Iterator<Item = OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    processes.filter(|&process| process != getpid()).filter_map(|process| {
        let pinned = pidfd_open(process, PidfdFlags::empty()).ok()?;
        is_carrier(mark, process.as_raw_nonzero().get()).then_some(pinned)
    })
}

#[cfg(target_os = "linux")]
fn is_carrier(mark: &Mark, process: i32) -> bool {
    let file = |name: &str| format!("/proc/{process}/{name}");
    // A zombie still has limits, but no environment.
    let is_zombie = || {
        let stat = std::fs::read_to_string(file("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
    };
    std::fs::read(file("environ")).is_ok_and(|environment| mark.is_in(&environment))
        || std::fs::read_to_string(file("limits")).is_ok_and(|limits| mark.is_in_limits(&limits)) && !is_zombie()
}

/// Without `/proc`, only process groups protect against leftovers.
#[cfg(not(target_os = "linux"))]
fn carriers(_mark: &Mark) -> impl Iterator<Item = OwnedFd> {
    std::iter::empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(value: &str) -> Vec<u8> {
        format!("A=1\0{INSTANCE_MARK_VARIABLE}={value}\0B=2\0").into_bytes()
    }

    #[test]
    fn a_server_carries_its_own_mark_and_ours_and_nobody_elses() {
        let ours = InstanceMark::new(10, 0xabc, None);
        let first = environment(&ours.value_for(1));
        assert!(ours.mark().is_in(&first));
        assert!(ours.mark_of(1).is_in(&first));
        assert!(!ours.mark_of(2).is_in(&first));
        assert!(!ours.mark_of(1).is_in(&environment(&ours.value_for(11))), "1 is not 11");
        assert!(!InstanceMark::new(10, 0xabd, None).mark().is_in(&first), "another run with the same process number");
        assert!(!ours.mark().is_in(format!("OTHER={}\0", ours.value_for(1)).as_bytes()));
    }

    #[test]
    fn a_mark_survives_being_handed_on_and_nothing_else_passes_for_one() {
        let mark = InstanceMark::new(10, 0xabc, None).mark();
        assert_eq!(Mark::from_text(mark.to_string()), Some(mark));
        for text in ["", "/", "10", "10.abc", "x.abc/", "10.xyz/", "./"] {
            assert_eq!(Mark::from_text(text.to_owned()), None, "{text:?}");
        }
    }

    fn limits(soft: impl fmt::Display) -> String {
        format!(
            "Max open files            1024                 4096                 files\n\
             Max file locks            {soft:<20} unlimited            locks\n"
        )
    }

    #[test]
    fn the_limits_of_a_server_identify_it_where_its_environment_cannot_be_read() {
        let ours = InstanceMark::new(10, 0xabcd_ef01_2345_6789, None);
        let first = limits(ours.tag_of(1).value());
        assert!(ours.mark().is_in_limits(&first));
        assert!(ours.mark_of(1).is_in_limits(&first));
        assert!(Mark::from_text(ours.mark_of(1).to_string()).unwrap().is_in_limits(&first));
        assert!(!ours.mark_of(2).is_in_limits(&first));
        assert!(!InstanceMark::new(10, 0x1bcd_ef01_2345_6789, None).mark().is_in_limits(&first));
        for unlimited in ["unlimited", "0", "1000", ""] {
            assert!(!ours.mark().is_in_limits(&limits(unlimited)), "{unlimited}");
            assert!(!InstanceMark::new(10, 0, None).mark().is_in_limits(&limits(unlimited)), "{unlimited}");
        }
        let beyond = limits(ours.tag_of(usize::MAX).value());
        assert!(ours.mark().is_in_limits(&beyond));
        assert!(!ours.mark_of(usize::MAX).is_in_limits(&beyond), "many servers may share it");
    }

    #[test]
    fn what_an_inner_aggregator_starts_carries_the_outer_mark_too() {
        let outer = InstanceMark::new(10, 1, None);
        let inner = InstanceMark::new(20, 2, Some(&outer.value_for(3)));
        let innermost = environment(&inner.value_for(0));
        assert!(outer.mark().is_in(&innermost));
        assert!(outer.mark_of(3).is_in(&innermost));
        assert!(inner.mark_of(0).is_in(&innermost));
    }
}
