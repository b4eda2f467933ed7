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

use crate::caller::{Caller, Party};
use crate::connection::Answer;
use crate::failure::Ending;
use crate::limits::OverLimit;

/// For how long a request that was given up may still make its server ask something, if the server does not say earlier
/// that it has heard. What it asks later cannot be told from what others are asked.
pub(crate) const HAUNTING: Duration = Duration::from_secs(5);
/// So many requests that were given up are remembered; with more, nobody can say whose a question is.
const MOST_GHOSTS: usize = 1000;

/// Everything open.
#[derive(Default)]
pub(crate) struct Open {
    last: u64,
    waiting: HashMap<u64, Waiting>,
    /// Requests that wait for their turn, in order.
    held: VecDeque<Held>,
    ghosts: VecDeque<Ghost>,
    /// It has asked without saying what about.
    takes_turns: bool,
    /// Set once, when nothing can be answered any more.
    pub(crate) ended: Option<Arc<Ending>>,
}

/// Who waits for an answer.
pub(crate) enum Waiting {
    Caller(Call),
    /// Gets the answer, or that it is too long.
    Ourselves(oneshot::Sender<Result<Answer, OverLimit>>),
}

/// A request of a caller. The id and token are copies: a few bytes must not keep the whole request in memory.
pub(crate) struct Call {
    pub(crate) caller: Arc<dyn Caller>,
    pub(crate) id: Box<[u8]>,
    pub(crate) progress: Option<Box<[u8]>>,
    pub(crate) party: Party,
    /// When it was sent, if there is a limit.
    pub(crate) since: Option<Instant>,
    pub(crate) is_held: bool,
}

impl Call {
    /// Whether the server may still ask something about it after it was given up, and of whom would be unclear.
    pub(crate) fn leaves_ghost(&self) -> bool {
        !self.is_held && !self.party.is_alone
    }
}

/// A request that waits for its turn, ready to be sent.
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) line: Bytes,
    asker: u64,
}

/// A request that was given up, but that the server may still be at.
struct Ghost {
    number: u64,
    asker: u64,
    since: Instant,
}

/// Whose question it is.
pub(crate) enum Whose {
    /// This caller's.
    Caller(Arc<dyn Caller>),
    /// It is about no open request.
    Nobodys,
    /// Several clients have requests open.
    Unclear,
}

