//! All sessions: found by their ids, bounded in number, ended when nobody needs them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::front::Asker;
use crate::session::{Session, Transport};
use crate::usage::Usage;

/// The sessions there are.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Arc<Session>>>);

impl Sessions {
    /// The session somebody means. Whose it is not, is told no more than if there were none.
    pub(crate) fn find(&self, id: &str, asker: &Asker, transport: Transport) -> Option<Arc<Session>> {
        let session = self.lock().get(id).cloned()?;
        if !session.is_of(asker, transport) {
            return None;
        }
        session.usage.touch();
        Some(session)
    }

    /// Adds one, and takes out those that are one too many.
    pub(crate) fn add(&self, session: &Arc<Session>, most: usize) -> Vec<Arc<Session>> {
        let mut sessions = self.lock();
        let mut surplus = Vec::new();
        while sessions.len() >= most.max(1) {
            let used = sessions.iter().map(|(id, session)| (id, &*session.usage));
            let Some(id) = least_needed(used).cloned() else { break };
            surplus.extend(sessions.remove(&id));
        }
        sessions.insert(session.id.clone(), Arc::clone(session));
        surplus
    }

    /// Takes one out; whether it was there.
    pub(crate) fn remove(&self, id: &str) -> bool {
        self.lock().remove(id).is_some()
    }

    /// Takes out those that have been left alone for that long.
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

/// The one left alone the longest; one that somebody waits for only if somebody waits for all.
fn least_needed<'s, K>(sessions: impl Iterator<Item = (K, &'s Usage)>) -> Option<K> {
    let need = |usage: &Usage| (!usage.is_busy(), usage.idle());
    sessions.max_by_key(|(_, usage)| need(usage)).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_nothing_goes_first_and_then_the_oldest() {
        let usages: Vec<Usage> = (0..4)
            .map(|_| {
                let usage = Usage::new();
                std::thread::sleep(Duration::from_millis(2));
                usage
            })
            .collect();
        let named = || usages.iter().enumerate();
        usages[0].begin_reading();
        assert!(usages[1].begin_request(1));
        assert_eq!(least_needed(named()), Some(2));
        usages[2].begin_reading();
        assert_eq!(least_needed(named()), Some(3));
        usages[3].begin_reading();
        assert_eq!(least_needed(named().filter(|(number, _)| *number != 1)), Some(0));
    }
}
