//! The aggregation service: servers that are registered, connected, supervised, limited and removed while it runs, and
//! stored in a registry. Executions are in [`executions`], finding tools in [`tool_search`].
//!
//! # Layout
//! - [`Service`] (here): the service, opened once
//! - `servers.rs` and below: operations of administrators on servers
//! - `supervisor.rs` and below: the state machine of one server: connected, lost, retried, disabled, asleep; its
//!   health
//! - `context.rs`: what all supervisors share; `status_writer.rs`: what is written in the background
//! - `spec.rs`: from a registration to what can be started, with its validation
//! - `containers.rs`: servers in containers: validation and view
//! - `usage.rs`: the resource usage and stderr of servers
//! - `disabled_tools.rs`: tools that are disabled
//! - `config_source.rs`: the config file as a source of read-only servers; `test_connection.rs`: a connection test
//!   apart from all others
//! - `calls.rs`: making, listing and cancelling calls
//! - `sign_ins.rs`: signing in to servers; `grant_store.rs`: sign-ins in the registry
//! - `items.rs`: prompts and resources; `clients.rs`: the connected MCP clients
//! - `tools.rs`: searching tools, and skills; `tool_lists.rs`: lists of tools; `lists.rs`: where long lists are described
//! - `bindings.rs`: which server a section of a document may use
//! - `settings.rs`: settings that can be changed while it runs; `events.rs`: events for listeners
//! - `limits.rs`: limits by identity, profile, server and tool
//! - `audit.rs`: audit rows; `retention.rs`: deletes old rows
//! - `profiles.rs`: which part of everything some clients see; `visibility.rs`: the service as they see it
//! - `overview.rs`: the audit log, and the state of the database; `backup.rs`: export and import of the registry
//! - [`Error`]: the error type for all interfaces

mod audit;
mod backup;
mod bindings;
mod calls;
mod clients;
mod config_source;
mod containers;
mod context;
mod disabled_tools;
mod error;
mod events;
mod grant_store;
mod instances;
mod items;
mod limits;
mod lists;
mod overview;
mod profiles;
mod retention;
mod servers;
mod settings;
mod sign_ins;
mod spec;
mod status_writer;
mod supervisor;
mod test_connection;
mod tool_lists;
mod tools;
mod usage;
mod visibility;

use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

use aggregator::cycle::Chain;
use aggregator::{Aggregator, Fleet, Options};
use executions::traces::TraceSetup;
use executions::{Executions, ServerTable};
use registry::Store;
use tool_search::{ClassifierSetup, Finder, SurfaceFinder};
use upstream::{Connector, Probe, ServerLimits, Stop};

use context::{ContextState, ServiceContext};
use sign_ins::{ClientSignIns, SignIns};
use status_writer::{AuditWriter, StatusWriter};

pub use backup::problems_with_backup;
pub use bindings::{Binding, BindingView};
pub use catalog::{Kind as ItemKind, login_command};
pub use clients::ClientView;
pub use config_source::ConfigFile;
pub use containers::ContainerView;
pub use error::{Error, Problem};
pub use events::{Event, Events, Listener};
pub use grant_store::RegistryGrants;
pub use instances::InstanceView;
pub use items::{ItemPage, PromptView, ResourceView};
pub use limits::{LIMIT_MEMBERS, ShownLimit, limit_target, read_limit};
pub use lists::{LIST_DEADLINE, LONGEST_LIST_WAIT, ListPlace, ListSize, MAX_LISTED_BYTES, took_too_long};
pub use overview::Weight;
pub use profiles::{BoundPrincipal, BoundPrincipals, ProfileCounts, ProfileView};
/// What search compares while there is no embedding model, or it is unreachable.
pub use search::WITHOUT_A_MODEL as SEARCHED_WITHOUT_MODEL;
pub use servers::{Registration, ServerHealth, ServerView, ServiceState, TestReport, Update, to_the_end};
pub use settings::{SETTING_RANGES, Settings, change_stored_settings, stored_settings};
pub use sign_ins::{Returned, SignInAttempt, SignInSetup, SignInView};
pub use spec::{SECRETS_ARE_MISSING, is_known_key, problems_with_config, protected_within};
pub use tool_lists::{ToolList, ToolSelection};
pub use usage::{LogReader, NewLines, UsageView};

/// Makes the connector of one test.
pub type TestConnector = Arc<dyn Fn() -> Connector + Send + Sync>;

/// The configuration of the service.
pub struct Setup {
    /// The registry.
    pub store: Store,
    /// How we present ourselves. That servers may join and leave is set by the service.
    pub options: Options,
    /// Our position in a chain of aggregators.
    pub chain: Chain,
    /// Connects to remote servers and containers, in programs that support them.
    pub remote: Option<Connector>,
    /// Makes such a connector for one test of a server that is not registered. Sign-ins in the course of the test are
    /// gone with it. Without one, tests use `remote`.
    pub test_connector: Option<TestConnector>,
    /// Checks a health address, in programs that support it.
    pub probe: Option<Probe>,
    /// The config file, a source of read-only servers, if there is one.
    pub config: Option<ConfigFile>,
    /// Computes embeddings, for programs that search tools by meaning.
    pub embedder: Option<Arc<dyn search::Embedder>>,
    /// An external vector store, for programs that use one.
    pub vectors: Option<Arc<dyn search::VectorStore>>,
    /// Skills besides the built-in ones, or instead of them.
    pub skills: Vec<search::Skill>,
    /// A language model that classifies tools, where embeddings are not enough.
    pub classifier: Option<ClassifierSetup>,
    /// Where calls are traced, if they are.
    pub traces: Option<TraceSetup>,
    /// Signs in to servers, in programs that support it.
    pub sign_ins: Option<SignInSetup>,
}

