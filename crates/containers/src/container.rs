//! One container from creation to removal.

use std::collections::HashMap;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bollard::container::AttachContainerResults;
use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, InspectContainerOptions, StartContainerOptions,
    StopContainerOptionsBuilder, WaitContainerOptionsBuilder,
};
use catalog::{Contact, Container};
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use upstream::stderr::Tail;
use upstream::{ContainerInfo, Ending, Holder, INSTANCE_MARK_VARIABLE, Stop, Upstream};

use crate::Containers;
use crate::engine::Engine;
use crate::error::{ContainerError, in_words, status};
use crate::events::Subscription;
use crate::ports::PortClaim;
use crate::spec;
use crate::stats::ContainerStats;

/// How long a server may take to exit by itself once its input has ended.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// How long it may take after SIGTERM, in seconds.
const TERM_GRACE: i32 = 2;
/// How long the engine may take for all of that; and to remove it during an urgent stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(7);
const FORCED_REMOVE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the engine may take to inspect a container.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before the end of a container is awaited again.
const EXIT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The interval of checks whether a killed container is being removed, and their number.
const REMOVAL_POLL_INTERVAL: Duration = Duration::from_millis(50);
const REMOVAL_POLLS: usize = 6;
/// How long the last output of a container may take to arrive, and how often it is checked.
const STDERR_GRACE: Duration = Duration::from_millis(500);
const STDERR_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The message prefixes of Docker's and Podman's init process when it cannot start the server.
const INIT_ERROR_PREFIXES: [&str; 2] = ["[FATAL tini", "(catatonit:"];
/// Added to the number of the signal that ended a process, to form an exit code.
const SIGNALLED: i64 = 128;
const LAST_SIGNAL: i64 = 64;
const KILLED: i64 = SIGNALLED + 9;
/// The number of digits of a container's id that engines show.
const SHORT_ID: usize = 12;

/// The length of the random suffix of a generated name.
const RANDOM_LETTERS: usize = 8;

/// A running container.
pub(crate) struct RunningContainer {
    engine: Engine,
    pub(crate) stats: Arc<ContainerStats>,
    /// Ends when the container does, with the cause.
    pub(crate) ending: JoinHandle<ContainerError>,
    /// It has ended by itself, and not because of an outside cause.
    pub(crate) has_left: bool,
    /// The host ports of the published ports.
    pub(crate) ports: HashMap<u16, u16>,
    _claim: PortClaim,
}

impl RunningContainer {
    /// Creates and starts the container; its last output will be in `tail`. Not cancel safe: a created container would
    /// have no owner.
    pub(crate) async fn open(
        containers: &Containers,
        engine: &Engine,
        upstream: &Upstream,
        wanted: &Container,
        tail: &Tail,
    ) -> Result<(Self, AttachContainerResults), ContainerError> {
        let claim = match claim_own_ports(containers, upstream, wanted) {
            Ok(claim) => claim,
            // Another server of ours is identified by its name.
            Err(Claimed::ByServer(failure)) => return Err(failure),
            Err(Claimed::ByProcess(failure)) => return Err(with_port_holder(failure, wanted).await),
        };
        let (id, name) = create(containers, engine, upstream, wanted).await?;
        // Before it starts, so that no event is missed.
        let subscription = containers.listener.subscribe(engine, &id);
        let opened = Self::start(engine, wanted, &id, name, subscription, tail.clone(), claim).await;
        if opened.is_err() {
            containers.remove(engine, &id).await;
        }
        opened
    }

