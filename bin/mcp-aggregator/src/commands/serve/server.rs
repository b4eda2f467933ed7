//! The running service: connects its parts, serves, and shuts down in order.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use aggregator::Signals;
use api::Api;
use catalog::Role;
use console::{Console, ConsoleDependencies, IdentityProviders};
use containers::Containers;
use http_server::{AuthFailures, AuthReading, Health, HealthCheck, HttpServer, Listener, ListeningSocket};
use identity::Verifier;
use models::Model;
use notebook::Folder;
use oauth::{MemoryStore, Network, OAuth, OAuthOptions};
use registry::Store;
use remote::HttpFetch;
use service::{BoundPrincipal, RegistryGrants, Service, Setup, SignInSetup, TestConnector};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use upstream::{Holder, Stop};

use super::location::{Addresses, remove_stale_service_file, write_service_file};
use super::plan::{HttpPlan, Listen, Plan, ServicePlan, TlsPlan};
use super::start;
use crate::access::Access;
use crate::admission::follow;
use crate::api_error::NO_ROOM;
use crate::cli::shared::ListenAddress;
use crate::console_sign_in::ConsoleSignIn;
use crate::database_wait::{self, Waited};
use crate::failure::Failure;
use crate::http_routes::{HttpRoutes, console_dependencies};
use crate::identity_args::IdentityPlan;
use crate::instance_lock::InstanceLock;
use crate::output::print_message;
use crate::service_file::ServiceFile;
use crate::socket_activation::PassedSocket;
use crate::storage::with_causes;
use crate::unix_socket::SocketFile;
use crate::{connectors, traces, unix_socket};

/// How long the start waits for identity providers.
const ISSUER_TIMEOUT: Duration = Duration::from_secs(15);
/// After this time, the wait for requests in progress is reported.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// The service and everything around it.
pub(super) struct Server {
    addresses: Addresses,
    access: Access,
    /// Serves HTTP. After `stop` is dropped, it lets requests finish and ends. `None` after it ended.
    http: Option<Pin<Box<dyn Future<Output = io::Result<()>>>>>,
    stop: oneshot::Sender<()>,
    /// The file by which commands find the service.
    service_file: Option<ServiceFile>,
    /// The Unix socket that it listens on.
    socket_file: Option<SocketFile>,
    background: JoinSet<()>,
    service: Arc<Service>,
    containers: Arc<Containers>,
    store: Store,
    instance_lock: InstanceLock,
}

