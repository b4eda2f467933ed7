//! How many calls each session of a document or an assistant has made.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// So many sessions are remembered. Whoever begins further ones has as many limits already.
const MAX_SESSIONS: usize = 10_000;

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    sessions: HashMap<String, Used>,
    last_turn: u64,
}

#[derive(Debug, Default)]
struct Used {
    calls: u64,
    /// The higher, the later it was used.
    turn: u64,
}

impl Sessions {
    /// Counts a call of a session, unless it has made as many as it may.
    pub(super) fn count(&self, session: &str, limit: u64) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.sessions.len() >= MAX_SESSIONS && !known.sessions.contains_key(session) {
            known.forget_oldest();
        }
        known.last_turn += 1;
        let turn = known.last_turn;
        let used = known.sessions.entry(session.to_owned()).or_default();
        used.turn = turn;
        if used.calls >= limit {
            return false;
        }
        used.calls += 1;
        true
    }

    /// All sessions begin anew.
    pub(super) fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sessions.clear();
    }
}

impl Known {
    fn forget_oldest(&mut self) {
        let oldest = self.sessions.iter().min_by_key(|(_, used)| used.turn).map(|(name, _)| name.clone());
        if let Some(oldest) = oldest {
            self.sessions.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_its_own_count_and_a_reset_starts_over() {
        let sessions = Sessions::default();
        assert!(sessions.count("a", 2) && sessions.count("a", 2) && !sessions.count("a", 2));
        assert!(sessions.count("b", 2));
        sessions.reset();
        assert!(sessions.count("a", 2));
    }
}