    async fn start(
        engine: &Engine,
        wanted: &Container,
        id: &str,
        name: String,
        subscription: Subscription,
        tail: Tail,
        claim: PortClaim,
    ) -> Result<(Self, AttachContainerResults), ContainerError> {
        let docker = &engine.docker;
        // Before it starts, so that no output is missed.
        let is_stdio = wanted.contact == Contact::Stdio;
        let options = AttachContainerOptionsBuilder::new().stream(true).stdin(is_stdio).stdout(true).stderr(true);
        let refused = |operation| move |error: Error| ContainerError::Refused { operation, words: in_words(&error) };
        let attached = docker.attach_container(id, Some(options.build())).await.map_err(refused("attach to it"))?;
        if let Err(error) = docker.start_container(id, None::<StartContainerOptions>).await {
            return Err(with_port_holder(not_started(wanted, &error), wanted).await);
        }
        let seen = inspect(engine, id).await.map_err(|error| refused("inspect the container")(error))?;
        let watch = ExitWatch {
            engine: engine.clone(),
            subscription,
            id: id.to_owned(),
            started_at: seen.state.as_ref().and_then(|state| state.started_at.clone()),
            limit: wanted.memory.unwrap_or(spec::DEFAULT_MEMORY),
            image: wanted.image.shown().to_owned(),
            command: command_of(&seen, wanted),
            tail,
        };
        let info = ContainerInfo {
            id: id.to_owned(),
            name,
            image: wanted.image.shown().to_owned(),
            digest: digest(engine, seen.image.as_deref().unwrap_or_default()).await,
        };
        let ending = tokio::spawn(async move { watch.ended().await });
        let stats = Arc::new(ContainerStats::new(engine.clone(), info));
        let ports = reached(&seen, wanted);
        Ok((Self { engine: engine.clone(), stats, ending, has_left: false, ports, _claim: claim }, attached))
    }

    /// Ends it as gently as the time allows, and removes it. Its input must have ended.
    pub(crate) async fn close(mut self, containers: &Containers, ending: &Ending, stop: &mut watch::Receiver<Stop>) {
        let id = self.stats.id();
        if matches!(ending, Ending::Stopped) && !self.ending.is_finished() {
            let has_ended = tokio::select! {
                ended = timeout(CLOSE_GRACE, &mut self.ending) => ended.is_ok(),
                _ = stop.wait_for(|&stop| stop >= Stop::Promptly) => false,
            };
            if !has_ended {
                self.terminate(id, stop).await;
            }
        }
        tokio::select! {
            () = containers.remove(&self.engine, id) => {}
            // In an urgent stop its removal is left for later if the engine is slow.
            () = hurried(stop) => containers.remove_later(id),
        }
        self.ending.abort();
    }

    async fn terminate(&self, id: &str, stop: &mut watch::Receiver<Stop>) {
        let options = StopContainerOptionsBuilder::new().t(TERM_GRACE).build();
        tokio::select! {
            stopped = timeout(STOP_TIMEOUT, self.engine.docker.stop_container(id, Some(options))) => match stopped {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(container = id, error = %in_words(&error), "failed to stop a container");
                }
                Err(_) => tracing::debug!(container = id, "the container engine does not stop a container"),
            },
            _ = stop.wait_for(|&stop| stop >= Stop::Now) => {}
        }
    }
}

async fn hurried(stop: &mut watch::Receiver<Stop>) {
    if stop.wait_for(|&stop| stop >= Stop::Now).await.is_err() {
        // The sender was dropped, so the stop cannot become more urgent.
        std::future::pending::<()>().await;
    }
    sleep(FORCED_REMOVE_TIMEOUT).await;
}

/// Creates the container. If its name is taken by a leftover of ours, that is removed first.
async fn create(
    containers: &Containers,
    engine: &Engine,
    upstream: &Upstream,
    wanted: &Container,
) -> Result<(String, String), ContainerError> {
    match create_once(containers, engine, upstream, wanted).await {
        Err(ContainerError::NameTaken { .. }) => {
            containers.remove_leftovers(engine).await?;
            match create_once(containers, engine, upstream, wanted).await {
                Err(ContainerError::NameTaken { name, words }) => {
                    let words = match container_named(engine, &name).await {
                        Some(other) => format!("{words}; {other}"),
                        None => words,
                    };
                    Err(ContainerError::NameTaken { name, words })
                }
                decided => decided,
            }
        }
        decided => decided,
    }
}

/// The container that has a name: its id, its image, and its process if it runs.
async fn container_named(engine: &Engine, name: &str) -> Option<String> {
    let seen = inspect(engine, name).await.ok()?;
    let id: String = seen.id?.chars().take(SHORT_ID).collect();
    let image = seen.config.and_then(|config| config.image).unwrap_or_default();
    let state = seen.state.unwrap_or_default();
    let pid = state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0);
    let process = match pid {
        Some(pid) => format!("it is running as {}", Holder::Process(pid)),
        None => "it is not running".to_owned(),
    };
    Some(format!("container {id} of image `{image}` has this name, and {process}"))
}

