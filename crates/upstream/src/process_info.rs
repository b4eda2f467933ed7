//! The process id and stderr of a server that runs as a process or container of ours.

use crate::stderr::Tail;

/// Its process, and its stderr.
#[derive(Debug, Clone)]
pub struct ProcessInfo {
    /// The process that we started, if it is a visible one of this machine.
    pub process: Option<u32>,
    /// What it writes to stderr.
    pub tail: Tail,
}
