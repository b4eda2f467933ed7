//! The table of modern clients' calls at legacy servers, found again by the request state of a retry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use protocol::Span;

use super::modern_client::ModernClientCall;
use super::request_state::{Binding, RequestState, Sealer};

/// How many bridged calls may be open, parked or not, in total and per token.
pub const MAX_BRIDGED_CALLS: usize = 10_000;
/// The same per token.
pub const MAX_BRIDGED_CALLS_PER_TOKEN: usize = 5_000;

/// All calls of modern clients at legacy servers.
#[derive(Default)]
pub(crate) struct ParkedCalls {
    sealer: OnceLock<Sealer>,
    calls: Mutex<HashMap<u64, Arc<ModernClientCall>>>,
    /// The number of calls by token.
    counts: Mutex<HashMap<Box<str>, usize>>,
}

impl ParkedCalls {
    pub(super) fn enter(&self, call: &Arc<ModernClientCall>) -> bool {
        let mut calls = self.lock();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.entry(call.principal().into()).or_default();
        // Without tokens, all clients are the same user.
        let most = if call.principal().is_empty() { MAX_BRIDGED_CALLS } else { MAX_BRIDGED_CALLS_PER_TOKEN };
        let has_room = calls.len() < MAX_BRIDGED_CALLS && *own < most;
        if has_room && calls.insert(call.number(), Arc::clone(call)).is_none() {
            *own += 1;
        }
        has_room
    }

    pub(super) fn leave(&self, number: u64) {
        let Some(call) = self.lock().remove(&number) else { return };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = counts.get_mut(call.principal()) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                counts.remove(call.principal());
            }
        }
    }

    pub(super) fn seal(&self, call: u64, round: u64, good_for: Duration, binding: &Binding) -> String {
        let until = now() + good_for.as_secs().max(1);
        self.sealer().seal(RequestState { call, round, until }, binding)
    }

    /// The parked call of a request state, with the round it was issued in.
    pub(super) fn find(&self, request_state: &str, binding: &Binding) -> Option<(Arc<ModernClientCall>, u64)> {
        let request_state = self.sealer().open(request_state, binding)?;
        if request_state.until < now() {
            return None;
        }
        Some((Arc::clone(self.lock().get(&request_state.call)?), request_state.round))
    }

    /// Cancels the request that the client names in `notice`, whose id is at `id_at`. Returns whether there was one.
    pub(crate) fn cancel(&self, client: u64, id: &[u8], notice: &Bytes, id_at: Span) -> bool {
        self.find_request(client, id).map(|call| call.cancel(notice, id_at)).is_some()
    }

    /// Ends a request of the client for a reason of ours. Returns whether there was one.
    pub(crate) fn cut_short(&self, client: u64, id: &[u8], why: &str) -> bool {
        self.find_request(client, id).map(|call| call.give_up(why)).is_some()
    }

    fn find_request(&self, client: u64, id: &[u8]) -> Option<Arc<ModernClientCall>> {
        self.lock().values().find(|call| call.is_for(client, Some(id))).cloned()
    }

    /// Drops the requests of a client that disconnected. Parked calls remain, because the client may retry.
    pub(crate) fn abandon(&self, client: u64) {
        let calls: Vec<_> = self.lock().values().filter(|call| call.is_for(client, None)).cloned().collect();
        for call in calls {
            call.give_up("the client disconnected");
        }
    }

    fn sealer(&self) -> &Sealer {
        self.sealer.get_or_init(Sealer::new)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<ModernClientCall>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