/// Adds the process that holds a taken port to the engine's error. Finding it may take a while.
async fn with_port_holder(failure: ContainerError, wanted: &Container) -> ContainerError {
    let ContainerError::PortTaken { port, words } = failure else { return failure };
    let is_host = wanted.network.as_deref() == Some("host");
    let ports: Vec<u16> =
        wanted.ports.iter().filter_map(|port| if is_host { Some(port.inside) } else { port.here }).collect();
    let holder = |port: u16| Holder::of_port((Ipv4Addr::UNSPECIFIED, port).into());
    let looking = tokio::task::spawn_blocking(move || {
        ports.into_iter().find_map(|port| Some(format!("{} listens on port {port}", holder(port)?)))
    });
    let words = match looking.await {
        Ok(Some(found)) => format!("{words}; {found}"),
        _ => words,
    };
    ContainerError::PortTaken { port, words }
}

async fn create_once(
    containers: &Containers,
    engine: &Engine,
    upstream: &Upstream,
    wanted: &Container,
) -> Result<(String, String), ContainerError> {
    let server = upstream.spec.name.as_str();
    let name = wanted.name.clone().unwrap_or_else(|| random_name(server));
    // The mark by which our processes are found: the watchdog ends them if we are killed.
    let mark = upstream.environment.iter().filter(|(name, _)| name == INSTANCE_MARK_VARIABLE);
    let mark = mark.map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    let body = spec::body(wanted, containers.owner.labels(server), mark);
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    match engine.docker.create_container(Some(options), body).await {
        Ok(made) => Ok((made.id, name)),
        Err(error) => Err(not_created(wanted, name, &error)),
    }
}

fn not_created(wanted: &Container, name: String, error: &Error) -> ContainerError {
    let words = in_words(error);
    let image = || wanted.image.shown().to_owned();
    match status(error) {
        Some(409) => ContainerError::NameTaken { name, words },
        Some(404) if words.contains("o such image") => ContainerError::NoImage { image: image() },
        Some(400) if words.to_ascii_lowercase().contains("no command specified") => {
            ContainerError::NoCommand { image: image(), command: "anything".to_owned(), words }
        }
        Some(400) if words.contains("bind source path does not exist") => ContainerError::NoFolder { words },
        _ => ContainerError::Refused { operation: "create the container", words },
    }
}

fn not_started(wanted: &Container, error: &Error) -> ContainerError {
    let words = in_words(error);
    let has = |part: &str| words.to_ascii_lowercase().contains(part);
    if has("port is already allocated") || has("address already in use") || has("ports are not available") {
        let ports: Vec<String> = wanted.ports.iter().filter_map(|port| Some(port.here?.to_string())).collect();
        return ContainerError::PortTaken { port: ports.join(" or "), words };
    }
    if has("executable file not found") || has("no such file or directory") || has("permission denied: unknown") {
        let command = wanted.command.first().map_or_else(|| "its command".to_owned(), |word| format!("`{word}`"));
        return ContainerError::NoCommand { image: wanted.image.shown().to_owned(), command, words };
    }
    ContainerError::Refused { operation: "start the container", words }
}

/// The owner of a taken port.
enum Claimed {
    ByServer(ContainerError),
    ByProcess(ContainerError),
}

/// A server in the host network detects too late, and with its own message, that its port is taken. Another of our
/// servers may take it only a moment later: that one would then answer for this one.
fn claim_own_ports(containers: &Containers, upstream: &Upstream, wanted: &Container) -> Result<PortClaim, Claimed> {
    if wanted.network.as_deref() != Some("host") {
        return Ok(PortClaim::default());
    }
    let ports: Vec<u16> = wanted.ports.iter().map(|port| port.inside).collect();
    let claim = containers.claims.take(upstream.spec.name.as_str(), &ports).map_err(Claimed::ByServer)?;
    for port in &wanted.ports {
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port.inside))
            && error.kind() == std::io::ErrorKind::AddrInUse
        {
            let (port, words) = (port.inside.to_string(), error.to_string());
            return Err(Claimed::ByProcess(ContainerError::PortTaken { port, words }));
        }
    }
    Ok(claim)
}

