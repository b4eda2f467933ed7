//! Whether a connected server is well.

use std::sync::Arc;
use std::time::Duration;

use protocol::Lifecycle;
use registry::Timestamp;
use tokio::time::{Instant, timeout};
use upstream::{Connection, Probe, ProbeResult};

/// After so many failed checks in a row a server is not well, and after so many it is given up.
const DEGRADED_AFTER: u32 = 2;
const UNRESPONSIVE_AFTER: u32 = 3;

/// What is known of a server's health.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HealthRecord {
    /// When it was last looked at.
    pub(crate) last_check: Option<Timestamp>,
    /// How long its answer took.
    pub(crate) latency: Option<Duration>,
    /// Checks that failed in a row.
    pub(crate) failures: u32,
    /// What is odd.
    pub(crate) warning: Option<String>,
}

/// What follows from a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It is well.
    Healthy,
    /// It failed once, which may mean nothing.
    Unconfirmed,
    /// It failed again.
    Degraded(String),
    /// It failed too often.
    Unresponsive(String),
}

/// How to look at a server.
pub(super) struct HealthCheck {
    pub(super) connection: Arc<Connection>,
    /// Asked instead of the server.
    pub(super) url: Option<(String, Probe)>,
    pub(super) limit: Duration,
    /// How much it had done when it was last looked at.
    pub(super) activity_before: u64,
    /// How often there had been reason to doubt that it is there.
    pub(super) failures_before: u64,
}

/// What a look showed: how long it took to be sure, or what is wrong.
pub(super) struct CheckResult {
    pub(super) activity: u64,
    pub(super) liveness: u64,
    latency: Option<Duration>,
    outcome: Result<(), Failed>,
}

/// What is wrong with a server, and how much that weighs.
struct Failed {
    why: String,
    severity: Severity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// The health address does not say that the server is well, but the server itself works: no reason to disconnect it.
    Doubtful,
    /// A check failed. If that happens too often, the server is given up.
    Failed,
    /// Nobody is there: to look again would show the same.
    Gone,
}

impl Failed {
    fn new(severity: Severity, why: impl Into<String>) -> Self {
        Self { why: why.into(), severity }
    }
}

impl HealthCheck {
    /// Looks. Whoever works is well: then it need not be asked.
    pub(super) async fn run(self) -> CheckResult {
        let began = Instant::now();
        let outcome = match self.url.clone() {
            Some((url, probe)) => self.probe_url(url, probe).await,
            None if self.has_answered_calls() => return self.check_result(None, Ok(())),
            None => return self.ping().await,
        };
        self.check_result(outcome.is_ok().then(|| began.elapsed()), outcome)
    }

    /// Asks it, whatever it did before and whatever is said of it elsewhere: somebody could not speak to it.
    pub(super) async fn ping(self) -> CheckResult {
        let (began, before) = (Instant::now(), self.connection.liveness.failures());
        let outcome = self.ask().await;
        let after = self.connection.liveness.failures();
        if outcome.is_ok() || after.unreached == before.unreached {
            return self.check_result(outcome.is_ok().then(|| began.elapsed()), outcome);
        }
        let why = after.why.as_deref().unwrap_or("it cannot be reached");
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

    /// Asks the health address. Only if that says that the server is well, it is; but a server that works is not given up
    /// because the address says otherwise.
    async fn probe_url(&self, url: String, probe: Probe) -> Result<(), Failed> {
        let (what, is_about_health) = match probe(url, self.limit).await {
            ProbeResult::Healthy => return Ok(()),
            ProbeResult::Missing(what) => (what, false),
            ProbeResult::Unhealthy(what) => (what, true),
        };
        let why = format!("health_check_url: {what}");
        if self.connection.activity() > self.activity_before {
            return Err(Failed::new(Severity::Doubtful, format!("{why}; but the server answers calls")));
        }
        if is_about_health {
            return Err(Failed::new(Severity::Failed, why));
        }
        self.ask().await?;
        Err(Failed::new(Severity::Doubtful, format!("{why}; but the server answers")))
    }

    /// Any answer will do, an error as well.
    async fn ask(&self) -> Result<(), Failed> {
        let method = if self.connection.lifecycle() == Lifecycle::SelfContained { "server/discover" } else { "ping" };
        match timeout(self.limit, self.connection.ask(method, None)).await {
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
    /// Whether nobody is there.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(&self.outcome, Err(Failed { severity: Severity::Gone, .. }))
    }
}

impl HealthRecord {
    /// Notes what a look showed.
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
                self.warning = (severity == Severity::Doubtful).then(|| why.clone());
                match self.failures {
                    _ if severity == Severity::Gone => Condition::Unresponsive(why),
                    ..DEGRADED_AFTER => Condition::Unconfirmed,
                    DEGRADED_AFTER..UNRESPONSIVE_AFTER => Condition::Degraded(why),
                    _ if severity == Severity::Doubtful => Condition::Degraded(why),
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
        let gone = seen_as(Err(Failed::new(Severity::Gone, "it cannot be reached")));
        assert_eq!(HealthRecord::default().note(gone), Condition::Unresponsive("it cannot be reached".to_owned()));
    }

    #[test]
    fn one_that_works_is_not_well_but_never_given_up_for_what_its_health_address_says() {
        let mut health = HealthRecord::default();
        let odd = || seen_as(Err(Failed::new(Severity::Doubtful, "404")));
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
