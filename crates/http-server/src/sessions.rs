//! All sessions: found by their ids, bounded in number, ended when idle.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::server::RequestContext;
use crate::session::{Session, Transport};
use crate::usage::Usage;

/// The open sessions.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Arc<Session>>>);

impl Sessions {
    /// The session a request names. For a session of another principal the result is the same as for none.
    pub(crate) fn find(
        &self,
        id: &str,
        request_context: &RequestContext,
        transport: Transport,
    ) -> Option<Arc<Session>> {
        let session = self.lock().get(id).cloned()?;
        if !session.is_of(request_context, transport) {
            return None;
        }
        session.usage.touch();
        Some(session)
    }

    /// Adds a session, and removes those that exceed a limit: of its own identity if that has too many, else of the
    /// one that has the most. So no identity loses a session because another opens many.
    pub(crate) fn add(&self, session: &Arc<Session>, most: usize, most_of_one: usize) -> Vec<Arc<Session>> {
        let mut sessions = self.lock();
        let mut surplus = Vec::new();
        loop {
            let owners = sessions.values().map(|session| &session.request_context.principal);
            let Some(owner) = owner_to_evict(owners, &session.request_context.principal, most, most_of_one).cloned()
            else {
                break;
            };
            let used = sessions.iter().filter(|(_, session)| session.request_context.principal == owner);
            let Some(id) = least_needed(used.map(|(id, session)| (id, &*session.usage))).cloned() else { break };
            surplus.extend(sessions.remove(&id));
        }
        sessions.insert(session.id.clone(), Arc::clone(session));
        surplus
    }

    /// Removes one. Returns whether it existed.
    pub(crate) fn remove(&self, id: &str) -> bool {
        self.lock().remove(id).is_some()
    }

    /// Removes those that have been idle for that long.
    pub(crate) fn take_idle(&self, limit: Duration) -> Vec<Arc<Session>> {
        self.lock().extract_if(|_, session| session.usage.is_deserted(limit)).map(|(_, session)| session).collect()
    }

    pub(crate) fn for_each(&self, act: impl Fn(&Session)) {
        for session in self.all() {
            act(&session);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner that must lose a session before `newcomer` gets one more; `None` if the limit allows it.
fn owner_to_evict<'o, O: Eq + Hash>(
    owners: impl Iterator<Item = &'o O>,
    newcomer: &'o O,
    most: usize,
    most_of_one: usize,
) -> Option<&'o O> {
    let mut counts = HashMap::<&O, usize>::new();
    let mut all = 1;
    for owner in owners {
        *counts.entry(owner).or_default() += 1;
        all += 1;
    }
    let own = counts.get(newcomer).copied().unwrap_or_default();
    if own >= most_of_one.max(1) {
        return Some(newcomer);
    }
    if all <= most.max(1) {
        return None;
    }
    // One more makes the newcomer's own count; if that is no less than any other, it loses one of its own.
    let (owner, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some(if own > 0 && own + 1 >= count { newcomer } else { owner })
}

/// The longest idle one; a busy one only if all are busy.
fn least_needed<'s, K>(sessions: impl Iterator<Item = (K, &'s Usage)>) -> Option<K> {
    let need = |usage: &Usage| (!usage.is_busy(), usage.idle());
    sessions.max_by_key(|(_, usage)| need(usage)).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_identity_never_ends_the_sessions_of_another_that_has_fewer() {
        let owners = ["a", "a", "a", "b", "b", "c"];
        let turn = |newcomer, most, of_one| owner_to_evict(owners.iter(), newcomer, most, of_one).copied();
        assert_eq!(turn(&"a", 10, 10), None);
        assert_eq!(turn(&"a", 10, 3), Some("a"), "it has as many as one may have");
        assert_eq!(turn(&"a", 6, 10), Some("a"), "it has the most itself");
        assert_eq!(turn(&"b", 6, 10), Some("b"), "with one more it would have as many");
        assert_eq!(turn(&"c", 6, 10), Some("a"));
        assert_eq!(turn(&"d", 6, 10), Some("a"));
    }

    #[test]
    fn idle_sessions_are_evicted_first_and_then_the_oldest() {
        // Activity is recorded in milliseconds, so each step is some of them later than the one before.
        let later = || std::thread::sleep(Duration::from_millis(3));
        let begun = |_| {
            later();
            Usage::new()
        };
        let usages: Vec<Usage> = (0..4).map(begun).collect();
        let named = || usages.iter().enumerate();
        later();
        usages[0].begin_reading();
        later();
        assert!(usages[1].begin_request(1));
        assert_eq!(least_needed(named()), Some(2));
        later();
        usages[2].begin_reading();
        assert_eq!(least_needed(named()), Some(3));
        later();
        usages[3].begin_reading();
        assert_eq!(least_needed(named().filter(|(number, _)| *number != 1)), Some(0));
    }
}
