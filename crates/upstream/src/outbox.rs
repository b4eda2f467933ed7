//! Outgoing bytes: written at once if the receiver accepts them, else queued within bounds.
//!
//! The fast path is one lock and one write, on the task that has the message: no other task wakes. Only when the
//! receiver is slow does [`Outbox::drain`], a separate task, take over, so that a task that sends to many receivers
//! never waits for one. Small pieces are collected in one buffer; large ones are queued as shared bytes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use protocol::splice::{Edit, Piece, splice};
use tokio::sync::Notify;

use crate::stream::Sink;

/// With more than this queued, senders that can wait should.
const HIGH_WATER_BYTES: usize = 4 << 20;

/// With more than this queued, senders that cannot wait should refuse new work.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// Pieces of at least this size are queued by reference instead of being copied.
const WORTH_SHARING: usize = 4 << 10;

/// An empty buffer larger than this is freed.
const KEPT_BUFFER: usize = 64 << 10;

/// At most this many slices go into one write.
const SLICES_PER_WRITE: usize = 32;

/// The queue to one receiver.
#[derive(Debug)]
pub struct Outbox {
    queue: Mutex<Queue>,
    /// There is something to drain, or the receiver has disconnected.
    work: Notify,
    /// Something was written, or never will be.
    progress: Notify,
}

#[derive(Debug)]
struct Queue {
    /// `None` once the receiver has disconnected or the outbox is closed.
    sink: Option<Arc<Sink>>,
    /// Complete slices, oldest first.
    chunks: VecDeque<Bytes>,
    /// Collects small pieces.
    tail: BytesMut,
    /// Bytes in `chunks` and `tail` together.
    waiting: usize,
    /// Close when the last byte is written.
    closing: bool,
}

impl Outbox {
    /// An empty outbox in front of `sink`. The caller must run [`Outbox::drain`].
    pub fn new(sink: Sink) -> Self {
        let queue = Queue {
            sink: Some(Arc::new(sink)),
            chunks: VecDeque::new(),
            tail: BytesMut::new(),
            waiting: 0,
            closing: false,
        };
        Self { queue: Mutex::new(queue), work: Notify::new(), progress: Notify::new() }
    }

    /// Queues a complete message, newline included. It is written with the next [`Outbox::flush`].
    pub fn push(&self, message: &[u8]) {
        self.lock().add_small(message);
    }

