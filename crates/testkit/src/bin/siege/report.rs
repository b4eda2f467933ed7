//! Compares measurements with their limits.

use std::fmt;
use std::time::Duration;

use crate::hostile_client::Tally;
use crate::neighbour::{Latency, quantile};
use crate::options::Options;

/// The number of limits that [`Report::exceeded`] checks. Each attack and each server is another one.
const BOUNDS: usize = 7;

/// How often memory is measured.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Memory that grows without limit grows by more than this, in kB, between the middle of the siege and its end. The
/// memory of attacks varies, so averages are compared.
const MAX_GROWTH_KB: u64 = 150 << 10;

/// With fewer samples, growth cannot be determined.
const FEWEST_SAMPLES: usize = 30;

/// The longest time from SIGTERM to the end of the service.
const MAX_STOP_DURATION: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(crate) struct Memory {
    samples_kb: Vec<u64>,
    pub(crate) peak_kb: u64,
}

impl Memory {
    pub(crate) fn note(&mut self, now_kb: u64) {
        self.samples_kb.push(now_kb);
    }

    /// By how much the average of the last quarter exceeds that of the second one.
    fn growth_kb(&self) -> Option<u64> {
        let quarter = self.samples_kb.len() / 4;
        if self.samples_kb.len() < FEWEST_SAMPLES {
            return None;
        }
        let average = |samples: &[u64]| samples.iter().sum::<u64>() / samples.len().max(1) as u64;
        let (second, last) =
            (&self.samples_kb[quarter..2 * quarter], &self.samples_kb[self.samples_kb.len() - quarter..]);
        Some(average(last).saturating_sub(average(second)))
    }
}

pub(crate) struct Report {
    pub(crate) quiet: Latency,
    pub(crate) besieged: Latency,
    pub(crate) memory: Memory,
    /// From SIGTERM to the end of the service.
    pub(crate) stop: Duration,
    /// The number of log lines that mention a panic.
    pub(crate) panics: usize,
    pub(crate) attacks: Vec<Tally>,
    /// One line for each server that did not misbehave as intended.
    pub(crate) idle_servers: Vec<String>,
}

impl Report {
    /// One line for each exceeded limit.
    pub(crate) fn exceeded(&self, options: &Options) -> Vec<String> {
        let mut exceeded = Vec::new();
        // Hostile servers use the processors, too: the direct calls show what that costs.
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
        if let Some(growth) = self.memory.growth_kb().filter(|&growth| growth > MAX_GROWTH_KB) {
            exceeded.push(format!("the memory of the service grew by {} MB in the second half", growth / 1024));
        }
        if self.stop > MAX_STOP_DURATION {
            exceeded
                .push(format!("the service ended {:.1?} after SIGTERM; {MAX_STOP_DURATION:?} are allowed", self.stop));
        }
        if self.panics > 0 {
            exceeded.push(format!("{} panics are in the log", self.panics));
        }
        exceeded.extend(self.attacks.iter().filter_map(Tally::unproved));
        exceeded.extend(self.idle_servers.iter().cloned());
        exceeded
    }

    /// The number of checks.
    pub(crate) fn checks(&self) -> usize {
        BOUNDS + self.attacks.len() + crate::Kind::ALL.len()
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
            self.memory.samples_kb.last().copied().unwrap_or_default() / 1024,
            self.stop
        )
    }
}
