//! One life of a server: met, served with, parted from.

use std::sync::Arc;
use std::time::Duration;

use aggregator::fleet::{Happening, Lived};
use catalog::{Kind, Offer, ServerState};
use registry::{Status, Timestamp};
use tokio::time::{Instant, sleep};
use upstream::failure::Cause;
use upstream::stderr::cause_lines;
use upstream::{Connection, Ending, Report, Stop};

use super::backoff::{self, Next, Past};
use super::watching::Due;
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

impl Keeper {
    /// Connects the server, and stays with it to its end.
    pub(super) async fn connect(&mut self, known: Option<Arc<Offer>>) -> Step {
        // Whatever wanted it connected came before that.
        if *self.stopping.borrow() {
            return Step::Stop;
        }
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
        if let Parting::Lost { ending, has_lasted: false } = &parting {
            // Before its last words are in, which may take a moment.
            self.lie_down_as(Status::Error, Some(in_words(ending.as_deref(), None)));
        }
        let report = see_off(&mut lived).await;
        self.moved_out();
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
                    Some(happening @ (Happening::Preparing(_) | Happening::Housed(_) | Happening::Signs(_))) => {
                        self.note_housing(happening);
                        continue;
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
        // What the last connection was like says nothing about this one.
        self.shown.pulse.failures = 0;
        self.stand_up(offer);
        self.answer(Ok(()));
        let connection = self.house.fleet.view().connections[self.handle.place].clone();
        // It may have ended in the same breath.
        let Some(connection) = connection else { return Parting::Lost { ending: None, has_lasted: false } };
        let mut watch = self.watch(connection);
        loop {
            let idle_look = self.idle_look(&watch);
            let settings = self.house.settings.clone();
            // It may be looked at more often from now on.
            watch.next_check = watch.next_check.min(Instant::now() + self.check_interval());
            tokio::select! {
                () = settings.changed() => {}
                happening = lived.next() => match happening {
                    Some(Happening::Running(offer) | Happening::Changed(offer)) => self.discovered(&offer),
                    Some(Happening::Ended(ending)) => {
                        return Parting::Lost { ending: Some(ending), has_lasted: watch.has_lasted };
                    }
                    Some(
                        Happening::Reported(_)
                        | Happening::Preparing(_)
                        | Happening::Housed(_)
                        | Happening::Signs(_),
                    ) => {}
                    None => return Parting::Lost { ending: None, has_lasted: watch.has_lasted },
                },
                order = self.next_order() => match order {
                    // It is. Whoever asked may be gone.
                    Order::Connect(reply) => drop(reply.send(Ok(()))),
                    Order::End(end) => return self.end(lived, &watch.connection, end).await,
                    Order::Adopt(adoption) => if self.adopt(adoption) {
                        return self.retire(lived, ServerState::Waking, Parting::Anew).await;
                    },
                    Order::Refresh => watch.connection.note_change(&Kind::ALL),
                    Order::Stop => return Parting::Stopping,
                },
                due = watch.due(idle_look) => match due {
                    Due::Lasting => {
                        watch.has_lasted = true;
                        self.failures = 0;
                        self.note_worked();
                        // If it is lost now it is made again at once, and calls wait.
                        self.house.fleet.keep_on_offer(self.handle.place, true);
                    }
                    Due::Check => watch.check = Some(Box::pin(self.look(&watch).look())),
                    Due::Doubt => watch.check = Some(Box::pin(self.look(&watch).look_closely())),
                    Due::Checked(seen) => {
                        watch.check = None;
                        (watch.deeds_checked, watch.doubts_checked) = (seen.deeds, seen.doubts);
                        watch.next_check = self.next_check(&seen);
                        if let Some(why) = self.note_check(seen, watch.connection.open_calls()) {
                            lived.stop(Stop::Promptly);
                            return Parting::Unwell(why);
                        }
                    }
                    Due::Idleness => if watch.is_idle_for(Duration::from_secs(self.house.settings.now().idle_timeout_s)) {
                        return self.retire(lived, ServerState::Dormant, Parting::Idle).await;
                    },
                },
            }
        }
    }

    /// Ends it for good, or for now: nothing new is begun, and what was begun may finish.
    async fn end(&mut self, lived: &mut Lived, connection: &Connection, end: End) -> Parting {
        self.house.fleet.keep_on_offer(self.handle.place, false);
        self.refuse_calls();
        let deadline = Instant::now() + DRAINING;
        let mut ends = vec![end];
        while connection.open_calls() > 0 && Instant::now() < deadline && !ends.iter().any(|end| end.force) {
            let order = tokio::select! {
                () = sleep(DRAIN_LOOK) => continue,
                happening = lived.next() => match happening {
                    // What it offers came back with it.
                    Some(
                        Happening::Running(_)
                        | Happening::Changed(_)
                        | Happening::Preparing(_)
                        | Happening::Housed(_)
                        | Happening::Signs(_),
                    ) => {
                        self.refuse_calls();
                        continue;
                    }
                    Some(Happening::Ended(_) | Happening::Reported(_)) | None => break,
                },
                order = self.next_order() => order,
            };
            match order {
                Order::End(end) => ends.push(end),
                // Whoever asked may be gone.
                Order::Connect(reply) => drop(reply.send(Err("it is being disconnected".to_owned()))),
                // However it is reached from now on, it ends.
                Order::Adopt(adoption) => {
                    self.adopt(adoption);
                }
                Order::Refresh => {}
                Order::Stop => break,
            }
        }
        self.cancel_calls();
        lived.stop(Stop::Gently);
        Parting::Asked(ends)
    }

    /// Nothing of it is on offer any more, and who calls it is told what it is about to be.
    fn refuse_calls(&mut self) {
        self.lie_down_as(Status::Disconnected, None);
    }

    /// Whoever needs it is told what it is about to be, before everybody is.
    fn lie_down_as(&mut self, status: Status, why: Option<String>) {
        let record = &mut self.shown.record;
        let before = (record.status, self.shown.since, std::mem::replace(&mut record.error_message, why));
        (record.status, self.shown.since) = (status, Timestamp::now());
        self.lie_down();
        let record = &mut self.shown.record;
        (record.status, self.shown.since, record.error_message) = before;
    }

    /// Ends what is still under way.
    fn cancel_calls(&self) {
        let name = &self.shown.record.name;
        let why = format!("server `{name}` is being disconnected");
        let cancelled = self.house.executions.cancel_all_at(self.handle.place, &why);
        if cancelled > 0 {
            tracing::warn!(server = %name, cancelled, "calls were cancelled because their server is being disconnected");
        }
    }

    /// Takes it out of use, lets it finish what it is at, and ends it: for this reason, unless a better one comes up. What
    /// it offers stays on offer, and who calls it meanwhile waits.
    async fn retire(&mut self, lived: &mut Lived, state: ServerState, reason: Parting) -> Parting {
        let (fleet, place) = (&self.house.fleet, self.handle.place);
        fleet.keep_on_offer(place, true);
        let connection = fleet.retire(place, state, self.known.clone());
        let is_busy = || connection.as_ref().is_some_and(|connection| connection.open_calls() > 0);
        let deadline = Instant::now() + DRAINING;
        let (mut parting, mut ends) = (reason, Vec::<End>::new());
        while is_busy() && Instant::now() < deadline && !ends.iter().any(|end| end.force) {
            let order = tokio::select! {
                () = sleep(DRAIN_LOOK) => continue,
                happening = lived.next() => match happening {
                    // What it lists meanwhile is not kept for later: it may be much, and comes again with the next connection.
                    Some(_) => continue,
                    None => break,
                },
                order = self.next_order() => order,
            };
            match order {
                Order::End(end) => ends.push(end),
                Order::Connect(reply) => {
                    self.awaiting.push(reply);
                    parting = Parting::Anew;
                }
                Order::Adopt(adoption) => {
                    if self.adopt(adoption) {
                        parting = Parting::Anew;
                    }
                }
                Order::Refresh => {}
                Order::Stop => break,
            }
        }
        lived.stop(Stop::Gently);
        if ends.is_empty() { parting } else { Parting::Asked(ends) }
    }

    /// What comes after a life.
    fn after(&mut self, parting: Parting, report: Option<&Report>) -> Step {
        match parting {
            Parting::Asked(ends) => self.after_ends(ends),
            Parting::Anew => {
                self.forgive();
                Step::Connect(None)
            }
            Parting::Idle => Step::Doze,
            Parting::Stopping => Step::Stop,
            Parting::Unwell(why) => self.after_illness(&why),
            Parting::Lost { .. } if *self.stopping.borrow() => Step::Stop,
            Parting::Lost { ending, has_lasted } => {
                let why = in_words(ending.as_deref(), report);
                if self.is_hopeless(ending.as_deref()) { self.park(&why) } else { self.after_loss(&why, has_lasted) }
            }
        }
    }

    /// Whether trying again would not help.
    fn is_hopeless(&self, ending: Option<&Ending>) -> bool {
        match ending {
            Some(Ending::Failed { cause: Cause::Circle(_), .. }) => true,
            // Whoever let us in before may do so again: servers that are restarted or renew their keys refuse everybody.
            Some(Ending::Failed { cause: Cause::Unauthorized(_), .. }) => self.shown.record.worked_at.is_none(),
            _ => false,
        }
    }

    /// It was given up because it was not well. A new connection may help, once: if the server is not well with that
    /// one either, it counts as one that failed.
    fn after_illness(&mut self, why: &str) -> Step {
        self.illnesses += 1;
        // A connection that stands for a while is no failure, so the count is not kept there.
        self.failures = self.illnesses.saturating_sub(2);
        self.after_loss(&format!("it does not answer any more: {why}"), self.illnesses == 1)
    }

    /// It was lost, or could not be reached.
    fn after_loss(&mut self, why: &str, has_lasted: bool) -> Step {
        if has_lasted {
            // One that nobody needs right now is started when somebody does.
            let can_wait = self.shown.is_lazy && !self.house.fleet.is_awaited(self.handle.place);
            self.stand(Status::Error, Some(why.to_owned()), (!can_wait).then_some(Duration::ZERO));
            return if can_wait { Step::Doze } else { Step::Connect(self.known.clone()) };
        }
        self.failures += 1;
        self.answer(Err(why));
        let past = if self.shown.record.worked_at.is_some() { Past::Worked } else { Past::NeverWorked };
        match backoff::next(self.failures, past, &self.house.settings.now(), backoff::chance()) {
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

/// What went wrong, with what the server said about it.
fn in_words(ending: Option<&Ending>, report: Option<&Report>) -> String {
    let what = match (report, ending) {
        (Some(report), _) => report.cause.clone(),
        (None, Some(ending)) => ending.to_string(),
        (None, None) => "it ended".to_owned(),
    };
    let what = match ending {
        // Its container's own trouble: what to do about it is not for the log alone.
        Some(Ending::Failed { cause: cause @ Cause::Container { .. }, .. }) => match cause.hint() {
            Some(hint) => format!("{what} ({hint})"),
            None => what,
        },
        _ => what,
    };
    let said = report.map(|report| cause_lines(report.last_words.iter().map(String::as_str)).join("; "));
    match said.filter(|said| !said.is_empty()) {
        Some(said) => format!("{what}; it said: {}", said.chars().take(LAST_WORDS).collect::<String>()),
        None => what,
    }
}
