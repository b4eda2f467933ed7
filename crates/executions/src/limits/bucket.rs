//! A token bucket: how many calls per second may begin, and how many at once after a pause.
//!
//! Pure: the caller passes the time, as the time since a fixed moment of a monotonic clock.

use std::time::Duration;

use registry::CallLimit;

/// The rate at which a bucket is filled, and its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BucketRate {
    /// The time until one more token is there, in nanoseconds.
    interval: u64,
    /// How many tokens there are at most.
    burst: u64,
}

impl BucketRate {
    /// The rate of a limit, if it has one.
    pub(super) fn of(limit: &CallLimit) -> Option<Self> {
        let rate = limit.per_second?;
        let burst = limit.burst.unwrap_or_else(|| rate.whole_calls());
        Some(Self { interval: nanos(rate.interval()), burst: u64::from(burst.max(1)) })
    }

    /// The time in which an empty bucket is filled.
    fn fill_time(self) -> u64 {
        self.interval.saturating_mul(self.burst)
    }
}

/// A token bucket. It starts full.
///
/// Instead of a number of tokens it stores when it will be full again, which needs no updates while time passes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TokenBucket {
    /// In nanoseconds.
    full_at: u64,
}

impl TokenBucket {
    /// How long it takes until there is a token. Zero if there is one.
    pub(super) fn wait(self, rate: BucketRate, now: Duration) -> Duration {
        // With a token fewer, the bucket may not be emptier than empty.
        let missing = self.time_to_fill(rate, now) + rate.interval;
        Duration::from_nanos(missing.saturating_sub(rate.fill_time()))
    }

    /// Takes a token. If there is none, nothing changes.
    pub(super) fn take(&mut self, rate: BucketRate, now: Duration) {
        if self.wait(rate, now).is_zero() {
            self.full_at = nanos(now) + self.time_to_fill(rate, now) + rate.interval;
        }
    }

    /// How many tokens there are.
    pub(super) fn tokens(self, rate: BucketRate, now: Duration) -> u64 {
        rate.burst.saturating_sub(self.time_to_fill(rate, now).div_ceil(rate.interval))
    }

    /// Whether it is full, at any rate.
    pub(super) fn is_full(self, now: Duration) -> bool {
        self.full_at <= nanos(now)
    }

    /// The time until it is full. After a change of the rate it is at most empty, whatever the old rate was.
    fn time_to_fill(self, rate: BucketRate, now: Duration) -> u64 {
        self.full_at.saturating_sub(nanos(now)).min(rate.fill_time())
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use registry::CallRate;

    use super::*;

    fn rate(per_second: f64, burst: Option<u32>) -> BucketRate {
        let per_second = CallRate::per_second(per_second);
        BucketRate::of(&CallLimit { per_second, burst, ..CallLimit::default() }).unwrap()
    }

    #[test]
    fn a_burst_goes_through_and_then_one_token_comes_in_each_interval() {
        let (rate, mut bucket) = (rate(10.0, Some(3)), TokenBucket::default());
        let at = Duration::from_millis;
        for left in [2, 1, 0] {
            assert_eq!(bucket.wait(rate, at(1000)), Duration::ZERO);
            bucket.take(rate, at(1000));
            assert_eq!(bucket.tokens(rate, at(1000)), left);
        }
        assert_eq!(bucket.wait(rate, at(1000)), at(100));
        assert_eq!(bucket.wait(rate, at(1060)), at(40));
        assert_eq!(bucket.wait(rate, at(1100)), Duration::ZERO);
        bucket.take(rate, at(1100));
        assert_eq!(bucket.wait(rate, at(1100)), at(100));
        assert_eq!(bucket.tokens(rate, at(5000)), 3, "it never holds more than its capacity");
    }

    #[test]
    fn without_a_burst_the_calls_of_a_second_may_begin_at_once() {
        assert_eq!(rate(5.0, None).burst, 5);
        assert_eq!(rate(2.5, None).burst, 3);
        assert_eq!(rate(0.01, None).burst, 1);
    }

    #[test]
    fn a_higher_rate_counts_at_once_and_not_only_when_the_old_one_has_filled_the_bucket() {
        let (slow, fast) = (rate(0.001, Some(100)), rate(10.0, Some(1)));
        let mut bucket = TokenBucket::default();
        for _ in 0..100 {
            bucket.take(slow, Duration::ZERO);
        }
        assert_eq!(bucket.wait(slow, Duration::ZERO), Duration::from_secs(1000));
        assert_eq!(bucket.wait(fast, Duration::ZERO), Duration::from_millis(100));
    }

    proptest! {
        #[test]
        fn in_no_window_more_calls_begin_than_the_burst_and_the_rate_allow(
            thousandths in 1_u32..1_000_000, burst in 1_u32..50, pauses in prop::collection::vec(0_u64..5_000_000_000, 1..200),
        ) {
            let rate = rate(f64::from(thousandths) / 1000.0, Some(burst));
            let (mut bucket, mut now, mut begun) = (TokenBucket::default(), 0, Vec::new());
            for pause in pauses {
                now += pause;
                let at = Duration::from_nanos(now);
                let (is_there, tokens) = (bucket.wait(rate, at).is_zero(), bucket.tokens(rate, at));
                prop_assert_eq!(is_there, tokens > 0);
                if is_there {
                    bucket.take(rate, at);
                    prop_assert_eq!(bucket.tokens(rate, at), tokens - 1);
                    begun.push(now);
                }
            }
            for (first, from) in begun.iter().enumerate() {
                for (last, to) in begun.iter().enumerate().skip(first) {
                    let most = u64::from(burst) + (to - from) / rate.interval;
                    prop_assert!((last - first + 1) as u64 <= most);
                }
            }
        }

        #[test]
        fn a_call_may_begin_after_exactly_the_wait(
            thousandths in 1_u32..1_000_000, burst in 1_u32..50, taken in 0_u32..100, later in 0_u64..10_000_000_000,
        ) {
            let rate = rate(f64::from(thousandths) / 1000.0, Some(burst));
            let mut bucket = TokenBucket::default();
            for _ in 0..taken {
                bucket.take(rate, Duration::ZERO);
            }
            let now = Duration::from_nanos(later);
            let wait = bucket.wait(rate, now);
            prop_assert!(nanos(wait) <= rate.interval);
            prop_assert_eq!(bucket.wait(rate, now + wait), Duration::ZERO);
            if !wait.is_zero() {
                prop_assert!(!bucket.wait(rate, now + wait - Duration::from_nanos(1)).is_zero());
            }
        }

        #[test]
        fn whoever_keeps_to_the_rate_never_waits(thousandths in 1_u32..1_000_000, count in 1_u64..200) {
            let rate = rate(f64::from(thousandths) / 1000.0, Some(1));
            let mut bucket = TokenBucket::default();
            for number in 0..count {
                let now = Duration::from_nanos(number * rate.interval);
                prop_assert_eq!(bucket.wait(rate, now), Duration::ZERO);
                bucket.take(rate, now);
            }
        }
    }
}
