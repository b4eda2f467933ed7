//! Bytes that were read and wait to be taken.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use crate::stall;

const FIRST_SIZE: usize = 256 * 1024;

/// A buffer that grows with the largest message and moves bytes only when it must.
pub(crate) struct Inbox {
    buffer: Vec<u8>,
    unread: Range<usize>,
    /// What was taken last.
    taken: Range<usize>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { buffer: vec![0; FIRST_SIZE], unread: 0..0, taken: 0..0 }
    }
}

impl Inbox {
    pub(crate) fn unread(&self) -> &[u8] {
        &self.buffer[self.unread.clone()]
    }

    /// Takes the first `whole` unread bytes; `part` of them is what [`taken`](Self::taken) shows until the next read.
    pub(crate) fn take(&mut self, whole: usize, part: Range<usize>) {
        let start = self.unread.start;
        self.taken = start + part.start..start + part.end;
        self.unread.start += whole;
    }

    pub(crate) fn taken(&self) -> &[u8] {
        &self.buffer[self.taken.clone()]
    }

    /// One read from `pid`'s end; blocks when there is nothing.
    pub(crate) fn fill(&mut self, from: &mut impl Read, pid: Pid) -> Result<()> {
        self.taken = 0..0;
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.start > 0 && self.unread.end == self.buffer.len() {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        if self.unread.end == self.buffer.len() {
            self.buffer.resize(2 * self.unread.end, 0);
        }
        stall::waiting_for(pid);
        let outcome = from.read(&mut self.buffer[self.unread.end..]);
        stall::not_waiting();
        match outcome {
            Ok(0) => bail!("it closed its output"),
            Ok(count) => self.unread.end += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("could not read from it"),
        }
        Ok(())
    }
}
