//! The mark every process of ours carries, and how to find all that carry it.
//!
//! A process group reaches the children of a server, but not a grandchild that made a session of its own (browsers
//! started by automation servers do). The environment is inherited by all of them, so each server is started with a
//! mark in it, and whoever still carries the mark when the server is gone is cleared away.
//!
//! An aggregator may be a server of another one; the marks then stand side by side, outermost first.

use std::fmt;
use std::os::fd::OwnedFd;

use rustix::process::{Signal, pidfd_send_signal};

/// The variable that holds the marks.
pub const VARIABLE: &str = "MCP_AGGREGATOR_LINEAGE";

/// One running aggregator, unlike any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// The marks of the aggregators above us, if we are a server ourselves.
    above: String,
    own: String,
}

impl Lineage {
    /// For this process. `seed` tells apart two processes that had the same number; `above` is the variable's value.
    pub fn new(process: u32, seed: u64, above: Option<&str>) -> Self {
        let above = above.filter(|marks| !marks.is_empty()).map_or_else(String::new, |marks| format!("{marks} "));
        Self { above, own: format!("{process}.{seed:x}") }
    }

    /// What the variable must hold in the environment of server number `index`.
    pub fn value_for(&self, index: usize) -> String {
        format!("{}{}", self.above, self.mark_of(index))
    }

    /// What tells our process from all others, and the same of those that started us, outermost first.
    pub(crate) fn processes(&self) -> (&str, impl Iterator<Item = &str>) {
        let above = self.above.split(' ').filter_map(|mark| mark.split_once('/')).map(|(process, _)| process);
        (&self.own, above)
    }

    /// The mark of all our servers.
    pub fn mark(&self) -> Mark {
        Mark(format!("{}/", self.own))
    }

    /// The mark of one of our servers.
    pub fn mark_of(&self, index: usize) -> Mark {
        Mark(format!("{}/{index};", self.own))
    }
}

/// Text that stands in the environment of certain processes and in no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(String);

impl Mark {
    /// A mark as it was written by [`fmt::Display`], handed to another process; `None` if it is none, because a mark that
    /// says nothing would be on everybody.
    pub fn from_text(text: String) -> Option<Self> {
        let (process, seed) = text.split_once('.')?;
        let seed = seed.split_once('/').map(|(seed, _)| seed)?;
        let is_one = process.parse::<u32>().is_ok() && u64::from_str_radix(seed, 16).is_ok();
        is_one.then_some(Self(text))
    }

    fn is_in(&self, environment: &[u8]) -> bool {
        let prefix = format!("{VARIABLE}=");
        environment.split(|&byte| byte == 0).any(|entry| {
            entry.starts_with(prefix.as_bytes()) && memchr::memmem::find(entry, self.0.as_bytes()).is_some()
        })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Sends `signal` to every process that carries `mark`. That one is gone already is fine.
pub fn signal_all(mark: &Mark, signal: Signal) {
    for process in carriers(mark) {
        pidfd_send_signal(&process, signal).ok();
    }
}

/// Whether any process still carries `mark`.
pub fn is_anyone_left(mark: &Mark) -> bool {
    carriers(mark).next().is_some()
}

/// Every process that carries `mark`, pinned before its environment is read so that a process number that is reused in
/// between is never hit by mistake. A zombie has no environment and so does not count.
#[cfg(target_os = "linux")]
fn carriers(mark: &Mark) -> impl Iterator<Item = OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    processes.filter(|&process| process != getpid()).filter_map(|process| {
        let pinned = pidfd_open(process, PidfdFlags::empty()).ok()?;
        let environment = std::fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).ok()?;
        mark.is_in(&environment).then_some(pinned)
    })
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
        format!("A=1\0{VARIABLE}={value}\0B=2\0").into_bytes()
    }

    #[test]
    fn a_server_carries_its_own_mark_and_ours_and_nobody_elses() {
        let ours = Lineage::new(10, 0xabc, None);
        let first = environment(&ours.value_for(1));
        assert!(ours.mark().is_in(&first));
        assert!(ours.mark_of(1).is_in(&first));
        assert!(!ours.mark_of(2).is_in(&first));
        assert!(!ours.mark_of(1).is_in(&environment(&ours.value_for(11))), "1 is not 11");
        assert!(!Lineage::new(10, 0xabd, None).mark().is_in(&first), "another run with the same process number");
        assert!(!ours.mark().is_in(format!("OTHER={}\0", ours.value_for(1)).as_bytes()));
    }

    #[test]
    fn a_mark_survives_being_handed_on_and_nothing_else_passes_for_one() {
        let mark = Lineage::new(10, 0xabc, None).mark();
        assert_eq!(Mark::from_text(mark.to_string()), Some(mark));
        for text in ["", "/", "10", "10.abc", "x.abc/", "10.xyz/", "./"] {
            assert_eq!(Mark::from_text(text.to_owned()), None, "{text:?}");
        }
    }

    #[test]
    fn what_an_inner_aggregator_starts_carries_the_outer_mark_too() {
        let outer = Lineage::new(10, 1, None);
        let inner = Lineage::new(20, 2, Some(&outer.value_for(3)));
        let innermost = environment(&inner.value_for(0));
        assert!(outer.mark().is_in(&innermost));
        assert!(outer.mark_of(3).is_in(&innermost));
        assert!(inner.mark_of(0).is_in(&innermost));
    }
}
