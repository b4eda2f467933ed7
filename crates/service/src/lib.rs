//! The aggregation service: servers that are registered, connected, watched, limited and removed while it runs, and
//! remembered in a registry; and an account of every call.
//!
//! # Layout
//! - [`Service`] (here): the whole, opened once
//! - `servers.rs`: what an administrator does with servers; `server_table.rs`: all of them, in memory
//! - `supervisor.rs` and below: the life of one server: connected, lost, tried again, switched off; health, and rest
//! - `context.rs`: what all keepers share; `status_writer.rs`: what is written behind their backs
//! - `spec.rs`: from what was registered to what can be started, and what is wrong with it
//! - [`containers`]: servers in containers: what is wrong with how one is described, and how one is shown
//! - [`usage`]: what servers use of the machine, and what they say on the side
//! - `switching.rs`: tools that are switched off
//! - `config_source.rs`: the config file as a read-only layer of servers; `test_connection.rs`: a server tried apart from all others
//! - [`calls`]: a tool called from here; [`executions`]: the account of all calls: limits, stop, history;
//!   `recorder.rs`: writes it down
//! - [`items`]: prompts and resources; [`clients`]: the MCP clients that are connected
//! - [`tool_search`]: tools found by words and by meaning; skills, and which tools have them
//! - [`bindings`]: which server a part of a document may use
//! - [`metrics`]: numbers for whoever watches; [`traces`]: spans of calls, for a collector
//! - [`settings`]: what can be changed while it runs; [`events`]: what happens, for who wants to know
//! - `overview`: the audit log, and whether the database is there; [`backup`]: the whole registry in one piece
//! - [`Error`]: what went wrong, told once for every edge

mod audit;
pub mod backup;
pub mod bindings;
pub mod calls;
pub mod clients;
mod config_source;
pub mod containers;
mod context;
mod disabled_tools;
pub mod error;
pub mod events;
pub mod executions;
#[cfg(test)]
mod fake;
pub mod items;
pub mod metrics;
pub mod overview;
mod recorder;
mod retention;
mod server_table;
pub mod servers;
pub mod settings;
mod spec;
mod status_writer;
mod supervisor;
mod test_connection;
pub mod tool_search;
pub mod traces;
pub mod usage;

use std::sync::Arc;
use std::time::Instant;

use aggregator::cycle::Chain;
use aggregator::{Aggregator, Fleet, Options};
use registry::Store;
use upstream::{Connector, Probe, ServerLimits, Stop};

use context::{ContextParts, ServiceContext};

pub use config_source::ConfigFile;
pub use error::{Error, Problem};
pub use events::{Event, Events, Listener};
pub use settings::Settings;
pub use traces::TraceSetup;

/// On whose behalf something is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of a token, where there are tokens; or which way somebody came, as in `cli`.
    pub name: Arc<str>,
}

/// What it takes to open the service.
pub struct Setup {
    /// Where everything is remembered.
    pub store: Store,
    /// How we present ourselves. That servers join and leave is seen to.
    pub options: Options,
    /// Where we stand among aggregators that run aggregators.
    pub chain: Chain,
    /// How servers that run elsewhere or in containers are reached, for programs that do.
    pub remote: Option<Connector>,
    /// How an address is asked whether somebody is well, for programs that do.
    pub probe: Option<Probe>,
    /// The config file, a layer of servers that are changed only there, if there is one.
    pub config: Option<ConfigFile>,
    /// What makes vectors of texts, for programs that find tools by meaning.
    pub embedder: Option<Arc<dyn search::Embedder>>,
    /// Where vectors are kept and compared besides, for programs that do.
    pub vectors: Option<Arc<dyn search::VectorStore>>,
    /// Skills beside those that come with the program, or instead of them.
    pub skills: Vec<search::Skill>,
    /// A language model that says what tools are for, where vectors are not enough.
    pub classifier: Option<tool_search::ClassifierSetup>,
    /// Where calls are traced, if they are.
    pub traces: Option<TraceSetup>,
}

/// The service. Cheap to share; everything goes on in tasks of its own.
pub struct Service {
    pub(crate) store: Store,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) events: Events,
    pub(crate) settings: settings::LiveSettings,
    pub(crate) executions: Arc<executions::Executions>,
    pub(crate) context: Arc<ServiceContext>,
    pub(crate) finder: Arc<tool_search::Finder>,
    pub(crate) began: Instant,
}

impl Service {
    /// Opens the service: all servers of the registry and of the config file have a place and are about to start.
    pub async fn open(setup: Setup) -> Result<Arc<Self>, Error> {
        Self::open_with(setup, true).await
    }

    /// The same without an account of the calls of MCP clients: only to see what that costs.
    pub async fn open_without_recording(setup: Setup) -> Result<Arc<Self>, Error> {
        Self::open_with(setup, false).await
    }

    async fn open_with(setup: Setup, keeps_account: bool) -> Result<Arc<Self>, Error> {
        let Setup { store, options, chain, remote, probe, config, embedder, vectors, skills, classifier, traces } =
            setup;
        let options = Options { is_growing: true, server_limits: ServerLimits::from_settings(), ..options };
        store.reset_connections().await?;
        let settings = settings::LiveSettings::load(&store).await?;
        settings.now().apply_to(&options.server_limits);
        let (events, server_table) = (Events::default(), Arc::<server_table::ServerTable>::default());
        let executions = executions::Executions::new(
            store.clone(),
            settings.clone(),
            events.clone(),
            Arc::clone(&server_table),
            traces,
        );
        executions.load_stop_state().await?;
        let fleet = Fleet::empty(options.clone(), &chain, remote.clone());
        let ledger = Arc::clone(&executions) as Arc<dyn aggregator::interceptor::CallInterceptor>;
        let aggregator = match keeps_account {
            true => Aggregator::with_interceptor(Arc::clone(&fleet), options.clone(), ledger),
            false => Aggregator::new(Arc::clone(&fleet), options.clone()),
        };
        executions.attach(&aggregator);
        let context = ServiceContext::new(ContextParts {
            store: store.clone(),
            fleet: Arc::clone(&fleet),
            server_table,
            events: events.clone(),
            settings: settings.clone(),
            executions: Arc::clone(&executions),
            probe,
            options,
            chain,
            remote,
        });
        let finder = tool_search::Finder::start(&context, embedder, skills, (vectors, classifier)).await?;
        aggregator.set_tool_finder(Arc::new(tool_search::SurfaceFinder(Arc::clone(&finder))));
        let began = Instant::now();
        let service = Arc::new(Self { store, fleet, aggregator, events, settings, executions, context, finder, began });
        if let Err(error) = config_source::open(&service.context, config).await {
            service.stop(Stop::Now);
            service.ended().await;
            return Err(error);
        }
        Ok(service)
    }

    /// The way in for MCP clients.
    pub fn aggregator(&self) -> &Arc<Aggregator> {
        &self.aggregator
    }

    /// What happens from now on.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Asks everything to end. Asking again, more urgently, is fine.
    pub fn stop(&self, how: Stop) {
        // Keepers first: one whose server ends must not begin another.
        self.context.stopping.send_replace(true);
        self.fleet.stop(how);
    }

    /// Waits until nothing is left, and everything is written down. Ask for it first.
    pub async fn ended(&self) {
        self.context.ended().await;
        self.fleet.ended().await;
        self.executions.close().await;
        self.context.flush_status().await;
    }
}
