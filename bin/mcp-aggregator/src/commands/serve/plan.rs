//! The options of `serve`, read and checked before anything is started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregator::Options;
use aggregator::cycle::{self, Chain};
use http_server::{CertificateRules, Limits, Tls, Tokens, TrustedProxy};
use models::Model;
use notebook::Folder;
use oauth::Network;
use service::ConfigFile;
use tokio::runtime::Handle;
use tool_search::ClassifierSetup;

use super::ServeArguments;
use crate::admission::{TOKEN_VARIABLE, TokenSource, check_exposure};
use crate::cli::shared::ListenAddress;
use crate::config::ConfigSource;
use crate::failure::Failure;
use crate::identity_args::IdentityPlan;
use crate::model_args::builtin_embedder;
use crate::socket_activation::PassedSocket;
use crate::storage::{StorageArguments, with_causes};
use crate::tls_files::{Contents, TlsArguments, TlsFiles};
use crate::{config, database_wait, environment, session, vector_store_args};

/// The variable with limits of clients: `NAME=VALUE` each.
const LIMITS_VARIABLE: &str = "MCP_AGGREGATOR_LIMITS";

pub(super) struct Plan {
    pub(super) listen: Listen,
    pub(super) storage: StorageArguments,
    pub(super) database_wait: Duration,
    pub(super) tokens: Option<Tokens>,
    pub(super) identity: IdentityPlan,
    pub(super) tls: Option<TlsPlan>,
    pub(super) client_certificates: Option<CertificateRules>,
    /// What users call us, if that is not where we listen.
    pub(super) public_url: Option<String>,
    pub(super) service: ServicePlan,
    pub(super) http: HttpPlan,
}

/// Where to listen.
pub(super) enum Listen {
    Tcp(SocketAddr),
    /// The path of a Unix socket, and its permissions.
    Unix(PathBuf, Option<u32>),
    /// Sockets that listen already; there is at least one.
    Passed(Vec<PassedSocket>),
}

/// TLS for clients, and the files it comes from.
pub(super) struct TlsPlan {
    pub(super) files: TlsFiles,
    pub(super) tls: Arc<Tls>,
    pub(super) opened: Contents,
}

pub(super) struct ServicePlan {
    pub(super) options: Options,
    pub(super) chain: Chain,
    pub(super) config: Option<ConfigFile>,
    pub(super) skills: Vec<search::Skill>,
    pub(super) embedder: Option<Arc<dyn search::Embedder>>,
    pub(super) classifier: Option<ClassifierSetup>,
    pub(super) vectors: Option<Arc<dyn search::VectorStore>>,
    pub(super) records_calls: bool,
    pub(super) sign_ins: SignInPlan,
}

pub(super) struct SignInPlan {
    /// Our client ID metadata document, if there is one.
    pub(super) client_metadata_url: Option<String>,
    /// Where requests for sign-ins to registered servers may go.
    pub(super) network: Network,
}

pub(super) struct HttpPlan {
    pub(super) token_source: TokenSource,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) allowed_origins: Vec<String>,
    pub(super) trusted_proxies: Vec<TrustedProxy>,
    pub(super) limits: Limits,
    /// The name of the config file.
    pub(super) config: Option<String>,
    pub(super) documents: Option<Arc<Folder>>,
    /// The model that answers questions over REST and in the console.
    pub(super) model: Option<Arc<Model>>,
}

impl Plan {
    /// Sockets that are passed to the service replace `--listen`.
    pub(super) fn read(
        arguments: ServeArguments,
        passed: Vec<PassedSocket>,
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let limits = limits_of(&arguments.limits)?;
        let variable = environment::text(TOKEN_VARIABLE)?;
        let token_source = TokenSource { file: arguments.token_file.clone(), variable, profile_of_role: Vec::new() };
        let tokens = token_source.read_first()?;
        let config = arguments.config.as_deref().map(config_file).transpose()?;
        let source = config.as_ref().map(|config| ConfigSource { path: config.path(), bytes: config.source() });
        let identity = arguments.identity.plan(source)?;
        let has_issuers = !identity.issuers.is_empty();
        let token_source = TokenSource { profile_of_role: identity.rules.profile_of_role.clone(), ..token_source };
        let tokens = tokens.map(|tokens| tokens.with_profiles(&token_source.profile_of_role));
        let client_certificates = arguments.tls.client_certificates(&identity.rules.profile_of_role);
        let is_protected = tokens.is_some() || has_issuers || client_certificates.is_some();
        let listen = match (passed, arguments.listen) {
            (passed, _) if !passed.is_empty() => Listen::Passed(passed),
            (_, ListenAddress::Tcp(address)) => Listen::Tcp(address),
            (_, ListenAddress::Unix(path)) => Listen::Unix(path, arguments.socket_mode),
        };
        check_listen(&listen, arguments.socket_mode, &arguments.tls, is_protected)?;
        if !arguments.trusted_proxy.is_empty() && !is_protected {
            return Err(proxy_without_tokens());
        }
        if has_issuers && arguments.public_url.is_none() && !listen.is_on_loopback() {
            return Err(issuer_without_public_url());
        }
        let tls = arguments.tls.files().map(TlsPlan::open).transpose()?;
        let names = arguments.names;
        let options = session::options(&arguments.name, names.separator.separator, names.names, session::OF_MANY)?;
        let options = Options { surface: arguments.surface, client_limits: limits.clients.clone(), ..options };
        let model = arguments.assistant.model(source)?;
        let skills = arguments.skills.as_deref().map(skills_in).transpose()?.unwrap_or_default();
        let embedder = arguments.search_models.embedder(runtime)?.or_else(builtin_embedder);
        let classifier = arguments.search_models.classifier()?;
        let vectors = vector_store_args::from(arguments.vectors, embedder.as_deref())?;
        let documents = arguments.documents.as_deref().map(folder_of_documents).transpose()?;
        let chain = chain(config.as_ref(), &arguments.storage)?;
        let database_wait = database_wait::limit(arguments.database_wait)?;
        // Browsers come back to it, and it names us.
        let public_host = arguments.public_url.as_deref().and_then(host_of);
        let http = HttpPlan {
            token_source,
            allowed_hosts: arguments.allow_host.into_iter().chain(public_host).collect(),
            allowed_origins: arguments.allow_origin,
            trusted_proxies: arguments.trusted_proxy,
            limits,
            config: config.as_ref().map(file_name),
            documents,
            model,
        };
        let records_calls = !arguments.no_history;
        let network = if arguments.deny_private_networks { Network::PublicOrLoopback } else { Network::Any };
        let sign_ins = SignInPlan { client_metadata_url: arguments.client_metadata_url, network };
        let service =
            ServicePlan { options, chain, config, skills, embedder, classifier, vectors, records_calls, sign_ins };
        let (storage, public_url) = (arguments.storage, arguments.public_url);
        Ok(Self {
            listen,
            storage,
            database_wait,
            tokens,
            identity,
            tls,
            client_certificates,
            public_url,
            service,
            http,
        })
    }
}

