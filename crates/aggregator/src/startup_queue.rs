//! Calls that wait for their server to start, in the order they came.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use protocol::Span;
use upstream::ResponseHandler;

use crate::client::Client;
use crate::dispatch::Aggregator;
use crate::responder::Responder;

/// What may wait for one server, in bytes.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// A call in waiting.
pub struct QueuedCall {
    /// Through whom.
    pub aggregator: Arc<Aggregator>,
    /// Who made it.
    pub client: Arc<Client>,
    /// Where its answer goes.
    pub to: Arc<Responder>,
    /// The call as it came.
    pub line: Bytes,
    /// Where its id stands.
    pub id: Span,
}

/// How it went at the door.
#[derive(Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The call waits.
    Waits,
    /// So many bytes are waiting that it cannot.
    Full(usize),
    /// There is nothing to wait for any more: look again.
    Settled,
}

/// The room of one server.
#[derive(Default)]
pub struct StartupQueue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    /// There is something to wait for.
    is_awaited: bool,
    calls: VecDeque<QueuedCall>,
    bytes: usize,
}

impl StartupQueue {
    /// Lets a call wait.
    pub fn enter(&self, call: QueuedCall) -> Enqueued {
        let mut state = self.lock();
        if !state.is_awaited {
            return Enqueued::Settled;
        }
        if state.bytes > MAX_QUEUED_BYTES {
            return Enqueued::Full(state.bytes);
        }
        state.bytes += call.line.len();
        state.calls.push_back(call);
        Enqueued::Waits
    }

    /// The server is on its way: from now on calls wait for it. Nobody is let out.
    pub fn close(&self) -> VecDeque<QueuedCall> {
        self.lock().is_awaited = true;
        VecDeque::new()
    }

    /// The server is up or down: lets everybody out, in order.
    pub fn open(&self) -> VecDeque<QueuedCall> {
        let mut state = self.lock();
        state.is_awaited = false;
        state.bytes = 0;
        std::mem::take(&mut state.calls)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.lock().calls.is_empty()
    }

    /// Gives up a call that waits; whether there was one.
    pub fn cancel(&self, client: u64, id: &[u8]) -> bool {
        let mut state = self.lock();
        let is_meant = |call: &QueuedCall| call.client.number() == client && call.id.of(&call.line) == id;
        let Some(call) = state.calls.iter().position(is_meant).and_then(|at| state.calls.remove(at)) else {
            return false;
        };
        state.bytes -= call.line.len();
        drop(state);
        call.to.on_cancelled(id);
        true
    }

    /// Gives up all calls of `client` that wait.
    pub fn cancel_all(&self, client: u64) {
        let mut state = self.lock();
        let calls = std::mem::take(&mut state.calls);
        let (given_up, kept): (VecDeque<_>, _) = calls.into_iter().partition(|call| call.client.number() == client);
        state.calls = kept;
        state.bytes -= given_up.iter().map(|call| call.line.len()).sum::<usize>();
        drop(state);
        for call in given_up {
            call.to.on_cancelled(call.id.of(&call.line));
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
