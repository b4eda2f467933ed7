//! What counts against the limit of one identity, profile, server or tool. Pure, apart from the number of running calls,
//! which the calls themselves decrease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use registry::{CallLimit, CallRate};

use super::bucket::{BucketRate, TokenBucket};

/// The length of a day.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a client should wait that has too many calls in progress: nobody knows when one ends.
const CONCURRENT_RETRY: Duration = Duration::from_secs(1);

/// A moment, by two clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// The time since a fixed moment, by a monotonic clock.
    pub(super) elapsed: Duration,
    /// The time since 1970-01-01 in UTC, by the clock of the system.
    pub(super) utc: Duration,
}

impl Now {
    /// The number of days since 1970-01-01.
    pub(super) fn day(self) -> u64 {
        self.utc.as_secs() / DAY.as_secs()
    }

    /// The time until the next day begins.
    fn until_next_day(self) -> Duration {
        DAY * u32::try_from(self.day() + 1).unwrap_or(u32::MAX) - self.utc
    }
}

/// A limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// So many calls per second, and so many at once after a pause.
    PerSecond(CallRate, u32),
    /// So many calls in progress.
    Concurrent(u32),
    /// So many calls in a day.
    PerDay(u64),
}

impl Bound {
    /// The names of all bounds, as members of a limit.
    pub(crate) const NAMES: [&'static str; 3] = ["per_second", "concurrent", "per_day"];

    /// Its place among the names.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::PerSecond(..) => 0,
            Self::Concurrent(_) => 1,
            Self::PerDay(_) => 2,
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

/// What counts against a limit.
#[derive(Debug, Default)]
pub(super) struct Usage {
    bucket: TokenBucket,
    running: Arc<AtomicU32>,
    day: u64,
    calls_of_day: u64,
}

impl Usage {
    /// The bound of a limit that another call would exceed, and how long it takes until it would not. If there are
    /// several, the one that takes longest.
    pub(super) fn excess(&self, limit: &CallLimit, now: Now) -> Option<(Bound, Duration)> {
        let rate = limit.per_second.zip(BucketRate::of(limit)).and_then(|(per_second, rate)| {
            let wait = self.bucket.wait(rate, now.elapsed);
            let burst = limit.burst.unwrap_or_else(|| per_second.whole_calls());
            (!wait.is_zero()).then_some((Bound::PerSecond(per_second, burst), wait))
        });
        let concurrent = limit.concurrent.filter(|&most| self.running() >= most);
        let per_day = limit.per_day.filter(|&most| self.calls_of(now.day()) >= most);
        let concurrent = concurrent.map(|most| (Bound::Concurrent(most), CONCURRENT_RETRY));
        let per_day = per_day.map(|most| (Bound::PerDay(most), now.until_next_day()));
        [rate, concurrent, per_day].into_iter().flatten().max_by_key(|(_, wait)| *wait)
    }

    /// Counts a call. It is in progress until the returned number is decreased.
    pub(super) fn count(&mut self, limit: &CallLimit, now: Now) -> Arc<AtomicU32> {
        if let Some(rate) = BucketRate::of(limit) {
            self.bucket.take(rate, now.elapsed);
        }
        self.calls_of_day = self.calls_of(now.day()) + 1;
        self.day = self.day_of(now.day());
        self.running.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&self.running)
    }

    /// Restores the number of calls of a day.
    pub(super) fn restore(&mut self, day: u64, calls: u64) {
        (self.day, self.calls_of_day) = (day, calls);
    }

    /// The day that was last counted, and its calls.
    pub(super) fn last_day(&self) -> (u64, u64) {
        (self.day, self.calls_of_day)
    }

    /// The calls that count on a day.
    pub(super) fn calls_of(&self, day: u64) -> u64 {
        if self.day_of(day) == self.day { self.calls_of_day } else { 0 }
    }

    /// The day as which a day counts. A clock that is set back by less than a day, at midnight, does not begin a day
    /// again.
    fn day_of(&self, day: u64) -> u64 {
        if day.checked_add(1) == Some(self.day) { self.day } else { day }
    }

    /// How many calls are in progress.
    pub(super) fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// How many calls may begin now, as far as the rate allows.
    pub(super) fn available(&self, limit: &CallLimit, now: Now) -> Option<u64> {
        BucketRate::of(limit).map(|rate| self.bucket.tokens(rate, now.elapsed))
    }

    /// Whether nothing is lost if it is forgotten.
    pub(super) fn is_unused(&self, now: Now) -> bool {
        self.running() == 0 && self.calls_of(now.day()) == 0 && self.bucket.is_full(now.elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDNIGHT: u64 = 20_000 * 24 * 3600;

    fn at(utc: u64) -> Now {
        Now { elapsed: Duration::from_secs(5), utc: Duration::from_secs(utc) }
    }

    fn per_day(most: u64) -> CallLimit {
        CallLimit { per_day: Some(most), ..CallLimit::default() }
    }

    #[test]
    fn a_day_ends_at_midnight_in_utc() {
        let (limit, mut usage) = (per_day(2), Usage::default());
        usage.count(&limit, at(MIDNIGHT - 3600));
        usage.count(&limit, at(MIDNIGHT - 3600));
        let excess = usage.excess(&limit, at(MIDNIGHT - 60));
        assert_eq!(excess, Some((Bound::PerDay(2), Duration::from_secs(60))));
        assert_eq!(usage.excess(&limit, at(MIDNIGHT)), None);
        usage.count(&limit, at(MIDNIGHT));
        assert_eq!(usage.last_day(), (20_000, 1));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_begin_the_day_again() {
        let (limit, mut usage) = (per_day(1), Usage::default());
        usage.count(&limit, at(MIDNIGHT + 1));
        assert!(usage.excess(&limit, at(MIDNIGHT - 1)).is_some(), "by a moment, at midnight");
        assert!(usage.excess(&limit, at(MIDNIGHT + 2)).is_some());
        usage.restore(90_000, 1);
        assert!(usage.excess(&limit, at(MIDNIGHT)).is_none(), "a clock that was wrong by years is forgotten");
    }

    #[test]
    fn calls_in_progress_count_until_they_end() {
        let (limit, mut usage) = (CallLimit { concurrent: Some(2), ..CallLimit::default() }, Usage::default());
        let running = [usage.count(&limit, at(0)), usage.count(&limit, at(0))];
        assert_eq!(usage.excess(&limit, at(0)), Some((Bound::Concurrent(2), CONCURRENT_RETRY)));
        running[0].fetch_sub(1, Ordering::Relaxed);
        assert_eq!(usage.excess(&limit, at(0)), None);
    }

    #[test]
    fn of_several_bounds_the_one_that_lasts_longest_is_reported() {
        let rate = CallRate::per_second(1.0);
        let limit = CallLimit { per_second: rate, burst: None, concurrent: Some(1), per_day: Some(1) };
        let mut usage = Usage::default();
        assert_eq!(usage.available(&limit, at(0)), Some(1));
        usage.count(&limit, at(0));
        assert_eq!(usage.available(&limit, at(0)), Some(0));
        assert!(matches!(usage.excess(&limit, at(0)), Some((Bound::PerDay(1), _))));
        let limit = CallLimit { per_second: CallRate::per_second(0.1), burst: None, ..limit };
        let limit = CallLimit { per_day: None, ..limit };
        let mut usage = Usage::default();
        usage.count(&limit, at(0));
        let (bound, wait) = usage.excess(&limit, at(0)).unwrap();
        assert_eq!((bound, wait), (Bound::PerSecond(CallRate::per_second(0.1).unwrap(), 1), Duration::from_secs(10)));
    }

    #[test]
    fn only_what_has_no_effect_any_more_may_be_forgotten() {
        let limit = CallLimit { per_second: CallRate::per_second(0.1), ..CallLimit::default() };
        let mut usage = Usage::default();
        let later =
            |elapsed: u64, utc: u64| Now { elapsed: Duration::from_secs(elapsed), utc: Duration::from_secs(utc) };
        assert!(usage.is_unused(later(0, 0)));
        let running = usage.count(&limit, later(0, 0));
        assert!(!usage.is_unused(later(100, MIDNIGHT)), "it runs");
        running.fetch_sub(1, Ordering::Relaxed);
        assert!(!usage.is_unused(later(100, 100)), "it counts today");
        assert!(!usage.is_unused(later(5, MIDNIGHT)), "the bucket is not full");
        assert!(usage.is_unused(later(10, MIDNIGHT)));
    }
}
