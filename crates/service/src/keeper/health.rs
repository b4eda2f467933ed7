//! Whether a connected server is well.

use std::sync::Arc;
use std::time::Duration;

use protocol::Era;
use registry::Timestamp;
use tokio::time::{Instant, timeout};
use upstream::{Connection, Finding, Probe};

/// After so many failed checks in a row a server is not well, and after so many it is given up.
const UNWELL_AFTER: u32 = 2;
const GIVEN_UP_AFTER: u32 = 3;

/// What is known of a server's health.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Pulse {
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
    Well,
    /// It failed once, which may mean nothing.
    Unclear,
    /// It failed again.
    Unwell(String),
    /// It failed too often.
    Lost(String),
}

/// How to look at a server.
pub(super) struct Look {
    pub(super) connection: Arc<Connection>,
    /// Asked instead of the server.
    pub(super) url: Option<(String, Probe)>,
    pub(super) limit: Duration,
    /// How much it had done when it was last looked at.
    pub(super) deeds_before: u64,
    /// How often there had been reason to doubt that it is there.
    pub(super) doubts_before: u64,
}

/// What a look showed: how long it took to be sure, or what is wrong.
pub(super) struct Seen {
    pub(super) deeds: u64,
    pub(super) doubts: u64,
    latency: Option<Duration>,
    verdict: Result<(), Failed>,
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

impl Look {
    /// Looks. Whoever works is well: then it need not be asked.
    pub(super) async fn look(self) -> Seen {
        let began = Instant::now();
        let verdict = match self.url.clone() {
            Some((url, probe)) => self.look_at(url, probe).await,
            None if self.has_worked() => return self.seen(None, Ok(())),
            None => return self.look_closely().await,
        };
        self.seen(verdict.is_ok().then(|| began.elapsed()), verdict)
    }

    /// Asks it, whatever it did before and whatever is said of it elsewhere: somebody could not speak to it.
    pub(super) async fn look_closely(self) -> Seen {
        let (began, before) = (Instant::now(), self.connection.doubts.so_far());
        let verdict = self.ask().await;
        let after = self.connection.doubts.so_far();
        if verdict.is_ok() || after.unreached == before.unreached {
            return self.seen(verdict.is_ok().then(|| began.elapsed()), verdict);
        }
        let why = after.why.as_deref().unwrap_or("it cannot be reached");
        self.seen(None, Err(Failed::new(Severity::Gone, why)))
    }

    fn has_worked(&self) -> bool {
        self.connection.deeds() > self.deeds_before && self.connection.doubts.so_far().times == self.doubts_before
    }

    fn seen(&self, latency: Option<Duration>, verdict: Result<(), Failed>) -> Seen {
        let (deeds, doubts) = (self.connection.deeds(), self.connection.doubts.so_far().times);
        Seen { deeds, doubts, latency, verdict }
    }

    /// Asks the health address. Only if that says that the server is well, it is; but a server that works is not given up
    /// because the address says otherwise.
    async fn look_at(&self, url: String, probe: Probe) -> Result<(), Failed> {
        let (what, is_about_health) = match probe(url, self.limit).await {
            Finding::Well => return Ok(()),
            Finding::Missing(what) => (what, false),
            Finding::Ill(what) => (what, true),
        };
        let why = format!("health_check_url: {what}");
        if self.connection.deeds() > self.deeds_before {
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
        let method = if self.connection.era() == Era::Modern { "server/discover" } else { "ping" };
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

impl Seen {
    /// Whether nobody is there.
    pub(super) fn is_gone(&self) -> bool {
        matches!(&self.verdict, Err(Failed { severity: Severity::Gone, .. }))
    }
}

impl Pulse {
    /// Notes what a look showed.
    pub(super) fn note(&mut self, seen: Seen) -> Condition {
        self.last_check = Some(Timestamp::now());
        match seen.verdict {
            Ok(()) => {
                self.latency = seen.latency.or(self.latency);
                self.failures = 0;
                self.warning = None;
                Condition::Well
            }
            Err(Failed { why, severity }) => {
                self.failures = self.failures.saturating_add(1);
                self.warning = (severity == Severity::Doubtful).then(|| why.clone());
                match self.failures {
                    _ if severity == Severity::Gone => Condition::Lost(why),
                    ..UNWELL_AFTER => Condition::Unclear,
                    UNWELL_AFTER..GIVEN_UP_AFTER => Condition::Unwell(why),
                    _ if severity == Severity::Doubtful => Condition::Unwell(why),
                    _ => Condition::Lost(why),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(verdict: Result<(), &str>) -> Seen {
        seen_as(verdict.map_err(|why| Failed::new(Severity::Failed, why)))
    }

    fn seen_as(verdict: Result<(), Failed>) -> Seen {
        Seen { deeds: 0, doubts: 0, latency: None, verdict }
    }

    #[test]
    fn the_second_failure_in_a_row_is_noticed_and_the_third_is_the_last() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.note(seen(Err("a"))), Condition::Unclear);
        assert_eq!(pulse.note(seen(Err("b"))), Condition::Unwell("b".to_owned()));
        assert_eq!(pulse.note(seen(Err("c"))), Condition::Lost("c".to_owned()));
    }

    #[test]
    fn one_that_is_gone_is_not_looked_at_three_times() {
        let gone = seen_as(Err(Failed::new(Severity::Gone, "it cannot be reached")));
        assert_eq!(Pulse::default().note(gone), Condition::Lost("it cannot be reached".to_owned()));
    }

    #[test]
    fn one_that_works_is_not_well_but_never_given_up_for_what_its_health_address_says() {
        let mut pulse = Pulse::default();
        let odd = || seen_as(Err(Failed::new(Severity::Doubtful, "404")));
        assert_eq!(pulse.note(odd()), Condition::Unclear);
        for _ in 0..10 {
            assert_eq!(pulse.note(odd()), Condition::Unwell("404".to_owned()));
        }
        assert_eq!((pulse.failures, pulse.warning.as_deref()), (11, Some("404")));
    }

    #[test]
    fn a_success_begins_the_count_anew() {
        let mut pulse = Pulse::default();
        for verdict in [Err("a"), Err("b"), Ok(()), Err("c")] {
            pulse.note(seen(verdict));
        }
        assert_eq!(pulse.failures, 1);
        assert_eq!(pulse.note(seen(Ok(()))), Condition::Well);
    }
}