/// The service. Cheap to share; all work happens in its own tasks.
pub struct Service {
    /// The profile whose view it shows; everything without one.
    pub(crate) profile: Option<Arc<str>>,
    pub(crate) store: Store,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) events: Events,
    pub(crate) settings: settings::LiveSettings,
    pub(crate) executions: Arc<Executions>,
    pub(crate) context: Arc<ServiceContext>,
    pub(crate) finder: Arc<Finder>,
    pub(crate) began: Instant,
}

impl Service {
    /// Opens the service: all servers of the registry and of the config file have a slot and are about to start.
    pub async fn open(setup: Setup) -> Result<Arc<Self>, Error> {
        Self::open_with(setup, true).await
    }

    /// The same without recording the calls of MCP clients: only to measure the cost of recording.
    pub async fn open_without_recording(setup: Setup) -> Result<Arc<Self>, Error> {
        Self::open_with(setup, false).await
    }

    async fn open_with(setup: Setup, records_calls: bool) -> Result<Arc<Self>, Error> {
        let Setup {
            store,
            options,
            chain,
            remote,
            test_connector,
            probe,
            config,
            embedder,
            vectors,
            skills,
            classifier,
            traces,
            sign_ins,
        } = setup;
        let options = Options { servers_can_change: true, server_limits: ServerLimits::from_settings(), ..options };
        store.reset_connections().await?;
        let settings = settings::LiveSettings::load(&store).await?;
        settings.now().apply_to(&options.server_limits);
        let (events, server_table) = (Events::default(), Arc::<ServerTable>::default());
        let status_writer = Arc::<StatusWriter>::default();
        let executions = Executions::new(executions::Setup {
            store: store.clone(),
            settings: settings.now().for_executions(),
            server_table: Arc::clone(&server_table),
            observer: Arc::new(events.clone()),
            operator_log: Arc::new(AuditWriter { store: store.clone(), status_writer: Arc::clone(&status_writer) }),
            traces,
        });
        executions.load_stop_state().await?;
        executions.limits().load(&store).await?;
        let fleet = Fleet::empty(options.clone(), &chain, remote.clone());
        fleet.set_instance_idle_timeout(Duration::from_secs(settings.now().idle_timeout_s));
        let interceptor = Arc::clone(&executions) as Arc<dyn aggregator::interceptor::CallInterceptor>;
        let aggregator = match records_calls {
            true => Aggregator::with_interceptor(Arc::clone(&fleet), options.clone(), interceptor),
            false => Aggregator::new(Arc::clone(&fleet), options.clone()),
        };
        executions.attach(&aggregator);
        let context = ServiceContext {
            store: store.clone(),
            fleet: Arc::clone(&fleet),
            server_table,
            events: events.clone(),
            settings: settings.clone(),
            executions: Arc::clone(&executions),
            status_writer,
            probe,
            options,
            chain,
            remote,
            test_connector,
            sign_ins: sign_ins.map(SignIns::new),
            profiles: profiles::ProfileLayers::default(),
            stopping: watch::Sender::new(false),
            state: ContextState::default(),
        }
        .start();
        context.spawn_until_stop(Arc::clone(&context).follow_sign_ins());
        if context.sign_ins.is_some() {
            aggregator.set_sign_in_host(Arc::new(ClientSignIns(Arc::downgrade(&context))));
        }
        let (finder, tasks) = Finder::new(tool_search::Setup {
            store: store.clone(),
            fleet: Arc::clone(&fleet),
            host: Arc::clone(&context) as _,
            changes: events.changes_of_tools(),
            embedder,
            vectors,
            skills,
            classifier,
        })
        .await?;
        tasks.into_iter().for_each(|task| context.spawn_until_stop(task));
        aggregator.set_tool_finder(Arc::new(SurfaceFinder(Arc::clone(&finder))));
        let began = Instant::now();
        let profile = None;
        let service =
            Arc::new(Self { profile, store, fleet, aggregator, events, settings, executions, context, finder, began });
        let of_config = config.as_ref().map(|config| config.profiles().to_vec()).unwrap_or_default();
        let opened = match profiles::open(&service.context, of_config).await {
            Ok(()) => config_source::open(&service.context, config).await,
            Err(error) => Err(error),
        };
        if let Err(error) = opened {
            service.stop(Stop::Now);
            service.ended().await;
            return Err(error);
        }
        Ok(service)
    }

    /// The entry point for MCP clients.
    pub fn aggregator(&self) -> &Arc<Aggregator> {
        &self.aggregator
    }

    /// The event channel.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Requests the stop. It may be called again, more urgently.
    pub fn stop(&self, how: Stop) {
        // Supervisors first: one whose server ends must not start another.
        self.context.stopping.send_replace(true);
        self.fleet.stop(how);
    }

    /// Waits until everything has ended and is written. Call [`Service::stop`] first.
    pub async fn ended(&self) {
        self.context.ended().await;
        self.fleet.ended().await;
        // A refresh that is interrupted costs the sign-in.
        if let Some(sign_ins) = &self.context.sign_ins {
            sign_ins.setup.oauth.drain().await;
        }
        self.executions.close().await;
        self.finder.write_uses().await;
        self.context.flush_status().await;
    }
}