    /// Queues a whole line that came from elsewhere, with some spans replaced and a newline added.
    pub fn push_spliced(&self, line: &Bytes, edits: &[Edit<'_>]) {
        let mut queue = self.lock();
        splice(line.len(), edits, |piece| match piece {
            Piece::New(bytes) => queue.add_small(bytes),
            Piece::Kept(span) if span.end - span.start < WORTH_SHARING => queue.add_small(span.of(line)),
            Piece::Kept(span) => queue.add_shared(line.slice(span.start..span.end)),
        });
        queue.add_small(b"\n");
    }

    /// Queues several slices that together make a complete message.
    pub fn push_parts(&self, parts: &[Bytes]) {
        let mut queue = self.lock();
        for part in parts {
            if part.len() < WORTH_SHARING { queue.add_small(part) } else { queue.add_shared(part.clone()) }
        }
    }

    /// Writes what the receiver accepts right now; the rest is left to [`Outbox::drain`].
    pub fn flush(&self) {
        if !self.write_some() {
            self.work.notify_one();
        }
    }

    /// Whether so much is queued that the receiver counts as slow.
    pub fn is_congested(&self) -> bool {
        self.lock().waiting > HIGH_WATER_BYTES
    }

    /// Whether so much is queued that nothing should be added.
    pub fn is_full(&self) -> bool {
        self.lock().waiting > MAX_QUEUED_BYTES
    }

    /// Whether the receiver has disconnected, or the outbox was closed.
    pub fn is_closed(&self) -> bool {
        self.lock().sink.is_none()
    }

    /// Bytes not yet accepted by the receiver.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Waits until the receiver has caught up, or has disconnected.
    pub async fn caught_up(&self) {
        self.until(|queue| queue.waiting <= HIGH_WATER_BYTES).await;
    }

    /// Waits until everything is written, or the receiver has disconnected.
    pub async fn emptied(&self) {
        self.until(|queue| queue.waiting == 0).await;
    }

    /// Waits until either side closes the connection.
    pub async fn closed(&self) {
        let sink = self.lock().sink.clone();
        if let Some(sink) = sink {
            tokio::select! {
                () = sink.abandoned() => {}
                () = self.until(|queue| queue.sink.is_none()) => {}
            }
        }
    }

    /// Closes as soon as everything queued so far is written.
    pub fn close(&self) {
        let mut queue = self.lock();
        queue.closing = true;
        queue.hang_up_if_done();
        drop(queue);
        self.work.notify_one();
        self.progress.notify_waiters();
    }

    /// Closes now; what is queued is lost.
    pub fn abort(&self) {
        self.lock().hang_up();
        self.work.notify_one();
        self.progress.notify_waiters();
    }

    /// Writes what [`Outbox::flush`] could not, until the outbox is closed. Run it in a separate task.
    pub async fn drain(&self) {
        loop {
            let (sink, idle) = {
                let queue = self.lock();
                let Some(sink) = queue.sink.clone() else { return };
                (sink, queue.waiting == 0)
            };
            if idle {
                drop(sink);
                self.work.notified().await;
                continue;
            }
            // Wakes for `work` too, so that an aborted outbox releases the descriptor at once.
            tokio::select! {
                result = sink.writable() => if result.is_err() { self.abort() },
                () = self.work.notified() => {}
            }
            self.write_some();
        }
    }

    /// Returns whether nothing is left to write.
    fn write_some(&self) -> bool {
        let mut queue = self.lock();
        if queue.waiting == 0 {
            return true;
        }
        let finished = queue.write_some();
        drop(queue);
        self.progress.notify_waiters();
        finished
    }

    async fn until(&self, met: impl Fn(&Queue) -> bool) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            let done = {
                let queue = self.lock();
                met(&queue) || queue.sink.is_none()
            };
            if done {
                return;
            }
            progress.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn add_small(&mut self, bytes: &[u8]) {
        if self.sink.is_some() {
            self.waiting += bytes.len();
            self.tail.extend_from_slice(bytes);
        }
    }

    fn add_shared(&mut self, bytes: Bytes) {
        if self.sink.is_some() {
            self.waiting += bytes.len();
            if !self.tail.is_empty() {
                let tail = self.tail.split().freeze();
                self.chunks.push_back(tail);
            }
            self.chunks.push_back(bytes);
        }
    }

    /// Writes until all is written (true) or the receiver accepts no more (false).
    fn write_some(&mut self) -> bool {
        while let Some(sink) = &self.sink {
            if self.waiting == 0 {
                break;
            }
            let written = if self.chunks.is_empty() {
                sink.try_write(&self.tail)
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
                let stretches = self.chunks.iter().map(|chunk| &chunk[..]).chain([&self.tail[..]]);
                let count = slices.iter_mut().zip(stretches).map(|(slice, bytes)| *slice = IoSlice::new(bytes)).count();
                sink.try_write_all(&slices[..count])
            };
            match written {
                Ok(count) => self.forget(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The receiver has disconnected. The task that reads from it reports that; here there is nothing left
                // to do.
                Err(_) => self.hang_up(),
            }
        }
        self.hang_up_if_done();
        true
    }

    /// Drops the first `count` bytes, which are written.
    fn forget(&mut self, mut count: usize) {
        self.waiting -= count;
        while count > 0 {
            let Some(first) = self.chunks.front_mut() else { break };
            let used = first.len().min(count);
            count -= used;
            if used == first.len() {
                self.chunks.pop_front();
            } else {
                *first = first.slice(used..);
            }
        }
        if count == self.tail.len() {
            self.tail.clear();
            // One burst should not keep its buffer allocated forever.
            if self.tail.capacity() > KEPT_BUFFER {
                self.tail = BytesMut::new();
            }
        } else {
            drop(self.tail.split_to(count));
        }
    }

    fn hang_up_if_done(&mut self) {
        if self.closing && self.waiting == 0 {
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        self.sink = None;
        self.chunks.clear();
        self.tail = BytesMut::new();
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Span;
    use std::os::fd::OwnedFd;
    use tokio::io::AsyncReadExt;
    use tokio::net::unix::pipe;

    fn outbox() -> (Arc<Outbox>, pipe::Receiver) {
        let (reader, writer) = io::pipe().unwrap();
        let (sink, _) = Sink::adopt(OwnedFd::from(writer)).unwrap();
        (Arc::new(Outbox::new(sink)), pipe::Receiver::from_owned_fd(reader.into()).unwrap())
    }

    #[tokio::test]
    async fn large_and_small_pieces_arrive_in_order_however_slowly_they_are_read() {
        let (outbox, mut reader) = outbox();
        let draining = tokio::spawn({
            let outbox = Arc::clone(&outbox);
            async move { outbox.drain().await }
        });
        let mut expected = Vec::new();
        for round in 0..200_usize {
            let text = round.to_string().repeat(1 + (round % 7) * 4_000);
            let line = Bytes::from(format!("<{text}>"));
            outbox.push_spliced(&line, &[Edit { span: Span { start: 0, end: 1 }, with: b"[" }]);
            outbox.push(b"small\n");
            outbox.flush();
            expected.extend_from_slice(format!("[{text}>\nsmall\n").as_bytes());
        }
        assert!(outbox.is_congested());
        outbox.close();
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.unwrap();
        assert!(got == expected, "every byte in order, then the end");
        draining.await.unwrap();
    }

    #[tokio::test]
    async fn a_dropped_receiver_is_noticed_and_costs_nothing() {
        let (outbox, reader) = outbox();
        drop(reader);
        outbox.closed().await;
        outbox.push(b"x\n");
        outbox.drain().await;
        assert_eq!(outbox.waiting(), 0);
        outbox.push(b"y\n");
        assert_eq!(outbox.waiting(), 0);
    }

    #[tokio::test]
    async fn a_receiver_that_does_not_read_can_be_hung_up_on() {
        let (outbox, reader) = outbox();
        let draining = tokio::spawn({
            let outbox = Arc::clone(&outbox);
            async move { outbox.drain().await }
        });
        outbox.push(&vec![b'x'; 1 << 20]);
        outbox.flush();
        outbox.abort();
        draining.await.unwrap();
        drop(reader);
    }
}
