//! The machine under the numbers: its description, and keeping everything on one CPU while latency is measured.

use std::process::Command;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// One line for docs/benchmarks.md: cores, CPU, kernel, compiler.
pub(crate) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = first_field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown CPU".to_owned());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let compiler = Command::new(rustc).arg("--version").output().map_or_else(
        |_| "rustc unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    format!("{cores} cores ({cpu}), Linux {}, {compiler}", kernel.trim())
}

fn first_field(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// While it lives, this thread and every process it starts run on one CPU.
pub(crate) struct OneCpu {
    before: CpuSet,
    pub(crate) cpu: usize,
}

impl OneCpu {
    pub(crate) fn pin() -> Result<Self> {
        let before = sched_getaffinity(None).context("could not read the CPU affinity")?;
        // The last one: the first serves most interrupts.
        let cpu = (0..CpuSet::MAX_CPU).rev().find(|cpu| before.is_set(*cpu)).context("no CPU is allowed to us")?;
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).context("could not set the CPU affinity")?;
        Ok(Self { before, cpu })
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.before) {
            eprintln!("warning: still pinned to one CPU: {error}");
        }
    }
}
