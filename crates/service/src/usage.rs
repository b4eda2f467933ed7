//! The resource usage and the stderr output of servers, for people.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::watch;
use upstream::stderr::Tail;
use upstream::usage::used_by;

use crate::containers::ContainerView;
use crate::supervisor::CurrentState;
use crate::{Error, Service};

pub use upstream::stderr::NewLines;

/// Requests within this interval get the last sample.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// The resource usage of a server, including its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UsageView {
    /// Of one processor, in percent, since the last sample: more than 100 if it keeps several busy.
    pub cpu_percent: f64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The number of processes, where they can be counted.
    pub processes: Option<u32>,
}

impl UsageView {
    /// The engine's measurement of a container.
    pub(crate) fn of_container(container: &ContainerView) -> Option<Self> {
        Some(Self { cpu_percent: container.cpu_percent?, memory_bytes: container.memory_bytes?, processes: None })
    }
}

/// Measures one process that we started, and its descendants.
#[derive(Debug)]
pub(crate) struct UsageMeter {
    process: u32,
    last: Mutex<UsageSample>,
}

#[derive(Debug, Clone, Copy)]
struct UsageSample {
    at: Instant,
    cpu: Duration,
    shown: Option<UsageView>,
}

impl UsageMeter {
    /// For a process that was just started.
    pub(crate) fn new(process: u32) -> Self {
        Self { process, last: Mutex::new(UsageSample { at: Instant::now(), cpu: Duration::ZERO, shown: None }) }
    }

    /// Its usage; `None` if it has ended, or if this system does not report it.
    pub(crate) fn read(&self) -> Option<UsageView> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let span = last.at.elapsed();
        if span < MIN_SAMPLE_INTERVAL && last.shown.is_some() {
            return last.shown;
        }
        let used = used_by(self.process)?;
        let busy = used.cpu.saturating_sub(last.cpu);
        let cpu_percent = 100.0 * busy.as_secs_f64() / span.max(MIN_SAMPLE_INTERVAL).as_secs_f64();
        let shown = UsageView { cpu_percent, memory_bytes: used.memory, processes: Some(used.processes) };
        // A first sample right after the start covers too short a time.
        if span >= MIN_SAMPLE_INTERVAL {
            *last = UsageSample { at: Instant::now(), cpu: used.cpu, shown: Some(shown) };
        }
        Some(shown)
    }
}

/// Reads a server's stderr, starting with the kept lines.
#[derive(Debug)]
pub struct LogReader {
    shown: watch::Receiver<Arc<CurrentState>>,
    /// The stderr of the current run, and how many lines were read.
    current_tail: Option<(Tail, u64)>,
}

impl LogReader {
    /// The kept lines, or the lines since the last call; does not wait.
    pub fn now(&mut self) -> NewLines {
        let Some(current) = self.shown.borrow_and_update().tail.clone() else { return NewLines::default() };
        let (previous_lines, missed_before) = match &self.current_tail {
            Some((tail, _)) if tail.is_same(&current) => (Vec::new(), 0),
            // It was restarted: its last lines before that may not have been read.
            Some((tail, seen)) => {
                let new_lines = tail.since(*seen);
                self.current_tail = None;
                (new_lines.lines, new_lines.missed)
            }
            None => (current.earlier(), 0),
        };
        let (tail, seen) = self.current_tail.get_or_insert((current, 0));
        let new_lines = tail.since(*seen);
        *seen = new_lines.until;
        let lines = previous_lines.into_iter().chain(new_lines.lines).collect();
        NewLines { lines, missed: missed_before + new_lines.missed, until: new_lines.until }
    }

    /// Waits for more. `None` if the server is removed.
    pub async fn next(&mut self) -> Option<NewLines> {
        loop {
            let new_lines = self.now();
            if !new_lines.lines.is_empty() {
                return Some(new_lines);
            }
            let current_tail = self.current_tail.clone();
            let more = async move {
                match current_tail {
                    Some((tail, seen)) => tail.more_than(seen).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = more => {}
                changed = self.shown.changed() => changed.ok()?,
            }
        }
    }
}

impl Service {
    /// Follows a server's stderr.
    pub fn log(&self, id_or_name: &str) -> Result<LogReader, Error> {
        Ok(LogReader { shown: self.context.find(id_or_name)?.subscribe(), current_tail: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_sample_right_after_another_is_the_same() {
        let usage_meter = UsageMeter::new(std::process::id());
        usage_meter.last.lock().unwrap().at = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let first = usage_meter.read().unwrap();
        assert!(first.memory_bytes > 0 && first.cpu_percent >= 0.0, "{first:?}");
        assert_eq!(usage_meter.read(), Some(first));
        assert_eq!(UsageMeter::new(u32::MAX).read(), None);
    }
}
