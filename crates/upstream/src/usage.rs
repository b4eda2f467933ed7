//! The resource usage of a server that we started: its process and its descendants, according to `/proc`.
//!
//! Without `/proc`, nothing is known.

use std::fs;
use std::time::Duration;

/// How many processes of a server are measured; the rest is ignored.
const MAX_PROCESSES: usize = 256;
/// The kernel's unit of processor time in `/proc`, whatever it uses internally.
const TICKS_A_SECOND: u32 = 100;

/// What a process and its descendants have used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Processor time since their start, including that of descendants that have ended.
    pub cpu: Duration,
    /// Bytes of memory in use. Shared memory is counted for each process.
    pub memory: u64,
    /// The number of processes.
    pub processes: u32,
}

/// Measures a process and its descendants; `None` if it has ended.
pub fn used_by(process: u32) -> Option<Used> {
    let mut all = of_one(process)?;
    let mut waiting = children(process);
    while let Some(next) = waiting.pop() {
        if all.processes as usize >= MAX_PROCESSES {
            break;
        }
        // It may have ended since it was listed.
        let Some(one) = of_one(next) else { continue };
        all.cpu += one.cpu;
        all.memory += one.memory;
        all.processes += 1;
        waiting.extend(children(next));
    }
    Some(all)
}

fn of_one(process: u32) -> Option<Used> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).ok();
    let cpu = Duration::from_secs(read_ticks(&read("stat")?)?) / TICKS_A_SECOND;
    // A zombie has no memory, and no line about it.
    let memory = read_memory(&read("status")?).unwrap_or_default();
    Some(Used { cpu, memory, processes: 1 })
}

/// Processor ticks, including those of children that were waited for.
fn read_ticks(stat: &str) -> Option<u64> {
    // The name is in parentheses and may hold anything, parentheses included.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut ticks = 0_u64;
    for _ in 0..4 {
        ticks = ticks.saturating_add(fields.next()?.parse().ok()?);
    }
    Some(ticks)
}

fn read_memory(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// The current children of a process, whichever of its threads started them.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let listed = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    listed.flat_map(|list| list.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_be_taken_for_numbers() {
        let stat = "7 (a) R 1 1) S 1 7 7 0 -1 4194304 100 0 0 0 5 6 7 8 20 0 3 0 100 1000000 42 184467 1 1";
        assert_eq!(read_ticks(stat), Some(26));
        assert_eq!(read_ticks("nonsense"), None);
        assert_eq!(read_memory("Name:\tVmRSS\nVmRSS:\t    42 kB\n"), Some(42 * 1024));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn we_use_something_ourselves() {
        let used = used_by(std::process::id()).unwrap();
        assert!(used.memory > 100_000 && used.processes >= 1, "{used:?}");
        assert_eq!(used_by(u32::MAX), None);
    }
}