/// Connects the parts. `None` if a signal arrives while the database is unreachable.
pub(super) async fn build(plan: Plan, signals: &mut Signals) -> Result<Option<Server>, Failure> {
    let Plan { listen, storage, database_wait, tls, public_url, service, http, .. } = plan;
    let Plan { tokens, identity, client_certificates, .. } = plan;
    // Before anything is started, so that a port in use is reported early.
    let Listening { listeners, addresses, socket_file } = match listen {
        Listen::Tcp(listen) => bind(listen, tls.as_ref(), public_url).await?,
        Listen::Unix(path, mode) => bind_unix(path, mode, public_url)?,
        Listen::Passed(sockets) => adopt(sockets, tls.as_ref(), public_url).await?,
    };
    let verifier = verifier(identity).await?;
    let location = storage.location()?;
    let instance_lock = InstanceLock::take(&location, storage.folder().ok().as_deref())?;
    remove_stale_service_file(&storage)?;
    let access = Access::new(tokens, verifier, client_certificates, &storage)?;
    let store =
        match database_wait::open(&storage, database_wait, &listeners[0], &addresses.listening(), signals).await? {
            Waited::Opened(store) => store,
            Waited::Stopped => return Ok(None),
        };
    let containers = connectors::containers_of(&instance_lock, &location);
    let mut background = JoinSet::new();
    // Nobody waits for this task: a server that needs a container waits itself.
    background.spawn({
        let containers = Arc::clone(&containers);
        async move { containers.clear_up().await }
    });
    let service = open_service(service, store.clone(), &containers, &addresses).await?;
    let service_file = write_service_file(&storage, &addresses, &access);
    watch_bound_tokens(&access, &service);
    report_unknown_profiles(&http.token_source.profile_of_role, &service);
    let server = http_server(http, &access, &service, &addresses, &mut background);
    if let Some(TlsPlan { files, tls, opened }) = tls {
        background.spawn(files.follow(tls, opened, Arc::clone(&service)));
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let http = Box::pin(http_server::serve(server, listeners, async {
        // A dropped sender means the same.
        stopped.await.ok();
    }));
    Ok(Some(Server {
        addresses,
        access,
        http: Some(http),
        stop,
        service_file,
        socket_file,
        background,
        service,
        containers,
        store,
        instance_lock,
    }))
}

/// What verifies the tokens of identity providers, if there are any. One that cannot be used is a failure; one that is
/// unreachable may come back.
async fn verifier(plan: IdentityPlan) -> Result<Option<Verifier>, Failure> {
    if plan.issuers.is_empty() {
        return Ok(None);
    }
    let fetch = Arc::new(HttpFetch) as Arc<dyn oauth::Fetch>;
    let verifier = Verifier::new(plan.issuers, plan.rules, &fetch);
    match tokio::time::timeout(ISSUER_TIMEOUT, verifier.start()).await {
        Ok(Err(error)) => Err(Failure::new(error.to_string()).with_hint(error.hint)),
        Ok(Ok(())) => Ok(Some(verifier)),
        Err(_) => {
            tracing::warn!("an identity provider does not answer; its tokens are refused until it does");
            Ok(Some(verifier))
        }
    }
}

/// Lets the service know which tokens are bound to profiles, and reports those whose profile does not exist.
fn watch_bound_tokens(access: &Access, service: &Arc<Service>) {
    let Some(tokens) = access.tokens.clone() else { return };
    let bound = move |principal: &Arc<registry::Principal>| {
        let profile = Arc::clone(principal.profile()?);
        Some(BoundPrincipal { name: Arc::clone(principal.name()), role: principal.role(), profile })
    };
    service.set_bound_principals(Arc::new(move || tokens.principals().iter().filter_map(bound).collect()));
    for BoundPrincipal { name, profile, .. } in service.principals_without_profile() {
        tracing::error!(
            token = %name,
            %profile,
            "a token is bound to a profile that does not exist, so its requests are refused; add the profile with \
             `mcp-aggregator profiles set`"
        );
    }
}

/// Reports profiles of `auth.profiles` in the config that do not exist.
fn report_unknown_profiles(profile_of_role: &[(Role, String)], service: &Service) {
    for (role, profile) in profile_of_role.iter().filter(|(_, profile)| service.profile(profile).is_err()) {
        tracing::error!(
            %role,
            %profile,
            "`auth.profiles` in the config binds a role to a profile that does not exist, so requests of identities with \
             this role are refused; add the profile with `mcp-aggregator profiles set`"
        );
    }
}

/// The sockets, and how they are reached.
struct Listening {
    /// The one for clients comes first.
    listeners: Vec<Listener>,
    addresses: Addresses,
    socket_file: Option<SocketFile>,
}

/// Listens on a Unix socket.
fn bind_unix(path: PathBuf, mode: Option<u32>, public_url: Option<String>) -> Result<Listening, Failure> {
    let (socket, file) = unix_socket::bind(&path, mode)?;
    let socket = UnixListener::from_std(socket).map_err(|error| start(&error))?;
    let listen = ListenAddress::Unix(path);
    let addresses = Addresses { local: listen.clone(), listen, is_tls: false, public_url };
    let listeners = vec![Listener { socket: socket.into(), tls: None }];
    Ok(Listening { listeners, addresses, socket_file: Some(file) })
}

/// Listens for clients.
async fn bind(listen: SocketAddr, tls: Option<&TlsPlan>, public_url: Option<String>) -> Result<Listening, Failure> {
    let socket = TcpListener::bind(listen).await.map_err(|error| not_listening(listen, &error))?;
    let listen = ListenAddress::Tcp(socket.local_addr().map_err(|error| start(&error))?);
    listening(vec![socket.into()], listen, tls, public_url).await
}

/// Serves at sockets that listen already. The first one is the address of the service.
async fn adopt(
    passed: Vec<PassedSocket>,
    tls: Option<&TlsPlan>,
    public_url: Option<String>,
) -> Result<Listening, Failure> {
    let (mut sockets, mut addresses) = (Vec::<ListeningSocket>::new(), Vec::new());
    for socket in passed {
        match socket {
            PassedSocket::Tcp(socket, address) => {
                sockets.push(TcpListener::from_std(socket).map_err(|error| start(&error))?.into());
                addresses.push(ListenAddress::Tcp(address));
            }
            PassedSocket::Unix(socket, path) => {
                sockets.push(UnixListener::from_std(socket).map_err(|error| start(&error))?.into());
                addresses.push(ListenAddress::Unix(path));
            }
        }
    }
    listening(sockets, addresses.swap_remove(0), tls, public_url).await
}

/// Serves clients at `sockets`; with TLS, also commands on this machine, which connect without it.
async fn listening(
    sockets: Vec<ListeningSocket>,
    listen: ListenAddress,
    tls: Option<&TlsPlan>,
    public_url: Option<String>,
) -> Result<Listening, Failure> {
    let tls = tls.map(|TlsPlan { tls, .. }| tls);
    let mut listeners: Vec<_> = sockets.into_iter().map(|socket| Listener { socket, tls: tls.cloned() }).collect();
    let mut local = listen.clone();
    if tls.is_some() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| start(&error))?;
        local = ListenAddress::Tcp(socket.local_addr().map_err(|error| start(&error))?);
        listeners.push(Listener { socket: socket.into(), tls: None });
    }
    let addresses = Addresses { listen, is_tls: tls.is_some(), local, public_url };
    Ok(Listening { listeners, addresses, socket_file: None })
}

