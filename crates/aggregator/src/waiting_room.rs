//! Calls that wait for their server to start, in the order they came.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use protocol::Span;
use upstream::Caller;

use crate::answering::Answering;
use crate::client::Client;
use crate::dispatch::Aggregator;

/// What may wait for one server, in bytes.
const FULL: usize = 64 << 20;

/// A call in waiting.
pub struct WaitingCall {
    /// Through whom.
    pub aggregator: Arc<Aggregator>,
    /// Who made it.
    pub client: Arc<Client>,
    /// Where its answer goes.
    pub to: Arc<Answering>,
    /// The call as it came.
    pub line: Bytes,
    /// Where its id stands.
    pub id: Span,
}

/// How it went at the door.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// The call waits.
    Waits,
    /// So many bytes are waiting that it cannot.
    Full(usize),
    /// There is nothing to wait for any more: look again.
    Settled,
}

/// The room of one server.
#[derive(Default)]
pub struct WaitingRoom(Mutex<Room>);

#[derive(Default)]
struct Room {
    /// There is something to wait for.
    is_awaited: bool,
    calls: VecDeque<WaitingCall>,
    bytes: usize,
}

impl WaitingRoom {
    /// Lets a call wait.
    pub fn enter(&self, call: WaitingCall) -> Entry {
        let mut room = self.lock();
        if !room.is_awaited {
            return Entry::Settled;
        }
        if room.bytes > FULL {
            return Entry::Full(room.bytes);
        }
        room.bytes += call.line.len();
        room.calls.push_back(call);
        Entry::Waits
    }

    /// The server is on its way: from now on calls wait for it. Nobody is let out.
    pub fn close(&self) -> VecDeque<WaitingCall> {
        self.lock().is_awaited = true;
        VecDeque::new()
    }

    /// The server is up or down: lets everybody out, in order.
    pub fn open(&self) -> VecDeque<WaitingCall> {
        let mut room = self.lock();
        room.is_awaited = false;
        room.bytes = 0;
        std::mem::take(&mut room.calls)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.lock().calls.is_empty()
    }

    /// Gives up a call that waits; whether there was one.
    pub fn cancel(&self, client: u64, id: &[u8]) -> bool {
        let mut room = self.lock();
        let is_meant = |call: &WaitingCall| call.client.number() == client && call.id.of(&call.line) == id;
        let Some(call) = room.calls.iter().position(is_meant).and_then(|at| room.calls.remove(at)) else {
            return false;
        };
        room.bytes -= call.line.len();
        drop(room);
        call.to.cancelled(id);
        true
    }

    /// Gives up all calls of `client` that wait.
    pub fn cancel_all(&self, client: u64) {
        let mut room = self.lock();
        let calls = std::mem::take(&mut room.calls);
        let (given_up, kept): (VecDeque<_>, _) = calls.into_iter().partition(|call| call.client.number() == client);
        room.calls = kept;
        room.bytes -= given_up.iter().map(|call| call.line.len()).sum::<usize>();
        drop(room);
        for call in given_up {
            call.to.cancelled(call.id.of(&call.line));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
