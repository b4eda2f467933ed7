//! A service for tests: SQLite in its own folder, servers of the testkit, and a client.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aggregator::cycle::Chain;
use aggregator::{LocalClient, MethodSet, NamePolicy, Options, Separator};
use oauth::{Fetch, MemoryStore, Network, OAuth, OAuthOptions};
use registry::{Actor, CredentialKey, Location, Page, Status, Store};
use serde_json::{Value, json};
use service::{ConfigFile, Registration, RegistryGrants, ServerView, Service, Setup, SignInSetup, TestConnector};
use tempfile::TempDir;
use tool_search::ClassifierSetup;
use upstream::{Connector, Stop};

/// A service, and what is needed to open it again.
pub(crate) struct ServiceFixture {
    pub(crate) service: Arc<Service>,
    pub(crate) store: Store,
    pub(crate) folder: TempDir,
    client: tokio::sync::Mutex<LocalClient>,
    remote: Connector,
    classifier: Option<MakeClassifier>,
    provider: Option<Arc<dyn Fetch>>,
}

/// A classifier for every time that the service is opened.
pub(crate) type MakeClassifier = Arc<dyn Fn() -> ClassifierSetup + Send + Sync>;

/// How a service is set up.
pub(crate) struct FixtureOptions {
    pub(crate) settings: Value,
    pub(crate) config: Option<Value>,
    pub(crate) remote: Connector,
    /// With embeddings that carry no information.
    pub(crate) classifier: Option<MakeClassifier>,
    /// Who answers the requests of sign-ins.
    pub(crate) provider: Option<Arc<dyn Fetch>>,
}

impl Default for FixtureOptions {
    fn default() -> Self {
        Self { settings: json!({}), config: None, remote: Arc::new(remote::connect), classifier: None, provider: None }
    }
}

/// The actor of all operations.
pub(crate) fn somebody() -> Actor {
    Actor::internal("tester")
}

impl ServiceFixture {
    pub(crate) async fn new() -> Self {
        Self::with(FixtureOptions::default()).await
    }

    pub(crate) async fn with(options: FixtureOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = CredentialKey::generate().unwrap();
        let store = Store::open(&Location::in_folder(folder.path()), &key).await.unwrap();
        let Value::Object(settings) = options.settings else { panic!("settings are an object") };
        store.put_settings(settings.into_iter().collect::<BTreeMap<_, _>>()).await.unwrap();
        if let Some(config) = &options.config {
            std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        }
        let FixtureOptions { remote, classifier, provider, .. } = options;
        let service = open(&store, &folder, Arc::clone(&remote), classifier.as_ref(), provider.as_ref()).await;
        let client = tokio::sync::Mutex::new(LocalClient::connect(service.aggregator()).unwrap());
        Self { service, store, folder, client, remote, classifier, provider }
    }

    pub(crate) fn config_path(&self) -> PathBuf {
        self.folder.path().join("config.json")
    }

    /// Stops the service and opens it again on the same registry.
    pub(crate) async fn again(self) -> Self {
        self.end().await;
        let remote = Arc::clone(&self.remote);
        let service = open(&self.store, &self.folder, remote, self.classifier.as_ref(), self.provider.as_ref()).await;
        let client = tokio::sync::Mutex::new(LocalClient::connect(service.aggregator()).unwrap());
        Self { service, client, ..self }
    }

    pub(crate) async fn end(&self) {
        self.service.stop(Stop::Promptly);
        self.service.ended().await;
    }

    /// Registers a server and waits until it is connected: a registration itself waits only for a moment.
    pub(crate) async fn register(&self, new: Registration) -> ServerView {
        let name = self.service.register(&somebody(), new).await.unwrap().record.name;
        self.until(&name, Status::Connected).await
    }

    /// Waits until a server is in that state.
    pub(crate) async fn until(&self, server: &str, status: Status) -> ServerView {
        self.until_it(server, &format!("{status}"), |view| view.record.status == status).await
    }

    /// Waits until something holds for a server.
    pub(crate) async fn until_it(&self, server: &str, what: &str, holds: impl Fn(&ServerView) -> bool) -> ServerView {
        let mut events = self.service.events().listen();
        let waiting = async {
            loop {
                match self.service.server(server).await {
                    Ok(view) if holds(&view) => return view,
                    _ => next_or_soon(&mut events).await,
                }
            }
        };
        match tokio::time::timeout(Duration::from_secs(600), waiting).await {
            Ok(view) => view,
            Err(_) => panic!("`{server}` never became {what}: {:?}", self.service.server(server).await),
        }
    }

