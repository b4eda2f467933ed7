//! Messages to one reader: the response to one request with what precedes it, or all messages about no request.
//!
//! It is not known at first whether a request is answered with JSON or with a stream of events: that depends on what
//! comes first ([`Stream::first`]). A stream with event ids can be resumed: events that were sent are kept for a
//! while, within bounds. `state` is the content of the stream at one moment.

mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use aggregator::client_sink::{CatchUp, ClientSink, Message, Outbound};
use bytes::Bytes;
use protocol::reply::{self, code};
use protocol::{Envelope, Kind};
use tokio::sync::Notify;

use crate::identity::{Full, Identity, SMALL_ANSWER};
use crate::limits::Limits;
use crate::sse_frame::{EventId, Pieces, SseFrame};
use crate::usage::Usage;
use state::State;

/// How many times the soft limit may be queued by senders that cannot wait.
const HARD_LIMIT_FACTOR: usize = 4;

/// The sink for one reader.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The prefix of its event ids; `None` if it cannot be resumed.
    number: Option<u32>,
    /// It ends with the response to its one request. Others end when they are closed.
    ends_with_answer: bool,
    /// Its reader accepts more than the response.
    takes_notifications: bool,
    bounds: Bounds,
    usage: Option<Arc<Usage>>,
    identity: Arc<Identity>,
    state: Mutex<State>,
    /// Something was sent, or never will be.
    progress: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    waiting: usize,
    kept: usize,
    largest_kept: usize,
    slow_reader_timeout: Duration,
    disconnected_after: Duration,
}

/// A reader of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reader {
    /// Its number among the readers of the stream.
    pub(crate) number: u32,
    /// The event after which it begins, if it can resume.
    pub(crate) at: Option<EventId>,
}

/// What determines the form of the response.
#[derive(Debug)]
pub(crate) enum First {
    /// The response, and nothing before it.
    Answer(Pieces),
    /// A message that only a stream can carry.
    Events,
    /// There will be no response.
    Nothing,
}

impl Stream {
    /// The stream of one self-contained request.
    pub(crate) fn of_request(limits: &Limits, takes_notifications: bool, identity: &Arc<Identity>) -> Self {
        Self::new(limits, None, true, takes_notifications, None, identity)
    }

    /// The stream of one request in a session. The request must have been counted in `usage`.
    pub(crate) fn in_session(
        limits: &Limits,
        number: u32,
        takes_notifications: bool,
        usage: &Arc<Usage>,
        identity: &Arc<Identity>,
    ) -> Self {
        usage.begin_reading();
        Self::new(limits, Some(number), true, takes_notifications, Some(Arc::clone(usage)), identity)
    }

    /// The stream for messages about no request, or, without a number, for everything.
    pub(crate) fn lasting(limits: &Limits, number: Option<u32>, usage: &Arc<Usage>, identity: &Arc<Identity>) -> Self {
        let stream = Self::new(limits, number, false, true, Some(Arc::clone(usage)), identity);
        stream.lock().has_reader = false;
        stream
    }

    fn new(
        limits: &Limits,
        number: Option<u32>,
        ends_with_answer: bool,
        takes_notifications: bool,
        usage: Option<Arc<Usage>>,
        identity: &Arc<Identity>,
    ) -> Self {
        let bounds = Bounds {
            waiting: limits.bytes_waiting,
            kept: limits.bytes_kept,
            largest_kept: limits.session_bytes_kept,
            slow_reader_timeout: limits.slow_reader_timeout,
            disconnected_after: limits.disconnected_after,
        };
        let state = Mutex::new(State::new());
        let identity = Arc::clone(identity);
        Self { number, ends_with_answer, takes_notifications, bounds, usage, identity, state, progress: Notify::new() }
    }

    /// Waits for what determines the form of the response. A reader that `wants_events` gets the response as an event.
    pub(crate) async fn first(&self, wants_events: bool) -> First {
        std::future::poll_fn(|context| self.poll_first(context, wants_events)).await
    }

    fn poll_first(&self, context: &mut Context<'_>, wants_events: bool) -> Poll<First> {
        let mut state = self.lock();
        if !state.is_complete && state.frames.is_empty() {
            state.wait(context);
            return Poll::Pending;
        }
        let is_alone = state.is_complete && state.frames.len() == 1;
        if state.frames.len() > 1 || wants_events && is_alone || !state.is_complete {
            return Poll::Ready(First::Events);
        }
        state.is_closed = true;
        state.waiting = 0;
        let answer = state.frames.pop_front();
        self.count(&mut state);
        self.end_reading(&mut state);
        Poll::Ready(answer.map_or(First::Nothing, |answer| First::Answer(answer.into_message())))
    }