impl TlsPlan {
    fn open(files: TlsFiles) -> Result<Self, Failure> {
        let (tls, opened) = files.open()?;
        Ok(Self { files, tls: Arc::new(tls), opened })
    }
}

/// Checks where to listen, and whether that is safe.
fn check_listen(
    listen: &Listen,
    socket_mode: Option<u32>,
    tls: &TlsArguments,
    has_tokens: bool,
) -> Result<(), Failure> {
    match listen {
        Listen::Tcp(_) if socket_mode.is_some() => {
            let failure = Failure::usage("--socket-mode is for Unix sockets only");
            Err(failure.with_hint("listen on one with --listen unix:FILE, or leave it out"))
        }
        Listen::Passed(_) if socket_mode.is_some() => {
            let failure = Failure::usage("--socket-mode does not apply to sockets that are passed to the service");
            Err(failure.with_hint("set SocketMode= in the socket unit"))
        }
        Listen::Tcp(address) => check_exposure(*address, has_tokens),
        Listen::Unix(..) if tls.is_given() => Err(tls_on_unix_socket()),
        // Whoever connects is known by the system.
        Listen::Unix(..) => Ok(()),
        Listen::Passed(sockets) => sockets.iter().try_for_each(|socket| match socket {
            PassedSocket::Tcp(_, address) => check_exposure(*address, has_tokens),
            PassedSocket::Unix(..) if tls.is_given() => Err(tls_on_unix_socket()),
            PassedSocket::Unix(..) => Ok(()),
        }),
    }
}

fn tls_on_unix_socket() -> Failure {
    let message = "--tls-cert is not for Unix sockets: their connections do not leave this machine";
    Failure::usage(message).with_hint("leave it out, or listen on an address and a port")
}

/// Without tokens a request is served because of the user of its connection, which is the proxy's.
fn proxy_without_tokens() -> Failure {
    let message = "--trusted-proxy needs tokens: without them, whoever reaches the proxy could use every tool";
    Failure::usage(message).with_hint(format!("set {TOKEN_VARIABLE}, or pass a --token-file with `name:token` lines"))
}

impl Listen {
    /// Whether clients reach the service by the same name that it has for itself.
    fn is_on_loopback(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Passed(sockets) => {
                let is_loopback = |socket: &PassedSocket| matches!(socket, PassedSocket::Tcp(_, address) if address.ip().to_canonical().is_loopback());
                sockets.iter().all(is_loopback)
            }
            Self::Unix(..) => false,
        }
    }
}

/// Tokens are issued for what users call the service, which nobody can guess from "all addresses".
fn issuer_without_public_url() -> Failure {
    let message = "--oauth-issuer needs --public-url: tokens must be issued for the URL that clients use";
    Failure::usage(message).with_hint("add it, such as --public-url https://mcp.example.com")
}

/// The host in an address, with its port if it has one.
fn host_of(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    uri.authority().map(|authority| authority.as_str().to_owned())
}

/// The limits of clients: first those of the environment, then those of the command line.
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

fn config_file(path: &Path) -> Result<ConfigFile, Failure> {
    ConfigFile::load(path).map_err(|error| config::explain(&error))
}

/// The name of the config file without its folder, because everybody may request `/health`.
fn file_name(config: &ConfigFile) -> String {
    let name = config.path().file_name().unwrap_or(config.path().as_os_str());
    name.to_string_lossy().into_owned()
}

/// The chain of aggregators that started this one. Without a config, it identifies the registry.
fn chain(config: Option<&ConfigFile>, storage: &StorageArguments) -> Result<Chain, Failure> {
    if let Some(config) = config {
        return Ok(config.chain().clone());
    }
    let registry = PathBuf::from(storage.location()?.to_string());
    let above = std::env::var_os(cycle::VARIABLE);
    Chain::enter(above.as_deref(), &registry).map_err(|cycle| Failure::new(cycle.to_string()))
}

/// The skills in a file.
fn skills_in(path: &Path) -> Result<Vec<search::Skill>, Failure> {
    let failed = |why: String| Failure::new(format!("could not read the skills in {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    search::read_skills(&text).map_err(|error| failed(with_causes(&error)))
}

fn folder_of_documents(path: &Path) -> Result<Arc<Folder>, Failure> {
    let failed = |error| Failure::new(format!("could not open the folder of documents {}: {error}", path.display()));
    Folder::open(path).map(Arc::new).map_err(failed)
}
