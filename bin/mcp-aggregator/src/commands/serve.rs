//! `serve`: all servers as one MCP server over HTTP, for many clients; and the service that keeps them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aggregator::cycle::{self, Chain};
use aggregator::{Options, logging, raise_open_files};
use api::Api;
use console::Console;
use http_server::{AuthFailures, AuthReading, Health, HealthCheck, HttpServer, Limits};
use models::Model;
use notebook::Folder;
use registry::Location;
use serde_json::json;
use service::{ConfigFile, Service, Setup};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use upstream::{Holder, Stop};

use crate::access::Access;
use crate::admission::{TOKEN_VARIABLE, check_exposure, follow, tokens};
use crate::api_error::NO_ROOM;
use crate::arguments::serve::ServeArguments;
use crate::database_wait::{self, Waited};
use crate::failure::Failure;
use crate::http_routes::{HttpRoutes, console_dependencies};
use crate::instance_lock::InstanceLock;
use crate::output::{self, print_message};
use crate::service_file::{self, LocalTokenUse, ServiceFile};
use crate::session::Signals;
use crate::storage::{StorageArguments, with_causes};
use crate::{config, connectors, environment, session, traces, vector_store_args};

/// So many descriptors are enough for all connections and servers.
const DESCRIPTORS: u64 = 16_384;

pub(crate) fn run(arguments: ServeArguments) -> Result<(), Failure> {
    let as_json = arguments.json;
    run_announced(arguments, Signals::new, |address, access| match as_json {
        true => print_where(address, access),
        false => announce(address, access),
    })
}

/// Serves until one of the signals, and lets `announce` say where, and who can reach it.
pub(crate) fn run_announced(
    arguments: ServeArguments,
    signals: impl FnOnce() -> io::Result<Signals>,
    announce: impl FnOnce(SocketAddr, &Access),
) -> Result<(), Failure> {
    let ServeArguments {
        config,
        storage,
        listen,
        token_file,
        allow_host,
        allow_origin,
        names,
        skills,
        advisers,
        assistant,
        vectors,
        surface,
        documents,
        name,
        json: _,
        debug,
        log_file,
        limits,
        no_history,
        database_wait,
    } = arguments;
    let limits = limits_of(&limits)?;
    logging::init(debug, log_file.as_deref()).map_err(|error| {
        let path = log_file.as_deref().unwrap_or("-".as_ref()).display();
        Failure::new(format!("could not open log file {path}: {error}"))
    })?;
    let tokens = tokens(token_file.as_deref(), environment::text(TOKEN_VARIABLE)?.as_deref())?;
    check_exposure(listen, tokens.is_some())?;
    let auth_failures = Arc::new(AuthFailures::new(limits.wrong_tokens));
    let options = session::options(&name, names.separator.separator, names.names, session::OF_MANY)?;
    let options = Options { surface, client_limits: limits.clients.clone(), ..options };
    let model = assistant.model(config.as_deref())?;
    let config = config.as_deref().map(config_file).transpose()?;
    let config_name = config.as_ref().map(file_name);
    let skills = skills.as_deref().map(skills_in).transpose()?.unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| start(&error))?;
    let (embedder, classifier) = (advisers.embedder(runtime.handle())?.or_else(embedder), advisers.classifier()?);
    let vectors = vector_store_args::from(vectors, embedder.as_deref())?;
    let documents = documents.as_deref().map(folder_of_documents).transpose()?;
    let chain = chain(config.as_ref(), &storage)?;
    let database_wait = database_wait::limit(database_wait)?;
    make_room_for_connections();
    runtime.block_on(async {
        let mut signals = signals().map_err(|error| start(&error))?;
        // Before anything is started: a port that is taken should cost nothing.
        let listener = TcpListener::bind(listen).await.map_err(|error| not_listening(listen, &error))?;
        let address = listener.local_addr().map_err(|error| start(&error))?;
        let instance_lock = InstanceLock::take(&storage.location()?, storage.folder().ok().as_deref())?;
        forget_who_was_here(&storage)?;
        let access = Access::new(tokens, &storage)?;
        let store = match database_wait::open(&storage, database_wait, &listener, address, &mut signals).await? {
            Waited::Opened(store) => store,
            Waited::Stopped => return Ok(()),
        };
        let containers = connectors::containers_of(&instance_lock, &storage.location()?);
        // Nobody waits for it: a server that needs a container does so itself.
        let clearing = tokio::spawn({
            let containers = Arc::clone(&containers);
            async move { containers.clear_up().await }
        });
        let (remote, probe) = (Some(containers.connector_or(Arc::new(remote::connect))), Some(remote::probe as _));
        let traces = traces::from_environment();
        let setup = Setup {
            store: store.clone(),
            options,
            chain,
            remote,
            probe,
            config,
            embedder,
            vectors,
            skills,
            classifier,
            traces,
        };
        let opened = match no_history {
            true => Service::open_without_recording(setup).await,
            false => Service::open(setup).await,
        };
        let service = opened.map_err(|error| not_opened(&with_causes(&error)))?;
        // Commands find us by it, as long as we answer.
        let service_file = say_where(&storage, address, &access);
        announce(address, &access);
        let following = access
            .tokens
            .clone()
            .zip(token_file)
            .map(|(tokens, file)| tokio::spawn(follow(tokens, file, Arc::clone(&service))));
        let has_model = model.is_some();
        let api = api(&service, documents.clone(), model).with_auth_counter(auth_counter(&auth_failures));
        let api = Arc::new(api);
        let url = format!("http://{}", reached_at(address));
        let around = console_dependencies(&access, &service, &api, documents.as_ref(), has_model, &url);
        let console = Arc::new(Console::new(Arc::clone(&service), around));
        let watching = tokio::spawn({
            let console = Arc::clone(&console);
            async move { console.watch().await }
        });
        let front = HttpServer {
            aggregator: Arc::clone(service.aggregator()),
            tokens: access.tokens,
            local: access.local,
            auth_failures,
            allowed_hosts: allow_host,
            allowed_origins: allow_origin,
            limits,
            fallback: Some(Arc::new(HttpRoutes { api, console })),
            health: Some(health_of(&service, config_name)),
        };
        let served = serve(front, listener, service_file, &mut signals).await;
        clearing.abort();
        watching.abort();
        if let Some(following) = following {
            following.abort();
        }
        stop(&service, &mut signals).await;
        containers.settle().await;
        store.close().await;
        drop(instance_lock);
        served.map_err(|error| Failure::new(format!("could not serve: {error}")))
    })
}

