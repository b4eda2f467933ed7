//! Messages on their way to one reader: the answer to one request with what comes before it, or all that is about no
//! request.
//!
//! Nobody knows at first whether a request will be answered by one piece of JSON or by a stream of events: that is
//! decided by what comes first ([`Stream::first`]). A stream that tells its reader event ids can be resumed: what was
//! handed out is kept for a while, within bounds. `state` is what is on the way at one moment.

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

/// How many times the bytes that make senders wait may gather if they cannot wait.
const HARD_LIMIT_FACTOR: usize = 4;

/// The way to one reader.
#[derive(Debug)]
pub(crate) struct Stream {
    /// What its event ids begin with; none if it cannot be resumed.
    number: Option<u32>,
    /// It ends with the answer to its one request. Others end when they are closed.
    ends_with_answer: bool,
    /// Its reader can read more than the answer.
    takes_notifications: bool,
    bounds: Bounds,
    usage: Option<Arc<Usage>>,
    identity: Arc<Identity>,
    state: Mutex<State>,
    /// Something was handed out, or never will be.
    progress: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    waiting: usize,
    kept: usize,
    largest_kept: usize,
    slow_reader_timeout: Duration,
    away: Duration,
}

/// Somebody who reads events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reader {
    /// Which one of those who have read the stream.
    pub(crate) number: u32,
    /// The event behind which it begins, if it can come back.
    pub(crate) at: Option<EventId>,
}

/// What decides how a request is answered.
#[derive(Debug)]
pub(crate) enum First {
    /// The answer, and nothing before it.
    Answer(Pieces),
    /// Something that only a stream can carry.
    Events,
    /// There will be no answer.
    Nothing,
}

impl Stream {
    /// The way of one request that stands for itself.
    pub(crate) fn of_request(limits: &Limits, takes_notifications: bool, identity: &Arc<Identity>) -> Self {
        Self::new(limits, None, true, takes_notifications, None, identity)
    }

    /// The way of one request in a session. The request must have begun in `usage`.
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

    /// The way for what is about no request, or, without a number, for everything.
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
            away: limits.away,
        };
        let state = Mutex::new(State::new());
        let identity = Arc::clone(identity);
        Self { number, ends_with_answer, takes_notifications, bounds, usage, identity, state, progress: Notify::new() }
    }

    /// Waits for what decides how the request is answered. A reader who `wants_events` gets the answer as one.
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

    /// Whoever waited for what comes first goes on to read events.
    pub(crate) fn open(&self) -> Reader {
        let mut state = self.lock();
        state.is_open = true;
        self.reader(&state)
    }

    /// A new reader takes over: after the event it names, or with what nobody has read. There is none if the stream has
    /// come to its end. If somebody is still reading, their stream ends here.
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

    /// The next stretch for `reader`; nothing more if all is read or somebody else reads now.
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

    /// `reader` is gone. It may come back if it can say where it was.
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

    /// Lets the reader read what is there, and then ends.
    pub(crate) fn finish(&self) {
        self.complete(&mut self.lock());
        self.flush();
    }

    /// Ends as soon as no request waits for its answer.
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

    /// Ends at once; what nobody has read is lost.
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

    /// Whether it can be forgotten: it was completed or left that long ago.
    pub(crate) fn is_stale(&self, kept_for: Duration) -> bool {
        let state = self.lock();
        state.is_closed || state.is_complete && !state.has_reader && state.since.elapsed() > kept_for
    }

    /// Whether nobody reads it now.
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

    /// Nobody will read what is sent from now on.
    fn forget(&self) {
        let mut state = self.lock();
        state.forget();
        self.count(&mut state);
    }

    /// Tells its identity how much it holds now. A small answer that comes first and alone is taken at once.
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

    /// One of the many requests that share this way was answered, or never will be.
    fn one_less(&self) {
        if let Some(usage) = &self.usage {
            usage.end_request();
        }
        self.finish_if_retired();
    }

    /// Whether something that is no answer can be added.
    fn has_room(&self, state: &State, frame: &SseFrame) -> bool {
        let beyond = HARD_LIMIT_FACTOR * self.bounds.waiting;
        let bound = match (state.has_reader, state.is_behind) {
            (true, false) => beyond,
            (true, true) => 0,
            (false, _) => self.bounds.kept,
        };
        state.waiting < bound && !self.identity.is_crowded() || state.waiting < beyond && is_server_request(frame)
    }

    /// The answer, or what its client is told if too much waits to be read already.
    fn pack_answer(&self, state: &State, id: Option<EventId>, message: &Message<'_>) -> SseFrame {
        let frame = SseFrame::pack(id, message);
        let is_alone = self.ends_with_answer && state.frames.is_empty();
        if is_alone && frame.len() <= SMALL_ANSWER {
            return frame;
        }
        let Some(Full { why, .. }) = self.identity.refusal_of_answer() else { return frame };
        if self.identity.is_first_dropped() {
            tracing::warn!(why, "an answer was dropped, and further ones are as long as that is so");
            self.identity.note_dropped();
        }
        let text = format!("The answer was dropped: {why}");
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
        if what == Outbound::Notification && !self.takes_notifications {
            return;
        }
        let mut state = self.lock();
        if state.is_complete {
            return;
        }
        if !state.is_closed {
            let id = self.number.map(|stream| EventId { stream, number: state.number_of(state.frames.len()) });
            let frame = match what {
                Outbound::Response => self.pack_answer(&state, id, &message),
                Outbound::Notification => SseFrame::pack(id, &message),
            };
            let is_kept = match what {
                Outbound::Response => state.has_reader || frame.len() <= self.bounds.largest_kept,
                Outbound::Notification => self.has_room(&state, &frame),
            };
            if is_kept {
                state.add(frame);
            } else {
                tracing::debug!("a message was left out: its client does not read, or too slowly");
            }
        }
        if what == Outbound::Response && self.ends_with_answer {
            self.complete(&mut state);
        }
        self.count(&mut state);
        drop(state);
        if what == Outbound::Response && !self.ends_with_answer {
            self.one_less();
        }
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
        !self.lock().has_reader && self.usage.as_ref().is_none_or(|usage| usage.is_deserted(self.bounds.away))
    }

    /// What nobody has ever opened, nobody is likely to open.
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

/// Whether somebody waits for the client to answer this.
fn is_server_request(frame: &SseFrame) -> bool {
    let message = frame.clone().into_message().as_slice().concat();
    matches!(Envelope::scan(&message), Ok(Envelope { kind: Kind::Request { .. }, .. }))
}

#[cfg(test)]
mod tests;