    /// Turns the waiting reader into a reader of events.
    pub(crate) fn open(&self) -> Reader {
        let mut state = self.lock();
        state.is_open = true;
        self.reader(&state)
    }

    /// A new reader takes over: after the event it names, or with what is unread. `None` if the stream has ended. The
    /// stream of a previous reader ends here.
    pub(crate) fn take_over(&self, after: Option<u32>) -> Option<Reader> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        if let Some(after) = after {
            state.rewind(after);
        }
        state.next_piece = 0;
        if state.is_complete && state.next == state.frames.len() {
            return None;
        }
        if let Some(usage) = self.usage.as_ref().filter(|_| !state.has_reader) {
            usage.begin_reading();
        }
        state.is_open = true;
        state.has_reader = true;
        state.reader = state.reader.wrapping_add(1);
        wake(state.waker.take());
        Some(self.reader(&state))
    }

    fn reader(&self, state: &State) -> Reader {
        let at = self.number.map(|stream| EventId { stream, number: state.number_of(state.next) - 1 });
        Reader { number: state.reader, at }
    }

    /// The next chunk for `reader`; `None` if all is read or another reader has taken over.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>, reader: u32) -> Poll<Option<Bytes>> {
        let mut state = self.lock();
        if state.reader != reader || state.is_closed {
            return Poll::Ready(None);
        }
        let keeps = if self.number.is_some() { self.bounds.kept } else { 0 };
        let Some(piece) = state.hand_out(keeps) else {
            if state.is_complete {
                return Poll::Ready(None);
            }
            state.wait(context);
            return Poll::Pending;
        };
        self.count(&mut state);
        let has_caught_up = state.waiting <= self.bounds.waiting;
        drop(state);
        if has_caught_up {
            self.progress.notify_waiters();
        }
        Poll::Ready(Some(piece))
    }

    /// `reader` has disconnected. It may reconnect if it knows its last event.
    pub(crate) fn leave(&self, reader: u32) {
        let mut state = self.lock();
        if state.reader != reader || !state.has_reader {
            return;
        }
        self.end_reading(&mut state);
        let can_come_back = self.number.is_some() && state.is_open;
        drop(state);
        if !can_come_back {
            self.forget();
        }
        self.progress.notify_waiters();
    }

    fn end_reading(&self, state: &mut State) {
        state.has_reader = false;
        state.since = Instant::now();
        if let Some(usage) = &self.usage {
            usage.end_reading();
        }
    }

    /// Lets the reader read what is queued, and then ends.
    pub(crate) fn finish(&self) {
        self.complete(&mut self.lock());
        self.flush();
    }

    /// Ends as soon as no request is pending.
    pub(crate) fn retire(&self) {
        self.lock().is_retiring = true;
        self.finish_if_retired();
    }

    fn finish_if_retired(&self) {
        let is_needed = self.usage.as_ref().is_some_and(|usage| usage.requests() > 0);
        if self.lock().is_retiring && !is_needed {
            self.finish();
        }
    }

    /// Ends at once; what is unread is lost.
    pub(crate) fn close(&self) {
        self.complete(&mut self.lock());
        self.forget();
        self.flush();
        self.progress.notify_waiters();
    }

    /// Whether nothing will be added.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().is_complete
    }

    /// Whether it can be removed: it was completed or left that long ago.
    pub(crate) fn is_stale(&self, kept_for: Duration) -> bool {
        let state = self.lock();
        state.is_closed || state.is_complete && !state.has_reader && state.since.elapsed() > kept_for
    }

    /// Whether it has no reader now.
    pub(crate) fn is_left(&self) -> bool {
        !self.lock().has_reader
    }

    /// Its number, if it can be resumed.
    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }

    /// Bytes it holds.
    pub(crate) fn weight(&self) -> usize {
        let state = self.lock();
        state.waiting + state.kept
    }

    /// Drops what is sent from now on, because it has no reader any more.
    fn forget(&self) {
        let mut state = self.lock();
        state.forget();
        self.count(&mut state);
    }

    /// Reports the bytes it holds to its identity. A small response that comes first and alone is taken at once.
    fn count(&self, state: &mut State) {
        let is_taken_at_once =
            state.is_complete && !state.is_open && state.frames.len() == 1 && state.waiting <= SMALL_ANSWER;
        let holds = if is_taken_at_once { 0 } else { state.waiting + state.kept };
        if holds != state.counted {
            self.identity.change_unread(state.counted, holds);
            state.counted = holds;
        }
    }

    fn complete(&self, state: &mut State) {
        if state.is_complete {
            return;
        }
        state.is_complete = true;
        state.since = Instant::now();
        if let Some(usage) = self.usage.as_ref().filter(|_| self.ends_with_answer) {
            usage.end_request();
        }
    }

    /// One of the many requests that share this stream was answered, or never will be.
    fn one_less(&self) {
        if let Some(usage) = &self.usage {
            usage.end_request();
        }
        self.finish_if_retired();
    }

    /// The id of the next event, where events have ids.
    fn next_id(&self, state: &State) -> Option<EventId> {
        self.number.map(|stream| EventId { stream, number: state.number_of(state.frames.len()) })
    }

    /// Whether a message that is no response can be added.
    fn has_room(&self, state: &State, frame: &SseFrame) -> bool {
        let beyond = HARD_LIMIT_FACTOR * self.bounds.waiting;
        let bound = match (state.has_reader, state.is_behind) {
            (true, false) => beyond,
            (true, true) => 0,
            (false, _) => self.bounds.kept,
        };
        state.waiting < bound && !self.identity.is_crowded() || state.waiting < beyond && is_server_request(frame)
    }

    /// The response, or an error in its place if too much is unread already.
    fn pack_answer(&self, state: &State, id: Option<EventId>, message: &Message<'_>) -> SseFrame {
        let frame = SseFrame::pack(id, message);
        let is_alone = self.ends_with_answer && state.frames.is_empty();
        if is_alone && frame.len() <= SMALL_ANSWER {
            return frame;
        }
        let Some(Full { why, .. }) = self.identity.refusal_of_answer() else { return frame };
        if self.identity.is_first_dropped() {
            tracing::warn!(why, "dropped a response, and will drop further ones while the limit is reached");
            self.identity.note_dropped();
        }
        let text = format!("The response was dropped: {why}");
        let refusal = reply::error(&message.answered_id(), code::INTERNAL_ERROR, &text, None);
        SseFrame::pack(id, &Message::Own(&refusal))
    }

    async fn caught_up(&self) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            if !self.lock().is_congested(self.bounds.waiting) {
                return;
            }
            progress.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSink for Stream {
    fn send(&self, what: Outbound, message: Message<'_>) {
        if what == Outbound::Notification {
            if !self.try_send(message) {
                tracing::debug!("dropped a message: its client does not read, or reads too slowly");
            }
            return;
        }
        let mut state = self.lock();
        if state.is_complete {
            return;
        }
        if !state.is_closed {
            let frame = self.pack_answer(&state, self.next_id(&state), &message);
            if state.has_reader || frame.len() <= self.bounds.largest_kept {
                state.add(frame);
            } else {
                tracing::debug!("dropped a message: its client does not read, or reads too slowly");
            }
        }
        if self.ends_with_answer {
            self.complete(&mut state);
        }
        self.count(&mut state);
        drop(state);
        if !self.ends_with_answer {
            self.one_less();
        }
    }

    fn try_send(&self, message: Message<'_>) -> bool {
        let mut state = self.lock();
        // Otherwise it cannot be read, and nothing waits for it.
        let is_readable = self.takes_notifications && !state.is_complete && !state.is_closed;
        if !is_readable {
            return true;
        }
        let frame = SseFrame::pack(self.next_id(&state), &message);
        let has_room = self.has_room(&state, &frame);
        if has_room {
            state.add(frame);
            self.count(&mut state);
        }
        has_room
    }

    fn give_up(&self) {
        if self.ends_with_answer { self.finish() } else { self.one_less() }
    }

    fn flush(&self) {
        let waker = self.lock().waker.take();
        wake(waker);
    }

    fn catch_up(&self) -> Option<CatchUp<'_>> {
        if !self.lock().is_congested(self.bounds.waiting) {
            return None;
        }
        Some(Box::pin(async {
            if tokio::time::timeout(self.bounds.slow_reader_timeout, self.caught_up()).await.is_err() {
                self.lock().is_behind = true;
            }
        }))
    }

    fn is_full(&self) -> bool {
        self.lock().waiting > self.bounds.waiting
    }

    fn carries_notifications(&self) -> bool {
        self.takes_notifications
    }

    fn is_idle(&self) -> bool {
        !self.lock().has_reader
            && self.usage.as_ref().is_none_or(|usage| usage.is_deserted(self.bounds.disconnected_after))
    }

    /// A stream that was never opened is unlikely to be opened later.
    fn is_gone(&self) -> bool {
        let state = self.lock();
        state.is_closed || !self.ends_with_answer && !state.is_open
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.identity.change_unread(state.counted, 0);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Whether a server waits for the client's answer to this.
fn is_server_request(frame: &SseFrame) -> bool {
    let message = frame.clone().into_message().as_slice().concat();
    matches!(Envelope::scan(&message), Ok(Envelope { kind: Kind::Request { .. }, .. }))
}

#[cfg(test)]
mod tests;
