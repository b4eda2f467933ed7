//! The life of one instance: it runs, and runs again while it is needed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catalog::{ServerSpec, Transport};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use upstream::stderr::cause_lines;
use upstream::{
    Audience, CallError, Cause, Connection, Ending, Phase as EndingPhase, ResponseHandler as _, Stop, Upstream,
    UpstreamObserver,
};

use super::observer::{InstanceObserver, RunOutcome};
use super::{DRAIN_POLL_INTERVAL, Instance, Instances, LOCAL_INSTANCE, Phase};
use crate::call;
use crate::fleet::{Fleet, lock, raise};
use crate::grant_key::digest;
use crate::sign_in::sign_in_error;
use crate::suspended_request::SuspendedRequest;

/// A run that lasted as long as this was no failed start: the next one begins at once.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// How long a failed instance waits before a request may start it again: after the first failure, the second, and so on.
const RETRY_DELAYS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60)];
/// How long a failure is remembered after the instance could have been started again.
const FAILURE_MEMORY: Duration = Duration::from_secs(60);
/// How much of its stderr an error shows.
const MAX_STDERR_EXCERPT: usize = 300;
/// The processes of instances are marked with numbers from here on; smaller ones are slot indexes.
const FIRST_MARK: usize = 1 << 20;

/// Starts the task of a new instance. Returns false if everything stops.
pub(super) fn spawn(fleet: &Arc<Fleet>, instances: &Arc<Instances>, instance: &Arc<Instance>) -> bool {
    let mut tasks = lock(&fleet.tasks_of_servers);
    // Checked while the tasks are locked: whoever waits for all of them has requested the stop before.
    if fleet.is_stopping() {
        return false;
    }
    // Finished tasks need not be kept.
    while tasks.try_join_next().is_some() {}
    let task = InstanceTask {
        fleet: Arc::clone(fleet),
        instances: Arc::clone(instances),
        instance: Arc::clone(instance),
        failures: 0,
    };
    tasks.spawn(task.run());
    true
}

/// The task of one instance.
struct InstanceTask {
    fleet: Arc<Fleet>,
    instances: Arc<Instances>,
    instance: Arc<Instance>,
    /// Runs in a row that failed soon.
    failures: usize,
}

/// What follows a run.
enum Next {
    /// It runs again now.
    Run,
    /// It runs again when it is needed, but not before this.
    Wait(Instant),
    /// It is over.
    Over,
}

impl InstanceTask {
    async fn run(mut self) {
        loop {
            let outcome = self.run_once().await;
            match self.after(outcome) {
                Next::Run => {}
                Next::Wait(retry_at) => {
                    if !self.wait_until_needed(retry_at).await {
                        return;
                    }
                }
                Next::Over => return,
            }
        }
    }

    /// Starts it, and returns when all of it has ended.
    async fn run_once(&self) -> RunOutcome {
        let (stop, stopping) = watch::channel(Stop::Never);
        {
            let mut current = lock(&self.instance.current);
            current.stop = Some(stop.clone());
            if current.is_leaving {
                raise(&stop, Stop::Promptly);
            }
        }
        let observer = Arc::new(InstanceObserver::new(&self.fleet, &self.instances, &self.instance));
        let events = Arc::clone(&observer) as Arc<dyn UpstreamObserver>;
        // Boxed: the future of a connector is large, and most of the time the instance only runs.
        let mut run = Box::pin(self.upstream().run(events, stopping, self.fleet.remote.clone()));
        let mut stop_of_all = self.fleet.stop.subscribe();
        let mut idle = IdleCheck::new();
        loop {
            let pause = if idle.is_over { DRAIN_POLL_INTERVAL } else { self.idle_poll_interval() };
            let how = *stop.borrow();
            tokio::select! {
                () = &mut run => break,
                more_urgent = async { stop_of_all.wait_for(|&of_all| of_all > how).await.map(|how| *how) } => {
                    // Without the fleet, nobody needs it.
                    raise(&stop, more_urgent.unwrap_or(Stop::Now));
                }
                () = sleep(pause) => self.check_idle(&mut idle, &stop),
            }
        }
        let mut current = lock(&self.instance.current);
        (current.stop, current.process) = (None, None);
        drop(current);
        observer.take_outcome()
    }

    fn upstream(&self) -> Upstream {
        let mark_number = FIRST_MARK + self.fleet.instances_begun.fetch_add(1, Ordering::Relaxed);
        let spec = self.spec();
        let skips_lists = matches!(spec.transport, Transport::Stdio(_));
        let mut upstream =
            self.fleet.upstream(self.instances.server, self.instance.audience.clone(), mark_number, spec);
        // Servers over HTTP may need the definitions of their tools for the headers of calls.
        upstream.handshake.skips_lists = skips_lists;
        upstream
    }

