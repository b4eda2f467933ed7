//! Reconnect back-off: when to retry after a failed connection, and when to give up.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::Settings;

/// A connection that lasted this long was stable: losing it begins a new count of failures.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(5);

/// A server that has worked is retried at least this often, unless its settings have a longer delay.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);

/// Whether a server has ever worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectHistory {
    Worked,
    NeverWorked,
}

/// What to do after a number of failed attempts in a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RetryDecision {
    /// Retry after a delay.
    Retry(Duration),
    /// Disable it.
    GiveUp,
}

/// What to do next. `random_fraction`, between 0 and 1, spreads the attempts of servers that failed together.
///
/// A server that never worked is given up after the first attempt and `failure_threshold` retries. One that has worked is
/// retried without end: the delays of the settings come first, and then each is twice the one before, up to five minutes.
pub(super) fn decide(
    failures: u32,
    history: ConnectHistory,
    settings: &Settings,
    random_fraction: f64,
) -> RetryDecision {
    // The first attempt is no retry.
    if failures > settings.failure_threshold && history == ConnectHistory::NeverWorked {
        return RetryDecision::GiveUp;
    }
    let delays = &settings.retry_backoff_ms;
    let nth = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    let last = Duration::from_millis(delays.last().copied().unwrap_or(1_000));
    let delay = match delays.get(nth) {
        Some(&millis) => Duration::from_millis(millis),
        None if history == ConnectHistory::NeverWorked => last,
        None => {
            let doublings = u32::try_from(nth + 1 - delays.len()).unwrap_or(u32::MAX);
            let grown = last.saturating_mul(2_u32.saturating_pow(doublings));
            grown.min(MAX_RETRY_DELAY.max(last))
        }
    };
    RetryDecision::Retry(delay.mul_f64(0.9 + 0.2 * random_fraction))
}

/// A random number between 0 and 1.
pub(super) fn random_fraction() -> f64 {
    let bits = RandomState::new().hash_one(0) >> 11;
    // A float holds 53 bits exactly.
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(decide: &RetryDecision) -> u64 {
        match decide {
            RetryDecision::Retry(delay) => delay.as_secs(),
            RetryDecision::GiveUp => panic!("it is given up"),
        }
    }

    #[test]
    fn one_that_never_worked_is_tried_four_times_each_later_than_the_one_before() {
        let settings = Settings::default();
        let after = |failures| decide(failures, ConnectHistory::NeverWorked, &settings, 0.5);
        assert_eq!([1, 2, 3].map(|failures| seconds(&after(failures))), [1, 5, 15]);
        assert_eq!(after(4), RetryDecision::GiveUp);
    }

    #[test]
    fn one_that_has_worked_is_never_given_up_and_retried_every_five_minutes_at_least() {
        let settings = Settings::default();
        let after = |failures| seconds(&decide(failures, ConnectHistory::Worked, &settings, 0.5));
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 8, 9].map(after), [1, 5, 15, 30, 60, 120, 240, 300, 300]);
        assert_eq!(after(u32::MAX), 300);
        let patient = Settings { retry_backoff_ms: vec![600_000], ..Settings::default() };
        assert_eq!(
            seconds(&decide(9, ConnectHistory::Worked, &patient, 0.5)),
            600,
            "who wants longer delays gets them"
        );
        let eager = Settings { retry_backoff_ms: vec![0], ..Settings::default() };
        assert_eq!(seconds(&decide(9, ConnectHistory::Worked, &eager, 0.5)), 0);
    }

    #[test]
    fn with_more_attempts_than_delays_the_last_delay_stays() {
        let settings = Settings { failure_threshold: 5, retry_backoff_ms: vec![100, 200], ..Settings::default() };
        assert_eq!(
            decide(5, ConnectHistory::NeverWorked, &settings, 0.5),
            RetryDecision::Retry(Duration::from_millis(200))
        );
        let settings = Settings { retry_backoff_ms: Vec::new(), ..settings };
        assert_eq!(
            decide(1, ConnectHistory::NeverWorked, &settings, 0.5),
            RetryDecision::Retry(Duration::from_secs(1))
        );
    }

    #[test]
    fn a_delay_differs_by_a_tenth_at_most() {
        let settings = Settings::default();
        assert_eq!(decide(1, ConnectHistory::Worked, &settings, 0.0), RetryDecision::Retry(Duration::from_millis(900)));
        assert_eq!(
            decide(1, ConnectHistory::Worked, &settings, 1.0),
            RetryDecision::Retry(Duration::from_millis(1100))
        );
        assert!((0..100).all(|_| (0.0..1.0).contains(&random_fraction())));
    }
}
