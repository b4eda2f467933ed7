//! The servers of a config, running for the length of one command.

use std::io;
use std::sync::Arc;

use aggregator::load::{self, Loaded};
use aggregator::{
    Aggregator, ClientLimits, Fleet, MethodSet, NamePolicy, Options, Separator, ServerLimits, ServerState, Surface,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use upstream::Stop;

use crate::failure::Failure;
use crate::{connectors, progress};

/// Running servers, and an ear for Ctrl-C.
pub(crate) struct Session {
    pub(crate) aggregator: Arc<Aggregator>,
    signals: Signals,
}

/// What servers may ask of nobody: there is only this program.
pub(crate) const NOTHING: &str = "{}";
/// What servers may ask of the only client there is. Whether it can answer is seen when it is asked.
pub(crate) const OF_ONE: &str = r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

/// What servers may ask of one of many clients, while they work for it. Whether it can answer is seen when it is asked.
pub(crate) const OF_MANY: &str = r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

/// What this program opens doors with: its own, those of its registry and of a database of vectors, the models it
/// asks, and who gathers its traces.
/// A server that needs one of them names it in its `env`.
const SECRETS: [&str; 13] = [
    "MCP_AGGREGATOR_TOKEN",
    "MCP_CREDENTIAL_KEY",
    "MCP_CLASSIFIER_API_KEY",
    "MCP_EMBEDDINGS_API_KEY",
    "MCP_ASSISTANT_API_KEY",
    "QDRANT_API_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "PGPASSWORD",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
];

/// How this program presents itself to the servers it starts; `capabilities` is what they may ask.
pub(crate) fn options(
    name: &str,
    separator: Separator,
    names: NamePolicy,
    capabilities: &'static str,
) -> Result<Options, Failure> {
    Ok(Options {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        separator,
        names,
        start_timeout: load::start_timeout().map_err(Failure::usage)?,
        answer_timeout: load::answer_timeout().map_err(Failure::usage)?,
        withheld: &SECRETS,
        is_growing: false,
        method_set: MethodSet::EVERYTHING,
        surface: Surface::Full,
        capabilities,
        server_limits: ServerLimits::from_environment().map_err(Failure::usage)?,
        client_limits: ClientLimits::default(),
        awaits_client: false,
    })
}

/// Runs `work` to its end on the one thread that moves all bytes.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(format!("could not start: {error}")))?.block_on(work)
}

/// Starts the servers, does `work`, and stops them again, however it went.
pub(crate) fn with<T>(
    loaded: Loaded,
    options: Options,
    work: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    block_on(async {
        let signals = Signals::new().map_err(|error| Failure::new(format!("could not start: {error}")))?;
        let life = connectors::of_config(&loaded.chain);
        let fleet = Fleet::start(loaded.config, options.clone(), &loaded.chain, Some(life));
        let mut session = Session { aggregator: Aggregator::new(fleet, options), signals };
        let done = work(&mut session).await;
        session.stop().await;
        done
    })
}

/// Which servers are still starting, for people who wait for them.
pub(crate) fn awaited(fleet: &Fleet) -> String {
    let view = fleet.view();
    let servers = view.snapshot.servers().iter().filter(|server| server.state == ServerState::Initializing);
    let names: Vec<&str> = servers.map(|server| server.name.as_str()).collect();
    if names.is_empty() { "starting the servers".to_owned() } else { format!("waiting for {}", names.join(", ")) }
}

impl Session {
    /// The servers.
    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.aggregator.fleet
    }

    /// Waits for `work`, but not beyond Ctrl-C.
    pub(crate) async fn unless_interrupted<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            done = work => Ok(done),
            () = self.signals.next() => Err(Failure::interrupted()),
        }
    }

    /// Waits for Ctrl-C.
    pub(crate) async fn interrupted(&mut self) {
        self.signals.next().await;
    }

    /// Waits until every server is up or down, but not beyond Ctrl-C.
    pub(crate) async fn all_decided(&mut self) -> Result<(), Failure> {
        let fleet = Arc::clone(self.fleet());
        self.unless_interrupted(progress::with_spinner_text(|| awaited(&fleet), fleet.all_decided())).await
    }

    /// Stops every server. Gently, so that what they were last told still reaches them; at once for a user who asks again.
    async fn stop(mut self) {
        self.aggregator.fleet.stop(Stop::Gently);
        let fleet = Arc::clone(self.fleet());
        let mut ended = std::pin::pin!(fleet.ended());
        loop {
            tokio::select! {
                () = &mut ended => return,
                () = self.signals.next() => self.aggregator.fleet.stop(Stop::Now),
            }
        }
    }
}

/// The signals that mean stop.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Nothing for who wanted it to be ignored: what `nohup` starts outlives its terminal.
    hang_up: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let hang_up = match is_ignored(SignalKind::hangup()) {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hang_up })
    }

    pub(crate) async fn next(&mut self) {
        let Self { interrupt, terminate, hang_up } = self;
        let hung_up = async {
            match hang_up {
                Some(hang_up) => drop(hang_up.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = hung_up => {}
        }
    }
}

/// Whether who started us wanted a signal to be ignored. Where the system does not tell, nobody did.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let bit = u32::try_from(kind.as_raw_value() - 1).unwrap_or_default();
    ignored.is_some_and(|ignored| ignored.checked_shr(bit).is_some_and(|rest| rest & 1 == 1))
}