    /// The server's config for this instance: with the sign-in of its identity, and beside the other instances.
    fn spec(&self) -> ServerSpec {
        let spec = lock(&self.instances.spec).clone();
        let catalog = lock(&self.instances.catalog).clone();
        let grant_key = spec.grant_key.map(|key| crate::grant_key_of(&key, &self.instance.principal));
        let lifecycle = match spec.transport {
            // The same program, whose lifecycle is known: it need not be tried again.
            Transport::Stdio(_) => spec.lifecycle.or(catalog.map(|catalog| catalog.lifecycle())),
            Transport::Container(_) | Transport::Remote(_) => spec.lifecycle,
        };
        ServerSpec { grant_key, lifecycle, ..spec }.for_instance(&self.name())
    }

    /// Its name in the config of the server: always the same for an identity, another for each session. A digest, because
    /// what an issuer calls a person may contain anything, and a name stands in paths.
    fn name(&self) -> String {
        match &self.instance.audience {
            Audience::Session(number) => {
                // Numbers of sessions begin again with each start of the program.
                digest(format!("session {} {number}", self.fleet.instance_mark.mark()).as_bytes())
            }
            _ if self.instance.principal.is_local() => LOCAL_INSTANCE.to_owned(),
            _ => digest(self.instance.principal.id().as_bytes()),
        }
    }

    fn idle_poll_interval(&self) -> Duration {
        (self.fleet.instance_idle_timeout() / 8).clamp(Duration::from_millis(50), Duration::from_secs(10))
    }

    /// Takes the instance out of use when it was idle for too long, and ends it once its last requests are answered.
    fn check_idle(&self, idle: &mut IdleCheck, stop: &watch::Sender<Stop>) {
        let Some(connection) = lock(&self.instance.current).connection.clone() else { return };
        if idle.is_over {
            if connection.open_calls() == 0 {
                raise(stop, Stop::Gently);
            }
            return;
        }
        let is_used = self.fleet.has_followers(&connection.key());
        let is_idle = idle.check(&connection, is_used, self.fleet.instance_idle_timeout());
        let mut current = lock(&self.instance.current);
        if is_idle && matches!(current.phase, Phase::Running) {
            self.instance.waiting.close();
            current.enter(Phase::Ending);
            idle.is_over = true;
        }
    }

    /// Decides what follows a run.
    fn after(&mut self, outcome: RunOutcome) -> Next {
        let RunOutcome { ran_since, ending, report } = outcome;
        let is_stable = ran_since.is_some_and(|since| since.elapsed() >= STABLE_AFTER);
        let failure = match ending.as_deref() {
            Some(Ending::Stopped) => None,
            Some(Ending::Failed { cause, .. }) => Some(Some(cause)),
            None => Some(None),
        };
        self.failures = if failure.is_none() || is_stable { 0 } else { self.failures + 1 };
        let has_followers = self.fleet.has_followers(&self.instances.key(&self.instance.audience));
        let mut table = lock(&self.instances.table);
        let mut current = lock(&self.instance.current);
        let is_leaving = current.is_leaving || table.is_closed || self.fleet.is_stopping();
        if !is_leaving && self.failures == 0 && (self.instance.is_awaited() || has_followers) {
            current.enter(Phase::Starting);
            return Next::Run;
        }
        let waiting = self.instance.waiting.open();
        let Some(cause) = failure.filter(|_| self.failures > 0 && !is_leaving) else {
            drop(current);
            self.instances.forget(&mut table, &self.instance);
            drop(table);
            self.clean_up();
            // The server itself, or a new instance, decides what becomes of them.
            call::resume(waiting);
            return Next::Over;
        };
        if let Some(Cause::SignInRequired { why, .. }) = cause {
            drop(current);
            self.instances.forget(&mut table, &self.instance);
            drop(table);
            self.clean_up();
            self.ask_to_sign_in(waiting, why);
            return Next::Over;
        }
        let retry_at = Instant::now() + retry_delay(self.failures);
        let why: Box<str> = describe(ending.as_deref(), report.as_ref()).into();
        let error = self.instances.failed(&why, retry_at);
        current.enter(Phase::Failed { why, retry_at });
        drop((current, table));
        self.instance.changed.notify_waiters();
        fail(waiting, &error);
        Next::Wait(retry_at)
    }