/// The host ports of the container's ports.
fn reached(seen: &ContainerInspectResponse, wanted: &Container) -> HashMap<u16, u16> {
    if wanted.network.as_deref() == Some("host") {
        return wanted.ports.iter().map(|port| (port.inside, port.inside)).collect();
    }
    let published = seen.network_settings.as_ref().and_then(|settings| settings.ports.as_ref());
    let here = |inside: u16| {
        let bindings = published?.get(&spec::key(inside))?.as_ref()?;
        bindings.first()?.host_port.as_deref()?.parse().ok()
    };
    wanted.ports.iter().filter_map(|port| Some((port.inside, here(port.inside)?))).collect()
}

/// The program that was started, for people.
fn command_of(seen: &ContainerInspectResponse, wanted: &Container) -> String {
    let program = wanted.command.first().cloned().or_else(|| seen.path.clone());
    program.map_or_else(|| "its command".to_owned(), |command| format!("`{command}`"))
}

/// The digest of an image in its registry; its id at the engine, if it comes from none.
async fn digest(engine: &Engine, image: &str) -> String {
    let seen = timeout(INSPECT_TIMEOUT, engine.docker.inspect_image(image)).await;
    let digests = seen.ok().and_then(Result::ok).and_then(|seen| seen.repo_digests).unwrap_or_default();
    let digest = digests.iter().find_map(|known| known.split_once('@')).map(|(_, digest)| digest.to_owned());
    digest.unwrap_or_else(|| image.to_owned())
}

async fn inspect(engine: &Engine, id: &str) -> Result<ContainerInspectResponse, Error> {
    match timeout(INSPECT_TIMEOUT, engine.docker.inspect_container(id, None::<InspectContainerOptions>)).await {
        Ok(seen) => seen,
        Err(_) => Err(Error::RequestTimeoutError),
    }
}

/// What is needed to find out how a container ended.
struct ExitWatch {
    engine: Engine,
    subscription: Subscription,
    id: String,
    started_at: Option<String>,
    /// Its memory limit in bytes.
    limit: u64,
    image: String,
    command: String,
    tail: Tail,
}

impl ExitWatch {
    /// Waits until the container has ended, or does not respond any more, for whatever reason; returns the cause.
    async fn ended(&self) -> ContainerError {
        let Self { engine, subscription, id, .. } = self;
        loop {
            let code = tokio::select! {
                code = exit_code(engine, id) => code,
                () = subscription.changed() => None,
            };
            let state = match inspect(engine, id).await {
                Ok(seen) => seen.state.unwrap_or_default(),
                Err(error) if status(&error) == Some(404) => return ContainerError::RemovedFromOutside,
                Err(error) => return ContainerError::EngineLost { words: in_words(&error) },
            };
            let is_running = state.running == Some(true);
            if is_running && state.started_at != self.started_at {
                return ContainerError::RestartedFromOutside;
            }
            if code.is_none() && state.paused == Some(true) {
                return ContainerError::PausedFromOutside;
            }
            if code.is_none() && is_running {
                // Nothing relevant, or the engine disconnected and is reachable again.
                sleep(EXIT_RETRY_DELAY).await;
                continue;
            }
            let code = code.or(state.exit_code).unwrap_or_default();
            if code > SIGNALLED
                && let Some(failure) = outside_cause(engine, id, self.started_at.as_ref()).await
            {
                return failure;
            }
            let end = End { code, oom: state.oom_killed == Some(true), is_unstarted: self.is_unstarted(code).await };
            return self.why(&end);
        }
    }

    /// Whether the server could not be started inside: a program that it starts itself may be missing as well.
    async fn is_unstarted(&self, code: i64) -> bool {
        let is_said =
            || self.tail.lines().iter().any(|line| INIT_ERROR_PREFIXES.iter().any(|starter| line.contains(starter)));
        if !matches!(code, 126 | 127) {
            return false;
        }
        let waiting = async {
            while !is_said() {
                sleep(STDERR_POLL_INTERVAL).await;
            }
        };
        timeout(STDERR_GRACE, waiting).await.is_ok()
    }

    fn why(&self, end: &End) -> ContainerError {
        let no_command = |words: &str| ContainerError::NoCommand {
            image: self.image.clone(),
            command: self.command.clone(),
            words: words.to_owned(),
        };
        why(end, self.limit, no_command)
    }
}

/// How a container ended.
struct End {
    code: i64,
    /// A process in it was killed because of the memory limit: now, or long ago.
    oom: bool,
    is_unstarted: bool,
}

