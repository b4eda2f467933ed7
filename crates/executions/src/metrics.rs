//! Metrics of calls: cheap to count, read all at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use registry::ExecutionStatus;

use crate::limits::LimitsReading;
use crate::traces::TraceCounters;

/// The upper bounds of a histogram's buckets, in microseconds. One more bucket takes the rest.
pub const BOUNDS: [u64; 21] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// How calls end.
pub const OUTCOMES: [ExecutionStatus; 4] =
    [ExecutionStatus::Success, ExecutionStatus::Error, ExecutionStatus::Timeout, ExecutionStatus::Cancelled];

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// Adds a duration.
    pub(crate) fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS.partition_point(|&bound| bound < micros)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }

    fn read(&self) -> HistogramReading {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        HistogramReading { buckets, sum: Duration::from_micros(self.sum.load(Ordering::Relaxed)) }
    }
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramReading {
    /// How many were at most as long as the bound of the same index, and longer than the one before; not cumulative.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// The sum of all durations.
    pub sum: Duration,
}

impl HistogramReading {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// The counters of one server.
#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    calls: [AtomicU64; OUTCOMES.len()],
    retries: AtomicU64,
    checks_passed: AtomicU64,
    checks_failed: AtomicU64,
    /// From the request to the server.
    pub(crate) routing: Histogram,
    /// At the server.
    pub(crate) execution: Histogram,
}

impl ServerCounters {
    /// Counts an ended call.
    pub(crate) fn called(&self, outcome: ExecutionStatus) {
        if let Some(at) = OUTCOMES.iter().position(|&known| known == outcome) {
            self.calls[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a retry.
    pub(crate) fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a health check.
    pub(crate) fn checked(&self, is_well: bool) {
        let counter = if is_well { &self.checks_passed } else { &self.checks_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The current values, for the server of that name.
    pub(crate) fn read(&self, server: String) -> ServerReading {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerReading {
            server,
            calls: self.calls.each_ref().map(load),
            retries: load(&self.retries),
            checks_passed: load(&self.checks_passed),
            checks_failed: load(&self.checks_failed),
            routing: self.routing.read(),
            execution: self.execution.read(),
        }
    }
}

/// The metrics of one server at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReading {
    /// Its name.
    pub server: String,
    /// Ended calls, in the order of [`OUTCOMES`].
    pub calls: [u64; OUTCOMES.len()],
    /// Retries.
    pub retries: u64,
    /// Health checks it passed.
    pub checks_passed: u64,
    /// Health checks it failed.
    pub checks_failed: u64,
    /// From the request to the server.
    pub routing: HistogramReading,
    /// At the server.
    pub execution: HistogramReading,
}

/// All metrics of calls at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// By server, in the order of their registration.
    pub servers: Vec<ServerReading>,
    /// Calls that run now: from REST, the command line, documents and assistants.
    pub running: u64,
    /// Of these, queued calls.
    pub queued: u64,
    /// Calls of MCP clients that run now.
    pub mcp_running: u64,
    /// Queued calls of MCP clients.
    pub mcp_queued: u64,
    /// Calls that were refused because of a limit.
    pub refused_by_limit: u64,
    /// Calls that were refused because executions were stopped.
    pub refused_by_stop: u64,
    /// Limits by identity, profile, server and tool.
    pub limits: LimitsReading,
    /// Records of calls that are queued to be written.
    pub history_waiting: u64,
    /// Records of calls that were written.
    pub history_written: u64,
    /// Records of calls that were dropped because the database was unreachable for too long.
    pub history_dropped: u64,
    /// Spans of calls, where they are sent to a collector.
    pub traces: Option<TraceCounters>,
}
