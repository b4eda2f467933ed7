//! For tests: in-process servers whose tools behave as their names say, with the executions in front of them.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Duration;

use aggregator::cycle::Chain;
use aggregator::{Aggregator, Fleet, MethodSet, NamePolicy, Options};
use bytes::Bytes;
use catalog::offer::Hints;
use catalog::server::Remote;
use catalog::{Item, Kind, Offer, Secrets, ServerName, ServerSpec, ServerState, Transport};
use protocol::{Lifecycle, reply};
use registry::{
    Actor, AuditNote, CredentialKey, ExecutionRecord, ExecutionStatus, Location, RawJson, ServerId, Source, Status,
    Store, Timestamp,
};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use upstream::transport::{HttpQueue, HttpSender, OutgoingMessage, UpstreamTransport};
use upstream::{CallError, Connection, Ending, RemoteFailure, Stop, Upstream, UpstreamObserver};

use crate::traces::TraceSetup;
use crate::{Call, ExecutionObserver, Executions, OperatorLog, ServerEntry, ServerTable, Settings, Setup};

/// The name of a tool determines what it does: `echo` returns its arguments, `slow` does so after 50 ms, `stuck` when
/// it is released, `failing` reports an error result, `refusing` responds with an error, `unreachable` cannot be
/// reached twice and `away` never, `forgetful` has lost our session, `lost` loses its connection once and `lost-twice`
/// (which declares itself read-only) does so twice.
const TOOLS: [&str; 10] =
    ["echo", "slow", "stuck", "failing", "refusing", "unreachable", "away", "forgetful", "lost", "lost-twice"];

/// An in-process server.
#[derive(Debug, Default)]
pub(crate) struct FakeServer {
    connection: OnceLock<Arc<Connection>>,
    running: AtomicUsize,
    most_running: AtomicUsize,
    calls: AtomicUsize,
    cancelled: AtomicUsize,
    pub(crate) let_go: Notify,
    at_work: Mutex<HashMap<u64, AbortHandle>>,
    tools: Vec<String>,
    timeout: Option<Duration>,
}

/// Servers by name: a connector cannot capture state.
static SERVERS: LazyLock<Mutex<HashMap<String, Arc<FakeServer>>>> = LazyLock::new(Mutex::default);

