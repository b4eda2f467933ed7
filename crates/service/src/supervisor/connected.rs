//! One life of a server: met, served with, parted from.

use std::sync::Arc;
use std::time::Duration;

use aggregator::fleet::{UpstreamEvent, UpstreamHandle};
use catalog::{Kind, Offer, ServerState};
use registry::{Status, Timestamp};
use tokio::time::{Instant, sleep};
use upstream::failure::Cause;
use upstream::stderr::cause_lines;
use upstream::{Connection, Ending, Report, Stop};

use super::backoff::{self, ConnectHistory, RetryDecision};
use super::monitor::MonitorEvent;
use super::{Command, End, Inactive, Step, Supervisor};
use crate::spec;

/// How long calls in flight may take when their server is to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked whether any are left.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How much of a server's last words is told with what went wrong.
const MAX_STDERR_EXCERPT: usize = 300;

/// Why a life ends.
enum EndReason {
    /// It ended by itself. Whether it had stood long enough to be worth an attempt at once.
    Lost { ending: Option<Arc<Ending>>, is_stable: bool },
    /// It does not answer any more.
    Unhealthy(String),
    /// Somebody wants it to end.
    Requested(Vec<End>),
    /// It is reached otherwise from now on.
    Reconnect,
    /// Nobody has needed it for a while.
    Idle,
    /// Everything ends.
    Stopping,
}

impl Supervisor {
    /// Connects the server, and stays with it to its end.
    pub(super) async fn connect(&mut self, known: Option<Arc<Offer>>) -> Step {
        // Whatever wanted it connected came before that.
        if *self.stopping.borrow() {
            return Step::Stop;
        }
        let resolved = spec::resolve(&self.current.record);
        let spec = match resolved {
            Ok(spec) => spec,
            Err(why) => return self.stop_retrying(&why),
        };
        self.set_status(Status::Connecting, None, None);
        let mut handle = self.context.fleet.begin(self.handle.place, spec, known);
        let end_reason = match self.wait_until_running(&mut handle).await {
            Ok(offer) => self.serve(&mut handle, &offer).await,
            Err(end_reason) => end_reason,
        };
        if let EndReason::Lost { ending, is_stable: false } = &end_reason {
            // Before its last words are in, which may take a moment.
            self.withdraw_offer_as(Status::Error, Some(describe_end(ending.as_deref(), None)));
        }
        let report = drain_events(&mut handle).await;
        self.clear_process_info();
        self.after(end_reason, report.as_deref())
    }

    /// From the first contact to what it offers.
    async fn wait_until_running(&mut self, handle: &mut UpstreamHandle) -> Result<Arc<Offer>, EndReason> {
        loop {
            let command = tokio::select! {
                event = handle.next() => match event {
                    Some(UpstreamEvent::Running(offer)) => return Ok(offer),
                    Some(UpstreamEvent::Ended(ending)) => {
                        return Err(EndReason::Lost { ending: Some(ending), is_stable: false });
                    }
                    Some(event @ (UpstreamEvent::Preparing(_) | UpstreamEvent::ContainerStarted(_) | UpstreamEvent::ProcessStarted(_))) => {
                        self.note_startup(event);
                        continue;
                    }
                    Some(UpstreamEvent::Changed(_) | UpstreamEvent::Reported(_)) => continue,
                    None => return Err(EndReason::Lost { ending: None, is_stable: false }),
                },
                command = self.next_command() => command,
            };
            let end_reason = match command {
                Command::Connect(reply) => {
                    self.awaiting.push(reply);
                    continue;
                }
                Command::End(end) => EndReason::Requested(vec![end]),
                Command::Update(update) => {
                    if !self.update_config(update) {
                        continue;
                    }
                    EndReason::Reconnect
                }
                Command::Refresh => continue,
                Command::Stop => EndReason::Stopping,
            };
            handle.stop(Stop::Promptly);
            return Err(end_reason);
        }
    }

