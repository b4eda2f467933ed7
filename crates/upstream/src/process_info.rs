//! What can be seen of a server that runs as a process or container of ours, beside what it answers.

use crate::stderr::Tail;

/// Its process, and what it says on the side.
#[derive(Debug, Clone)]
pub struct ProcessInfo {
    /// The process that we started, if it is one of this machine that we can see.
    pub process: Option<u32>,
    /// What it writes to stderr.
    pub tail: Tail,
}
