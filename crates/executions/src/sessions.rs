//! Counts the calls of each session of a document or an assistant.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How many sessions are remembered. A caller with more sessions has as many limits already.
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
    /// Higher means more recently used.
    turn: u64,
}

impl Sessions {
    /// Counts a call of a session, unless it has reached its limit.
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

    /// Resets all sessions.
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
    fn each_session_has_its_own_count_that_can_be_reset() {
        let sessions = Sessions::default();
        assert!(sessions.count("a", 2) && sessions.count("a", 2) && !sessions.count("a", 2));
        assert!(sessions.count("b", 2));
        sessions.reset();
        assert!(sessions.count("a", 2));
    }
}
