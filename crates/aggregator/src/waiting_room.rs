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

/// A room for every server.
pub struct WaitingRooms(Vec<Mutex<Room>>);

#[derive(Default)]
struct Room {
    is_closed: bool,
    calls: VecDeque<WaitingCall>,
    bytes: usize,
}

impl WaitingRooms {
    /// For so many servers, all of them still starting.
    pub fn new(servers: usize) -> Self {
        Self((0..servers).map(|_| Mutex::default()).collect())
    }

    /// Lets a call wait for `server`.
    pub fn enter(&self, server: usize, call: WaitingCall) -> Entry {
        let mut room = self.room(server);
        if room.is_closed {
            return Entry::Settled;
        }
        if room.bytes > FULL {
            return Entry::Full(room.bytes);
        }
        room.bytes += call.line.len();
        room.calls.push_back(call);
        Entry::Waits
    }

    /// The server is up or down: closes its room and lets everybody out, in order.
    pub fn open(&self, server: usize) -> VecDeque<WaitingCall> {
        let mut room = self.room(server);
        room.is_closed = true;
        room.bytes = 0;
        std::mem::take(&mut room.calls)
    }

    /// Gives up a call that waits; whether there was one.
    pub fn cancel(&self, client: u64, id: &[u8]) -> bool {
        for server in 0..self.0.len() {
            let mut room = self.room(server);
            let is_meant = |call: &WaitingCall| call.client.number() == client && call.id.of(&call.line) == id;
            if let Some(call) = room.calls.iter().position(is_meant).and_then(|at| room.calls.remove(at)) {
                room.bytes -= call.line.len();
                drop(room);
                call.to.cancelled(id);
                return true;
            }
        }
        false
    }

    /// Gives up all calls of `client` that wait.
    pub fn cancel_all(&self, client: u64) {
        for server in 0..self.0.len() {
            let mut room = self.room(server);
            let calls = std::mem::take(&mut room.calls);
            let (given_up, kept): (VecDeque<_>, _) = calls.into_iter().partition(|call| call.client.number() == client);
            room.calls = kept;
            room.bytes -= given_up.iter().map(|call| call.line.len()).sum::<usize>();
            drop(room);
            for call in given_up {
                call.to.cancelled(call.id.of(&call.line));
            }
        }
    }

    fn room(&self, server: usize) -> MutexGuard<'_, Room> {
        self.0[server].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
