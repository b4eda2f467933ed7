//! The content of a stream at one moment: events that were sent and may be requested again, and events that are
//! queued.

use std::collections::VecDeque;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::Bytes;

use crate::sse_frame::SseFrame;

#[derive(Debug)]
pub(super) struct State {
    /// Events that were sent and are kept, then those that are queued.
    pub(super) frames: VecDeque<SseFrame>,
    /// The number of the first of them. The first event of all is number 1.
    pub(super) first_number: u32,
    /// The next to be sent, and how many of its pieces are.
    pub(super) next: usize,
    pub(super) next_piece: usize,
    /// Bytes that are queued, and bytes that are kept.
    pub(super) waiting: usize,
    pub(super) kept: usize,
    /// How much of both was reported to its identity.
    pub(super) counted: usize,
    /// Nothing will be added.
    pub(super) is_complete: bool,
    /// It will never be read again.
    pub(super) is_closed: bool,
    pub(super) has_reader: bool,
    /// Counts readers, so that a replaced one is distinguished from its successor.
    pub(super) reader: u32,
    /// Its reader has begun to read events, so it can reconnect for more.
    pub(super) is_open: bool,
    /// Its reader is so slow that only essential messages are sent.
    pub(super) is_behind: bool,
    /// It ends with the last response.
    pub(super) is_retiring: bool,
    pub(super) waker: Option<Waker>,
    /// When it was completed or left.
    pub(super) since: Instant,
}

impl State {
    /// An empty stream with a waiting reader.
    pub(super) fn new() -> Self {
        Self {
            frames: VecDeque::new(),
            first_number: 1,
            next: 0,
            next_piece: 0,
            waiting: 0,
            kept: 0,
            counted: 0,
            is_complete: false,
            is_closed: false,
            has_reader: true,
            reader: 0,
            is_open: false,
            is_behind: false,
            is_retiring: false,
            waker: None,
            since: Instant::now(),
        }
    }

    /// Drops what is sent from now on.
    pub(super) fn forget(&mut self) {
        self.is_closed = true;
        self.frames = VecDeque::new();
        (self.next, self.next_piece, self.waiting, self.kept) = (0, 0, 0, 0);
    }

    pub(super) fn add(&mut self, frame: SseFrame) {
        self.waiting += frame.len();
        self.frames.push_back(frame);
    }

    /// The next chunk. Sent events are kept within `keeps` bytes, oldest dropped first.
    pub(super) fn hand_out(&mut self, keeps: usize) -> Option<Bytes> {
        let frame = self.frames.get(self.next)?;
        let (pieces, weight) = (frame.event(), frame.len());
        let piece = pieces[self.next_piece].clone();
        self.next_piece += 1;
        if self.next_piece < pieces.len() {
            return Some(piece);
        }
        self.next_piece = 0;
        self.next += 1;
        self.waiting -= weight;
        self.kept += weight;
        if self.waiting == 0 {
            self.is_behind = false;
        }
        while self.kept > keeps && self.next > 0 {
            let Some(oldest) = self.frames.pop_front() else { break };
            self.kept -= oldest.len();
            self.next -= 1;
            self.first_number += 1;
        }
        Some(piece)
    }

    /// Queues the events after `after` again.
    pub(super) fn rewind(&mut self, after: u32) {
        let behind = after.saturating_add(1).saturating_sub(self.first_number);
        self.next = usize::try_from(behind).unwrap_or(usize::MAX).min(self.frames.len());
        self.kept = self.frames.iter().take(self.next).map(SseFrame::len).sum();
        self.waiting = self.frames.iter().skip(self.next).map(SseFrame::len).sum();
    }

    /// The number of the event at that index.
    pub(super) fn number_of(&self, index: usize) -> u32 {
        self.first_number.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(super) fn is_congested(&self, bound: usize) -> bool {
        self.waiting > bound && self.has_reader && !self.is_behind && !self.is_complete
    }

    pub(super) fn wait(&mut self, context: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }
}
