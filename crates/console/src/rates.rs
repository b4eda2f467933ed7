//! Samples the counters of the service, to compute rates and charts.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use executions::metrics::{BOUNDS, HistogramReading, Reading, ServerReading};
use tokio::time::Instant;

/// The interval of samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(20);
/// How long samples are kept.
pub(crate) const WINDOW: Duration = Duration::from_secs(30 * 60);
/// How many samples that is.
const MAX_SAMPLES: usize = 90;
/// How many samples make a bar of a chart: one bar is a minute.
const SAMPLES_PER_BAR: usize = 3;

/// The samples.
#[derive(Default)]
pub(crate) struct RateSampler {
    samples: Mutex<VecDeque<RateSample>>,
}

struct RateSample {
    at: Instant,
    servers: HashMap<String, Counted>,
}

/// The counters of a server since the start.
#[derive(Clone, Default)]
struct Counted {
    calls: u64,
    failed: u64,
    buckets: [u64; BOUNDS.len() + 1],
}

/// The rates of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rates {
    /// Calls in the last minute.
    pub(crate) per_minute: u64,
    /// Calls in the last half hour.
    pub(crate) calls: u64,
    /// Those of them that failed.
    pub(crate) failed: u64,
    /// The median duration.
    pub(crate) p50: Option<Duration>,
    /// The 95th percentile of durations.
    pub(crate) p95: Option<Duration>,
    /// Calls per minute, the oldest first.
    pub(crate) bars: Vec<u64>,
}

impl RateSampler {
    /// Takes a sample.
    pub(crate) fn sample(&self, reading: &Reading) {
        let servers = reading.servers.iter().map(|server| (server.server.clone(), Counted::of(server))).collect();
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(RateSample { at: Instant::now(), servers });
    }

    /// The rates of each server, by name.
    pub(crate) fn rates(&self, now: &Reading) -> HashMap<String, Rates> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        now.servers.iter().map(|server| (server.server.clone(), rates(&samples, server))).collect()
    }
}

fn rates(samples: &VecDeque<RateSample>, now: &ServerReading) -> Rates {
    let name = &now.server;
    let counted = Counted::of(now);
    let before =
        |sample: Option<&RateSample>| sample.and_then(|sample| sample.servers.get(name)).cloned().unwrap_or_default();
    let minute = Duration::from_secs(60);
    let a_minute_ago = before(samples.iter().rev().find(|sample| sample.at.elapsed() >= minute));
    // Before the first sample the counters were zero; with a full window, the oldest sample is the base.
    let window = counted.since(&before(if samples.len() == MAX_SAMPLES { samples.front() } else { None }));
    let mut marks: Vec<u64> =
        samples.iter().rev().step_by(SAMPLES_PER_BAR).map(|sample| before(Some(sample)).calls).collect();
    marks.reverse();
    if samples.len() < MAX_SAMPLES {
        marks.insert(0, 0);
    }
    marks.push(counted.calls);
    Rates {
        per_minute: counted.calls.saturating_sub(a_minute_ago.calls),
        calls: window.calls,
        failed: window.failed,
        p50: quantile(&window.buckets, 0.5),
        p95: quantile(&window.buckets, 0.95),
        bars: marks.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect(),
    }
}

impl Counted {
    fn of(server: &ServerReading) -> Self {
        let HistogramReading { buckets, .. } = &server.execution;
        // In the order of `executions::metrics::OUTCOMES`: success, error, timeout, cancelled.
        let [_, errors, timeouts, _] = server.calls;
        Self { calls: server.calls.iter().sum(), failed: errors + timeouts, buckets: *buckets }
    }

    fn since(&self, before: &Self) -> Self {
        let mut buckets = self.buckets;
        for (bucket, before) in buckets.iter_mut().zip(before.buckets) {
            *bucket = bucket.saturating_sub(before);
        }
        Self {
            calls: self.calls.saturating_sub(before.calls),
            failed: self.failed.saturating_sub(before.failed),
            buckets,
        }
    }
}

/// The duration of a quantile, as precise as the buckets.
pub(crate) fn quantile(buckets: &[u64; BOUNDS.len() + 1], share: f64) -> Option<Duration> {
    let total: u64 = buckets.iter().sum();
    if total == 0 {
        return None;
    }
    let wanted = share * total as f64;
    let mut below = 0.0;
    for (at, bucket) in buckets.iter().enumerate() {
        let upper = BOUNDS.get(at).or(BOUNDS.last()).copied().unwrap_or_default() as f64;
        let lower = if at == 0 { 0.0 } else { BOUNDS[at - 1] as f64 };
        let here = *bucket as f64;
        if below + here >= wanted && here > 0.0 {
            let micros = lower + (upper - lower).max(0.0) * ((wanted - below) / here);
            return Some(Duration::from_secs_f64(micros / 1e6));
        }
        below += here;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let mut buckets = [0; BOUNDS.len() + 1];
        assert_eq!(quantile(&buckets, 0.5), None);
        buckets[6] = 90;
        buckets[9] = 10;
        let between = |share, least, most| {
            let found = quantile(&buckets, share).unwrap();
            assert!(found >= Duration::from_micros(least) && found <= Duration::from_micros(most), "{found:?}");
        };
        between(0.5, 500, 1000);
        between(0.95, 5_000, 10_000);
    }
}
