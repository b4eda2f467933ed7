//! Waiting for a state, never for a clock.

use std::time::{Duration, Instant};

/// How long anything may take before a test fails. Generous: it only costs time when something is broken, and on a
/// busy machine a process can wait many seconds for its turn.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// How often a state without an event of its own is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Calls `look` until it returns something. Panics with `what` once [`DEADLINE`] has passed.
#[track_caller]
pub fn wait_until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_at_most(DEADLINE, look).unwrap_or_else(|| panic!("waited {DEADLINE:?} in vain: {what}"))
}

/// Shows that `attempt` takes less than `limit` when the machine lets it: one try may be slow because others use the
/// processor, so only if every try of several takes longer is it the program that does.
///
/// For what has no other sign than its time, such as not waiting for somebody who does not answer. `attempt` returns how
/// long the part took that counts.
#[track_caller]
pub fn takes_less_than(limit: Duration, mut attempt: impl FnMut() -> Duration) {
    const TRIES: usize = 5;
    let mut taken = Vec::new();
    while taken.len() < TRIES {
        let took = attempt();
        if took < limit {
            return;
        }
        taken.push(took);
    }
    panic!("each of {TRIES} tries took {limit:?} or longer: {taken:?}");
}

/// Calls `look` until it returns something or `limit` has passed.
pub(crate) fn wait_at_most<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
