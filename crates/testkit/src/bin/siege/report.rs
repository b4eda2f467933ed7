//! What was measured, held against the bounds.

use std::fmt;
use std::time::Duration;

use crate::hostile_client::Tally;
use crate::neighbour::{Latency, quantile};
use crate::options::Options;

/// How many bounds [`Report::exceeded`] checks.
pub(crate) const BOUNDS: usize = 6;

/// The longest time from SIGTERM to the end of the service.
const LONGEST_STOP: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) now_kb: u64,
    pub(crate) peak_kb: u64,
}

impl Memory {
    pub(crate) fn note(&mut self, now_kb: u64) {
        self.now_kb = now_kb;
    }
}

pub(crate) struct Report {
    pub(crate) quiet: Latency,
    pub(crate) besieged: Latency,
    pub(crate) memory: Memory,
    /// From SIGTERM to the end of the service.
    pub(crate) stop: Duration,
    /// How many lines of the log speak of a panic.
    pub(crate) panics: usize,
    pub(crate) attacks: Vec<Tally>,
}

impl Report {
    /// One line for each bound that was exceeded.
    pub(crate) fn exceeded(&self, options: &Options) -> Vec<String> {
        let mut exceeded = Vec::new();
        // Hostile servers use the processors, too: what that costs the neighbour is seen without the service.
        let mut delay = |name: &str, thousandths, most: Duration| {
            let through = quantile(&self.besieged.through, thousandths);
            let without = quantile(&self.besieged.without, thousandths);
            if through > without * 3 + most {
                exceeded.push(format!("the neighbour's {name} is {through:.1?}; without the service {without:.1?}"));
            }
        };
        delay("p50", 500, options.most_delay / 10);
        delay("p99", 990, options.most_delay);
        if let Some(failure) = self.besieged.failures.first() {
            let count = self.besieged.failures.len();
            exceeded.push(format!("{count} calls of the neighbour failed; the first: {failure:.400}"));
        }
        let peak = self.memory.peak_kb / 1024;
        if peak > options.most_memory_mb {
            exceeded.push(format!("the service occupied {peak} MB; {} MB are allowed", options.most_memory_mb));
        }
        if self.stop > LONGEST_STOP {
            exceeded.push(format!("the service ended {:.1?} after SIGTERM; {LONGEST_STOP:?} are allowed", self.stop));
        }
        if self.panics > 0 {
            exceeded.push(format!("{} panics are in the log", self.panics));
        }
        exceeded
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tally in &self.attacks {
            writeln!(formatter, "{tally}")?;
        }
        writeln!(formatter, "quiet:    {}", self.quiet)?;
        writeln!(formatter, "besieged: {}", self.besieged)?;
        write!(
            formatter,
            "memory: {} MB at most, {} MB at the end; ended {:.1?} after SIGTERM",
            self.memory.peak_kb / 1024,
            self.memory.now_kb / 1024,
            self.stop
        )
    }
}