async fn open_service(
    plan: ServicePlan,
    store: Store,
    containers: &Arc<Containers>,
    addresses: &Addresses,
) -> Result<Arc<Service>, Failure> {
    let oauth_options = OAuthOptions {
        client_metadata_url: plan.sign_ins.client_metadata_url.clone(),
        ..OAuthOptions::new(env!("CARGO_PKG_VERSION"))
    };
    let sign_ins = sign_ins(plan.sign_ins.network, oauth_options.clone(), store.clone(), addresses);
    let connector = remote::connector(Arc::clone(&sign_ins.oauth), service::protected_within(sign_ins.network));
    let setup = Setup {
        store,
        options: plan.options,
        chain: plan.chain,
        remote: Some(containers.connector_or(connector)),
        test_connector: Some(test_connector(containers, oauth_options, sign_ins.network)),
        probe: Some(remote::probe as _),
        config: plan.config,
        embedder: plan.embedder,
        vectors: plan.vectors,
        skills: plan.skills,
        classifier: plan.classifier,
        traces: traces::from_environment(),
        sign_ins: Some(sign_ins),
    };
    let opened = match plan.records_calls {
        true => Service::open(setup).await,
        false => Service::open_without_recording(setup).await,
    };
    opened.map_err(|error| not_opened(&with_causes(&error)))
}

/// Sign-ins to servers, stored in the registry. The browser comes back to us.
fn sign_ins(network: Network, options: OAuthOptions, store: Store, addresses: &Addresses) -> SignInSetup {
    let oauth = OAuth::new(Arc::new(HttpFetch), Arc::new(RegistryGrants::new(store)), options);
    let at = |url: String| format!("{url}{}", console::OAUTH_CALLBACK);
    SignInSetup {
        oauth,
        redirect_uri: at(addresses.web_url()),
        local_redirect_uri: at(addresses.local_web_url()),
        network,
    }
}