    /// From what it offers to its end, or to a reason for it.
    async fn serve(&mut self, handle: &mut UpstreamHandle, offer: &Arc<Offer>) -> EndReason {
        // What the last connection was like says nothing about this one.
        self.current.health.failures = 0;
        self.mark_connected(offer);
        self.reply_to_waiting(Ok(()));
        let connection = self.context.fleet.view().connections[self.handle.place].clone();
        // It may have ended in the same breath.
        let Some(connection) = connection else { return EndReason::Lost { ending: None, is_stable: false } };
        let mut monitor = self.start_monitor(connection);
        loop {
            let next_idle_check = self.next_idle_check(&monitor);
            let settings = self.context.settings.clone();
            // It may be looked at more often from now on.
            monitor.next_check = monitor.next_check.min(Instant::now() + self.check_interval());
            tokio::select! {
                () = settings.changed() => {}
                event = handle.next() => match event {
                    Some(UpstreamEvent::Running(offer) | UpstreamEvent::Changed(offer)) => self.note_offer(&offer),
                    Some(UpstreamEvent::Ended(ending)) => {
                        return EndReason::Lost { ending: Some(ending), is_stable: monitor.is_stable };
                    }
                    Some(
                        UpstreamEvent::Reported(_)
                        | UpstreamEvent::Preparing(_)
                        | UpstreamEvent::ContainerStarted(_)
                        | UpstreamEvent::ProcessStarted(_),
                    ) => {}
                    None => return EndReason::Lost { ending: None, is_stable: monitor.is_stable },
                },
                command = self.next_command() => match command {
                    // It is. Whoever asked may be gone.
                    Command::Connect(reply) => drop(reply.send(Ok(()))),
                    Command::End(end) => return self.end(handle, &monitor.connection, end).await,
                    Command::Update(update) => if self.update_config(update) {
                        return self.retire(handle, ServerState::Waking, EndReason::Reconnect).await;
                    },
                    Command::Refresh => monitor.connection.note_change(&Kind::ALL),
                    Command::Stop => return EndReason::Stopping,
                },
                next_event = monitor.next_event(next_idle_check) => match next_event {
                    MonitorEvent::Stable => {
                        monitor.is_stable = true;
                        self.failures = 0;
                        self.note_worked();
                        // If it is lost now it is made again at once, and calls wait.
                        self.context.fleet.keep_offer(self.handle.place, true);
                    }
                    MonitorEvent::Check => monitor.check = Some(Box::pin(self.health_check(&monitor).run())),
                    MonitorEvent::Suspected => monitor.check = Some(Box::pin(self.health_check(&monitor).ping())),
                    MonitorEvent::Checked(check_result) => {
                        monitor.check = None;
                        (monitor.activity_checked, monitor.failures_checked) = (check_result.activity, check_result.liveness);
                        monitor.next_check = self.next_check(&check_result);
                        if let Some(why) = self.note_check(check_result, monitor.connection.open_calls()) {
                            handle.stop(Stop::Promptly);
                            return EndReason::Unhealthy(why);
                        }
                    }
                    MonitorEvent::IdleCheck => if monitor.check_idle_for(Duration::from_secs(self.context.settings.now().idle_timeout_s)) {
                        return self.retire(handle, ServerState::Dormant, EndReason::Idle).await;
                    },
                },
            }
        }
    }

