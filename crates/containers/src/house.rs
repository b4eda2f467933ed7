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
use upstream::{Ending, Holder, Stop, Tenancy, Upstream, lineage};

use crate::Containers;
use crate::claims::Claim;
use crate::engine::Engine;
use crate::gauge::Gauge;
use crate::lookout::Post;
use crate::recipe;
use crate::trouble::{Trouble, in_words, status};

/// How long a server may take to end by itself once its input has ended.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// How long it may take once it was asked to terminate, in seconds.
const TERM_GRACE: i32 = 2;
/// How long the engine may take for all of that; and to remove it once everybody is in a hurry.
const STOP: Duration = Duration::from_secs(7);
const HURRY: Duration = Duration::from_secs(2);
/// How long the engine may take to look at a container.
const LOOK: Duration = Duration::from_secs(5);
/// Before the end of a container is waited for again.
const NEXT_LOOK: Duration = Duration::from_millis(100);
/// Between looks at whether a container that was killed is being removed, and how many of them.
const REMOVAL_LOOK: Duration = Duration::from_millis(50);
const REMOVAL_LOOKS: usize = 6;
/// How long the last words of a container may take to come, and how often they are looked for.
const LAST_WORDS: Duration = Duration::from_millis(500);
const WORDS_LOOK: Duration = Duration::from_millis(20);
/// What those say who are to start the server in the container, Docker's and Podman's, if they cannot.
const STARTERS: [&str; 2] = ["[FATAL tini", "(catatonit:"];
/// Added to the number of the signal that ended a process, where an exit code is wanted.
const SIGNALLED: i64 = 128;
const LAST_SIGNAL: i64 = 64;
const KILLED: i64 = SIGNALLED + 9;
/// So many digits of a container's id are what engines show.
const SHORT_ID: usize = 12;

/// Letters and digits of the end of a name that nobody chose.
const RANDOM_LETTERS: usize = 8;

/// A running container.
pub(crate) struct House {
    engine: Engine,
    pub(crate) gauge: Arc<Gauge>,
    /// Ends when the container does, and says why.
    pub(crate) ending: JoinHandle<Trouble>,
    /// It has ended by itself, and not because of somebody or something else.
    pub(crate) has_left: bool,
    /// Where the ports inside are reached, as far as they are.
    pub(crate) ports: HashMap<u16, u16>,
    _claim: Claim,
}

impl House {
    /// Has the container made and started; its last words will be in `tail`. Not to be given up half-way: what was made
    /// would be nobody's.
    pub(crate) async fn open(
        containers: &Containers,
        engine: &Engine,
        upstream: &Upstream,
        wanted: &Container,
        tail: &Tail,
    ) -> Result<(Self, AttachContainerResults), Trouble> {
        let claim = match claim_own_ports(containers, upstream, wanted) {
            Ok(claim) => claim,
            // Another server of ours is known by its name.
            Err(Claimed::ByServer(trouble)) => return Err(trouble),
            Err(Claimed::ByProcess(trouble)) => return Err(with_port_holder(trouble, wanted).await),
        };
        let (id, name) = create(containers, engine, upstream, wanted).await?;
        // Before it starts, so that nothing that happens to it is missed.
        let post = containers.lookout.post(engine, &id);
        let opened = Self::start(engine, wanted, &id, name, post, tail.clone(), claim).await;
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
        post: Post,
        tail: Tail,
        claim: Claim,
    ) -> Result<(Self, AttachContainerResults), Trouble> {
        let docker = &engine.docker;
        // Before it starts, so that its first word is heard.
        let is_stdio = wanted.contact == Contact::Stdio;
        let options = AttachContainerOptionsBuilder::new().stream(true).stdin(is_stdio).stdout(true).stderr(true);
        let refused = |deed| move |error: Error| Trouble::Refused { deed, words: in_words(&error) };
        let attached = docker.attach_container(id, Some(options.build())).await.map_err(refused("attach to it"))?;
        if let Err(error) = docker.start_container(id, None::<StartContainerOptions>).await {
            return Err(with_port_holder(not_started(wanted, &error), wanted).await);
        }
        let seen = inspect(engine, id).await.map_err(|error| refused("look at the container")(error))?;
        let watch = Watch {
            engine: engine.clone(),
            post,
            id: id.to_owned(),
            started_at: seen.state.as_ref().and_then(|state| state.started_at.clone()),
            limit: wanted.memory.unwrap_or(recipe::USUAL_MEMORY),
            image: wanted.image.shown().to_owned(),
            command: command_of(&seen, wanted),
            tail,
        };
        let tenancy = Tenancy {
            id: id.to_owned(),
            name,
            image: wanted.image.shown().to_owned(),
            digest: digest(engine, seen.image.as_deref().unwrap_or_default()).await,
        };
        let ending = tokio::spawn(async move { watch.ended().await });
        let gauge = Arc::new(Gauge::new(engine.clone(), tenancy));
        let ports = reached(&seen, wanted);
        Ok((Self { engine: engine.clone(), gauge, ending, has_left: false, ports, _claim: claim }, attached))
    }

