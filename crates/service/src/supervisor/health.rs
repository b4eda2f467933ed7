//! Health checks of a connected server.

use std::sync::Arc;
use std::time::Duration;

use protocol::Lifecycle;
use registry::Timestamp;
use tokio::time::{Instant, timeout};
use upstream::{Connection, Probe, ProbeResult};

/// After this many failed checks in a row a server is degraded, and after this many it is disconnected.
const DEGRADED_AFTER: u32 = 2;
const UNRESPONSIVE_AFTER: u32 = 3;

/// The known health of a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HealthRecord {
    /// When it was last checked.
    pub(crate) last_check: Option<Timestamp>,
    /// How long its response took.
    pub(crate) latency: Option<Duration>,
    /// Checks that failed in a row.
    pub(crate) failures: u32,
    /// A warning.
    pub(crate) warning: Option<String>,
}

/// The condition after a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It is well.
    Healthy,
    /// One check failed, which may be accidental.
    Unconfirmed,
    /// It failed again.
    Degraded(String),
    /// It failed too often.
    Unresponsive(String),
}

/// A check of a server.
pub(super) struct HealthCheck {
    pub(super) connection: Arc<Connection>,
    /// Checked instead of the server.
    pub(super) url: Option<(String, Probe)>,
    pub(super) limit: Duration,
    /// Its activity count at the last check.
    pub(super) activity_before: u64,
    /// Its liveness failures at the last check.
    pub(super) failures_before: u64,
}

/// The result of a check: how long it took, or what is wrong.
pub(super) struct CheckResult {
    pub(super) activity: u64,
    pub(super) liveness: u64,
    latency: Option<Duration>,
    outcome: Result<(), Failed>,
}

/// A problem with a server, and its severity.
struct Failed {
    why: String,
    severity: Severity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// The health address does not report the server as healthy, but the server itself works: no reason to disconnect
    /// it.
    Warning,
    /// A check failed. If that happens too often, the server is disconnected.
    Failed,
    /// It is unreachable: another check would show the same.
    Gone,
}

impl Failed {
    fn new(severity: Severity, why: impl Into<String>) -> Self {
        Self { why: why.into(), severity }
    }
}

impl HealthCheck {
    /// Runs the check. A server with recent activity is healthy and need not be pinged.
    pub(super) async fn run(self) -> CheckResult {
        let began = Instant::now();
        let outcome = match self.url.clone() {
            Some((url, probe)) => self.probe_url(url, probe).await,
            None if self.has_answered_calls() => return self.check_result(None, Ok(())),
            None => return self.ping().await,
        };
        self.check_result(outcome.is_ok().then(|| began.elapsed()), outcome)
    }

    /// Pings the server, whatever its activity and its health address: a message to it has failed.
    pub(super) async fn ping(self) -> CheckResult {
        let (began, before) = (Instant::now(), self.connection.liveness.failures());
        let outcome = self.ask().await;
        let after = self.connection.liveness.failures();
        if outcome.is_ok() || after.unreached == before.unreached {
            return self.check_result(outcome.is_ok().then(|| began.elapsed()), outcome);
        }
        let why = after.why.as_deref().unwrap_or("it is unreachable");
        self.check_result(None, Err(Failed::new(Severity::Gone, why)))
    }

    fn has_answered_calls(&self) -> bool {
        self.connection.activity() > self.activity_before
            && self.connection.liveness.failures().times == self.failures_before
    }

    fn check_result(&self, latency: Option<Duration>, outcome: Result<(), Failed>) -> CheckResult {
        let (activity, liveness) = (self.connection.activity(), self.connection.liveness.failures().times);
        CheckResult { activity, liveness, latency, outcome }
    }