impl Open {
    /// A number for a request, under which its answer is waited for.
    pub(crate) fn enter(&mut self, waiting: Waiting) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, waiting);
        self.last
    }

    /// Whether a request of `party` must wait for its turn.
    pub(crate) fn must_wait(&mut self, party: Party) -> bool {
        if !self.takes_turns || party.is_alone {
            return false;
        }
        !self.held.is_empty() || self.is_busy_with_others(party.asker)
    }

    /// Lets a request wait for its turn.
    pub(crate) fn hold(&mut self, number: u64, line: Bytes) {
        if let Some(Waiting::Caller(call)) = self.waiting.get_mut(&number) {
            call.is_held = true;
            self.held.push_back(Held { number, line, asker: call.party.asker });
        }
    }

    /// The requests whose turn has come.
    pub(crate) fn release(&mut self) -> Vec<Held> {
        let Some(asker) = self.held.front().map(|held| held.asker) else { return Vec::new() };
        if self.is_busy_with_others(asker) {
            return Vec::new();
        }
        let mut released = Vec::new();
        while self.held.front().is_some_and(|held| held.asker == asker) {
            let held = self.held.pop_front().expect("there is a first");
            if let Some(Waiting::Caller(call)) = self.waiting.get_mut(&held.number) {
                call.is_held = false;
                call.since = call.since.map(|_| Instant::now());
                released.push(held);
            }
        }
        released
    }

    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.waiting.contains_key(&number)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Call> {
        match self.waiting.get(&number) {
            Some(Waiting::Caller(call)) => Some(call),
            Some(Waiting::Ourselves(_)) | None => None,
        }
    }

    /// The request of a caller that the server has, if it has one and nothing else.
    pub(crate) fn only_one(&self) -> Option<u64> {
        let is_sent = |waiting: &Waiting| !matches!(waiting, Waiting::Caller(Call { is_held: true, .. }));
        let mut sent = self.waiting.iter().filter(|(_, waiting)| is_sent(waiting));
        let (&number, first) = sent.next()?;
        (sent.next().is_none() && matches!(first, Waiting::Caller(_))).then_some(number)
    }

    /// The request under `number` is answered. A late answer to one that was given up says that the server is no longer
    /// at it.
    pub(crate) fn answered(&mut self, number: u64) -> Option<Waiting> {
        self.ghosts.retain(|ghost| ghost.number != number);
        self.close(number)
    }

    /// The request under `number` is over.
    pub(crate) fn close(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number);
        if let Some(Waiting::Caller(Call { is_held: true, .. })) = &waiting {
            self.held.retain(|held| held.number != number);
        }
        waiting
    }

    /// The server has heard that the request under `number` is given up.
    pub(crate) fn lay_ghost(&mut self, number: u64) {
        self.ghosts.retain(|ghost| ghost.number != number);
    }

    /// The request under `number` is given up, while the server may be at it.
    pub(crate) fn give_up(&mut self, number: u64) -> Option<Call> {
        let Some(Waiting::Caller(call)) = self.close(number) else { return None };
        if call.leaves_ghost() {
            self.bury();
            if self.ghosts.len() == MOST_GHOSTS {
                self.ghosts.pop_front();
            }
            let asker = call.party.asker;
            self.ghosts.push_back(Ghost { number, asker, since: Instant::now() });
        }
        Some(call)
    }

    /// The number of the request that `client` knows as `id`. Cancellations are rare, so they search.
    pub(crate) fn find(&self, client: u64, id: &[u8]) -> Option<u64> {
        self.calls().find(|(_, call)| call.party.client == client && *call.id == *id).map(|(number, _)| number)
    }

    /// The numbers of all requests of `client`.
    pub(crate) fn of_client(&self, client: u64) -> Vec<u64> {
        self.calls().filter(|(_, call)| call.party.client == client).map(|(number, _)| number).collect()
    }

    /// The numbers of requests that were sent before `moment`.
    pub(crate) fn older_than(&self, moment: Instant) -> Vec<u64> {
        self.calls()
            .filter(|(_, call)| !call.is_held && call.since.is_some_and(|since| since < moment))
            .map(|(number, _)| number)
            .collect()
    }

    /// Whether anything else of that very caller is open.
    pub(crate) fn waits_for(&self, caller: &Arc<dyn Caller>) -> bool {
        !self.of_caller(caller).is_empty()
    }

    /// The numbers of all requests of that very caller.
    pub(crate) fn of_caller(&self, caller: &Arc<dyn Caller>) -> Vec<u64> {
        let is_its = |call: &Call| std::ptr::addr_eq(Arc::as_ptr(&call.caller), Arc::as_ptr(caller));
        self.calls().filter(|(_, call)| is_its(call)).map(|(number, _)| number).collect()
    }

    /// The numbers of requests that keep others from their turn although nobody waits for their answer any more.
    pub(crate) fn deserted(&self) -> Vec<u64> {
        let Some(next) = self.held.front() else { return Vec::new() };
        self.calls()
            .filter(|(_, call)| !call.is_held && call.party.asker != next.asker && call.caller.is_away())
            .map(|(number, _)| number)
            .collect()
    }

    /// Whose question it is that came on the stream of `about`, or on none.
    pub(crate) fn whose(&mut self, about: Option<u64>) -> Whose {
        if let Some(number) = about {
            return self.get(number).map_or(Whose::Nobodys, |call| Whose::Caller(Arc::clone(&call.caller)));
        }
        let whose = self.most_likely();
        if !matches!(&whose, Whose::Caller(caller) if caller.party().is_alone) && !self.waiting.is_empty() {
            self.takes_turns |= !matches!(whose, Whose::Nobodys);
        }
        whose
    }

    /// Whose it is if everything open belongs to one, and so does everything that was given up.
    fn most_likely(&mut self) -> Whose {
        let whose = self.only_caller();
        let Whose::Caller(caller) = &whose else { return whose };
        let asker = caller.party().asker;
        let is_surveyable = self.ghosts.len() < MOST_GHOSTS;
        if is_surveyable && self.ghosts.iter().all(|ghost| ghost.asker == asker) { whose } else { Whose::Unclear }
    }

    /// Who it is if everything open belongs to one.
    pub(crate) fn only_caller(&mut self) -> Whose {
        self.bury();
        let sent = || self.calls().filter(|(_, call)| !call.is_held);
        // The latest: its stream is the least likely to be closing.
        let Some((_, latest)) = sent().max_by_key(|&(number, _)| number) else { return Whose::Nobodys };
        let asker = latest.party.asker;
        let is_same = |other: u64| other == asker;
        let unheard = self.ghosts.iter().all(|ghost| is_same(ghost.asker));
        if unheard && sent().all(|(_, call)| is_same(call.party.asker)) {
            return Whose::Caller(Arc::clone(&latest.caller));
        }
        Whose::Unclear
    }

    /// Everything that was sent, when none of it can be answered any more. Nobody is at it any more either.
    pub(crate) fn take_sent(&mut self) -> Vec<Waiting> {
        self.ghosts.clear();
        let is_held = |waiting: &Waiting| matches!(waiting, Waiting::Caller(Call { is_held: true, .. }));
        self.waiting.extract_if(|_, waiting| !is_held(waiting)).map(|(_, waiting)| waiting).collect()
    }

    /// Everything that waits, when nothing can be answered any more.
    pub(crate) fn take_all(&mut self) -> Vec<Waiting> {
        self.held.clear();
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    fn is_busy_with_others(&mut self, asker: u64) -> bool {
        self.bury();
        self.calls().any(|(_, call)| !call.is_held && call.party.asker != asker)
            || self.ghosts.iter().any(|ghost| ghost.asker != asker)
    }

    fn bury(&mut self) {
        if !self.ghosts.is_empty() {
            self.ghosts.retain(|ghost| ghost.since.elapsed() < HAUNTING);
        }
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = (u64, &Call)> {
        self.waiting.iter().filter_map(|(&number, waiting)| match waiting {
            Waiting::Caller(call) => Some((number, call)),
            Waiting::Ourselves(_) => None,
        })
    }
}

impl std::fmt::Debug for Open {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Open").field("waiting", &self.waiting.len()).field("held", &self.held.len()).finish()
    }
}

#[cfg(test)]
mod tests;