    /// Ends it for good, or for now: nothing new is begun, and what was begun may finish.
    async fn end(&mut self, handle: &mut UpstreamHandle, connection: &Connection, end: End) -> EndReason {
        self.context.fleet.keep_offer(self.handle.place, false);
        self.refuse_calls();
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let mut ends = vec![end];
        while connection.open_calls() > 0 && Instant::now() < deadline && !ends.iter().any(|end| end.force) {
            let command = tokio::select! {
                () = sleep(DRAIN_POLL_INTERVAL) => continue,
                event = handle.next() => match event {
                    // What it offers came back with it.
                    Some(
                        UpstreamEvent::Running(_)
                        | UpstreamEvent::Changed(_)
                        | UpstreamEvent::Preparing(_)
                        | UpstreamEvent::ContainerStarted(_)
                        | UpstreamEvent::ProcessStarted(_),
                    ) => {
                        self.refuse_calls();
                        continue;
                    }
                    Some(UpstreamEvent::Ended(_) | UpstreamEvent::Reported(_)) | None => break,
                },
                command = self.next_command() => command,
            };
            match command {
                Command::End(end) => ends.push(end),
                // Whoever asked may be gone.
                Command::Connect(reply) => drop(reply.send(Err("it is being disconnected".to_owned()))),
                // However it is reached from now on, it ends.
                Command::Update(update) => {
                    self.update_config(update);
                }
                Command::Refresh => {}
                Command::Stop => break,
            }
        }
        self.cancel_calls();
        handle.stop(Stop::Gently);
        EndReason::Requested(ends)
    }

    /// Nothing of it is on offer any more, and who calls it is told what it is about to be.
    fn refuse_calls(&mut self) {
        self.withdraw_offer_as(Status::Disconnected, None);
    }

    /// Whoever needs it is told what it is about to be, before everybody is.
    fn withdraw_offer_as(&mut self, status: Status, why: Option<String>) {
        let record = &mut self.current.record;
        let before = (record.status, self.current.since, std::mem::replace(&mut record.error_message, why));
        (record.status, self.current.since) = (status, Timestamp::now());
        self.withdraw_offer();
        let record = &mut self.current.record;
        (record.status, self.current.since, record.error_message) = before;
    }

    /// Ends what is still under way.
    fn cancel_calls(&self) {
        let name = &self.current.record.name;
        let why = format!("server `{name}` is being disconnected");
        let cancelled = self.context.executions.cancel_all_at(self.handle.place, &why);
        if cancelled > 0 {
            tracing::warn!(server = %name, cancelled, "calls were cancelled because their server is being disconnected");
        }
    }

    /// Takes it out of use, lets it finish what it is at, and ends it: for this reason, unless a better one comes up. What
    /// it offers stays on offer, and who calls it meanwhile waits.
    async fn retire(&mut self, handle: &mut UpstreamHandle, state: ServerState, reason: EndReason) -> EndReason {
        let (fleet, place) = (&self.context.fleet, self.handle.place);
        fleet.keep_offer(place, true);
        let connection = fleet.retire(place, state, self.known.clone());
        let is_busy = || connection.as_ref().is_some_and(|connection| connection.open_calls() > 0);
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let (mut end_reason, mut ends) = (reason, Vec::<End>::new());
        while is_busy() && Instant::now() < deadline && !ends.iter().any(|end| end.force) {
            let command = tokio::select! {
                () = sleep(DRAIN_POLL_INTERVAL) => continue,
                event = handle.next() => match event {
                    // What it lists meanwhile is not kept for later: it may be much, and comes again with the next connection.
                    Some(_) => continue,
                    None => break,
                },
                command = self.next_command() => command,
            };
            match command {
                Command::End(end) => ends.push(end),
                Command::Connect(reply) => {
                    self.awaiting.push(reply);
                    end_reason = EndReason::Reconnect;
                }
                Command::Update(update) => {
                    if self.update_config(update) {
                        end_reason = EndReason::Reconnect;
                    }
                }
                Command::Refresh => {}
                Command::Stop => break,
            }
        }
        handle.stop(Stop::Gently);
        if ends.is_empty() { end_reason } else { EndReason::Requested(ends) }
    }

