//! What /proc tells about a contestant: its processes, their CPU time and memory; and ending all of them.
//!
//! A contestant may be more than one process (`npx` starts node, a relay may keep a watchdog). All of them count,
//! except the test servers, which are the same work for everyone.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

/// Linux keeps 15 bytes of it, so the name of the test server must stay this short.
const SERVER_NAME: &str = "bench-server";

/// The relay's own processes: `root` and its descendants without the test servers.
pub(crate) fn relay_processes(root: Pid) -> Vec<Pid> {
    let mut all = descendants(root);
    all.push(root);
    all.retain(|pid| field_of(*pid, "comm").is_none_or(|name| name.trim() != SERVER_NAME));
    all
}

/// CPU time used so far. `None` if the kernel does not say (no `schedstat`).
pub(crate) fn cpu_time(pids: &[Pid]) -> Option<Duration> {
    let mut nanos = 0u64;
    for pid in pids {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        for task in tasks.flatten() {
            // A thread may end between the two reads.
            let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else {
                continue;
            };
            nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
        }
    }
    Some(Duration::from_nanos(nanos))
}

/// Waits until what somebody does after a start (the service reads the tools and makes vectors of them) is done: it
/// would count as a cost of the first calls. One that never rests is measured as it is.
pub(crate) fn wait_until_calm(pids: &[Pid]) {
    const POLL_INTERVAL: Duration = Duration::from_millis(200);
    const IDLE_CPU_TIME: Duration = Duration::from_millis(4);
    let patience = Instant::now() + Duration::from_secs(20);
    let mut used = cpu_time(pids);
    while Instant::now() < patience {
        std::thread::sleep(POLL_INTERVAL);
        let now = cpu_time(pids);
        if now.zip(used).is_none_or(|(now, used)| now.saturating_sub(used) < IDLE_CPU_TIME) {
            return;
        }
        used = now;
    }
}

/// Memory of some processes together, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// Shared pages divided among those who share them.
    pub(crate) proportional: u64,
    /// Highest resident size since [`forget_peak`].
    pub(crate) peak: u64,
}

pub(crate) fn memory(pids: &[Pid]) -> Option<Memory> {
    let mut sum = Memory { resident: 0, proportional: 0, peak: 0 };
    for pid in pids {
        let status = field_of(*pid, "status")?;
        sum.resident += kilobytes(&status, "VmRSS:")?;
        sum.peak += kilobytes(&status, "VmHWM:")?;
        sum.proportional += kilobytes(&field_of(*pid, "smaps_rollup")?, "Pss:")?;
    }
    Some(sum)
}

/// Makes the peak start again from the current size.
pub(crate) fn forget_peak(pids: &[Pid]) -> std::io::Result<()> {
    pids.iter().try_for_each(|pid| fs::write(format!("/proc/{pid}/clear_refs"), "5"))
}

fn field_of(pid: Pid, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).ok()
}

fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    let number: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(number * 1024)
}

/// All processes below `root`, children before grandchildren.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = field_of(pid, "stat")?;
    // The name is in parentheses and may hold anything; the state and the parent follow the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}

/// Kills those of `pids` that lost their parent and so came to us: the runner is a child subreaper. The parent's own
/// clean-up gets a moment first.
pub(crate) fn end_orphans(pids: &[Pid]) {
    let patience = Instant::now() + Duration::from_millis(500);
    loop {
        let orphans: Vec<Pid> = pids
            .iter()
            .copied()
            .filter(|pid| parent_of(*pid) == Some(getpid()))
            .filter(|pid| !matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(Some(_)) | Err(_)))
            .collect();
        if orphans.is_empty() {
            return;
        }
        if Instant::now() > patience {
            for pid in orphans {
                kill_now(pid);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills a child that is still there, and waits for it.
pub(crate) fn make_end(child: &mut Child) {
    if let Ok(None) = child.try_wait()
        && let Err(error) = child.kill()
    {
        eprintln!("warning: could not kill process {}: {error}", child.id());
    }
    if let Err(error) = child.wait() {
        eprintln!("warning: could not wait for process {}: {error}", child.id());
    }
}

/// Kills a process that may already be gone.
pub(crate) fn kill_now(pid: Pid) {
    if let Err(error) = kill_process(pid, Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        eprintln!("warning: could not kill process {pid}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_seen_below_us_with_cpu_time_and_memory() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(descendants(getpid()).contains(&pid));
        assert_eq!(parent_of(pid), Some(getpid()));
        assert!(memory(&[pid]).unwrap().resident > 0);
        assert!(cpu_time(&[getpid()]).is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!descendants(getpid()).contains(&pid));
    }
}