/// Connects to servers that are not registered, to test them. Their sign-ins are in memory, and gone with the test.
fn test_connector(containers: &Arc<Containers>, options: OAuthOptions, network: Network) -> TestConnector {
    let containers = Arc::clone(containers);
    Arc::new(move || {
        let oauth = OAuth::new(Arc::new(HttpFetch), Arc::new(MemoryStore::default()), options.clone());
        containers.connector_or(remote::connector(oauth, service::protected_within(network)))
    })
}

/// MCP, REST and the console at one address.
fn http_server(
    plan: HttpPlan,
    access: &Access,
    service: &Arc<Service>,
    addresses: &Addresses,
    background: &mut JoinSet<()>,
) -> HttpServer {
    if let Some(tokens) = access.tokens.clone() {
        background.spawn(follow(tokens, plan.token_source, Arc::clone(service)));
    }
    if let Some(verifier) = access.verifier.clone() {
        background.spawn(async move { verifier.refresh().await });
    }
    let auth_failures = Arc::new(AuthFailures::new(plan.limits.wrong_tokens, plan.limits.wrong_token_addresses));
    let has_model = plan.model.is_some();
    let api = api(service, plan.documents.clone(), plan.model)
        .with_auth_counter(auth_counter(&auth_failures))
        .with_job_limit(plan.limits.job_unread);
    let api = Arc::new(api);
    let url = addresses.web_url();
    let around = ConsoleDependencies {
        identity_providers: identity_providers(access, &url, background),
        ..console_dependencies(access, service, &api, plan.documents.as_ref(), has_model, &url)
    };
    let console = Arc::new(Console::new(Arc::clone(service), around).with_most_sessions(plan.limits.console_sessions));
    background.spawn({
        let console = Arc::clone(&console);
        async move { console.watch().await }
    });
    HttpServer {
        aggregator: Arc::clone(service.aggregator()),
        tokens: access.tokens.clone(),
        resource: access.resource(&url),
        client_certificates: access.client_certificates.clone(),
        local: Arc::clone(&access.local),
        auth_failures,
        allowed_hosts: plan.allowed_hosts,
        allowed_origins: plan.allowed_origins,
        trusted_proxies: plan.trusted_proxies,
        limits: plan.limits,
        fallback: Some(Arc::new(HttpRoutes { api, console })),
        health: Some(health_of(service, plan.config, access.verifier.clone())),
    }
}

/// Where people sign in to the console, if the service is a client of an identity provider.
fn identity_providers(access: &Access, url: &str, background: &mut JoinSet<()>) -> Option<Arc<dyn IdentityProviders>> {
    let sign_ins = access.sign_ins(url)?;
    let renewed = Arc::clone(&sign_ins);
    background.spawn(async move { renewed.renew().await });
    Some(Arc::new(ConsoleSignIn(sign_ins)))
}

impl Server {
    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Who can use it.
    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// Serves until `shutdown` completes.
    pub(super) async fn run(&mut self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let Some(http) = &mut self.http else { return Ok(()) };
        tokio::select! {
            served = http => {
                self.http = None;
                served
            }
            () = shutdown => Ok(()),
        }
    }

    /// Lets requests finish, and then stops every server. Each further signal makes the shutdown faster.
    pub(super) async fn drain(mut self, signals: &mut Signals) -> io::Result<()> {
        // The file is removed before the listener is closed: after that, another program could listen at the address in
        // it.
        drop(self.service_file);
        drop(self.socket_file);
        drop(self.stop);
        let finished = match self.http {
            Some(http) => finish_requests(http, signals).await,
            None => Ok(()),
        };
        self.background.abort_all();
        stop_servers(&self.service, signals).await;
        self.containers.settle().await;
        self.store.close().await;
        drop(self.instance_lock);
        finished
    }
}

