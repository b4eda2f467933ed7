//! When to try again after a server could not be connected to, and when to give up.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::Settings;

/// A connection that stood for this long was a good one: losing it begins a new count of failures.
pub(super) const LASTING: Duration = Duration::from_secs(5);

/// What to do after so many attempts in a row that failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Try again after a while.
    Retry(Duration),
    /// Switch it off.
    GiveUp,
}

/// What to do next. `chance`, between 0 and 1, spreads the attempts of servers that failed together.
pub(super) fn next(failures: u32, settings: &Settings, chance: f64) -> Next {
    // The first attempt is no repetition.
    if failures > settings.failure_threshold {
        return Next::GiveUp;
    }
    let delays = &settings.retry_backoff_ms;
    let nth = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    let millis = delays.get(nth).or(delays.last()).copied().unwrap_or(1_000);
    Next::Retry(Duration::from_millis(millis).mul_f64(0.9 + 0.2 * chance))
}

/// A number between 0 and 1 that is another every time.
pub(super) fn chance() -> f64 {
    let bits = RandomState::new().hash_one(0) >> 11;
    // Fifty-three bits are what the type holds exactly.
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_more_attempts_are_made_each_later_than_the_one_before_and_then_no_more() {
        let settings = Settings::default();
        let after = |failures| next(failures, &settings, 0.5);
        assert_eq!(after(1), Next::Retry(Duration::from_secs(1)));
        assert_eq!(after(2), Next::Retry(Duration::from_secs(5)));
        assert_eq!(after(3), Next::Retry(Duration::from_secs(15)));
        assert_eq!(after(4), Next::GiveUp);
    }

    #[test]
    fn with_more_attempts_than_delays_the_last_delay_stays() {
        let settings = Settings { failure_threshold: 5, retry_backoff_ms: vec![100, 200], ..Settings::default() };
        assert_eq!(next(5, &settings, 0.5), Next::Retry(Duration::from_millis(200)));
        let settings = Settings { retry_backoff_ms: Vec::new(), ..settings };
        assert_eq!(next(1, &settings, 0.5), Next::Retry(Duration::from_secs(1)));
    }

    #[test]
    fn a_delay_differs_by_a_tenth_at_most() {
        let settings = Settings::default();
        assert_eq!(next(1, &settings, 0.0), Next::Retry(Duration::from_millis(900)));
        assert_eq!(next(1, &settings, 1.0), Next::Retry(Duration::from_millis(1100)));
        assert!((0..100).all(|_| (0.0..1.0).contains(&chance())));
    }
}
