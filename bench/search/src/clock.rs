//! What something costs: by the clock on the wall, and in time of this thread on a CPU, which a busy machine distorts less.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

/// Does something and says what it cost.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let (wall, cpu) = (Instant::now(), thread_time());
    let result = work();
    (result, Cost { wall: wall.elapsed(), cpu: thread_time().saturating_sub(cpu) })
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The median and the 99th percentile of some costs, in milliseconds, as cells of a table: wall, then CPU.
pub(crate) fn percentile_cells(costs: &[Cost]) -> String {
    let percentile = |mut values: Vec<Duration>, share: f64| {
        values.sort_unstable();
        let place = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
        values.get(place).copied().unwrap_or_default().as_secs_f64() * 1e3
    };
    let wall: Vec<Duration> = costs.iter().map(|cost| cost.wall).collect();
    let cpu: Vec<Duration> = costs.iter().map(|cost| cost.cpu).collect();
    format!(
        "{:.2} | {:.2} | {:.2} | {:.2}",
        percentile(wall.clone(), 0.5),
        percentile(wall, 0.99),
        percentile(cpu.clone(), 0.5),
        percentile(cpu, 0.99)
    )
}

/// How much memory this process has in use, in MB.
pub(crate) fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
    kilobytes / 1024.0
}