/// The variable that holds limits of clients, `NAME=VALUE` each.
const LIMITS_VARIABLE: &str = "MCP_AGGREGATOR_LIMITS";

/// The limits of clients: what the environment says, then what the command line says.
fn limits_of(given: &[String]) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    let text = environment::text(LIMITS_VARIABLE)?.unwrap_or_default();
    let words = text.split([' ', ',', '\n']).filter(|word| !word.is_empty());
    for word in words {
        limits.set(word).map_err(|why| Failure::usage(format!("{LIMITS_VARIABLE}: {why}")))?;
    }
    for limit in given {
        limits.set(limit).map_err(|why| Failure::usage(format!("--limit: {why}")))?;
    }
    Ok(limits)
}

/// What `/health` says beside the numbers. The details are for those who may come in.
fn health_of(service: &Arc<Service>, config: Option<String>) -> HealthCheck {
    let service = Arc::clone(service);
    Box::new(move || {
        if service.registry_file_error().is_some() {
            let why = "the registry file was deleted, replaced or emptied; `mcp-aggregator status` says more";
            return Health::Failed(why.into());
        }
        if service.write_error().is_some() {
            return Health::Degraded("the database cannot be written; `mcp-aggregator status` says more".into());
        }
        if service.config_error().is_some() {
            let file = config.as_deref().unwrap_or_default();
            let why =
                format!("the config file `{file}` is not in force as it is now; `mcp-aggregator status` says more");
            return Health::Degraded(why.into());
        }
        if service.token_error().is_some() {
            return Health::Degraded("the token file cannot be used; `mcp-aggregator status` says more".into());
        }
        Health::Ok
    })
}

/// The name of the config file, without its folder: everybody may ask for `/health`.
fn file_name(config: &ConfigFile) -> String {
    let name = config.path().file_name().unwrap_or(config.path().as_os_str());
    name.to_string_lossy().into_owned()
}

