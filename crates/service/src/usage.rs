//! What servers use of the machine, and what they say on the side: for people who want to know what is going on.

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

/// Looks that follow each other faster than this are answered with what the last one showed.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// What a server uses, its own processes included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UsageView {
    /// Of one processor, in percent, since somebody last looked: more than 100 if it keeps several busy.
    pub cpu_percent: f64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// How many processes that is, where they are ours to count.
    pub processes: Option<u32>,
}

impl UsageView {
    /// What the engine says of a container.
    pub(crate) fn of_container(container: &ContainerView) -> Option<Self> {
        Some(Self { cpu_percent: container.cpu_percent?, memory_bytes: container.memory_bytes?, processes: None })
    }
}

/// Measures one process that we started, and those it starts.
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

    /// What it uses; nothing if it is gone, or if this system does not say.
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
        // A first look right after the start is over too short a time to count from.
        if span >= MIN_SAMPLE_INTERVAL {
            *last = UsageSample { at: Instant::now(), cpu: used.cpu, shown: Some(shown) };
        }
        Some(shown)
    }
}

/// Listens to what a server writes to stderr, from what is kept of it on.
#[derive(Debug)]
pub struct LogReader {
    shown: watch::Receiver<Arc<CurrentState>>,
    /// What it says in this life, and how much of it was heard.
    life: Option<(Tail, u64)>,
}

impl LogReader {
    /// What is kept of what it said, or was said since it was last asked; does not wait.
    pub fn now(&mut self) -> NewLines {
        let Some(current) = self.shown.borrow_and_update().tail.clone() else { return NewLines::default() };
        let (said_before, missed_before) = match &self.life {
            Some((tail, _)) if tail.is_same(&current) => (Vec::new(), 0),
            // It was started again: what it said last before that may not have been heard.
            Some((tail, seen)) => {
                let heard = tail.since(*seen);
                self.life = None;
                (heard.lines, heard.missed)
            }
            None => (current.earlier(), 0),
        };
        let (tail, seen) = self.life.get_or_insert((current, 0));
        let heard = tail.since(*seen);
        *seen = heard.until;
        let lines = said_before.into_iter().chain(heard.lines).collect();
        NewLines { lines, missed: missed_before + heard.missed, until: heard.until }
    }

    /// Waits for more. Nothing if the server is removed.
    pub async fn next(&mut self) -> Option<NewLines> {
        loop {
            let heard = self.now();
            if !heard.lines.is_empty() {
                return Some(heard);
            }
            let life = self.life.clone();
            let more = async move {
                match life {
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
    /// What a server writes to stderr, for who wants to read along.
    pub fn log(&self, id_or_name: &str) -> Result<LogReader, Error> {
        Ok(LogReader { shown: self.context.find(id_or_name)?.subscribe(), life: None })
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
