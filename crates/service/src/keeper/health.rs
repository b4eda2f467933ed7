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

/// What a look showed: how long it took to be sure, and what is odd; or what is wrong.
pub(super) struct Seen {
    pub(super) deeds: u64,
    pub(super) doubts: u64,
    latency: Option<Duration>,
    verdict: Result<Option<String>, String>,
    /// Nobody is there: to look again would show the same.
    is_gone: bool,
}

impl Look {
    /// Looks. Whoever works is well: then it need not be asked.
    pub(super) async fn look(self) -> Seen {
        let began = Instant::now();
        let verdict = match self.url.clone() {
            Some((url, probe)) => self.look_at(url, probe).await,
            None if self.has_worked() => return self.seen(None, Ok(None)),
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
        let why = after.why.as_deref().unwrap_or("it cannot be reached").to_owned();
        Seen { is_gone: true, ..self.seen(None, Err(why)) }
    }

    fn has_worked(&self) -> bool {
        self.connection.deeds() > self.deeds_before && self.connection.doubts.so_far().times == self.doubts_before
    }

    fn seen(&self, latency: Option<Duration>, verdict: Result<Option<String>, String>) -> Seen {
        let (deeds, doubts) = (self.connection.deeds(), self.connection.doubts.so_far().times);
        Seen { deeds, doubts, latency, verdict, is_gone: false }
    }

    async fn look_at(&self, url: String, probe: Probe) -> Result<Option<String>, String> {
        match probe(url, self.limit).await {
            Finding::Well => Ok(None),
            Finding::Ill(what) if self.connection.deeds() > self.deeds_before => {
                Ok(Some(format!("health_check_url: {what}; but the server answers calls")))
            }
            Finding::Ill(what) => Err(format!("health_check_url: {what}")),
        }
    }

    /// Any answer will do, an error as well.
    async fn ask(&self) -> Result<Option<String>, String> {
        let method = if self.connection.era() == Era::Modern { "server/discover" } else { "ping" };
        match timeout(self.limit, self.connection.ask(method, None)).await {
            Ok(Some(_)) => Ok(None),
            Ok(None) => Err(format!("it did not answer `{method}`")),
            Err(_) => Err(format!("it did not answer `{method}` within {} s", self.limit.as_secs_f32())),
        }
    }
}

impl Seen {
    /// Whether nobody is there.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }
}

impl Pulse {
    /// Notes what a look showed.
    pub(super) fn note(&mut self, seen: Seen) -> Condition {
        self.last_check = Some(Timestamp::now());
        match seen.verdict {
            Ok(warning) => {
                self.latency = seen.latency.or(self.latency);
                self.failures = 0;
                self.warning = warning;
                Condition::Well
            }
            Err(why) => {
                self.failures += 1;
                match self.failures {
                    _ if seen.is_gone => Condition::Lost(why),
                    ..UNWELL_AFTER => Condition::Unclear,
                    UNWELL_AFTER..GIVEN_UP_AFTER => Condition::Unwell(why),
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
        let verdict = verdict.map(|()| None).map_err(str::to_owned);
        Seen { deeds: 0, doubts: 0, latency: None, verdict, is_gone: false }
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
        let gone = Seen { is_gone: true, ..seen(Err("it cannot be reached")) };
        assert_eq!(Pulse::default().note(gone), Condition::Lost("it cannot be reached".to_owned()));
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