/// Waits for the requests in progress, unless a signal arrives.
async fn finish_requests(http: impl Future<Output = io::Result<()>>, signals: &mut Signals) -> io::Result<()> {
    let mut http = pin!(http);
    // Usually this takes no time, and nothing is printed.
    let soon = tokio::select! {
        served = &mut http => Some(served),
        () = signals.next() => Some(Ok(())),
        () = tokio::time::sleep(STOP_TIMEOUT) => None,
    };
    if let Some(served) = soon {
        return served;
    }
    print_message("stopping: requests in progress have 10 s to finish; Ctrl-C again ends them");
    tokio::select! {
        served = &mut http => served,
        () = signals.next() => Ok(()),
    }
}

/// Stops every server; another signal makes that faster.
async fn stop_servers(service: &Service, signals: &mut Signals) {
    service.stop(Stop::Promptly);
    let mut ended = pin!(service.ended());
    loop {
        tokio::select! {
            () = &mut ended => return,
            () = signals.next() => service.stop(Stop::Now),
        }
    }
}

/// The texts of `/health`. Details are for authenticated clients only.
fn health_of(service: &Arc<Service>, config: Option<String>, verifier: Option<Arc<Verifier>>) -> HealthCheck {
    let service = Arc::clone(service);
    Box::new(move || {
        if service.registry_file_error().is_some() {
            let why = "the registry file was deleted, replaced or emptied; `mcp-aggregator status` shows details";
            return Health::Failed(why.into());
        }
        if service.write_error().is_some() {
            return Health::Degraded("the database cannot be written; `mcp-aggregator status` shows details".into());
        }
        if service.config_error().is_some() {
            let file = config.as_deref().unwrap_or_default();
            let why =
                format!("the config file `{file}` cannot be used as it is now; `mcp-aggregator status` shows details");
            return Health::Degraded(why.into());
        }
        if service.token_error().is_some() {
            return Health::Degraded("the token file cannot be used; `mcp-aggregator status` shows details".into());
        }
        if let Some(issuer) = verifier.as_ref().and_then(|verifier| verifier.unusable().first().copied()) {
            return Health::Degraded(format!("the identity provider {issuer} is unreachable").into());
        }
        if service.certificate_error().is_some() {
            return Health::Degraded("the certificate cannot be renewed; `mcp-aggregator status` shows details".into());
        }
        if service.name_conflicts().is_some() {
            let why = "some tools are not stored, because another program has their names in the same table; \
                       `mcp-aggregator status` shows details";
            return Health::Degraded(why.into());
        }
        Health::Ok
    })
}

/// The REST API, with the documents and the model it uses.
fn api(service: &Arc<Service>, documents: Option<Arc<Folder>>, model: Option<Arc<Model>>) -> Api {
    let api = Api::new(Arc::clone(service));
    let api = match documents {
        Some(folder) => api.with_documents(folder),
        None => api,
    };
    match model {
        Some(model) => api.with_assistant(model),
        None => api,
    }
}

/// The number of rejected requests, for metrics.
fn auth_counter(failures: &Arc<AuthFailures>) -> api::AuthCounter {
    let failures = Arc::clone(failures);
    Arc::new(move || {
        let AuthReading { failures, limited } = failures.reading();
        api::AuthCounts { failures, limited }
    })
}

fn not_opened(why: &str) -> Failure {
    // With a log file, the message goes there.
    tracing::error!(why, "could not open the service");
    let failure = Failure::new(format!("could not open the service: {why}"));
    if why.contains("is full") { failure.with_hint(NO_ROOM) } else { failure }
}

fn not_listening(listen: SocketAddr, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("could not listen on {listen}: {error}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let message = match Holder::of_port(listen) {
                Some(holder) => format!("{}: {holder} listens there", failure.message),
                None => failure.message,
            };
            Failure::new(message).with_hint("stop the program that listens there, or choose another port with --listen")
        }
        io::ErrorKind::PermissionDenied => {
            failure.with_hint("ports below 1024 need root; choose another port with --listen")
        }
        io::ErrorKind::AddrNotAvailable => {
            failure.with_hint("this machine has no such address; --listen 0.0.0.0:PORT listens on all addresses")
        }
        _ => failure,
    }
}
