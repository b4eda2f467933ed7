//! One life of a server: met, served with, parted from.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aggregator::fleet::{Happening, Lived};
use catalog::{Kind, Offer, ServerState};
use registry::{Status, StatusChange};
use tokio::time::{Instant, sleep, sleep_until};
use upstream::failure::Cause;
use upstream::{Connection, Ending, Report, Stop};

use super::backoff::{self, LASTING, Next};
use super::health::{Condition, Look, Seen};
use super::{End, Keeper, Order, Rest, Step};
use crate::spec;

/// How long calls in flight may take when their server is to end.
const DRAINING: Duration = Duration::from_secs(30);
/// How often it is looked whether any are left.
const DRAIN_LOOK: Duration = Duration::from_millis(20);
/// How much of a server's last words is told with what went wrong.
const LAST_WORDS: usize = 300;

/// Why a life ends.
enum Parting {
    /// It ended by itself. Whether it had stood long enough to be worth an attempt at once.
    Lost { ending: Option<Arc<Ending>>, has_lasted: bool },
    /// It does not answer any more.
    Unwell(String),
    /// Somebody wants it to end.
    Asked(Vec<End>),
    /// It is reached otherwise from now on.
    Anew,
    /// Nobody has needed it for a while.
    Idle,
    /// Everything ends.
    Stopping,
}

/// What is watched while a server is up.
struct Watch {
    connection: Arc<Connection>,
    began: Instant,
    has_lasted: bool,
    next_check: Instant,
    check: Option<Pin<Box<dyn Future<Output = Seen> + Send>>>,
    deeds_checked: u64,
    /// Since when nothing was to do, and how much was done until then.
    idle_since: Instant,
    idle_deeds: u64,
}

/// What it is time for.
enum Due {
    /// It has stood long enough to be a good connection.
    Lasting,
    Check,
    Checked(Seen),
    Idleness,
}

impl Keeper {
    /// Connects the server, and stays with it to its end.
    pub(super) async fn connect(&mut self, known: Option<Arc<Offer>>) -> Step {
        let resolved = spec::resolve(&self.shown.record);
        let spec = match resolved {
            Ok(spec) => spec,
            Err(why) => return self.park(&why),
        };
        self.stand(Status::Connecting, None, None);
        let mut lived = self.house.fleet.begin(self.handle.place, spec, known);
        let parting = match self.meet(&mut lived).await {
            Ok(offer) => self.serve(&mut lived, &offer).await,
            Err(parting) => parting,
        };
        if let Parting::Lost { has_lasted: false, .. } = &parting {
            // Before its last words are in, which may take a moment.
            self.lie_down();
        }
        let report = see_off(&mut lived).await;
        self.after(parting, report.as_deref())
    }

    /// From the first contact to what it offers.
    async fn meet(&mut self, lived: &mut Lived) -> Result<Arc<Offer>, Parting> {
        loop {
            let order = tokio::select! {
                happening = lived.next() => match happening {
                    Some(Happening::Running(offer)) => return Ok(offer),
                    Some(Happening::Ended(ending)) => {
                        return Err(Parting::Lost { ending: Some(ending), has_lasted: false });
                    }
                    Some(Happening::Changed(_) | Happening::Reported(_)) => continue,
                    None => return Err(Parting::Lost { ending: None, has_lasted: false }),
                },
                order = self.next_order() => order,
            };
            let parting = match order {
                Order::Connect(reply) => {
                    self.awaiting.push(reply);
                    continue;
                }
                Order::End(end) => Parting::Asked(vec![end]),
                Order::Adopt(adoption) => {
                    if !self.adopt(adoption) {
                        continue;
                    }
                    Parting::Anew
                }
                Order::Refresh => continue,
                Order::Stop => Parting::Stopping,
            };
            lived.stop(Stop::Promptly);
            return Err(parting);
        }
    }

