//! The pending requests at one server, and the owner of a request that the server sends.
//!
//! Over a pipe a server request does not name the request it belongs to. As long as all pending requests belong to one
//! client that is clear. When they belong to several it is not, and a server request must never reach the wrong
//! person: it is refused, and from then on that server serves one client at a time; requests of others wait for their
//! turn. Servers that never send requests are never exclusive, and neither are instances that serve one person.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::audience::Audience;
use crate::connection::Response;
use crate::failure::Ending;
use crate::limits::OverLimit;
use crate::response_handler::{Requester, ResponseHandler};

/// How long a cancelled request may still cause server requests, if the server does not confirm earlier that it has
/// processed the cancellation. Later server requests cannot be told from those for other clients.
pub(crate) const ABANDONED_REQUEST_LIFETIME: Duration = Duration::from_secs(5);
/// How many cancelled requests are remembered; with more, the owner of a server request is unknown.
const MAX_ABANDONED_REQUESTS: usize = 1000;

/// All pending requests of one server.
#[derive(Default)]
pub(crate) struct PendingRequests {
    last: u64,
    pending: HashMap<u64, Pending>,
    /// Requests that wait for their turn, in order.
    held: VecDeque<Held>,
    abandoned: VecDeque<AbandonedRequest>,
    /// The server has sent a request whose owner was ambiguous.
    is_exclusive: bool,
    /// All requests are of the same person.
    is_of_one_person: bool,
    /// Set once, when no response can arrive any more.
    pub(crate) ended: Option<Arc<Ending>>,
}

/// The receiver of a response.
pub(crate) enum Pending {
    Call(Call),
    /// Gets the response, or the limit it exceeds.
    OwnRequest(oneshot::Sender<Result<Response, OverLimit>>),
}

/// A request of a client. The id and token are copies: a few bytes must not keep the whole request in memory.
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
    /// Whether the server may still send requests about it after its cancellation, and their owner would be unclear.
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

/// A cancelled request that the server may still be working on.
struct AbandonedRequest {
    number: u64,
    respondent: u64,
    since: Instant,
}

/// The owner of a server request.
pub(crate) enum RequestOwner {
    /// This requester.
    Handler(Arc<dyn ResponseHandler>),
    /// It belongs to no open request.
    Nobody,
    /// Several clients have requests open.
    Ambiguous,
}

impl PendingRequests {
    /// The requests of this audience.
    pub(crate) fn of(audience: &Audience) -> Self {
        Self { is_of_one_person: audience.is_one_person(), ..Self::default() }
    }

    /// Adds a request and returns its number.
    pub(crate) fn enter(&mut self, pending: Pending) -> u64 {
        self.last += 1;
        self.pending.insert(self.last, pending);
        self.last
    }

    /// Whether a request of `requester` must wait for its turn.
    pub(crate) fn queue_needed_for(&mut self, requester: Requester) -> bool {
        if !self.is_exclusive || self.is_of_one_person || requester.is_alone {
            return false;
        }
        !self.held.is_empty() || self.serves_others(requester.respondent)
    }

    /// Queues a request until its turn.
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

    /// The client's request at the server, if there is exactly one and nothing else.
    pub(crate) fn only_one(&self) -> Option<u64> {
        let is_sent = |pending: &Pending| !matches!(pending, Pending::Call(Call { is_held: true, .. }));
        let mut sent = self.pending.iter().filter(|(_, pending)| is_sent(pending));
        let (&number, first) = sent.next()?;
        (sent.next().is_none() && matches!(first, Pending::Call(_))).then_some(number)
    }

    /// Removes the request `number`, which is answered. A late response to a cancelled one shows that the server is no
    /// longer working on it.
    pub(crate) fn answered(&mut self, number: u64) -> Option<Pending> {
        self.abandoned.retain(|request| request.number != number);
        self.close(number)
    }

    /// Removes the request `number`.
    pub(crate) fn close(&mut self, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&number);
        if let Some(Pending::Call(Call { is_held: true, .. })) = &pending {
            self.held.retain(|held| held.number != number);
        }
        pending
    }

    /// The server has processed the cancellation of the request `number`.
    pub(crate) fn forget_abandoned(&mut self, number: u64) {
        self.abandoned.retain(|request| request.number != number);
    }

    /// Cancels the request `number`, while the server may be working on it.
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

    /// Whether another request of that very handler is pending.
    pub(crate) fn waits_for(&self, handler: &Arc<dyn ResponseHandler>) -> bool {
        !self.of_handler(handler).is_empty()
    }

    /// The numbers of all requests of that very handler.
    pub(crate) fn of_handler(&self, handler: &Arc<dyn ResponseHandler>) -> Vec<u64> {
        let is_its = |call: &Call| std::ptr::addr_eq(Arc::as_ptr(&call.handler), Arc::as_ptr(handler));
        self.calls().filter(|(_, call)| is_its(call)).map(|(number, _)| number).collect()
    }

    /// The numbers of requests that block others although their client no longer waits for the response.
    pub(crate) fn deserted(&self) -> Vec<u64> {
        let Some(next) = self.held.front() else { return Vec::new() };
        self.calls()
            .filter(|(_, call)| !call.is_held && call.requester.respondent != next.respondent && call.handler.is_idle())
            .map(|(number, _)| number)
            .collect()
    }

    /// The owner of a server request that arrived on the stream of `about`, or on none.
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

    /// The owner, if all pending and all remembered cancelled requests belong to one.
    fn most_likely(&mut self) -> RequestOwner {
        let owner = self.only_handler();
        if self.is_of_one_person {
            return owner;
        }
        let RequestOwner::Handler(handler) = &owner else { return owner };
        let respondent = handler.requester().respondent;
        let is_surveyable = self.abandoned.len() < MAX_ABANDONED_REQUESTS;
        if is_surveyable && self.abandoned.iter().all(|request| request.respondent == respondent) {
            owner
        } else {
            RequestOwner::Ambiguous
        }
    }

    /// The owner, if all pending requests belong to one.
    pub(crate) fn only_handler(&mut self) -> RequestOwner {
        self.expire_abandoned();
        if self.is_of_one_person {
            return self.latest_that_can_answer();
        }
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

    /// The latest request, of those clients that accept server requests if there are any.
    fn latest_that_can_answer(&self) -> RequestOwner {
        let latest = self.calls().max_by_key(|&(number, call)| (call.requester.can_answer(), number));
        latest.map_or(RequestOwner::Nobody, |(_, call)| RequestOwner::Handler(Arc::clone(&call.handler)))
    }

    /// Removes everything that was sent, when it can no longer be answered. The server no longer works on it either.
    pub(crate) fn take_sent(&mut self) -> Vec<Pending> {
        self.abandoned.clear();
        let is_held = |pending: &Pending| matches!(pending, Pending::Call(Call { is_held: true, .. }));
        self.pending.extract_if(|_, pending| !is_held(pending)).map(|(_, pending)| pending).collect()
    }

    /// Removes everything, when nothing can be answered any more.
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
