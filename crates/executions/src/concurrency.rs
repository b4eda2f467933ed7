//! Limits how many calls run at once. Further calls are queued: first come, first served at each server, and the
//! servers take turns, so that many calls of one do not block the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A limit of concurrent calls.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit(Mutex<State>);

#[derive(Debug)]
struct State {
    limit: usize,
    queue_limit: usize,
    running: usize,
    queued: usize,
    /// By the slot index of their server. None is empty.
    queues: HashMap<usize, VecDeque<Waiter>>,
    /// The servers in the order of their turns.
    turns: VecDeque<usize>,
    last_ticket: u64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    go: oneshot::Sender<()>,
}

/// A running or queued call; released when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    concurrency: Arc<ConcurrencyLimit>,
    server: usize,
    /// If it was queued. A running call is in no queue any more.
    ticket: Option<u64>,
}

/// The queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// How many may run at once.
    pub(crate) limit: usize,
    /// How many are queued.
    pub(crate) queued: usize,
}

impl ConcurrencyLimit {
    /// A limiter with these limits.
    pub(crate) fn new(limit: usize, queue_limit: usize) -> Arc<Self> {
        let state = State {
            limit,
            queue_limit,
            running: 0,
            queued: 0,
            queues: HashMap::new(),
            turns: VecDeque::new(),
            last_ticket: 0,
        };
        Arc::new(Self(Mutex::new(state)))
    }

    /// A slot for a call to a server; and a receiver to wait for if it is queued.
    pub(crate) fn enter(self: &Arc<Self>, server: usize) -> Result<(Slot, Option<oneshot::Receiver<()>>), Full> {
        let mut state = self.lock();
        // Queued calls go first.
        if state.running < state.limit && state.queued == 0 {
            state.running += 1;
            return Ok((Slot { concurrency: Arc::clone(self), server, ticket: None }, None));
        }
        if state.queued >= state.queue_limit {
            return Err(Full { limit: state.limit, queued: state.queued });
        }
        let (go, turn) = oneshot::channel();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.queued += 1;
        let queue = state.queues.entry(server).or_default();
        queue.push_back(Waiter { ticket, go });
        if queue.len() == 1 {
            state.turns.push_back(server);
        }
        Ok((Slot { concurrency: Arc::clone(self), server, ticket: Some(ticket) }, Some(turn)))
    }

    /// Sets other limits. Running calls are not affected.
    pub(crate) fn set_limits(&self, limit: usize, queue_limit: usize) {
        let mut state = self.lock();
        (state.limit, state.queue_limit) = (limit, queue_limit);
        state.let_through();
    }

    /// How many run, and how many are queued.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running, state.queued)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn let_through(&mut self) {
        while self.running < self.limit {
            let Some(server) = self.turns.pop_front() else { return };
            let queue = self.queues.get_mut(&server).expect("a server has a turn while somebody waits for it");
            let next = queue.pop_front().expect("no queue is empty");
            if queue.is_empty() {
                self.queues.remove(&server);
            } else {
                self.turns.push_back(server);
            }
            self.queued -= 1;
            self.running += 1;
            // A dropped receiver returns its slot when the slot is dropped.
            next.go.send(()).ok();
        }
    }

    /// Removes a ticket. Returns whether it was queued.
    fn take_out(&mut self, server: usize, ticket: u64) -> bool {
        let Some(queue) = self.queues.get_mut(&server) else { return false };
        // Tickets are in order.
        let Ok(at) = queue.binary_search_by_key(&ticket, |waiter| waiter.ticket) else { return false };
        queue.remove(at);
        if queue.is_empty() {
            self.queues.remove(&server);
            self.turns.retain(|&other| other != server);
        }
        self.queued -= 1;
        true
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.concurrency.lock();
        if self.ticket.is_some_and(|ticket| state.take_out(self.server, ticket)) {
            return;
        }
        state.running -= 1;
        state.let_through();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_through(turn: &mut Option<oneshot::Receiver<()>>) -> bool {
        turn.as_mut().is_none_or(|turn| turn.try_recv().is_ok())
    }

    #[test]
    fn calls_up_to_the_limit_run_and_the_next_starts_when_one_ends() {
        let concurrency = ConcurrencyLimit::new(2, 10);
        let (first, _) = concurrency.enter(0).unwrap();
        let (_second, _) = concurrency.enter(0).unwrap();
        let (third, mut turn) = concurrency.enter(0).unwrap();
        assert!(!is_through(&mut turn));
        assert_eq!(concurrency.count(), (2, 1));
        drop(first);
        assert!(is_through(&mut turn));
        drop(third);
        assert_eq!(concurrency.count(), (1, 0));
    }

    #[test]
    fn servers_take_turns_and_each_is_served_in_order() {
        let concurrency = ConcurrencyLimit::new(1, 10);
        let (mut running, _) = concurrency.enter(0).unwrap();
        let mut waiting: Vec<_> =
            [0, 0, 0, 1, 2, 1].iter().enumerate().map(|(n, &server)| (n, concurrency.enter(server).unwrap())).collect();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(running);
            let at = waiting.iter_mut().position(|(_, (_, turn))| is_through(turn)).expect("somebody's turn has come");
            let (n, (slot, _)) = waiting.remove(at);
            order.push(n);
            running = slot;
        }
        assert_eq!(order, [0, 3, 4, 1, 5, 2]);
    }

    #[test]
    fn a_call_that_leaves_the_queue_costs_no_other_its_turn() {
        let concurrency = ConcurrencyLimit::new(1, 10);
        let (first, _) = concurrency.enter(0).unwrap();
        let (leaving, _) = concurrency.enter(0).unwrap();
        let (_stays, mut turn) = concurrency.enter(0).unwrap();
        drop(leaving);
        assert_eq!(concurrency.count(), (1, 1));
        drop(first);
        assert!(is_through(&mut turn));
    }

    #[test]
    fn a_call_cancelled_when_its_turn_comes_passes_the_turn_on() {
        let concurrency = ConcurrencyLimit::new(1, 10);
        let (first, _) = concurrency.enter(0).unwrap();
        let (second, _) = concurrency.enter(0).unwrap();
        let (_third, mut turn) = concurrency.enter(1).unwrap();
        drop(first);
        drop(second);
        assert!(is_through(&mut turn));
        assert_eq!(concurrency.count(), (1, 0));
    }

    #[test]
    fn a_full_queue_refuses_calls() {
        let concurrency = ConcurrencyLimit::new(1, 1);
        let _running = concurrency.enter(0).unwrap();
        let _waiting = concurrency.enter(0).unwrap();
        assert_eq!(concurrency.enter(0).err(), Some(Full { limit: 1, queued: 1 }));
    }

    #[test]
    fn a_higher_limit_admits_waiting_calls() {
        let concurrency = ConcurrencyLimit::new(0, 10);
        let mut waiting: Vec<_> = (0..3).map(|_| concurrency.enter(0).unwrap()).collect();
        concurrency.set_limits(2, 10);
        assert_eq!(waiting.iter_mut().map(|(_, turn)| is_through(turn)).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(concurrency.count(), (2, 1));
    }
}
