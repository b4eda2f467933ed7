//! Waiting for a state, never for a clock.

use std::time::{Duration, Instant};

/// How long anything may take before a test fails. Generous: it only costs time when something is broken.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// How often a state without an event of its own is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Calls `look` until it returns something. Panics with `what` once [`DEADLINE`] has passed.
#[track_caller]
pub fn wait_until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_at_most(DEADLINE, look).unwrap_or_else(|| panic!("waited {DEADLINE:?} in vain: {what}"))
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
        std::thread::sleep(LOOK_AGAIN);
    }
}
