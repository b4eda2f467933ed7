//! Where words go: stderr or a file, never stdout.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::Level;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// Errors and warnings only, or everything; to stderr, or appended to a file.
pub fn init(debug: bool, file: Option<&Path>) -> io::Result<()> {
    let writer = match file {
        Some(path) => BoxMakeWriter::new(Arc::new(File::options().create(true).append(true).open(path)?)),
        None => BoxMakeWriter::new(|| Unhurried(io::stderr())),
    };
    let level = if debug { Level::DEBUG } else { Level::WARN };
    tracing_subscriber::fmt().with_max_level(level).with_writer(writer).with_ansi(false).with_target(false).init();
    Ok(())
}

/// Writes only while somebody reads. Clients exist that open our stderr and never look at it; when that pipe is full,
/// words are lost rather than calls held up.
struct Unhurried<S>(S);

/// A pipe that is ready takes at least this much at once.
const TAKEN_AT_ONCE: usize = 4096;

impl<S: Write + AsFd> Write for Unhurried<S> {
    fn write(&mut self, words: &[u8]) -> io::Result<usize> {
        let mut ready = [PollFd::new(&self.0, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let takes_some = poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0);
        if !takes_some {
            return Ok(words.len());
        }
        self.0.write(&words[..words.len().min(TAKEN_AT_ONCE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn words_that_nobody_reads_are_lost_and_hold_nobody_up() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = Unhurried(writer);
        log.write_all(b"first\n").unwrap();
        log.write_all(&vec![b'x'; 1 << 20]).unwrap();
        drop(log);
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read.starts_with(b"first\nxxx"));
        assert!(read.len() < 1 << 20);
    }
}