    /// From what it offers to its end, or to a reason for it.
    async fn serve(&mut self, lived: &mut Lived, offer: &Arc<Offer>) -> Parting {
        self.stand_up(offer);
        self.answer(Ok(()));
        let connection = self.house.fleet.view().connections[self.handle.place].clone();
        // It may have ended in the same breath.
        let Some(connection) = connection else { return Parting::Lost { ending: None, has_lasted: false } };
        let mut watch = self.watch(connection);
        loop {
            let idle_look = self.idle_look(&watch);
            tokio::select! {
                happening = lived.next() => match happening {
                    Some(Happening::Running(offer) | Happening::Changed(offer)) => self.discovered(&offer),
                    Some(Happening::Ended(ending)) => {
                        return Parting::Lost { ending: Some(ending), has_lasted: watch.has_lasted };
                    }
                    Some(Happening::Reported(_)) => {}
                    None => return Parting::Lost { ending: None, has_lasted: watch.has_lasted },
                },
                order = self.next_order() => match order {
                    // It is. Whoever asked may be gone.
                    Order::Connect(reply) => drop(reply.send(Ok(()))),
                    Order::End(end) => return self.end(lived, &watch.connection, end).await,
                    Order::Adopt(adoption) => if self.adopt(adoption) {
                        return self.replace(lived).await;
                    },
                    Order::Refresh => watch.connection.note_change(&Kind::ALL),
                    Order::Stop => return Parting::Stopping,
                },
                due = watch.due(idle_look) => match due {
                    Due::Lasting => {
                        watch.has_lasted = true;
                        self.failures = 0;
                        // If it is lost now it is made again at once, and calls wait.
                        self.house.fleet.keep_on_offer(self.handle.place, true);
                    }
                    Due::Check => watch.check = Some(Box::pin(self.look(&watch).look())),
                    Due::Checked(seen) => {
                        watch.check = None;
                        watch.deeds_checked = seen.deeds;
                        watch.next_check = Instant::now() + self.check_interval();
                        if let Some(why) = self.note_check(seen, watch.connection.open_calls()) {
                            lived.stop(Stop::Promptly);
                            return Parting::Unwell(why);
                        }
                    }
                    Due::Idleness => if watch.is_idle_for(Duration::from_secs(self.house.settings.now().idle_timeout_s)) {
                        return self.put_to_sleep(lived).await;
                    },
                },
            }
        }
    }

    fn watch(&self, connection: Arc<Connection>) -> Watch {
        let now = Instant::now();
        Watch {
            began: now,
            has_lasted: false,
            // Servers that came up together are not all looked at together.
            next_check: now + self.check_interval().mul_f64(0.5 + 0.5 * backoff::chance()),
            check: None,
            deeds_checked: connection.deeds(),
            idle_since: now,
            idle_deeds: connection.deeds(),
            connection,
        }
    }

    fn check_interval(&self) -> Duration {
        Duration::from_secs(self.house.settings.now().health_check_interval_s.max(1))
    }

    /// When to look whether a lazy server has nothing to do.
    fn idle_look(&self, watch: &Watch) -> Option<Instant> {
        let limit = Duration::from_secs(self.house.settings.now().idle_timeout_s);
        let step = (limit / 8).clamp(Duration::from_millis(50), Duration::from_secs(10));
        let looked = Instant::now().max(watch.idle_since);
        self.shown.is_lazy.then(|| looked + step)
    }

    fn look(&self, watch: &Watch) -> Look {
        let url = self.shown.record.health_check_url.clone();
        Look {
            connection: Arc::clone(&watch.connection),
            url: url.zip(self.house.probe),
            limit: Duration::from_millis(self.house.settings.now().health_check_timeout_ms),
            deeds_before: watch.deeds_checked,
        }
    }