    /// What comes after a life.
    fn after(&mut self, end_reason: EndReason, report: Option<&Report>) -> Step {
        match end_reason {
            EndReason::Requested(ends) => self.after_end_requests(ends),
            EndReason::Reconnect => {
                self.reset_failures();
                Step::Connect(None)
            }
            EndReason::Idle => Step::Sleep,
            EndReason::Stopping => Step::Stop,
            EndReason::Unhealthy(why) => self.after_unhealthy(&why),
            EndReason::Lost { .. } if *self.stopping.borrow() => Step::Stop,
            EndReason::Lost { ending, is_stable } => {
                let why = describe_end(ending.as_deref(), report);
                if self.is_hopeless(ending.as_deref()) {
                    self.stop_retrying(&why)
                } else {
                    self.after_loss(&why, is_stable)
                }
            }
        }
    }

    /// Whether trying again would not help.
    fn is_hopeless(&self, ending: Option<&Ending>) -> bool {
        match ending {
            Some(Ending::Failed { cause: Cause::Loop(_), .. }) => true,
            // Whoever let us in before may do so again: servers that are restarted or renew their keys refuse everybody.
            Some(Ending::Failed { cause: Cause::Unauthorized(_), .. }) => self.current.record.worked_at.is_none(),
            _ => false,
        }
    }

    /// It was given up because it was not well. A new connection may help, once: if the server is not well with that
    /// one either, it counts as one that failed.
    fn after_unhealthy(&mut self, why: &str) -> Step {
        self.unhealthy_connections += 1;
        // A connection that stands for a while is no failure, so the count is not kept there.
        self.failures = self.unhealthy_connections.saturating_sub(2);
        self.after_loss(&format!("it does not answer any more: {why}"), self.unhealthy_connections == 1)
    }

    /// It was lost, or could not be reached.
    fn after_loss(&mut self, why: &str, is_stable: bool) -> Step {
        if is_stable {
            // One that nobody needs right now is started when somebody does.
            let can_wait = self.current.is_lazy && !self.context.fleet.is_awaited(self.handle.place);
            self.set_status(Status::Error, Some(why.to_owned()), (!can_wait).then_some(Duration::ZERO));
            return if can_wait { Step::Sleep } else { Step::Connect(self.known.clone()) };
        }
        self.failures += 1;
        self.reply_to_waiting(Err(why));
        let history =
            if self.current.record.worked_at.is_some() { ConnectHistory::Worked } else { ConnectHistory::NeverWorked };
        match backoff::decide(self.failures, history, &self.context.settings.now(), backoff::random_fraction()) {
            RetryDecision::Retry(delay) => {
                tracing::warn!(server = %self.current.record.name, error = why, retry_in = ?delay, "server could not be connected; will try again");
                self.set_status(Status::Error, Some(why.to_owned()), Some(delay));
                self.withdraw_offer();
                Step::Wait(delay)
            }
            RetryDecision::GiveUp => {
                self.auto_disable(why);
                Step::Inactive(Inactive { status: Status::Disabled, why: Some(why.to_owned()), done: Vec::new() })
            }
        }
    }

    /// It cannot be reached, and trying again without a change is of no use.
    fn stop_retrying(&mut self, why: &str) -> Step {
        self.failures += 1;
        self.reply_to_waiting(Err(why));
        Step::Inactive(Inactive { status: Status::Error, why: Some(why.to_owned()), done: Vec::new() })
    }
}

/// Waits until nothing of a server is left; its last words, if it failed.
async fn drain_events(handle: &mut UpstreamHandle) -> Option<Arc<Report>> {
    let mut report = None;
    while let Some(event) = handle.next().await {
        if let UpstreamEvent::Reported(reported) = event {
            report = Some(reported);
        }
    }
    report
}

/// What went wrong, with what the server said about it.
fn describe_end(ending: Option<&Ending>, report: Option<&Report>) -> String {
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
    let said = report.map(|report| cause_lines(report.stderr_lines.iter().map(String::as_str)).join("; "));
    match said.filter(|said| !said.is_empty()) {
        Some(said) => format!("{what}; it said: {}", said.chars().take(MAX_STDERR_EXCERPT).collect::<String>()),
        None => what,
    }
}