    /// Ends it as gently as there is time for, and removes it. Its input must have ended.
    pub(crate) async fn close(mut self, containers: &Containers, ending: &Ending, stop: &mut watch::Receiver<Stop>) {
        let id = self.gauge.id();
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
            // In a hurry it is left for later, should the engine take its time.
            () = hurried(stop) => containers.owe(id),
        }
        self.ending.abort();
    }

    async fn terminate(&self, id: &str, stop: &mut watch::Receiver<Stop>) {
        let options = StopContainerOptionsBuilder::new().t(TERM_GRACE).build();
        tokio::select! {
            stopped = timeout(STOP, self.engine.docker.stop_container(id, Some(options))) => match stopped {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(container = id, error = %in_words(&error), "could not stop a container");
                }
                Err(_) => tracing::debug!(container = id, "the engine does not stop a container"),
            },
            _ = stop.wait_for(|&stop| stop >= Stop::Now) => {}
        }
    }
}

async fn hurried(stop: &mut watch::Receiver<Stop>) {
    if stop.wait_for(|&stop| stop >= Stop::Now).await.is_err() {
        // Nobody is left to hurry.
        std::future::pending::<()>().await;
    }
    sleep(HURRY).await;
}

/// Has the container made. If its name is taken by what we left behind ourselves, that goes first.
async fn create(
    containers: &Containers,
    engine: &Engine,
    upstream: &Upstream,
    wanted: &Container,
) -> Result<(String, String), Trouble> {
    match create_once(containers, engine, upstream, wanted).await {
        Err(Trouble::NameTaken { .. }) => {
            containers.remove_leftovers(engine).await?;
            match create_once(containers, engine, upstream, wanted).await {
                Err(Trouble::NameTaken { name, words }) => {
                    let words = match container_named(engine, &name).await {
                        Some(other) => format!("{words}; {other}"),
                        None => words,
                    };
                    Err(Trouble::NameTaken { name, words })
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
        Some(pid) => format!("it runs as {}", Holder::Process(pid)),
        None => "it does not run".to_owned(),
    };
    Some(format!("container {id} of image `{image}` has it, and {process}"))
}

/// What the engine says of a port that is taken, and which process has it. Looking for that may take a while.
async fn with_port_holder(trouble: Trouble, wanted: &Container) -> Trouble {
    let Trouble::PortTaken { port, words } = trouble else { return trouble };
    let is_host = wanted.network.as_deref() == Some("host");
    let ports: Vec<u16> =
        wanted.ports.iter().filter_map(|port| if is_host { Some(port.inside) } else { port.here }).collect();
    let holder = |port: u16| Holder::of_port((Ipv4Addr::UNSPECIFIED, port).into());
    let looking = tokio::task::spawn_blocking(move || {
        ports.into_iter().find_map(|port| Some(format!("{} listens at port {port}", holder(port)?)))
    });
    let words = match looking.await {
        Ok(Some(found)) => format!("{words}; {found}"),
        _ => words,
    };
    Trouble::PortTaken { port, words }
}

async fn create_once(
    containers: &Containers,
    engine: &Engine,
    upstream: &Upstream,
    wanted: &Container,
) -> Result<(String, String), Trouble> {
    let server = upstream.spec.name.as_str();
    let name = wanted.name.clone().unwrap_or_else(|| some_name(server));
    // The mark by which processes of ours are found: whoever watches over us ends them if we are killed.
    let mark = upstream.environment.iter().filter(|(name, _)| name == lineage::VARIABLE);
    let mark = mark.map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    let body = recipe::body(wanted, containers.owner.labels(server), mark);
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    match engine.docker.create_container(Some(options), body).await {
        Ok(made) => Ok((made.id, name)),
        Err(error) => Err(not_created(wanted, name, &error)),
    }
}

fn not_created(wanted: &Container, name: String, error: &Error) -> Trouble {
    let words = in_words(error);
    let image = || wanted.image.shown().to_owned();
    match status(error) {
        Some(409) => Trouble::NameTaken { name, words },
        Some(404) if words.contains("o such image") => Trouble::NoImage { image: image() },
        Some(400) if words.to_ascii_lowercase().contains("no command specified") => {
            Trouble::NoCommand { image: image(), command: "anything".to_owned(), words }
        }
        Some(400) if words.contains("bind source path does not exist") => Trouble::NoFolder { words },
        _ => Trouble::Refused { deed: "make the container", words },
    }
}

fn not_started(wanted: &Container, error: &Error) -> Trouble {
    let words = in_words(error);
    let has = |part: &str| words.to_ascii_lowercase().contains(part);
    if has("port is already allocated") || has("address already in use") || has("ports are not available") {
        let ports: Vec<String> = wanted.ports.iter().filter_map(|port| Some(port.here?.to_string())).collect();
        return Trouble::PortTaken { port: ports.join(" or "), words };
    }
    if has("executable file not found") || has("no such file or directory") || has("permission denied: unknown") {
        let command = wanted.command.first().map_or_else(|| "its command".to_owned(), |word| format!("`{word}`"));
        return Trouble::NoCommand { image: wanted.image.shown().to_owned(), command, words };
    }
    Trouble::Refused { deed: "start the container", words }
}

/// Who has a port of the machine already.
enum Claimed {
    ByServer(Trouble),
    ByProcess(Trouble),
}

/// A server in the machine's own network finds out too late, and in words of its own, that its port is taken. By another
/// of our servers it may be taken only in a moment: that one would then answer for this one.
fn claim_own_ports(containers: &Containers, upstream: &Upstream, wanted: &Container) -> Result<Claim, Claimed> {
    if wanted.network.as_deref() != Some("host") {
        return Ok(Claim::default());
    }
    let ports: Vec<u16> = wanted.ports.iter().map(|port| port.inside).collect();
    let claim = containers.claims.take(upstream.spec.name.as_str(), &ports).map_err(Claimed::ByServer)?;
    for port in &wanted.ports {
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port.inside))
            && error.kind() == std::io::ErrorKind::AddrInUse
        {
            let (port, words) = (port.inside.to_string(), error.to_string());
            return Err(Claimed::ByProcess(Trouble::PortTaken { port, words }));
        }
    }
    Ok(claim)
}

/// Which port here leads to which inside.
fn reached(seen: &ContainerInspectResponse, wanted: &Container) -> HashMap<u16, u16> {
    if wanted.network.as_deref() == Some("host") {
        return wanted.ports.iter().map(|port| (port.inside, port.inside)).collect();
    }
    let published = seen.network_settings.as_ref().and_then(|settings| settings.ports.as_ref());
    let here = |inside: u16| {
        let bindings = published?.get(&recipe::key(inside))?.as_ref()?;
        bindings.first()?.host_port.as_deref()?.parse().ok()
    };
    wanted.ports.iter().filter_map(|port| Some((port.inside, here(port.inside)?))).collect()
}

/// The program that was started, for people.
fn command_of(seen: &ContainerInspectResponse, wanted: &Container) -> String {
    let told = wanted.command.first().cloned().or_else(|| seen.path.clone());
    told.map_or_else(|| "its command".to_owned(), |command| format!("`{command}`"))
}

/// What registries know an image by; its id at the engine, if it comes from none.
async fn digest(engine: &Engine, image: &str) -> String {
    let seen = timeout(LOOK, engine.docker.inspect_image(image)).await;
    let digests = seen.ok().and_then(Result::ok).and_then(|seen| seen.repo_digests).unwrap_or_default();
    let digest = digests.iter().find_map(|known| known.split_once('@')).map(|(_, digest)| digest.to_owned());
    digest.unwrap_or_else(|| image.to_owned())
}

async fn inspect(engine: &Engine, id: &str) -> Result<ContainerInspectResponse, Error> {
    match timeout(LOOK, engine.docker.inspect_container(id, None::<InspectContainerOptions>)).await {
        Ok(seen) => seen,
        Err(_) => Err(Error::RequestTimeoutError),
    }
}

/// What it takes to find out how a container ended.
struct Watch {
    engine: Engine,
    post: Post,
    id: String,
    started_at: Option<String>,
    /// Bytes of memory it may use.
    limit: u64,
    image: String,
    command: String,
    tail: Tail,
}

impl Watch {
    /// Waits until the container has ended, or answers no more, however that came; says why.
    async fn ended(&self) -> Trouble {
        let Self { engine, post, id, .. } = self;
        loop {
            let code = tokio::select! {
                code = exit_code(engine, id) => code,
                () = post.news() => None,
            };
            let state = match inspect(engine, id).await {
                Ok(seen) => seen.state.unwrap_or_default(),
                Err(error) if status(&error) == Some(404) => return Trouble::RemovedFromOutside,
                Err(error) => return Trouble::EngineLost { words: in_words(&error) },
            };
            let is_running = state.running == Some(true);
            if is_running && state.started_at != self.started_at {
                return Trouble::RestartedFromOutside;
            }
            if code.is_none() && state.paused == Some(true) {
                return Trouble::PausedFromOutside;
            }
            if code.is_none() && is_running {
                // Nothing that matters, or the engine broke off and is back.
                sleep(NEXT_LOOK).await;
                continue;
            }
            let code = code.or(state.exit_code).unwrap_or_default();
            if code > SIGNALLED
                && let Some(trouble) = aftermath(engine, id, self.started_at.as_ref()).await
            {
                return trouble;
            }
            let end = End { code, oom: state.oom_killed == Some(true), is_unstarted: self.is_unstarted(code).await };
            return self.why(&end);
        }
    }

    /// Whether the server could not even be started inside: a program that it starts itself may be missing as well.
    async fn is_unstarted(&self, code: i64) -> bool {
        let is_said = || self.tail.lines().iter().any(|line| STARTERS.iter().any(|starter| line.contains(starter)));
        if !matches!(code, 126 | 127) {
            return false;
        }
        let waiting = async {
            while !is_said() {
                sleep(WORDS_LOOK).await;
            }
        };
        timeout(LAST_WORDS, waiting).await.is_ok()
    }

    fn why(&self, end: &End) -> Trouble {
        let no_command = |words: &str| Trouble::NoCommand {
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
    /// Some process in it was killed for want of memory: now, or long ago.
    oom: bool,
    is_unstarted: bool,
}

/// Waits for the end of a container; nothing if the engine broke off first.
async fn exit_code(engine: &Engine, id: &str) -> Option<i64> {
    loop {
        let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
        match engine.docker.wait_container(id, Some(options)).next().await {
            Some(Ok(ended)) => return Some(ended.status_code),
            Some(Err(Error::DockerContainerWaitError { code, .. })) => return Some(code),
            // Some engines say nothing at all until there is something to say.
            Some(Err(Error::RequestTimeoutError)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// What becomes of a container that was killed in order to be removed, or to be started again, which takes a moment more.
async fn aftermath(engine: &Engine, id: &str, started_at: Option<&String>) -> Option<Trouble> {
    for _ in 0..REMOVAL_LOOKS {
        let state = match inspect(engine, id).await {
            Err(error) => return (status(&error) == Some(404)).then_some(Trouble::RemovedFromOutside),
            Ok(seen) => seen.state.unwrap_or_default(),
        };
        if matches!(state.status, Some(ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::DEAD)) {
            return Some(Trouble::RemovedFromOutside);
        }
        if state.running == Some(true) && state.started_at.as_ref() != started_at {
            return Some(Trouble::RestartedFromOutside);
        }
        sleep(REMOVAL_LOOK).await;
    }
    None
}

fn why(end: &End, limit: u64, no_command: impl Fn(&str) -> Trouble) -> Trouble {
    match end.code {
        KILLED if end.oom => Trouble::OutOfMemory { limit },
        127 if end.is_unstarted => no_command("it was not found (exit status 127)"),
        126 if end.is_unstarted => no_command("it cannot be executed (exit status 126)"),
        // What people and engines send. Who sent it nobody knows: a server may do that to itself.
        130 | KILLED | 143 => Trouble::StoppedFromOutside { signal: end.code - SIGNALLED },
        code if (SIGNALLED + 1..=SIGNALLED + LAST_SIGNAL).contains(&code) => {
            Trouble::Crashed { signal: code - SIGNALLED }
        }
        code => Trouble::Exited { code, ran_short: end.oom },
    }
}

/// A name for people, with an end that nobody else has.
fn some_name(server: &str) -> String {
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
    fn an_end_is_told_by_what_caused_it() {
        let no_command = |words: &str| Trouble::NoCommand {
            image: "a".to_owned(),
            command: "`run`".to_owned(),
            words: words.to_owned(),
        };
        let told = |code, oom, is_unstarted| why(&End { code, oom, is_unstarted }, 64 << 20, no_command).to_string();
        assert_eq!(told(3, false, false), "its container exited with status 3");
        assert_eq!(told(137, true, false), "its container ran out of memory: it may use 64 MB");
        assert_eq!(told(137, false, false), "its container was stopped from outside: signal 9 (SIGKILL)");
        assert_eq!(told(127, false, true), "image `a` cannot run `run`: it was not found (exit status 127)");
    }

    #[test]
    fn what_the_server_did_itself_is_not_blamed_on_others() {
        let no_command = |_: &str| Trouble::RemovedFromOutside;
        let told = |code, oom| why(&End { code, oom, is_unstarted: false }, 64 << 20, no_command).to_string();
        assert_eq!(told(255, false), "its container exited with status 255");
        assert_eq!(told(193, false), "its container exited with status 193");
        assert_eq!(told(139, false), "its server was ended by signal 11 (SIGSEGV)");
        assert_eq!(told(127, false), "its container exited with status 127");
        let after = "its container exited with status 3, after something in it had run out of memory";
        assert_eq!(told(3, true), after, "a child of it was killed, long ago");
    }

    #[test]
    fn a_name_nobody_chose_is_one_an_engine_takes() {
        let name = some_name("my server/ä");
        assert!(name.starts_with("mcp-my-server---"), "{name}");
        assert_ne!(name, some_name("my server/ä"));
    }
}