    /// Sends the clients of these requests to the sign-in page. Requests of clients that cannot be asked fail.
    fn ask_to_sign_in(&self, calls: impl IntoIterator<Item = SuspendedRequest>, why: &str) {
        for call in calls {
            call.client().request_closed();
            if !call.ask_to_sign_in(self.instances.server) {
                call.client().request_opened();
                fail([call], &sign_in_error(self.instances.name(), why));
            }
        }
    }

    /// Waits until the failed instance is to run again. Returns false if it is not.
    async fn wait_until_needed(&self, retry_at: Instant) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.instance.changed.notified());
            changed.as_mut().enable();
            {
                let table = lock(&self.instances.table);
                let current = lock(&self.instance.current);
                if current.is_leaving || table.is_closed || self.fleet.is_stopping() {
                    break;
                }
                if matches!(current.phase, Phase::Starting) {
                    return true;
                }
            }
            let forget_at = retry_at + FAILURE_MEMORY;
            let has_followers = self.fleet.has_followers(&self.instances.key(&self.instance.audience));
            let mut stop_of_all = self.fleet.stop.subscribe();
            tokio::select! {
                () = changed => {}
                _ = stop_of_all.wait_for(|&how| how > Stop::Never) => {}
                // Whoever follows a resource waits for its changes.
                () = sleep_until(retry_at.max(Instant::now() + RETRY_DELAYS[0])), if has_followers => self.restart_if_there_is_room(),
                () = sleep_until(forget_at), if !has_followers => break,
            }
        }
        let waiting = {
            let mut table = lock(&self.instances.table);
            let is_needed = {
                let current = lock(&self.instance.current);
                !current.is_leaving && matches!(current.phase, Phase::Starting)
            };
            // A request may have started it again at this moment.
            if is_needed {
                return true;
            }
            self.instances.forget(&mut table, &self.instance);
            self.instance.waiting.open()
        };
        self.clean_up();
        call::resume(waiting);
        false
    }

    fn restart_if_there_is_room(&self) {
        let table = lock(&self.instances.table);
        if self.instances.check_room(&table).is_ok() {
            self.instance.restart();
        }
    }

    /// Forgets what is stored for it elsewhere.
    fn clean_up(&self) {
        self.fleet.levels().forget_run(&self.instances.key(&self.instance.audience));
    }
}

/// If the task panicked, its requests fail instead of waiting forever.
impl Drop for InstanceTask {
    fn drop(&mut self) {
        let (waiting, connection) = {
            let mut table = lock(&self.instances.table);
            self.instances.forget(&mut table, &self.instance);
            (self.instance.waiting.open(), lock(&self.instance.current).connection.take())
        };
        let ending = Arc::new(Ending::Failed { phase: EndingPhase::Runtime, cause: Cause::Broken });
        if let Some(connection) = connection {
            connection.end(&ending);
        }
        if !waiting.is_empty() {
            fail(waiting, &CallError::Ended { server: self.instances.name(), ending, said: None });
        }
    }
}

/// Since when an instance is idle.
struct IdleCheck {
    since: Instant,
    activity: u64,
    /// It was idle for too long, and is out of use.
    is_over: bool,
}

impl IdleCheck {
    fn new() -> Self {
        Self { since: Instant::now(), activity: 0, is_over: false }
    }

    /// Whether it was idle for too long.
    fn check(&mut self, connection: &Connection, is_used: bool, limit: Duration) -> bool {
        let activity = connection.activity();
        if activity != self.activity || connection.open_calls() > 0 || is_used {
            (self.activity, self.since) = (activity, Instant::now());
        }
        self.since.elapsed() >= limit
    }
}

fn fail(calls: impl IntoIterator<Item = SuspendedRequest>, error: &CallError) {
    for call in calls {
        call.to().on_failure(call.id(), error);
        call.to().flush();
    }
}

/// How long to wait after so many failures in a row.
fn retry_delay(failures: usize) -> Duration {
    RETRY_DELAYS[failures.saturating_sub(1).min(RETRY_DELAYS.len() - 1)]
}

/// What went wrong, with the last lines of its stderr.
fn describe(ending: Option<&Ending>, report: Option<&upstream::Report>) -> String {
    let what = match (report, ending) {
        (Some(report), _) => report.cause.clone(),
        (None, Some(ending)) => ending.to_string(),
        (None, None) => "it ended".to_owned(),
    };
    let said = report.map(|report| cause_lines(report.stderr_lines.iter().map(String::as_str)).join("; "));
    match said.filter(|said| !said.is_empty()) {
        Some(said) => format!("{what}; it said: {}", said.chars().take(MAX_STDERR_EXCERPT).collect::<String>()),
        None => what,
    }
}
