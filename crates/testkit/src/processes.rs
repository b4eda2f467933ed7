//! What the kernel knows about a process, read from `/proc`.
//!
//! A zombie is a process that ended and was not reaped. It exists, it has no memory, files or environment.

use std::collections::HashMap;
use std::fs;

use rustix::process::Signal;

use crate::wait::wait_until;

/// Whether there is such a process, zombies included.
pub fn process_exists(pid: u32) -> bool {
    process_state(pid).is_some()
}

/// The state letter of a process (`R`, `S`, `Z` for a zombie, ...), or `None` if there is none.
pub fn process_state(pid: u32) -> Option<char> {
    read_stat(pid).map(|stat| stat.state)
}

/// Waits until the process has ended and was reaped.
#[track_caller]
pub fn wait_gone(pid: u32) {
    wait_until(&format!("process {pid} is gone"), || (!process_exists(pid)).then_some(()));
}

/// Waits until the process has ended, reaped or not.
///
/// For orphans: whether those are reaped is up to the machine's first process, not to the program under test.
#[track_caller]
pub fn wait_gone_or_zombie(pid: u32) {
    wait_until(&format!("process {pid} has ended"), || {
        process_state(pid).is_none_or(|state| state == 'Z').then_some(())
    });
}

/// The children of a process, their children, and so on, zombies included. The nearest come first.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in all_processes() {
        if let Some(stat) = read_stat(process) {
            children.entry(stat.parent).or_default().push(process);
        }
    }
    let mut found = children.remove(&pid).unwrap_or_default();
    let mut looked_at = 0;
    while let Some(&process) = found.get(looked_at) {
        found.extend(children.remove(&process).unwrap_or_default());
        looked_at += 1;
    }
    found
}

/// The processes that were started with this text in their environment, such as `NAME=value`.
///
/// Finds what escaped the process tree; the caller marks the program it starts with a variable of its own.
pub fn processes_with_env(needle: &str) -> Vec<u32> {
    let contains = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| String::from_utf8_lossy(variable).contains(needle))
    };
    all_processes().into_iter().filter(contains).collect()
}

/// Whether the process ignores this signal now.
pub fn ignores_signal(pid: u32, signal: Signal) -> bool {
    has_signal(pid, "SigIgn:", signal)
}

/// Whether the process has a handler for this signal now.
pub fn catches_signal(pid: u32, signal: Signal) -> bool {
    has_signal(pid, "SigCgt:", signal)
}

/// Whether this signal was sent to the process and has not reached it yet.
pub fn awaits_signal(pid: u32, signal: Signal) -> bool {
    has_signal(pid, "ShdPnd:", signal)
}

fn has_signal(pid: u32, key: &str, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(key)?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// How many files the process has open.
#[track_caller]
pub fn open_fds(pid: u32) -> usize {
    let folder = fs::read_dir(format!("/proc/{pid}/fd"));
    folder.unwrap_or_else(|error| panic!("could not look at the files of process {pid}: {error}")).count()
}

/// The memory that the process occupies now, in kB.
#[track_caller]
pub fn rss_kb(pid: u32) -> u64 {
    status_kb(pid, "VmRSS:")
}

/// The most memory that the process ever occupied, in kB.
#[track_caller]
pub fn peak_rss_kb(pid: u32) -> u64 {
    status_kb(pid, "VmHWM:")
}

/// From now on, [`peak_rss_kb`] counts from what the process occupies now.
#[track_caller]
pub fn reset_peak_rss(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap_or_else(|error| panic!("process {pid}: {error}"));
}

#[track_caller]
fn status_kb(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(key));
    let number = value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok());
    number.unwrap_or_else(|| panic!("process {pid} has no {key}"))
}

struct Stat {
    state: char,
    parent: u32,
}

fn read_stat(pid: u32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold blanks and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}

fn all_processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc can be read");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
