//! What is watched while a server is up: whether it lasts, whether it is well, whether anybody needs it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use registry::{Status, StatusChange};
use tokio::time::{Instant, sleep_until};
use upstream::Connection;

use super::Supervisor;
use super::backoff::{self, STABLE_AFTER};
use super::health::{CheckResult, Condition, HealthCheck};

/// How often one is looked at that nobody can reach while it still has calls in hand.
const UNREACHABLE_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// And how often: some stop listening and finish what they are at before they end.
const MAX_UNREACHABLE_CHECKS: u32 = 15;

/// What is watched while a server is up.
pub(super) struct Monitor {
    pub(super) connection: Arc<Connection>,
    began: Instant,
    pub(super) is_stable: bool,
    pub(super) next_check: Instant,
    pub(super) check: Option<Pin<Box<dyn Future<Output = CheckResult> + Send>>>,
    pub(super) activity_checked: u64,
    /// How often there was reason to doubt that it is there, when it was last looked at.
    pub(super) failures_checked: u64,
    /// Since when nothing was to do, and how much was done until then.
    idle_since: Instant,
    idle_activity: u64,
}

/// What it is time for.
pub(super) enum MonitorEvent {
    /// It has stood long enough to be a good connection.
    Stable,
    Check,
    /// Somebody could not speak to it, so it is looked at now.
    Suspected,
    Checked(CheckResult),
    IdleCheck,
}

impl Monitor {
    /// Waits for what it is time for next. Nothing is lost when it is given up.
    pub(super) async fn next_event(&mut self, next_idle_check: Option<Instant>) -> MonitorEvent {
        let stable_at = self.began + STABLE_AFTER;
        let is_checking = self.check.is_some();
        let check = async {
            match &mut self.check {
                Some(check) => check.await,
                None => std::future::pending().await,
            }
        };
        let idle = async {
            match next_idle_check {
                Some(moment) => sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep_until(stable_at), if !self.is_stable => MonitorEvent::Stable,
            check_result = check => MonitorEvent::Checked(check_result),
            () = sleep_until(self.next_check), if !is_checking => MonitorEvent::Check,
            () = self.connection.liveness.failures_beyond(self.failures_checked), if !is_checking => MonitorEvent::Suspected,
            () = idle => MonitorEvent::IdleCheck,
        }
    }

    /// Whether there was nothing to do for that long.
    pub(super) fn check_idle_for(&mut self, limit: Duration) -> bool {
        let activity = self.connection.activity();
        if activity != self.idle_activity || self.connection.open_calls() > 0 {
            (self.idle_activity, self.idle_since) = (activity, Instant::now());
        }
        self.idle_since.elapsed() >= limit
    }
}

impl Supervisor {
    /// Begins to watch.
    pub(super) fn start_monitor(&self, connection: Arc<Connection>) -> Monitor {
        let now = Instant::now();
        Monitor {
            began: now,
            is_stable: false,
            // Servers that came up together are not all looked at together.
            next_check: now + self.check_interval().mul_f64(0.5 + 0.5 * backoff::random_fraction()),
            check: None,
            activity_checked: connection.activity(),
            failures_checked: connection.liveness.failures().times,
            idle_since: now,
            idle_activity: connection.activity(),
            connection,
        }
    }

    /// How often it is looked at.
    pub(super) fn check_interval(&self) -> Duration {
        Duration::from_secs(self.context.settings.now().health_check_interval_s.max(1))
    }

    /// When to look whether a lazy server has nothing to do.
    pub(super) fn next_idle_check(&self, monitor: &Monitor) -> Option<Instant> {
        let limit = Duration::from_secs(self.context.settings.now().idle_timeout_s);
        let step = (limit / 8).clamp(Duration::from_millis(50), Duration::from_secs(10));
        let looked = Instant::now().max(monitor.idle_since);
        self.current.is_lazy.then(|| looked + step)
    }

    /// How to look at it.
    pub(super) fn health_check(&self, monitor: &Monitor) -> HealthCheck {
        let url = self.current.record.health_check_url.clone();
        HealthCheck {
            connection: Arc::clone(&monitor.connection),
            url: url.zip(self.context.probe),
            limit: Duration::from_millis(self.context.settings.now().health_check_timeout_ms),
            activity_before: monitor.activity_checked,
            failures_before: monitor.failures_checked,
        }
    }

    /// When to look at it next, after such a look.
    pub(super) fn next_check(&self, check_result: &CheckResult) -> Instant {
        let interval = self.check_interval();
        Instant::now() + if check_result.is_unreachable() { interval.min(UNREACHABLE_CHECK_INTERVAL) } else { interval }
    }

    /// Notes what a look showed; why the server is to be given up, if it is.
    pub(super) fn note_check(&mut self, check_result: CheckResult, open_calls: usize) -> Option<String> {
        let is_unreachable = check_result.is_unreachable();
        let condition = self.current.health.note(check_result);
        // What is at a server that nobody has reached for so long will not come back.
        let is_given_up = is_unreachable && self.current.health.failures > MAX_UNREACHABLE_CHECKS;
        self.context.executions.count(self.handle.place, |counters| counters.checked(condition == Condition::Healthy));
        if condition == Condition::Healthy {
            self.unhealthy_connections = 0;
        }
        let (status, why) = match condition {
            Condition::Healthy => (Status::Connected, None),
            Condition::Unconfirmed => (self.current.record.status, self.current.record.error_message.clone()),
            Condition::Degraded(why) => (Status::Degraded, Some(why)),
            // Some servers do one thing at a time. What one of them is at is not ended because it does not chat.
            Condition::Unresponsive(why) if open_calls > 0 && !is_given_up => (Status::Degraded, Some(why)),
            Condition::Unresponsive(why) => return Some(why),
        };
        let at = self.current.health.last_check;
        if (status, &why) == (self.current.record.status, &self.current.record.error_message) {
            self.current.record.last_health_check = at;
            self.publish();
            if let Some(at) = at {
                self.context.status_writer.health_checked(self.handle.id, at);
            }
        } else {
            let change = StatusChange { error_message: why, last_health_check: at, ..StatusChange::to(status) };
            self.apply_status(change, None);
        }
        None
    }
}
