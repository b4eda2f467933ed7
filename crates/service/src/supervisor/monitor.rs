//! What is monitored while a server is connected: whether it lasts, whether it is healthy, whether it is used.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use upstream::Connection;

use super::backoff::{self, STABLE_AFTER};
use super::health::{CheckResult, HealthCheck};
use crate::context::ServiceContext;

/// How often an unreachable server is checked while it still has running calls.
const UNREACHABLE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The monitoring of a connected server.
pub(super) struct Monitor {
    context: Arc<ServiceContext>,
    pub(super) connection: Arc<Connection>,
    began: Instant,
    pub(super) is_stable: bool,
    next_check: Instant,
    check: Option<Pin<Box<dyn Future<Output = CheckResult> + Send>>>,
    activity_checked: u64,
    /// The number of liveness failures at the last check.
    failures_checked: u64,
    /// Since when it is idle, and its activity count at that time.
    idle_since: Instant,
    idle_activity: u64,
}

/// An event of the monitor.
pub(super) enum MonitorEvent {
    /// The connection has lasted long enough to be stable.
    Stable,
    Check,
    /// A message to it has failed, so it is checked now.
    Suspected,
    Checked(CheckResult),
    IdleCheck,
}

impl Monitor {
    /// Starts monitoring.
    pub(super) fn start(context: Arc<ServiceContext>, connection: Arc<Connection>) -> Self {
        let now = Instant::now();
        let mut monitor = Self {
            context,
            began: now,
            is_stable: false,
            next_check: now,
            check: None,
            activity_checked: connection.activity(),
            failures_checked: connection.liveness.failures().times,
            idle_since: now,
            idle_activity: connection.activity(),
            connection,
        };
        // Servers that were connected together are not all checked together.
        monitor.next_check += monitor.check_interval().mul_f64(0.5 + 0.5 * backoff::random_fraction());
        monitor
    }

    /// The interval between checks.
    fn check_interval(&self) -> Duration {
        Duration::from_secs(self.context.settings.now().health_check_interval_s.max(1))
    }

    /// The check interval may have changed.
    pub(super) fn note_settings(&mut self) {
        self.next_check = self.next_check.min(Instant::now() + self.check_interval());
    }

    /// Starts a check: of that URL, if given.
    pub(super) fn begin_check(&mut self, url: Option<String>) {
        self.check = Some(Box::pin(self.health_check(url).run()));
    }

    /// Starts a ping of the server itself.
    pub(super) fn begin_ping(&mut self) {
        self.check = Some(Box::pin(self.health_check(None).ping()));
    }

    fn health_check(&self, url: Option<String>) -> HealthCheck {
        HealthCheck {
            connection: Arc::clone(&self.connection),
            url: url.zip(self.context.probe),
            limit: Duration::from_millis(self.context.settings.now().health_check_timeout_ms),
            activity_before: self.activity_checked,
            failures_before: self.failures_checked,
        }
    }

    /// Schedules the next check.
    pub(super) fn note_checked(&mut self, check_result: &CheckResult) {
        self.check = None;
        (self.activity_checked, self.failures_checked) = (check_result.activity, check_result.liveness);
        let interval = self.check_interval();
        let is_unreachable = check_result.is_unreachable();
        self.next_check =
            Instant::now() + if is_unreachable { interval.min(UNREACHABLE_CHECK_INTERVAL) } else { interval };
    }

    /// How long a lazy server may be idle.
    fn idle_limit(&self) -> Duration {
        Duration::from_secs(self.context.settings.now().idle_timeout_s)
    }

    /// When to check whether it is idle.
    pub(super) fn next_idle_check(&self) -> Instant {
        let step = (self.idle_limit() / 8).clamp(Duration::from_millis(50), Duration::from_secs(10));
        Instant::now().max(self.idle_since) + step
    }

    /// Waits for the next event. Cancel safe.
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

    /// Whether it was idle for too long.
    pub(super) fn check_idle(&mut self) -> bool {
        let activity = self.connection.activity();
        if activity != self.idle_activity || self.connection.open_calls() > 0 {
            (self.idle_activity, self.idle_since) = (activity, Instant::now());
        }
        self.idle_since.elapsed() >= self.idle_limit()
    }
}
