//! The requests on their way to one server, and whose question it is when the server asks something.
//!
//! Over a pipe a server's question does not say which request it is about. As long as all open requests belong to one
//! client that is clear. When they belong to several it is not, and a question must never reach the wrong person: it is
//! refused, and from then on that server serves one client at a time; requests of others wait for their turn. Servers
//! that never ask are never made to wait for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connection::Response;
use crate::failure::Ending;
use crate::limits::OverLimit;
use crate::response_handler::{Requester, ResponseHandler};

/// For how long a request that was given up may still make its server ask something, if the server does not say earlier
/// that it has heard. What it asks later cannot be told from what others are asked.
pub(crate) const ABANDONED_REQUEST_LIFETIME: Duration = Duration::from_secs(5);
/// So many requests that were given up are remembered; with more, nobody can say whose a question is.
const MAX_ABANDONED_REQUESTS: usize = 1000;

/// Everything open.
#[derive(Default)]
pub(crate) struct PendingRequests {
    last: u64,
    pending: HashMap<u64, Pending>,
    /// Requests that wait for their turn, in order.
    held: VecDeque<Held>,
    abandoned: VecDeque<AbandonedRequest>,
    /// It has asked without saying what about.
    is_exclusive: bool,
    /// Set once, when nothing can be answered any more.
    pub(crate) ended: Option<Arc<Ending>>,
}

/// Who waits for an answer.
pub(crate) enum Pending {
    Call(Call),
    /// Gets the answer, or that it is too long.
    OwnRequest(oneshot::Sender<Result<Response, OverLimit>>),
}

/// A request of a caller. The id and token are copies: a few bytes must not keep the whole request in memory.
pub(crate) struct Call {
    pub(crate) handler: Arc<dyn ResponseHandler>,
    pub(crate) id: Box<[u8]>,
    pub(crate) progress: Option<Box<[u8]>>,
    pub(crate) requester: Requester,
    /// When it was sent, if there is a limit.
    pub(crate) since: Option<Instant>,
    pub(crate) is_held: bool,
}

impl Call {
    /// Whether the server may still ask something about it after it was given up, and of whom would be unclear.
    pub(crate) fn may_still_ask(&self) -> bool {
        !self.is_held && !self.requester.is_alone
    }
}

/// A request that waits for its turn, ready to be sent.
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) line: Bytes,
    respondent: u64,
}

/// A request that was given up, but that the server may still be at.
struct AbandonedRequest {
    number: u64,
    respondent: u64,
    since: Instant,
}

/// Whose question it is.
pub(crate) enum RequestOwner {
    /// This caller's.
    Handler(Arc<dyn ResponseHandler>),
    /// It is about no open request.
    Nobody,
    /// Several clients have requests open.
    Ambiguous,
}

impl PendingRequests {
    /// A number for a request, under which its answer is waited for.
    pub(crate) fn enter(&mut self, pending: Pending) -> u64 {
        self.last += 1;
        self.pending.insert(self.last, pending);
        self.last
    }

    /// Whether a request of `requester` must wait for its turn.
    pub(crate) fn queue_needed_for(&mut self, requester: Requester) -> bool {
        if !self.is_exclusive || requester.is_alone {
            return false;
        }
        !self.held.is_empty() || self.serves_others(requester.respondent)
    }

    /// Lets a request wait for its turn.
    pub(crate) fn hold(&mut self, number: u64, line: Bytes) {
        if let Some(Pending::Call(call)) = self.pending.get_mut(&number) {
            call.is_held = true;
            self.held.push_back(Held { number, line, respondent: call.requester.respondent });
        }
    }

    /// The requests whose turn has come.
    pub(crate) fn release(&mut self) -> Vec<Held> {
        let Some(respondent) = self.held.front().map(|held| held.respondent) else { return Vec::new() };
        if self.serves_others(respondent) {
            return Vec::new();
        }
        let mut released = Vec::new();
        while self.held.front().is_some_and(|held| held.respondent == respondent) {
            let held = self.held.pop_front().expect("there is a first");
            if let Some(Pending::Call(call)) = self.pending.get_mut(&held.number) {
                call.is_held = false;
                call.since = call.since.map(|_| Instant::now());
                released.push(held);
            }
        }
        released
    }

    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.pending.contains_key(&number)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Call> {
        match self.pending.get(&number) {
            Some(Pending::Call(call)) => Some(call),
            Some(Pending::OwnRequest(_)) | None => None,
        }
    }

    /// The request of a caller that the server has, if it has one and nothing else.
    pub(crate) fn only_one(&self) -> Option<u64> {
        let is_sent = |pending: &Pending| !matches!(pending, Pending::Call(Call { is_held: true, .. }));
        let mut sent = self.pending.iter().filter(|(_, pending)| is_sent(pending));
        let (&number, first) = sent.next()?;
        (sent.next().is_none() && matches!(first, Pending::Call(_))).then_some(number)
    }

    /// The request under `number` is answered. A late answer to one that was given up says that the server is no longer
    /// at it.
    pub(crate) fn answered(&mut self, number: u64) -> Option<Pending> {
        self.abandoned.retain(|request| request.number != number);
        self.close(number)
    }