    /// Sends a request as an MCP client, and returns its answer.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let asking = async {
            let mut client = self.client.lock().await;
            client.request(request.to_string().into(), |line| line.windows(6).any(|bytes| bytes == br#""id":1"#)).await
        };
        let answer = tokio::time::timeout(Duration::from_secs(600), asking).await.unwrap().unwrap();
        serde_json::from_slice(&answer).unwrap()
    }

    /// Calls a tool as an MCP client.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// The names of all tools that clients see.
    pub(crate) async fn listed(&self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The kinds of events in a server's history, oldest first.
    pub(crate) async fn history(&self, server: &str) -> Vec<String> {
        let history = self.service.history(server, Page::ALL).await.unwrap();
        let to = |details: &Option<Value>| details.as_ref().unwrap()["to"].as_str().unwrap().to_owned();
        history.items.iter().rev().map(|event| to(&event.details)).collect()
    }
}

impl ServiceFixture {
    /// Waits until a server's history has that many entries, and the last has that status. Entries from while the
    /// clock was paused may take a while to be written: databases have their own clocks.
    pub(crate) async fn history_until(&self, server: &str, least: usize, status: &str) -> Vec<String> {
        let waiting = async {
            loop {
                let history = self.history(server).await;
                if history.len() >= least && history.last().is_some_and(|last| last == status) {
                    return history;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(testkit::DEADLINE, waiting).await {
            Ok(history) => history,
            Err(_) => panic!("it never came to {status}: {:?}", self.history(server).await),
        }
    }
}

async fn next_or_soon(events: &mut service::Listener) {
    // Not every condition is signalled by an event.
    drop(tokio::time::timeout(Duration::from_millis(20), events.recv()).await);
}

async fn open(
    store: &Store,
    folder: &TempDir,
    remote: Connector,
    classifier: Option<&MakeClassifier>,
    provider: Option<&Arc<dyn Fetch>>,
) -> Arc<Service> {
    let path = folder.path().join("config.json");
    let config = path.exists().then(|| ConfigFile::load(&path).unwrap());
    let options = Options {
        name: "test".to_owned(),
        version: "0".to_owned(),
        separator: ".".parse::<Separator>().unwrap(),
        names: NamePolicy::default(),
        start_timeout: Duration::from_secs(30),
        answer_timeout: Duration::from_secs(30),
        surface: aggregator::Surface::Full,
        withheld: &[],
        servers_can_change: false,
        method_set: MethodSet::EVERYTHING,
        capabilities: "{}",
        server_limits: aggregator::ServerLimits::from_settings(),
        client_limits: aggregator::ClientLimits::default(),
        awaits_client: false,
    };
    let chain = Chain::enter(None, folder.path()).unwrap();
    let sign_ins = provider.map(|provider| SignInSetup {
        oauth: OAuth::new(Arc::clone(provider), Arc::new(RegistryGrants::new(store.clone())), OAuthOptions::new("0")),
        redirect_uri: "http://127.0.0.1:8808/oauth/callback".to_owned(),
        local_redirect_uri: "http://127.0.0.1:8808/oauth/callback".to_owned(),
        network: Network::Any,
    });
    let test_connector = provider.cloned().map(|provider| {
        Arc::new(move || {
            let grants = Arc::new(MemoryStore::default());
            let oauth = OAuth::new(Arc::clone(&provider), grants, OAuthOptions::new("0"));
            remote::connector(oauth, service::protected_within(Network::Any))
        }) as TestConnector
    });
    let remote = match &sign_ins {
        Some(setup) => remote::connector(Arc::clone(&setup.oauth), service::protected_within(setup.network)),
        None => remote,
    };
    let setup = Setup {
        store: store.clone(),
        options,
        chain,
        remote: Some(remote),
        test_connector,
        probe: Some(remote::probe),
        config,
        embedder: classifier.map(|_| Arc::new(Flat) as Arc<dyn search::Embedder>),
        vectors: None,
        skills: Vec::new(),
        classifier: classifier.map(|make| make()),
        traces: None,
        sign_ins,
    };
    Service::open(setup).await.unwrap()
}

/// Embeddings for which everything is alike.
struct Flat;

impl search::Embedder for Flat {
    fn id(&self) -> &str {
        "flat"
    }

    fn dimension(&self) -> usize {
        2
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, search::EmbedError> {
        Ok(texts.iter().map(|_| vec![1.0, 0.0]).collect())
    }
}

/// A registration of the testkit's fake server.
pub(crate) fn fake(name: &str, args: &[&str]) -> Registration {
    registration(name, "stdio", json!({ "command": testkit::program("fake-server"), "args": args }))
}

#[expect(clippy::needless_pass_by_value, reason = "a value is written where it is used")]
pub(crate) fn registration(name: &str, transport: &str, config: Value) -> Registration {
    let body = json!({ "name": name, "transport_type": transport, "connection_config": config });
    serde_json::from_value(body).unwrap()
}