/// Waits for the end of a container; `None` if the engine disconnected first.
async fn exit_code(engine: &Engine, id: &str) -> Option<i64> {
    loop {
        let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
        match engine.docker.wait_container(id, Some(options)).next().await {
            Some(Ok(ended)) => return Some(ended.status_code),
            Some(Err(Error::DockerContainerWaitError { code, .. })) => return Some(code),
            // Some engines send nothing at all until the container ends.
            Some(Err(Error::RequestTimeoutError)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// The outside cause for a killed container: it is being removed or restarted, which takes a moment more.
async fn outside_cause(engine: &Engine, id: &str, started_at: Option<&String>) -> Option<ContainerError> {
    for _ in 0..REMOVAL_POLLS {
        let state = match inspect(engine, id).await {
            Err(error) => return (status(&error) == Some(404)).then_some(ContainerError::RemovedFromOutside),
            Ok(seen) => seen.state.unwrap_or_default(),
        };
        if matches!(state.status, Some(ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::DEAD)) {
            return Some(ContainerError::RemovedFromOutside);
        }
        if state.running == Some(true) && state.started_at.as_ref() != started_at {
            return Some(ContainerError::RestartedFromOutside);
        }
        sleep(REMOVAL_POLL_INTERVAL).await;
    }
    None
}

fn why(end: &End, limit: u64, no_command: impl Fn(&str) -> ContainerError) -> ContainerError {
    match end.code {
        KILLED if end.oom => ContainerError::OutOfMemory { limit },
        127 if end.is_unstarted => no_command("the program was not found (exit status 127)"),
        126 if end.is_unstarted => no_command("the program cannot be executed (exit status 126)"),
        // Signals that people and engines send. The sender is unknown: a server may send one to itself.
        130 | KILLED | 143 => ContainerError::StoppedFromOutside { signal: end.code - SIGNALLED },
        code if (SIGNALLED + 1..=SIGNALLED + LAST_SIGNAL).contains(&code) => {
            ContainerError::Crashed { signal: code - SIGNALLED }
        }
        code => ContainerError::Exited { code, ran_short: end.oom },
    }
}

/// A readable name with a unique suffix.
fn random_name(server: &str) -> String {
    use std::hash::{BuildHasher, RandomState};
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    let server: String = server.chars().map(|letter| if fits(letter) { letter } else { '-' }).take(40).collect();
    let chance = format!("{:016x}", RandomState::new().hash_one(std::time::SystemTime::now()));
    format!("mcp-{server}-{}", &chance[..RANDOM_LETTERS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_reported_by_its_cause() {
        let no_command = |words: &str| ContainerError::NoCommand {
            image: "a".to_owned(),
            command: "`run`".to_owned(),
            words: words.to_owned(),
        };
        let message = |code, oom, is_unstarted| why(&End { code, oom, is_unstarted }, 64 << 20, no_command).to_string();
        assert_eq!(message(3, false, false), "its container exited with status 3");
        assert_eq!(message(137, true, false), "its container ran out of memory; the limit is 64 MB");
        assert_eq!(message(137, false, false), "its container was stopped externally: signal 9 (SIGKILL)");
        assert_eq!(
            message(127, false, true),
            "image `a` cannot run `run`: the program was not found (exit status 127)"
        );
    }

    #[test]
    fn what_the_server_did_itself_is_not_blamed_on_others() {
        let no_command = |_: &str| ContainerError::RemovedFromOutside;
        let message = |code, oom| why(&End { code, oom, is_unstarted: false }, 64 << 20, no_command).to_string();
        assert_eq!(message(255, false), "its container exited with status 255");
        assert_eq!(message(193, false), "its container exited with status 193");
        assert_eq!(message(139, false), "its server was terminated by signal 11 (SIGSEGV)");
        assert_eq!(message(127, false), "its container exited with status 127");
        let after = "its container exited with status 3, after a process in it had run out of memory";
        assert_eq!(message(3, true), after, "a child of it was killed, long ago");
    }

    #[test]
    fn a_generated_name_is_valid_for_an_engine() {
        let name = random_name("my server/ä");
        assert!(name.starts_with("mcp-my-server---"), "{name}");
        assert_ne!(name, random_name("my server/ä"));
    }
}
