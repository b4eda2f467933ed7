//! The steps of the supervisor's state machine in which its server is being connected, or is.

use std::sync::Arc;
use std::time::Duration;

use aggregator::{UpstreamEvent, UpstreamHandle};
use catalog::{Kind, Offer, ServerState, login_command};
use tokio::time::{Instant, sleep};
use upstream::stderr::cause_lines;
use upstream::{Cause, Connection, Ending, Report, Stop};

use super::backoff::{self, ConnectHistory, RetryDecision};
use super::health::{CheckResult, Condition};
use super::monitor::{Monitor, MonitorEvent};
use super::{Command, DRAIN_TIMEOUT, End, ServerStatus, Step, Supervisor};
use crate::spec;

/// How often they are counted.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How many checks of an unreachable server may fail while it still has running calls: some stop listening and finish
/// their work before they exit.
const MAX_UNREACHABLE_CHECKS: u32 = 15;
/// How much of a server's stderr is shown with an error.
const MAX_STDERR_EXCERPT: usize = 300;

/// Why a connection ends.
enum EndReason {
    /// It ended by itself. `is_stable`: it had lasted long enough for an immediate retry.
    Lost { ending: Option<Arc<Ending>>, is_stable: bool },
    /// It does not respond any more.
    Unhealthy(String),
    /// An administrator ends it.
    Requested(Vec<End>),
    /// Its config has changed.
    Reconnect,
    /// Somebody signed out, so it may not be used any more.
    SignedOut(String),
    /// It was not used for a while.
    Idle,
    /// The service stops.
    Stopping,
}

impl Supervisor {
    /// Connects the server, and serves it to its end.
    pub(super) async fn connect(&mut self, known: Option<Arc<Offer>>) -> Step {
        // The command to connect came before the stop.
        if *self.stopping.borrow() {
            return Step::Stop;
        }
        let resolved = spec::resolve(self.publisher.record());
        let spec = match resolved {
            Ok(spec) => spec,
            Err(why) => return self.stop_retrying(&why),
        };
        self.context.fleet.share(self.handle.slot_index, &spec, DRAIN_TIMEOUT).await;
        self.publisher.set(ServerStatus::Connecting);
        let mut handle = self.context.fleet.begin(self.handle.slot_index, spec, known).await;
        let end_reason = match self.wait_until_running(&mut handle).await {
            Ok(offer) => self.serve(&mut handle, &offer).await,
            Err(end_reason) => end_reason,
        };
        if let EndReason::Lost { ending, is_stable: false } = &end_reason {
            // Before its stderr is read, which may take a moment.
            self.publisher
                .withdraw_offer_as(&ServerStatus::Failed { why: describe_end(ending.as_deref(), None) })
                .await;
        }
        let report = drain_events(&mut handle).await;
        self.publisher.clear_process_info();
        self.after(end_reason, report.as_deref()).await
    }