    /// Checks the health address. The server is healthy only if that reports it; but a working server is not
    /// disconnected because of the address.
    async fn probe_url(&self, url: String, probe: Probe) -> Result<(), Failed> {
        let (what, is_about_health) = match probe(url, self.limit).await {
            ProbeResult::Healthy => return Ok(()),
            ProbeResult::Missing(what) => (what, false),
            ProbeResult::Unhealthy(what) => (what, true),
        };
        let why = format!("health_check_url: {what}");
        if self.connection.activity() > self.activity_before {
            return Err(Failed::new(Severity::Warning, format!("{why}; but the server answers calls")));
        }
        if is_about_health {
            return Err(Failed::new(Severity::Failed, why));
        }
        self.ask().await?;
        Err(Failed::new(Severity::Warning, format!("{why}; but the server answers")))
    }

    /// Any response will do, an error as well.
    async fn ask(&self) -> Result<(), Failed> {
        let method = if self.connection.lifecycle() == Lifecycle::SelfContained { "server/discover" } else { "ping" };
        match timeout(self.limit, self.connection.request(method, None)).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Failed::new(Severity::Failed, format!("it did not answer `{method}`"))),
            Err(_) => {
                let why = format!("it did not answer `{method}` within {} s", self.limit.as_secs_f32());
                Err(Failed::new(Severity::Failed, why))
            }
        }
    }
}

impl CheckResult {
    /// Whether it is unreachable.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(&self.outcome, Err(Failed { severity: Severity::Gone, .. }))
    }
}

impl HealthRecord {
    /// Records the result of a check.
    pub(super) fn note(&mut self, check_result: CheckResult) -> Condition {
        self.last_check = Some(Timestamp::now());
        match check_result.outcome {
            Ok(()) => {
                self.latency = check_result.latency.or(self.latency);
                self.failures = 0;
                self.warning = None;
                Condition::Healthy
            }
            Err(Failed { why, severity }) => {
                self.failures = self.failures.saturating_add(1);
                self.warning = (severity == Severity::Warning).then(|| why.clone());
                match self.failures {
                    _ if severity == Severity::Gone => Condition::Unresponsive(why),
                    ..DEGRADED_AFTER => Condition::Unconfirmed,
                    DEGRADED_AFTER..UNRESPONSIVE_AFTER => Condition::Degraded(why),
                    _ if severity == Severity::Warning => Condition::Degraded(why),
                    _ => Condition::Unresponsive(why),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_result(outcome: Result<(), &str>) -> CheckResult {
        seen_as(outcome.map_err(|why| Failed::new(Severity::Failed, why)))
    }

    fn seen_as(outcome: Result<(), Failed>) -> CheckResult {
        CheckResult { activity: 0, liveness: 0, latency: None, outcome }
    }

    #[test]
    fn the_second_failure_in_a_row_degrades_and_the_third_reconnects() {
        let mut health = HealthRecord::default();
        assert_eq!(health.note(check_result(Err("a"))), Condition::Unconfirmed);
        assert_eq!(health.note(check_result(Err("b"))), Condition::Degraded("b".to_owned()));
        assert_eq!(health.note(check_result(Err("c"))), Condition::Unresponsive("c".to_owned()));
    }

    #[test]
    fn an_unreachable_server_is_not_checked_three_times() {
        let gone = seen_as(Err(Failed::new(Severity::Gone, "it is unreachable")));
        assert_eq!(HealthRecord::default().note(gone), Condition::Unresponsive("it is unreachable".to_owned()));
    }

    #[test]
    fn a_working_server_degrades_but_is_not_reconnected_because_of_its_health_address() {
        let mut health = HealthRecord::default();
        let odd = || seen_as(Err(Failed::new(Severity::Warning, "404")));
        assert_eq!(health.note(odd()), Condition::Unconfirmed);
        for _ in 0..10 {
            assert_eq!(health.note(odd()), Condition::Degraded("404".to_owned()));
        }
        assert_eq!((health.failures, health.warning.as_deref()), (11, Some("404")));
    }

    #[test]
    fn a_success_restarts_the_count() {
        let mut health = HealthRecord::default();
        for outcome in [Err("a"), Err("b"), Ok(()), Err("c")] {
            health.note(check_result(outcome));
        }
        assert_eq!(health.failures, 1);
        assert_eq!(health.note(check_result(Ok(()))), Condition::Healthy);
    }
}
