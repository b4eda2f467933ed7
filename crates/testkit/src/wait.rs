//! Waits for a state, not for a time.

use std::time::{Duration, Instant};

/// The timeout of everything in tests. Generous: it only costs time when something is broken, and on a busy machine a
/// process can wait many seconds for a CPU.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// How often a state without an event is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Calls `look` until it returns something. Panics with `what` once [`DEADLINE`] has passed.
#[track_caller]
pub fn wait_until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_at_most(DEADLINE, look).unwrap_or_else(|| panic!("waited {DEADLINE:?} in vain: {what}"))
}

/// Shows that `attempt` takes less than `limit` on an idle machine: one try may be slow because others use the
/// processor, so it fails only if every one of several tries takes longer.
///
/// For behaviour that only time shows, such as not waiting for a client that does not respond. `attempt` returns the
/// duration that counts.
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