    /// From the start to its offer.
    async fn wait_until_running(&mut self, handle: &mut UpstreamHandle) -> Result<Arc<Offer>, EndReason> {
        loop {
            let command = tokio::select! {
                event = handle.next() => match event {
                    Some(UpstreamEvent::Running(offer)) => return Ok(offer),
                    Some(UpstreamEvent::Ended(ending)) => {
                        return Err(EndReason::Lost { ending: Some(ending), is_stable: false });
                    }
                    Some(event @ (UpstreamEvent::Preparing(_) | UpstreamEvent::ContainerStarted(_) | UpstreamEvent::ProcessStarted(_))) => {
                        self.publisher.note_startup(event);
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
                    if !self.update_config(update).await {
                        continue;
                    }
                    EndReason::Reconnect
                }
                Command::SignedIn => EndReason::Reconnect,
                Command::SignedOut(why) => EndReason::SignedOut(why),
                Command::Refresh => continue,
                Command::Stop => EndReason::Stopping,
            };
            handle.stop(Stop::Promptly);
            return Err(end_reason);
        }
    }

    /// From its offer to its end, or to a reason for it.
    async fn serve(&mut self, handle: &mut UpstreamHandle, offer: &Arc<Offer>) -> EndReason {
        // The health of the last connection does not apply to this one.
        self.publisher.current.health.failures = 0;
        self.publisher.mark_connected(offer);
        self.reply_to_waiting(Ok(()));
        let connection = self.context.fleet.connection(self.handle.slot_index);
        // It may have ended at the same moment.
        let Some(connection) = connection else { return EndReason::Lost { ending: None, is_stable: false } };
        let mut monitor = Monitor::start(Arc::clone(&self.context), connection);
        loop {
            let next_idle_check = self.publisher.current.is_lazy.then(|| monitor.next_idle_check());
            let settings = self.context.settings.clone();
            // The check interval may have changed.
            monitor.note_settings();
            tokio::select! {
                () = settings.changed() => {}
                event = handle.next() => match event {
                    Some(UpstreamEvent::Running(offer) | UpstreamEvent::Changed(offer)) => self.publisher.note_offer(&offer),
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
                    // It is connected. The caller may have been cancelled.
                    Command::Connect(reply) => drop(reply.send(Ok(()))),
                    Command::End(end) => return self.end(handle, &monitor.connection, end).await,
                    Command::Update(update) => if self.update_config(update).await {
                        return self.retire(handle, ServerState::Starting, EndReason::Reconnect).await;
                    },
                    // The session belongs to whoever signed in before.
                    Command::SignedIn => return self.retire(handle, ServerState::Starting, EndReason::Reconnect).await,
                    Command::SignedOut(why) => return self.end_signed_out(handle, why).await,
                    Command::Refresh => monitor.connection.note_change(&Kind::ALL),
                    Command::Stop => return EndReason::Stopping,
                },
                next_event = monitor.next_event(next_idle_check) => match next_event {
                    MonitorEvent::Stable => {
                        monitor.is_stable = true;
                        self.publisher.failures = 0;
                        self.publisher.note_worked();
                        // If it is lost now it is reconnected at once, and calls wait.
                        self.context.fleet.keep_offer(self.handle.slot_index, true);
                    }
                    MonitorEvent::Check => monitor.begin_check(self.health_check_url()),
                    MonitorEvent::Suspected => monitor.begin_ping(),
                    MonitorEvent::Checked(check_result) => {
                        monitor.note_checked(&check_result);
                        if let Some(why) = self.note_check(check_result, monitor.connection.open_calls()) {
                            handle.stop(Stop::Promptly);
                            return EndReason::Unhealthy(why);
                        }
                    }
                    MonitorEvent::IdleCheck => if monitor.check_idle() {
                        return self.retire(handle, ServerState::Asleep, EndReason::Idle).await;
                    },
                },
            }
        }
    }

    /// The health check URL, if it has one.
    fn health_check_url(&self) -> Option<String> {
        self.publisher.record().health_check_url.clone()
    }

    /// Records the result of a check. Returns why the server is to be disconnected, if it is.
    fn note_check(&mut self, check_result: CheckResult, open_calls: usize) -> Option<String> {
        let is_unreachable = check_result.is_unreachable();
        let health = &mut self.publisher.current.health;
        let condition = health.note(check_result);
        // Calls at a server that was unreachable for so long will not finish.
        let is_given_up = is_unreachable && health.failures > MAX_UNREACHABLE_CHECKS;
        self.context.executions.count_health_check(self.handle.slot_index, condition == Condition::Healthy);
        if condition == Condition::Healthy {
            self.unhealthy_connections = 0;
        }
        let status = match condition {
            Condition::Healthy => ServerStatus::Connected,
            Condition::Unconfirmed => self.publisher.status().clone(),
            Condition::Degraded(why) => ServerStatus::Degraded { why },
            // Some servers do one thing at a time. A running call is not ended because its server does not answer a
            // ping.
            Condition::Unresponsive(why) if open_calls > 0 && !is_given_up => ServerStatus::Degraded { why },
            Condition::Unresponsive(why) => return Some(why),
        };
        self.publisher.note_health(status);
        None
    }

    /// Ends it: no new calls are sent, and running ones may finish.
    async fn end(&mut self, handle: &mut UpstreamHandle, connection: &Connection, end: End) -> EndReason {
        self.context.fleet.keep_offer(self.handle.slot_index, false);
        self.publisher.withdraw_offer_as(&ServerStatus::Disconnected).await;
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let mut ends = vec![end];
        let (context, slot_index) = (Arc::clone(&self.context), self.handle.slot_index);
        let is_busy = || connection.open_calls() + context.fleet.calls_of_instances(slot_index) > 0;
        while is_busy() && Instant::now() < deadline && !ends.iter().any(|end| end.force) {
            let command = tokio::select! {
                () = sleep(DRAIN_POLL_INTERVAL) => continue,
                event = handle.next() => match event {
                    // Its offer came back with it.
                    Some(
                        UpstreamEvent::Running(_)
                        | UpstreamEvent::Changed(_)
                        | UpstreamEvent::Preparing(_)
                        | UpstreamEvent::ContainerStarted(_)
                        | UpstreamEvent::ProcessStarted(_),
                    ) => {
                        self.publisher.withdraw_offer_as(&ServerStatus::Disconnected).await;
                        continue;
                    }
                    Some(UpstreamEvent::Ended(_) | UpstreamEvent::Reported(_)) | None => break,
                },
                command = self.next_command() => command,
            };
            match command {
                Command::End(end) => ends.push(end),
                // The caller may have been cancelled.
                Command::Connect(reply) => drop(reply.send(Err("it is being disconnected".to_owned()))),
                // Whatever its new config is, it ends.
                Command::Update(update) => {
                    self.update_config(update).await;
                }
                Command::Refresh | Command::SignedIn | Command::SignedOut(_) => {}
                Command::Stop => break,
            }
        }
        self.cancel_calls();
        handle.stop(Stop::Gently);
        EndReason::Requested(ends)
    }

    /// Ends it because somebody signed out: what runs there runs for a user who does not want that any more.
    async fn end_signed_out(&self, handle: &UpstreamHandle, why: String) -> EndReason {
        self.context.fleet.keep_offer(self.handle.slot_index, false);
        self.publisher.withdraw_offer_as(&ServerStatus::SignInRequired { why: why.clone() }).await;
        self.cancel_calls();
        handle.stop(Stop::Gently);
        EndReason::SignedOut(why)
    }

    /// Cancels the running calls.
    pub(super) fn cancel_calls(&self) {
        let name = &self.publisher.record().name;
        let why = format!("server `{name}` is being disconnected");
        let cancelled = self.context.executions.cancel_all_at(self.handle.slot_index, &why);
        if cancelled > 0 {
            tracing::warn!(server = %name, cancelled, "cancelled calls because their server is being disconnected");
        }
    }

    /// Takes it out of use, lets it finish its calls, and ends it: for this reason, unless a better one comes up. Its
    /// offer stays listed, and new calls wait.
    async fn retire(&mut self, handle: &mut UpstreamHandle, state: ServerState, reason: EndReason) -> EndReason {
        let (fleet, slot_index) = (&self.context.fleet, self.handle.slot_index);
        fleet.keep_offer(slot_index, true);
        let connection = fleet.retire(slot_index, state, self.publisher.known.clone()).await;
        let is_busy = || connection.as_ref().is_some_and(|connection| connection.open_calls() > 0);
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let (mut end_reason, mut ends) = (reason, Vec::<End>::new());
        while is_busy() && Instant::now() < deadline && !ends.iter().any(|end| end.force) {
            let command = tokio::select! {
                () = sleep(DRAIN_POLL_INTERVAL) => continue,
                event = handle.next() => match event {
                    // Lists that arrive meanwhile are not kept: they may be large, and come again with the next
                    // connection.
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
                    if self.update_config(update).await {
                        end_reason = EndReason::Reconnect;
                    }
                }
                Command::SignedIn => end_reason = EndReason::Reconnect,
                Command::SignedOut(why) => end_reason = EndReason::SignedOut(why),
                Command::Refresh => {}
                Command::Stop => break,
            }
        }
        handle.stop(Stop::Gently);
        if ends.is_empty() { end_reason } else { EndReason::Requested(ends) }
    }

    /// The next step after a connection.
    async fn after(&mut self, end_reason: EndReason, report: Option<&Report>) -> Step {
        match end_reason {
            EndReason::Requested(ends) => self.after_end_requests(ends).await,
            EndReason::Reconnect => {
                self.reset_failures();
                Step::Connect(None)
            }
            EndReason::SignedOut(why) => self.await_sign_in(why),
            EndReason::Idle => Step::Sleep,
            EndReason::Stopping => Step::Stop,
            EndReason::Unhealthy(why) => self.after_unhealthy(&why).await,
            EndReason::Lost { .. } if *self.stopping.borrow() => Step::Stop,
            EndReason::Lost { ending, is_stable } => {
                if let Some(Ending::Failed { cause: Cause::SignInRequired { why, .. }, .. }) = ending.as_deref() {
                    return self.await_sign_in(why.clone());
                }
                let why = describe_end(ending.as_deref(), report);
                if self.is_hopeless(ending.as_deref()) {
                    self.stop_retrying(&why)
                } else {
                    self.after_loss(&why, is_stable).await
                }
            }
        }
    }

    /// Whether a retry would not help.
    fn is_hopeless(&self, ending: Option<&Ending>) -> bool {
        match ending {
            Some(Ending::Failed { cause: Cause::Loop(_), .. }) => true,
            // A server that accepted us before may do so again: servers that restart or renew their keys refuse all
            // requests.
            Some(Ending::Failed { cause: Cause::Unauthorized(_), .. }) => self.publisher.record().worked_at.is_none(),
            _ => false,
        }
    }

    /// It was disconnected because it was unhealthy. A new connection may help, once: if the server is unhealthy with
    /// that one too, it counts as a failure.
    async fn after_unhealthy(&mut self, why: &str) -> Step {
        self.unhealthy_connections += 1;
        // A connection that lasts for a while is no failure, so the count is not kept there.
        self.publisher.failures = self.unhealthy_connections.saturating_sub(2);
        self.after_loss(&format!("it does not respond any more: {why}"), self.unhealthy_connections == 1).await
    }

    /// It was lost, or could not be reached.
    async fn after_loss(&mut self, why: &str, is_stable: bool) -> Step {
        if is_stable {
            // A lazy server that is not needed right now is started on demand.
            if self.publisher.current.is_lazy && !self.context.fleet.is_awaited(self.handle.slot_index) {
                self.publisher.set(ServerStatus::Failed { why: why.to_owned() });
                return Step::Sleep;
            }
            self.publisher.set(ServerStatus::waiting(why, Duration::ZERO));
            return Step::Connect(self.publisher.known.clone());
        }
        self.publisher.failures += 1;
        let has_worked = self.publisher.record().worked_at.is_some();
        let history = if has_worked { ConnectHistory::Worked } else { ConnectHistory::NeverWorked };
        match backoff::decide(
            self.publisher.failures,
            history,
            &self.context.settings.now(),
            backoff::random_fraction(),
        ) {
            RetryDecision::Retry(delay) => {
                tracing::warn!(server = %self.publisher.record().name, error = why, retry_in = ?delay, "failed to connect a server; will retry");
                self.publisher.set(ServerStatus::waiting(why, delay));
                // Callers may read the status next.
                self.reply_to_waiting(Err(why));
                self.publisher.withdraw_offer().await;
                Step::Wait(delay)
            }
            RetryDecision::GiveUp => {
                self.publisher.auto_disable(why);
                Step::refused(ServerStatus::Disabled { why: Some(why.to_owned()) }, why.to_owned())
            }
        }
    }

    /// It waits for a person to sign in. That is no failure.
    fn await_sign_in(&mut self, why: String) -> Step {
        let command = login_command(&self.publisher.record().name);
        tracing::info!(server = %self.publisher.record().name, %command, "server requires a sign-in");
        Step::refused(ServerStatus::SignInRequired { why }, format!("it requires a sign-in: run `{command}`"))
    }

    /// It cannot be reached, and a retry without a change is useless.
    pub(super) fn stop_retrying(&mut self, why: &str) -> Step {
        self.publisher.failures += 1;
        Step::refused(ServerStatus::Failed { why: why.to_owned() }, why.to_owned())
    }
}

/// Waits until a server has ended completely; returns its report, if it failed.
async fn drain_events(handle: &mut UpstreamHandle) -> Option<Arc<Report>> {
    let mut report = None;
    while let Some(event) = handle.next().await {
        if let UpstreamEvent::Reported(reported) = event {
            report = Some(reported);
        }
    }
    report
}

/// What went wrong, with the server's stderr.
fn describe_end(ending: Option<&Ending>, report: Option<&Report>) -> String {
    let what = match (report, ending) {
        (Some(report), _) => report.cause.clone(),
        (None, Some(ending)) => ending.to_string(),
        (None, None) => "it ended".to_owned(),
    };
    let what = match ending {
        // A problem of its container: the hint is shown to the user, not only logged.
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
