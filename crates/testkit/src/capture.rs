//! Collects the output of a program in the background.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// All the bytes of a stream so far, read by a thread so that the writer never blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capture {
    shared: Arc<(Mutex<Captured>, Condvar)>,
}

#[derive(Debug, Default)]
struct Captured {
    bytes: Vec<u8>,
    ended: bool,
}

impl Capture {
    pub(crate) fn of(mut stream: impl Read + Send + 'static) -> Self {
        let capture = Self::default();
        let writer = capture.clone();
        std::thread::spawn(move || {
            let mut chunk = vec![0; 1 << 16];
            loop {
                let count = stream.read(&mut chunk).unwrap_or(0);
                writer.add(&chunk[..count]);
                if count == 0 {
                    return;
                }
            }
        });
        capture
    }

    fn add(&self, bytes: &[u8]) {
        let (captured, changed) = &*self.shared;
        let mut captured = captured.lock().unwrap_or_else(PoisonError::into_inner);
        captured.bytes.extend_from_slice(bytes);
        captured.ended |= bytes.is_empty();
        changed.notify_all();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).bytes.clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Waits until `needle` was written. Returns whether it was, by the end of the stream or of `limit`.
    pub(crate) fn wait_for(&self, needle: &str, limit: Duration) -> bool {
        let contains = |captured: &Captured| String::from_utf8_lossy(&captured.bytes).contains(needle);
        let (captured, changed) = &*self.shared;
        let captured = captured.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(captured, limit, |now| !now.ended && !contains(now));
        let (captured, _) = waited.unwrap_or_else(PoisonError::into_inner);
        contains(&captured)
    }

    /// Waits until every holder of the stream has closed it. Returns whether that happened within `limit`.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> bool {
        let (captured, changed) = &*self.shared;
        let captured = captured.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(captured, limit, |now| !now.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }
}

/// The lines of a stream without their newline, read by a thread that is at most `read_ahead` lines ahead.
pub(crate) fn lines(stream: impl Read + Send + 'static, read_ahead: usize) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(read_ahead);
    std::thread::spawn(move || send_lines(BufReader::with_capacity(1 << 16, stream), &sender));
    receiver
}

fn send_lines(mut stream: impl BufRead, sender: &SyncSender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        if stream.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            return;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if sender.send(line).is_err() {
            return;
        }
    }
}
