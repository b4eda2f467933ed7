//! Which process has begun a refresh, and whether it is gone.

use std::fs;

use serde::{Deserialize, Serialize};

/// A process. One that has ended is recognised at once by others of the same machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The boot of the machine and the process namespace; empty if they are unknown.
    machine: String,
    /// The number of the process there.
    pid: u32,
    /// When it started, in ticks since that boot. Numbers are reused.
    started: u64,
    /// A random id of this instance: a process may have several.
    instance: String,
}

impl Owner {
    /// A new instance in this process.
    pub(crate) fn new() -> Self {
        let pid = std::process::id();
        Self { machine: machine(), pid, started: started_at(pid).unwrap_or(0), instance: crate::random() }
    }

    /// Whether it certainly does not exist any more. One of another machine never certainly does.
    pub(crate) fn is_gone(&self) -> bool {
        let is_here = !self.machine.is_empty() && self.machine == machine();
        is_here && started_at(self.pid) != Some(self.started)
    }
}

/// A name for this boot of this machine, as this process sees it: another container has its own process numbers.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default();
    if boot.is_empty() || namespace.is_empty() { String::new() } else { format!("{} {namespace}", boot.trim()) }
}

/// When a process started; `None` if there is none of that number.
fn started_at(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain anything, so count from its closing parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // A zombie does not run any more.
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_when_its_number_is_or_belongs_to_another() {
        let this = Owner::new();
        assert!(!this.is_gone());
        assert_ne!(this, Owner::new());
        assert!(Owner { started: this.started + 1, ..this.clone() }.is_gone());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(Owner { pid, ..this.clone() }.is_gone());
        assert!(!Owner { machine: "elsewhere".into(), pid, ..this.clone() }.is_gone(), "it cannot be known");
        assert!(!Owner { machine: String::new(), pid, ..this }.is_gone());
    }
}