    /// Notes what a look showed; why the server is to be given up, if it is.
    fn note_check(&mut self, seen: Seen, open_calls: usize) -> Option<String> {
        let condition = self.shown.pulse.note(seen);
        let counters = &self.house.executions.counters(self.handle.place);
        counters.checked(condition == Condition::Well);
        let (status, why) = match condition {
            Condition::Well => (Status::Connected, None),
            Condition::Unclear => (self.shown.record.status, self.shown.record.error_message.clone()),
            Condition::Unwell(why) => (Status::Degraded, Some(why)),
            // Some servers do one thing at a time. What one of them is at is not ended because it does not chat.
            Condition::Lost(why) if open_calls > 0 => (Status::Degraded, Some(why)),
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

    /// Ends it for good, or for now: nothing new is begun, and what was begun may finish.
    async fn end(&mut self, lived: &mut Lived, connection: &Arc<Connection>, end: End) -> Parting {
        self.house.fleet.keep_on_offer(self.handle.place, false);
        let (status, since) = (self.shown.record.status, self.shown.since);
        // Calls are refused from here on, with the words for what it is about to be.
        self.shown.record.status = Status::Disconnected;
        self.lie_down();
        (self.shown.record.status, self.shown.since) = (status, since);

        let deadline = Instant::now() + DRAINING;
        let mut ends = vec![end];
        while connection.open_calls() > 0 && Instant::now() < deadline && !ends.iter().any(|end| end.force) {
            let order = tokio::select! {
                () = sleep(DRAIN_LOOK) => continue,
                order = self.next_order() => order,
            };
            match order {
                Order::End(end) => ends.push(end),
                // Whoever asked may be gone.
                Order::Connect(reply) => drop(reply.send(Err("it is being disconnected".to_owned()))),
                Order::Adopt(adoption) => drop(self.adopt(adoption)),
                Order::Refresh => {}
                Order::Stop => break,
            }
        }
        let name = &self.shown.record.name;
        let cancelled =
            self.house.executions.cancel_all_at(self.handle.place, &format!("server `{name}` is being disconnected"));
        if cancelled > 0 {
            tracing::warn!(server = %name, cancelled, "calls were cancelled because their server is being disconnected");
        }
        lived.stop(Stop::Gently);
        Parting::Asked(ends)
    }

    /// Ends it to begin anew: who calls meanwhile waits.
    async fn replace(&mut self, lived: &mut Lived) -> Parting {
        self.retire(lived, ServerState::Waking).await;
        Parting::Anew
    }

    /// Ends it until it is needed again.
    async fn put_to_sleep(&mut self, lived: &mut Lived) -> Parting {
        self.retire(lived, ServerState::Dormant).await;
        Parting::Idle
    }

    /// Takes it out of use, lets it finish what it is at, and ends it. What it offers stays on offer.
    async fn retire(&mut self, lived: &mut Lived, state: ServerState) {
        let (fleet, place) = (&self.house.fleet, self.handle.place);
        fleet.keep_on_offer(place, true);
        let connection = fleet.retire(place, state, self.known.clone());
        let deadline = Instant::now() + DRAINING;
        while connection.as_ref().is_some_and(|connection| connection.open_calls() > 0)
            && Instant::now() < deadline
            && !*self.stopping.borrow()
        {
            sleep(DRAIN_LOOK).await;
        }
        lived.stop(Stop::Gently);
    }

    /// What comes after a life.
    fn after(&mut self, parting: Parting, report: Option<&Report>) -> Step {
        match parting {
            Parting::Asked(ends) => self.after_ends(ends),
            Parting::Anew => {
                self.failures = 0;
                Step::Connect(None)
            }
            Parting::Idle => Step::Doze,
            Parting::Stopping => Step::Stop,
            Parting::Unwell(why) => self.after_loss(&format!("it does not answer any more: {why}"), true),
            Parting::Lost { .. } if *self.stopping.borrow() => Step::Stop,
            Parting::Lost { ending, has_lasted } => {
                let why = in_words(ending.as_deref(), report);
                if let Some(Ending::Failed { cause: Cause::Unauthorized(_), .. }) = ending.as_deref() {
                    return self.park(&why);
                }
                self.after_loss(&why, has_lasted)
            }
        }
    }

    /// It was lost, or could not be reached.
    fn after_loss(&mut self, why: &str, has_lasted: bool) -> Step {
        if has_lasted {
            self.stand(Status::Error, Some(why.to_owned()), None);
            return Step::Connect(self.known.clone());
        }
        self.failures += 1;
        self.answer(Err(why));
        match backoff::next(self.failures, &self.house.settings.now(), backoff::chance()) {
            Next::Retry(delay) => {
                tracing::warn!(server = %self.shown.record.name, error = why, retry_in = ?delay, "server could not be connected; will try again");
                self.stand(Status::Error, Some(why.to_owned()), Some(delay));
                self.lie_down();
                Step::Wait(delay)
            }
            Next::GiveUp => {
                self.switch_off(why);
                Step::Rest(Rest { status: Status::Disabled, why: Some(why.to_owned()), done: Vec::new() })
            }
        }
    }

    /// It cannot be reached, and trying again without a change is of no use.
    fn park(&mut self, why: &str) -> Step {
        self.failures += 1;
        self.answer(Err(why));
        Step::Rest(Rest { status: Status::Error, why: Some(why.to_owned()), done: Vec::new() })
    }
}

impl Watch {
    /// Waits for what it is time for next. Nothing is lost when it is given up.
    async fn due(&mut self, idle_look: Option<Instant>) -> Due {
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
            () = idle => Due::Idleness,
        }
    }

    /// Whether there was nothing to do for that long.
    fn is_idle_for(&mut self, limit: Duration) -> bool {
        let deeds = self.connection.deeds();
        if deeds != self.idle_deeds || self.connection.open_calls() > 0 {
            (self.idle_deeds, self.idle_since) = (deeds, Instant::now());
        }
        self.idle_since.elapsed() >= limit
    }
}

/// Waits until nothing of a server is left; its last words, if it failed.
async fn see_off(lived: &mut Lived) -> Option<Arc<Report>> {
    let mut report = None;
    while let Some(happening) = lived.next().await {
        if let Happening::Reported(reported) = happening {
            report = Some(reported);
        }
    }
    report
}

/// What went wrong, with the last thing the server said about it.
fn in_words(ending: Option<&Ending>, report: Option<&Report>) -> String {
    let what = match (report, ending) {
        (Some(report), _) => report.cause.clone(),
        (None, Some(ending)) => ending.to_string(),
        (None, None) => "it ended".to_owned(),
    };
    let said = report.and_then(|report| report.last_words.iter().rev().find(|line| !line.trim().is_empty()));
    match said {
        Some(line) => format!("{what}; it said: {}", line.trim().chars().take(LAST_WORDS).collect::<String>()),
        None => what,
    }
}