impl FakeServer {
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub(crate) fn most_running(&self) -> usize {
        self.most_running.load(Ordering::SeqCst)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    fn offer(&self) -> Offer {
        let mut offer = Offer::new(Lifecycle::Session);
        let item = |name: &String| {
            let definition = json!({"name": name, "annotations": {"readOnlyHint": name == "lost-twice"}});
            Item::read(Kind::Tool, Bytes::from(definition.to_string())).unwrap()
        };
        offer.set_items(Kind::Tool, self.tools.iter().map(item).collect(), Hints::NONE);
        offer
    }

    async fn serve(self: Arc<Self>, number: u64, request: Value) {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let running = Running::begin(&self);
        let connection = self.connection.get().unwrap();
        let arguments = request["params"]["arguments"].to_string();
        let tool = request["params"]["name"].as_str().unwrap();
        match tool {
            "slow" => tokio::time::sleep(Duration::from_millis(50)).await,
            "stuck" => self.let_go.notified().await,
            _ => {}
        }
        drop(running);
        let failure = match tool {
            "unreachable" | "away" => RemoteFailure::Unreachable,
            "forgetful" => RemoteFailure::SessionLost,
            _ => RemoteFailure::ResponseLost,
        };
        let fails = match tool {
            "lost" => call == 0,
            "away" | "forgetful" => true,
            "unreachable" | "lost-twice" => call < 2,
            _ => false,
        };
        if fails {
            let server = connection.server();
            let error = CallError::Remote { server, problem: "the line is cut".into(), failure, command: None };
            return connection.fail(number, &error);
        }
        let id = number.to_string();
        let text = reply::string(&arguments);
        let content = reply::object([("type", b"\"text\"".to_vec()), ("text", text)]);
        let is_error = (tool == "failing").to_string().into_bytes();
        let result = reply::object([("content", [b"[", &content[..], b"]"].concat()), ("isError", is_error)]);
        let mut answer = match tool {
            "refusing" => reply::error(id.as_bytes(), -32602, "no such city", None),
            _ => reply::result(id.as_bytes(), &result),
        };
        answer.pop();
        connection.take(answer.into(), Some(number)).await;
    }
}

/// A running call of the server.
struct Running(Arc<FakeServer>);

impl Running {
    fn begin(server: &Arc<FakeServer>) -> Self {
        let running = server.running.fetch_add(1, Ordering::SeqCst) + 1;
        server.most_running.fetch_max(running, Ordering::SeqCst);
        Self(Arc::clone(server))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl HttpSender for FakeServer {
    fn post(self: Arc<Self>, outgoing: OutgoingMessage) {
        let message: Value = serde_json::from_slice(&outgoing.body).unwrap();
        match message["method"].as_str() {
            Some("tools/call") => {
                let number = outgoing.number.unwrap();
                let work = tokio::spawn(Arc::clone(&self).serve(number, message));
                self.at_work.lock().unwrap().insert(number, work.abort_handle());
            }
            Some("notifications/cancelled") => {
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                let work = self.at_work.lock().unwrap().remove(&message["params"]["requestId"].as_u64().unwrap());
                work.unwrap().abort();
            }
            _ => {}
        }
    }
}

fn run_server(
    upstream: Upstream,
    observer: Arc<dyn UpstreamObserver>,
    mut stop: watch::Receiver<Stop>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let server = Arc::clone(&SERVERS.lock().unwrap()[upstream.spec.name.as_str()]);
        let wire = UpstreamTransport::Http(HttpQueue::new(Arc::clone(&server) as Arc<dyn HttpSender>));
        let connection = Arc::new(Connection::new(upstream.connection_context(&observer), wire));
        connection.set_lifecycle(Lifecycle::Session);
        server.connection.set(Arc::clone(&connection)).unwrap();
        observer.on_running(upstream.index, &connection, server.offer());
        tokio::select! {
            _ = stop.wait_for(|&stop| stop > Stop::Never) => {}
            () = connection.enforce_call_timeout() => {}
        }
        let ending = Arc::new(Ending::Stopped);
        observer.on_ended(upstream.index, &ending);
        connection.end(&ending);
    })
}

/// Records the progress of calls.
#[derive(Debug, Default)]
pub(crate) struct FakeObserver(Mutex<Vec<ExecutionStatus>>);

impl FakeObserver {
    /// The recorded states, the oldest first.
    pub(crate) fn statuses(&self) -> Vec<ExecutionStatus> {
        self.0.lock().unwrap().clone()
    }
}

impl ExecutionObserver for FakeObserver {
    fn has_listeners(&self) -> bool {
        true
    }

    fn on_progress(&self, execution: ExecutionRecord) {
        self.0.lock().unwrap().push(execution.status);
    }
}

/// Writes operators' actions at once.
struct FakeLog(Store);

impl OperatorLog for FakeLog {
    fn write(&self, note: AuditNote, is_stopped: Option<bool>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let mut transaction = self.0.transaction("write the audit log").await.unwrap();
            if let Some(is_stopped) = is_stopped {
                transaction.set_executions_stopped(is_stopped).await.unwrap();
            }
            transaction.commit_audited(note).await.unwrap();
        })
    }
}

/// The executions, with servers behind them.
pub(crate) struct CallFixture {
    pub(crate) executions: Arc<Executions>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) server_table: Arc<ServerTable>,
    pub(crate) observer: Arc<FakeObserver>,
    pub(crate) store: Store,
    _folder: tempfile::TempDir,
}

impl CallFixture {
    /// With a database, and these settings. The clock runs.
    pub(crate) async fn open(settings: Settings) -> Self {
        Self::traced(settings, None).await
    }

