//! Runs the servers of a config while one command runs.

use std::path::Path;
use std::sync::Arc;

use aggregator::load::{self, Loaded};
use aggregator::{
    Aggregator, ClientLimits, Fleet, MethodSet, NamePolicy, Options, Separator, ServerLimits, ServerState, Signals,
    Surface,
};
use oauth::OAuth;
use upstream::Stop;

use crate::failure::Failure;
use crate::{connectors, progress, sign_in};

/// Running servers, and a receiver of Ctrl-C.
pub(crate) struct Session {
    pub(crate) aggregator: Arc<Aggregator>,
    signals: Signals,
}

/// The client capabilities towards servers of a command without a client: none.
pub(crate) const NO_CAPABILITIES: &str = "{}";
/// The client capabilities towards servers with one client. Whether that client supports a server request is checked
/// when it is sent.
pub(crate) const OF_ONE: &str = r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

/// The client capabilities towards servers with many clients, during a call of one of them. Whether that client supports
/// a server request is checked when it is sent.
pub(crate) const OF_MANY: &str = r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

/// The variables with our own credentials: for clients, the registry, the vector store, models and the trace collector.
/// A server that needs one of them must name it in its `env`.
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

/// The `initialize` parameters towards servers; `capabilities` are the supported server requests.
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
        servers_can_change: false,
        method_set: MethodSet::EVERYTHING,
        surface: Surface::Full,
        capabilities,
        server_limits: ServerLimits::from_environment().map_err(Failure::usage)?,
        client_limits: ClientLimits::default(),
        awaits_client: false,
    })
}

/// Runs `work` on the one thread that does all I/O.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(format!("could not start: {error}")))?.block_on(work)
}

/// Registers the signals that stop a command.
pub(crate) fn signals() -> Result<Signals, Failure> {
    Signals::respecting_nohup().map_err(|error| Failure::new(format!("could not start: {error}")))
}

/// Starts the servers, runs `work`, and stops them in every case.
pub(crate) fn with<T>(
    loaded: Loaded,
    options: Options,
    work: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_sign_ins(loaded, options, None, work)
}

/// The same with the sign-ins in another data directory than the usual one.
pub(crate) fn with_sign_ins<T>(
    loaded: Loaded,
    options: Options,
    data_dir: Option<&Path>,
    work: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let oauth = sign_in::of_config(Path::new(&connectors::config_file(&loaded.chain)), data_dir);
    with_oauth(loaded, options, &oauth, work)
}

/// The same with these sign-ins.
pub(crate) fn with_oauth<T>(
    loaded: Loaded,
    options: Options,
    oauth: &Arc<OAuth>,
    work: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    block_on(async {
        let signals = signals()?;
        let connector = connectors::of_config(&loaded.chain, oauth);
        let fleet = Fleet::start(loaded.config, options.clone(), &loaded.chain, Some(connector));
        let mut session = Session { aggregator: Aggregator::new(fleet, options), signals };
        let done = work(&mut session).await;
        session.stop().await;
        oauth.drain().await;
        done
    })
}

/// The servers that are still starting, for waiting users.
pub(crate) fn still_starting(fleet: &Fleet) -> String {
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

    /// Waits for `work`, or until Ctrl-C.
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

    /// Waits until every server is connected or failed, or until Ctrl-C.
    pub(crate) async fn all_decided(&mut self) -> Result<(), Failure> {
        let fleet = Arc::clone(self.fleet());
        self.unless_interrupted(progress::with_spinner_text(|| still_starting(&fleet), fleet.all_decided())).await
    }

    /// Stops every server: gracefully, so that the last messages still reach them; immediately after a second Ctrl-C.
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