/// The REST API, the documents that it may read, and the model that answers questions.
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

/// How many requests were not let in, for the metrics.
fn auth_counter(failures: &Arc<AuthFailures>) -> api::AuthCounter {
    let failures = Arc::clone(failures);
    Arc::new(move || {
        let AuthReading { failures, limited } = failures.reading();
        api::AuthCounts { failures, limited }
    })
}

fn folder_of_documents(path: &Path) -> Result<Arc<Folder>, Failure> {
    let failed = |error| Failure::new(format!("could not open the folder of documents {}: {error}", path.display()));
    Folder::open(path).map(Arc::new).map_err(failed)
}

/// What finds tools by meaning, where the program has it.
pub(crate) fn embedder() -> Option<Arc<dyn search::Embedder>> {
    #[cfg(feature = "builtin-model")]
    return Some(Arc::new(search::BuiltIn));
    #[cfg(not(feature = "builtin-model"))]
    return None;
}

/// The skills in a file.
fn skills_in(path: &Path) -> Result<Vec<search::Skill>, Failure> {
    let failed = |why: String| Failure::new(format!("could not read the skills in {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    search::read_skills(&text).map_err(|error| failed(with_causes(&error)))
}

fn config_file(path: &Path) -> Result<ConfigFile, Failure> {
    ConfigFile::load(path).map_err(|error| config::explain(&error))
}

/// Where we stand among aggregators that run aggregators. Without a config, what we serve is what is in the registry.
fn chain(config: Option<&ConfigFile>, storage: &StorageArguments) -> Result<Chain, Failure> {
    if let Some(config) = config {
        return Ok(config.chain().clone());
    }
    let registry = PathBuf::from(storage.location()?.to_string());
    let above = std::env::var_os(cycle::VARIABLE);
    Chain::enter(above.as_deref(), &registry).map_err(|cycle| Failure::new(cycle.to_string()))
}

/// How long requests may take to finish before a word is said of it.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// Serves until a signal comes, and lets requests finish unless another one comes.
async fn serve(
    front: HttpServer,
    listener: TcpListener,
    service_file: Option<ServiceFile>,
    signals: &mut Signals,
) -> io::Result<()> {
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = pin!(http_server::serve(front, listener, async {
        // The sender only goes away to say the same.
        stopped.await.ok();
    }));
    tokio::select! {
        served = &mut serving => return served,
        // The file goes before the listener does: then nobody else can be at the address that commands find in it.
        () = signals.next() => {
            drop(service_file);
            drop(stop);
        }
    }
    // Mostly it is over at once, and needs no word.
    let soon = tokio::select! {
        served = &mut serving => Some(served),
        () = signals.next() => Some(Ok(())),
        () = tokio::time::sleep(STOP_TIMEOUT) => None,
    };
    if let Some(served) = soon {
        return served;
    }
    print_message("stopping: requests under way have 10 s to finish; Ctrl-C again ends them");
    tokio::select! {
        served = &mut serving => served,
        () = signals.next() => Ok(()),
    }
}

/// Stops every server; being told again makes it more urgent.
async fn stop(service: &Service, signals: &mut Signals) {
    service.stop(Stop::Promptly);
    let mut ended = pin!(service.ended());
    loop {
        tokio::select! {
            () = &mut ended => return,
            () = signals.next() => service.stop(Stop::Now),
        }
    }
}

/// Where we are reached from this machine: "all addresses" is no address to connect to.
fn reached_at(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        _ => address,
    }
}

fn not_opened(why: &str) -> Failure {
    // Who looks into the log file looks for it there.
    tracing::error!(why, "could not open the service");
    let failure = Failure::new(format!("could not open the service: {why}"));
    if why.contains("is full") { failure.with_hint(NO_ROOM) } else { failure }
}

/// Where the registry is, wherever a command is started.
fn whole_location(storage: &StorageArguments) -> Result<Location, Failure> {
    Ok(match storage.location()? {
        Location::File(file) => Location::File(std::path::absolute(&file).unwrap_or(file)),
        elsewhere @ Location::Postgres(_) => elsewhere,
    })
}

/// Commands must not be led to an address at which a service was that has crashed.
fn forget_who_was_here(storage: &StorageArguments) -> Result<(), Failure> {
    let Ok(folder) = storage.folder() else { return Ok(()) };
    if let Err(error) = service_file::remove_stale(&folder, &whole_location(storage)?.to_string()) {
        tracing::warn!(%error, folder = %folder.display(), "could not remove what a service before left there");
    }
    Ok(())
}

/// Leaves word in the data directory. Where that cannot be done, commands need `--url`.
fn say_where(storage: &StorageArguments, address: SocketAddr, access: &Access) -> Option<ServiceFile> {
    let folder = storage.folder().ok()?;
    let url = format!("http://{}", reached_at(address));
    let location = whole_location(storage).ok()?;
    let database = location.to_string();
    // A folder is first of all for the registry in it: who has another one leaves the word of its service alone.
    let is_its_own = location == Location::in_folder(&std::path::absolute(&folder).unwrap_or_else(|_| folder.clone()));
    if !is_its_own
        && let Some(other) = service_file::read(&folder)
        && other.database != database
        && other.lock_holder(&folder).is_some()
    {
        tracing::warn!(
            folder = %folder.display(),
            url = other.url,
            "another service has left word there; commands for this one need --url, or give it a --data-dir of its own"
        );
        return None;
    }
    let token = access
        .local_token
        .as_ref()
        .map(|token| LocalTokenUse { file: token.file.clone(), is_needed: access.needs_token() });
    let written = ServiceFile::write(&folder, &url, &database, token.as_ref());
    let problem = |error: &io::Error| {
        tracing::warn!(%error, folder = %folder.display(), "could not leave word where we are; commands need --url");
    };
    written.inspect_err(problem).ok()
}

/// Where we are and who can reach us, for machines, on one line.
pub(crate) fn print_where(address: SocketAddr, access: &Access) {
    let url = format!("http://{}", reached_at(address));
    let token_file = access.local_token.as_ref().filter(|_| access.needs_token()).map(|token| &token.file);
    let line = json!({
        "url": url,
        "mcp": format!("{url}/mcp"),
        "has_tokens": access.tokens.is_some(),
        "reachable_by": access.reachable_by(),
        "token_file": token_file,
        "pid": std::process::id(),
    });
    // A service serves also those who do not listen to it here.
    output::print(format!("{line}\n").as_bytes()).unwrap_or_else(print_message);
}

/// Says where we are, who can reach us, and what to paste where.
fn announce(address: SocketAddr, access: &Access) {
    let reached = reached_at(address);
    let headers = if access.needs_token() { r#", "headers": {"Authorization": "Bearer <token>"}"# } else { "" };
    print_message(format_args!("listening on http://{address}"));
    print_message(format_args!("reachable by: {}", access.reachable_by()));
    print_message(format_args!(
        r#"hint: in the config of your MCP client: {{"mcpServers": {{"all": {{"type": "http", "url": "http://{reached}/mcp"{headers}}}}}}}"#
    ));
    print_message(format_args!(
        "hint: one server alone: http://{reached}/mcp/<server>; older clients (HTTP+SSE): http://{reached}/sse"
    ));
    print_message(format_args!(
        "hint: to add, look at and try out servers in a browser: {}; for programs: http://{reached}/api/docs",
        access.console_address(&format!("http://{reached}"))
    ));
}

/// Every client needs a descriptor or two. Where the usual limit is low, raising it is up to us; servers keep theirs.
fn make_room_for_connections() {
    if let Err(error) = raise_open_files(DESCRIPTORS) {
        tracing::debug!(%error, "could not make room for more connections");
    }
}

fn start(error: &io::Error) -> Failure {
    Failure::new(format!("could not start: {error}"))
}

fn not_listening(listen: SocketAddr, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("could not listen at {listen}: {error}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let message = match Holder::of_port(listen) {
                Some(holder) => format!("{}: {holder} listens there", failure.message),
                None => failure.message,
            };
            Failure::new(message).with_hint("stop the program that listens there, or choose another port with --listen")
        }
        io::ErrorKind::PermissionDenied => {
            failure.with_hint("ports below 1024 are for root; choose another with --listen")
        }
        io::ErrorKind::AddrNotAvailable => {
            failure.with_hint("this machine has no such address; --listen 0.0.0.0:PORT takes all it has")
        }
        _ => failure,
    }
}
