//! What a server that we started uses of the machine: its process and those it started, as `/proc` tells it.
//!
//! Where there is no `/proc`, nothing is known.

use std::fs;
use std::time::Duration;

/// A server does not start more processes than this; whoever does is measured in part.
const MAX_PROCESSES: usize = 256;
/// How the kernel counts processor time for programs, whatever it does inside.
const TICKS_A_SECOND: u32 = 100;

/// What a process and its descendants have used until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Time on processors since their start, that of descendants that are gone included.
    pub cpu: Duration,
    /// Bytes of memory they have in use. What several share is counted for each.
    pub memory: u64,
    /// How many they are.
    pub processes: u32,
}

/// Looks at a process and its descendants; nothing if it is gone.
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
    // One that has ended and was not waited for has no memory, and no line about it.
    let memory = read_memory(&read("status")?).unwrap_or_default();
    Some(Used { cpu, memory, processes: 1 })
}

/// Ticks on processors, those of children that were waited for included.
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

/// The processes that a process started and that are its own still, whichever thread of it did.
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
