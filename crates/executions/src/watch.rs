//! Long calls: those of MCP clients, where their time is limited, are ended; all of them are recorded, so that it is
//! known after a crash what was running.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use registry::Source;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::Executions;
use super::cancel_reason::CancelReason;
use super::execution::Execution;

/// How often calls are checked. One check of all, not a timer for each: most end before the first check.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A call that takes longer than this is recorded before its end.
const LONG_CALL: Duration = Duration::from_millis(500);

/// Checks calls while there are any. Ends with the `Executions`.
pub(super) async fn watch(whole: Weak<Executions>, begun: Arc<Notify>) {
    loop {
        sleep(POLL_INTERVAL).await;
        let is_quiet = match whole.upgrade() {
            Some(whole) => whole.check_and_report_quiet(),
            None => return,
        };
        if is_quiet {
            begun.notified().await;
        }
    }
}

impl Executions {
    /// Checks all calls. Returns whether there are none, and the next one will wake the task.
    fn check_and_report_quiet(&self) -> bool {
        self.check_long_calls();
        if !self.live.is_empty() {
            return false;
        }
        self.is_watched.store(false, Ordering::SeqCst);
        // A call that began in between has not woken the task.
        self.live.is_empty()
    }

    pub(super) fn check_long_calls(&self) {
        let now = Instant::now();
        let limit = self.settings.now().mcp_timeout_ms.map(Duration::from_millis);
        for execution in self.live.all() {
            let Some(running_for) = execution.running_for(now) else { continue };
            if let Some(limit) = limit.filter(|&limit| running_for >= limit && self.is_limited(&execution)) {
                self.cancel_with(&execution, CancelReason::TimedOut(limit));
            }
            if running_for >= LONG_CALL
                && let Some(record) = execution.note()
            {
                self.recorder.note(record);
            }
        }
    }

    /// Whether the settings limit a call: not if its server's own configuration does.
    fn is_limited(&self, execution: &Execution) -> bool {
        execution.source() == Source::Mcp && self.own_limit(execution.slot_index()).is_none()
    }

    /// The time limit of a call by the configuration of the server in that slot, as far as it is known.
    pub(crate) fn own_limit(&self, slot_index: usize) -> Option<Duration> {
        self.aggregator()?.fleet.call_limit(slot_index)
    }
}