    /// The request under `number` is over.
    pub(crate) fn close(&mut self, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&number);
        if let Some(Pending::Call(Call { is_held: true, .. })) = &pending {
            self.held.retain(|held| held.number != number);
        }
        pending
    }

    /// The server has heard that the request under `number` is given up.
    pub(crate) fn forget_abandoned(&mut self, number: u64) {
        self.abandoned.retain(|request| request.number != number);
    }

    /// The request under `number` is given up, while the server may be at it.
    pub(crate) fn give_up(&mut self, number: u64) -> Option<Call> {
        let Some(Pending::Call(call)) = self.close(number) else { return None };
        if call.may_still_ask() {
            self.expire_abandoned();
            if self.abandoned.len() == MAX_ABANDONED_REQUESTS {
                self.abandoned.pop_front();
            }
            let respondent = call.requester.respondent;
            self.abandoned.push_back(AbandonedRequest { number, respondent, since: Instant::now() });
        }
        Some(call)
    }

    /// The number of the request that `client` knows as `id`. Cancellations are rare, so they search.
    pub(crate) fn find(&self, client: u64, id: &[u8]) -> Option<u64> {
        self.calls().find(|(_, call)| call.requester.client == client && *call.id == *id).map(|(number, _)| number)
    }

    /// The numbers of all requests of `client`.
    pub(crate) fn of_client(&self, client: u64) -> Vec<u64> {
        self.calls().filter(|(_, call)| call.requester.client == client).map(|(number, _)| number).collect()
    }

    /// The numbers of requests that were sent before `moment`.
    pub(crate) fn older_than(&self, moment: Instant) -> Vec<u64> {
        self.calls()
            .filter(|(_, call)| !call.is_held && call.since.is_some_and(|since| since < moment))
            .map(|(number, _)| number)
            .collect()
    }

    /// Whether anything else of that very caller is open.
    pub(crate) fn waits_for(&self, handler: &Arc<dyn ResponseHandler>) -> bool {
        !self.of_handler(handler).is_empty()
    }

    /// The numbers of all requests of that very caller.
    pub(crate) fn of_handler(&self, handler: &Arc<dyn ResponseHandler>) -> Vec<u64> {
        let is_its = |call: &Call| std::ptr::addr_eq(Arc::as_ptr(&call.handler), Arc::as_ptr(handler));
        self.calls().filter(|(_, call)| is_its(call)).map(|(number, _)| number).collect()
    }

    /// The numbers of requests that keep others from their turn although nobody waits for their answer any more.
    pub(crate) fn deserted(&self) -> Vec<u64> {
        let Some(next) = self.held.front() else { return Vec::new() };
        self.calls()
            .filter(|(_, call)| !call.is_held && call.requester.respondent != next.respondent && call.handler.is_idle())
            .map(|(number, _)| number)
            .collect()
    }

    /// Whose question it is that came on the stream of `about`, or on none.
    pub(crate) fn owner(&mut self, about: Option<u64>) -> RequestOwner {
        if let Some(number) = about {
            return self
                .get(number)
                .map_or(RequestOwner::Nobody, |call| RequestOwner::Handler(Arc::clone(&call.handler)));
        }
        let owner = self.most_likely();
        if !matches!(&owner, RequestOwner::Handler(handler) if handler.requester().is_alone) && !self.pending.is_empty()
        {
            self.is_exclusive |= !matches!(owner, RequestOwner::Nobody);
        }
        owner
    }

    /// Whose it is if everything open belongs to one, and so does everything that was given up.
    fn most_likely(&mut self) -> RequestOwner {
        let owner = self.only_handler();
        let RequestOwner::Handler(handler) = &owner else { return owner };
        let respondent = handler.requester().respondent;
        let is_surveyable = self.abandoned.len() < MAX_ABANDONED_REQUESTS;
        if is_surveyable && self.abandoned.iter().all(|request| request.respondent == respondent) {
            owner
        } else {
            RequestOwner::Ambiguous
        }
    }

    /// Who it is if everything open belongs to one.
    pub(crate) fn only_handler(&mut self) -> RequestOwner {
        self.expire_abandoned();
        let sent = || self.calls().filter(|(_, call)| !call.is_held);
        // The latest: its stream is the least likely to be closing.
        let Some((_, latest)) = sent().max_by_key(|&(number, _)| number) else { return RequestOwner::Nobody };
        let respondent = latest.requester.respondent;
        let is_same = |other: u64| other == respondent;
        let unheard = self.abandoned.iter().all(|request| is_same(request.respondent));
        if unheard && sent().all(|(_, call)| is_same(call.requester.respondent)) {
            return RequestOwner::Handler(Arc::clone(&latest.handler));
        }
        RequestOwner::Ambiguous
    }

    /// Everything that was sent, when none of it can be answered any more. Nobody is at it any more either.
    pub(crate) fn take_sent(&mut self) -> Vec<Pending> {
        self.abandoned.clear();
        let is_held = |pending: &Pending| matches!(pending, Pending::Call(Call { is_held: true, .. }));
        self.pending.extract_if(|_, pending| !is_held(pending)).map(|(_, pending)| pending).collect()
    }

    /// Everything that waits, when nothing can be answered any more.
    pub(crate) fn take_all(&mut self) -> Vec<Pending> {
        self.held.clear();
        std::mem::take(&mut self.pending).into_values().collect()
    }

    fn serves_others(&mut self, respondent: u64) -> bool {
        self.expire_abandoned();
        self.calls().any(|(_, call)| !call.is_held && call.requester.respondent != respondent)
            || self.abandoned.iter().any(|request| request.respondent != respondent)
    }

    fn expire_abandoned(&mut self) {
        if !self.abandoned.is_empty() {
            self.abandoned.retain(|request| request.since.elapsed() < ABANDONED_REQUEST_LIFETIME);
        }
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = (u64, &Call)> {
        self.pending.iter().filter_map(|(&number, pending)| match pending {
            Pending::Call(call) => Some((number, call)),
            Pending::OwnRequest(_) => None,
        })
    }
}

impl std::fmt::Debug for PendingRequests {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PendingRequests")
            .field("waiting", &self.pending.len())
            .field("held", &self.held.len())
            .finish()
    }
}

#[cfg(test)]
mod tests;
