//! What is watched while a server is up: whether it lasts, whether it is well, whether anybody needs it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use registry::{Status, StatusChange};
use tokio::time::{Instant, sleep_until};
use upstream::Connection;

use super::Keeper;
use super::backoff::{self, LASTING};
use super::health::{Condition, Look, Seen};

/// How often one is looked at that nobody can reach while it still has calls in hand.
const GONE_INTERVAL: Duration = Duration::from_secs(2);
/// And how often: some stop listening and finish what they are at before they end.
const GONE_LOOKS: u32 = 15;

/// What is watched while a server is up.
pub(super) struct Watch {
    pub(super) connection: Arc<Connection>,
    began: Instant,
    pub(super) has_lasted: bool,
    pub(super) next_check: Instant,
    pub(super) check: Option<Pin<Box<dyn Future<Output = Seen> + Send>>>,
    pub(super) deeds_checked: u64,
    /// How often there was reason to doubt that it is there, when it was last looked at.
    pub(super) doubts_checked: u64,
    /// Since when nothing was to do, and how much was done until then.
    idle_since: Instant,
    idle_deeds: u64,
}

/// What it is time for.
pub(super) enum Due {
    /// It has stood long enough to be a good connection.
    Lasting,
    Check,
    /// Somebody could not speak to it, so it is looked at now.
    Doubt,
    Checked(Seen),
    Idleness,
}

impl Watch {
    /// Waits for what it is time for next. Nothing is lost when it is given up.
    pub(super) async fn due(&mut self, idle_look: Option<Instant>) -> Due {
        let lasting = self.began + LASTING;
        let is_checking = self.check.is_some();
        let check = async {
            match &mut self.check {
                Some(check) => check.await,
                None => std::future::pending().await,
            }
        };
        let idle = async {
            match idle_look {
                Some(moment) => sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep_until(lasting), if !self.has_lasted => Due::Lasting,
            seen = check => Due::Checked(seen),
            () = sleep_until(self.next_check), if !is_checking => Due::Check,
            () = self.connection.doubts.beyond(self.doubts_checked), if !is_checking => Due::Doubt,
            () = idle => Due::Idleness,
        }
    }

    /// Whether there was nothing to do for that long.
    pub(super) fn is_idle_for(&mut self, limit: Duration) -> bool {
        let deeds = self.connection.deeds();
        if deeds != self.idle_deeds || self.connection.open_calls() > 0 {
            (self.idle_deeds, self.idle_since) = (deeds, Instant::now());
        }
        self.idle_since.elapsed() >= limit
    }
}

impl Keeper {
    /// Begins to watch.
    pub(super) fn watch(&self, connection: Arc<Connection>) -> Watch {
        let now = Instant::now();
        Watch {
            began: now,
            has_lasted: false,
            // Servers that came up together are not all looked at together.
            next_check: now + self.check_interval().mul_f64(0.5 + 0.5 * backoff::chance()),
            check: None,
            deeds_checked: connection.deeds(),
            doubts_checked: connection.doubts.so_far().times,
            idle_since: now,
            idle_deeds: connection.deeds(),
            connection,
        }
    }

    /// How often it is looked at.
    pub(super) fn check_interval(&self) -> Duration {
        Duration::from_secs(self.house.settings.now().health_check_interval_s.max(1))
    }

    /// When to look whether a lazy server has nothing to do.
    pub(super) fn idle_look(&self, watch: &Watch) -> Option<Instant> {
        let limit = Duration::from_secs(self.house.settings.now().idle_timeout_s);
        let step = (limit / 8).clamp(Duration::from_millis(50), Duration::from_secs(10));
        let looked = Instant::now().max(watch.idle_since);
        self.shown.is_lazy.then(|| looked + step)
    }

    /// How to look at it.
    pub(super) fn look(&self, watch: &Watch) -> Look {
        let url = self.shown.record.health_check_url.clone();
        Look {
            connection: Arc::clone(&watch.connection),
            url: url.zip(self.house.probe),
            limit: Duration::from_millis(self.house.settings.now().health_check_timeout_ms),
            deeds_before: watch.deeds_checked,
            doubts_before: watch.doubts_checked,
        }
    }

    /// When to look at it next, after such a look.
    pub(super) fn next_check(&self, seen: &Seen) -> Instant {
        let interval = self.check_interval();
        Instant::now() + if seen.is_gone() { interval.min(GONE_INTERVAL) } else { interval }
    }

    /// Notes what a look showed; why the server is to be given up, if it is.
    pub(super) fn note_check(&mut self, seen: Seen, open_calls: usize) -> Option<String> {
        let is_gone = seen.is_gone();
        let condition = self.shown.pulse.note(seen);
        // What is at a server that nobody has reached for so long will not come back.
        let is_gone_for_good = is_gone && self.shown.pulse.failures > GONE_LOOKS;
        self.house.executions.count(self.handle.place, |counters| counters.checked(condition == Condition::Well));
        if condition == Condition::Well {
            self.illnesses = 0;
        }
        let (status, why) = match condition {
            Condition::Well => (Status::Connected, None),
            Condition::Unclear => (self.shown.record.status, self.shown.record.error_message.clone()),
            Condition::Unwell(why) => (Status::Degraded, Some(why)),
            // Some servers do one thing at a time. What one of them is at is not ended because it does not chat.
            Condition::Lost(why) if open_calls > 0 && !is_gone_for_good => (Status::Degraded, Some(why)),
            Condition::Lost(why) => return Some(why),
        };
        let at = self.shown.pulse.last_check;
        if (status, &why) == (self.shown.record.status, &self.shown.record.error_message) {
            self.shown.record.last_health_check = at;
            self.publish();
            if let Some(at) = at {
                self.house.records.looked_at(self.handle.id, at);
            }
        } else {
            let change = StatusChange { error_message: why, last_health_check: at, ..StatusChange::to(status) };
            self.stand_with(change, None);
        }
        None
    }
}