    /// The same with a collector.
    pub(crate) async fn traced(settings: Settings, traces: Option<TraceSetup>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = CredentialKey::generate().unwrap();
        let store = Store::open(&Location::in_folder(folder.path()), &key).await.unwrap();
        let (observer, server_table) = (Arc::<FakeObserver>::default(), Arc::<ServerTable>::default());
        let executions = Executions::new(Setup {
            store: store.clone(),
            settings,
            server_table: Arc::clone(&server_table),
            observer: Arc::clone(&observer) as _,
            operator_log: Arc::new(FakeLog(store.clone())),
            traces,
        });
        let options = Options {
            name: "test".into(),
            version: "1".into(),
            separator: ".".parse().unwrap(),
            names: NamePolicy::Canonical,
            start_timeout: Duration::from_secs(5),
            withheld: &[],
            servers_can_change: true,
            method_set: MethodSet::EVERYTHING,
            answer_timeout: Duration::from_secs(5),
            surface: aggregator::Surface::Full,
            capabilities: "{}",
            server_limits: aggregator::ServerLimits::from_settings(),
            client_limits: aggregator::ClientLimits::default(),
            awaits_client: false,
        };
        let chain = Chain::enter(None, folder.path()).unwrap();
        let fleet = Fleet::empty(options.clone(), &chain, Some(Arc::new(run_server)));
        let interceptor = Arc::clone(&executions) as Arc<dyn aggregator::interceptor::CallInterceptor>;
        let aggregator = Aggregator::with_interceptor(Arc::clone(&fleet), options, interceptor);
        executions.attach(&aggregator);
        Self { executions, aggregator, fleet, server_table, observer, store, _folder: folder }
    }

    /// A server with every tool.
    pub(crate) async fn server(&self, name: &str) -> Arc<FakeServer> {
        self.server_with(name, &TOOLS, None).await
    }

    /// A server with these tools, and its own time limit. `name` must be used in one test only.
    pub(crate) async fn server_with(&self, name: &str, tools: &[&str], timeout: Option<Duration>) -> Arc<FakeServer> {
        let tools = tools.iter().map(|&tool| tool.to_owned()).collect();
        let server = Arc::new(FakeServer { tools, timeout, ..FakeServer::default() });
        assert!(SERVERS.lock().unwrap().insert(name.into(), Arc::clone(&server)).is_none(), "`{name}` is taken");
        let slot_index = self.slot_index(name, ServerState::Initializing, Status::Connected);
        let spec = ServerSpec {
            name: ServerName::new(name).unwrap(),
            transport: Transport::Remote(Remote::at("http://127.0.0.1:1", Vec::new())),
            lifecycle: None,
            timeout: server.timeout,
            start_timeout: None,
            secrets: Secrets::default(),
            grant_key: None,
        };
        drop(self.fleet.begin(slot_index, spec, None).await);
        self.fleet.settled(slot_index).await;
        server
    }

    /// A slot for a server that is not running.
    pub(crate) fn slot_index(&self, name: &str, state: ServerState, status: Status) -> usize {
        let slot_index =
            self.fleet.register(ServerName::new(name).unwrap(), state, Arc::new(Offer::new(Lifecycle::Session)));
        self.server_table.put(ServerEntry {
            id: ServerId::fresh(),
            name: name.into(),
            slot_index,
            status,
            since: Timestamp::now(),
            retry_at: None,
            why: None,
            is_lazy: false,
        });
        slot_index
    }

    /// Applies other settings.
    pub(crate) fn set(&self, settings: Settings) {
        self.executions.apply_settings(settings);
    }
}

/// A call over REST.
pub(crate) fn call(name: &str) -> Call {
    Call {
        name: name.into(),
        server: None,
        arguments: RawJson::parse(r#"{ "n": 1.0e2 }"#).unwrap(),
        source: Source::Rest,
        actor: actor(),
        document: None,
        session: None,
        timeout_ms: None,
        trace: None,
    }
}

pub(crate) fn actor() -> Actor {
    Actor::internal("tester")
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(120), waiting).await.is_ok(), "in vain: {what}");
}
