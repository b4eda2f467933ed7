//! Calls that wait for their server to start, in order of arrival.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use upstream::ResponseHandler;

use crate::suspended_request::SuspendedRequest;

/// Bytes of calls that may wait for one server.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// The result of queueing a call.
pub(crate) enum Enqueued {
    /// The call is queued.
    Waits,
    /// The queue is full, with so many bytes.
    Full(usize),
    /// The server is already up or down: the call can continue.
    Settled(Box<SuspendedRequest>),
}

/// The queue of one server.
#[derive(Default)]
pub(crate) struct StartupQueue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    /// The server is still starting.
    is_awaited: bool,
    calls: VecDeque<SuspendedRequest>,
    bytes: usize,
}

impl StartupQueue {
    /// Queues a call.
    pub(crate) fn enter(&self, call: SuspendedRequest) -> Enqueued {
        let mut state = self.lock();
        if !state.is_awaited {
            return Enqueued::Settled(Box::new(call));
        }
        if state.bytes > MAX_QUEUED_BYTES {
            return Enqueued::Full(state.bytes);
        }
        state.bytes += call.len();
        state.calls.push_back(call);
        Enqueued::Waits
    }

    /// The server is starting: from now on calls are queued. Releases none.
    pub(crate) fn close(&self) -> VecDeque<SuspendedRequest> {
        self.lock().is_awaited = true;
        VecDeque::new()
    }

    /// The server is up or down: releases all calls, in order.
    pub(crate) fn open(&self) -> VecDeque<SuspendedRequest> {
        let mut state = self.lock();
        state.is_awaited = false;
        state.bytes = 0;
        std::mem::take(&mut state.calls)
    }

    /// Whether no call waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().calls.is_empty()
    }

    /// Cancels a queued call. Returns whether there was one.
    pub(crate) fn cancel(&self, client: u64, id: &[u8]) -> bool {
        let mut state = self.lock();
        let is_meant = |call: &SuspendedRequest| call.client().number() == client && call.id() == id;
        let Some(call) = state.calls.iter().position(is_meant).and_then(|at| state.calls.remove(at)) else {
            return false;
        };
        state.bytes -= call.len();
        drop(state);
        call.to().on_cancelled(id);
        true
    }

    /// Cancels all queued calls of `client`.
    pub(crate) fn cancel_all(&self, client: u64) {
        let mut state = self.lock();
        let calls = std::mem::take(&mut state.calls);
        let (given_up, kept): (VecDeque<_>, _) = calls.into_iter().partition(|call| call.client().number() == client);
        state.calls = kept;
        state.bytes -= given_up.iter().map(|call| call.len()).sum::<usize>();
        drop(state);
        for call in given_up {
            call.to().on_cancelled(call.id());
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
