//! The web console: HTML pages that the service renders and serves at its own address.
//!
//! Like `api`, this crate gets requests whose bodies are read, and does not speak HTTP on the wire. Pages are complete and
//! work without scripts; scripts update parts of them with the service's events, and speak MCP in the playground.
//!
//! # Layout, in the order a request travels
//! - [`Console`] (here): its dependencies and its entry points
//! - `session`: sessions and CSRF tokens; `request`: one request; `routes`: finds the page; `roles`: who may use it
//! - `pages` and below: one file for each page and its actions
//! - `html`: markup in which every value is escaped by its type; `layout`: what is around a page; `form`: queries and forms;
//!   `display`: numbers and times; `chart`: charts; `response`: responses
//! - `result_cache`: results that are too long for a page; `rates`: samples counters for rates; `assets`: styles and scripts

mod assets;
mod chart;
mod display;
mod form;
mod html;
mod layout;
mod pages;
mod rates;
mod request;
mod response;
mod result_cache;
mod roles;
mod routes;
mod session;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use notebook::{Document, Folder, Outline};
use registry::{Actor, Principal, Role, Timestamp};
use serde_json::{Map, Value};
use service::{Error, ServerView, Service, UsageView};

use layout::Flash;
use pages::callback;
pub use pages::callback::PATH as OAUTH_CALLBACK;
pub use pages::identity::CALLBACK as SIGN_IN_CALLBACK;
use rates::RateSampler;
use request::PageRequest;
pub use response::Body;
use result_cache::ResultCache;
use session::{CSRF_HEADER, Sessions};
pub use session::{Person, SignedIn};

/// How many messages may wait for their page.
const FLASHES: usize = 1000;
/// The limit of bytes of one message.
const LONGEST_FLASH: usize = 16 << 10;

/// The name of a token, by its secret.
pub type ResolvePrincipal = Arc<dyn Fn(&str) -> Option<Arc<Principal>> + Send + Sync>;

/// The token for the code of a sign-in link, which works once.
pub type RedeemCode = Box<dyn Fn(&str) -> Option<Arc<str>> + Send + Sync>;

/// The future of a step of a sign-in, or the reason why it failed.
pub type SigningIn<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Signs people in at identity providers.
pub trait IdentityProviders: Send + Sync {
    /// The identity providers at which people may sign in.
    fn issuers(&self) -> Vec<String>;

    /// Begins a sign-in at one of them, after which the person goes on to `next`.
    fn begin(&self, issuer: String, next: String) -> SigningIn<'_, SignInBegun>;

    /// Completes the sign-in that the query of a redirect belongs to. Returns who signed in, and where to go on.
    fn finish(&self, query: String) -> SigningIn<'_, (Arc<dyn Person>, String)>;
}

/// A sign-in at an identity provider that was begun.
#[derive(Debug)]
pub struct SignInBegun {
    /// The page of the provider.
    pub url: String,
    /// What the browser must bring back.
    pub state: String,
}

/// Marks a request that needs no token or session, because its connection suffices.
#[derive(Debug, Clone, Copy)]
pub struct AuthenticatedByConnection;

/// Parses the configs of clients.
pub type ConfigReader = Box<dyn Fn(&str) -> Result<Vec<Found>, String> + Send + Sync>;

/// The future of a document with its outline.
pub type Opening = Pin<Box<dyn Future<Output = Result<(Document, Outline), Error>> + Send>>;

/// The future of a run: the same response as that of the API.
pub type Running = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;

/// The documents that may be read, run and written.
pub struct Documents {
    /// The folder.
    pub folder: Arc<Folder>,
    /// Opens a document, by its path in the folder.
    pub open: Box<dyn Fn(String) -> Opening + Send + Sync>,
    /// Runs a document on behalf of an actor, as the API does.
    pub run: Box<dyn Fn(Actor, Value) -> Running + Send + Sync>,
}

/// What the console needs from the program.
pub struct ConsoleDependencies {
    /// Finds the name of a token.
    pub resolve_principal: ResolvePrincipal,
    /// Where the user finds a token, for the sign-in page.
    pub token_place: String,
    /// Redeems the code of a sign-in link.
    pub redeem_code: RedeemCode,
    /// Signs people in, if a client is configured at an identity provider.
    pub identity_providers: Option<Arc<dyn IdentityProviders>>,
    /// The names of all tokens. None if only the connection decides.
    pub token_names: Box<dyn Fn() -> Vec<Arc<str>> + Send + Sync>,
    /// The servers in the config of any client.
    pub read_config: ConfigReader,
    /// The servers that programs on this machine know.
    pub on_this_machine: Box<dyn Fn() -> Vec<Found> + Send + Sync>,
    /// The documents, if a folder is configured.
    pub documents: Option<Documents>,
}

/// A server in the config of another program, as it could be registered here.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its name there.
    pub name: String,
    /// Where it was found.
    pub from: String,
    /// What would be registered.
    pub registration: Map<String, Value>,
    /// What cannot be imported.
    pub notes: Vec<String>,
    /// Why it cannot be added at all.
    pub problem: Option<String>,
}

/// The console. It lives as long as the program.
pub struct Console {
    service: Arc<Service>,
    dependencies: ConsoleDependencies,
    sessions: Sessions,
    rate_sampler: RateSampler,
    /// The last known CPU and memory use of servers, by name. Container engines are too slow to be queried for a page.
    used: Mutex<HashMap<String, UsageView>>,
    /// The outcome of the last action, shown on the next page, by visitor.
    flashes: Mutex<HashMap<String, Flash>>,
    /// Results that are too long for a page.
    result_cache: ResultCache,
    /// Since when calls are counted.
    opened_at: Timestamp,
}

impl Console {
    /// Creates the console of a service.
    pub fn new(service: Arc<Service>, dependencies: ConsoleDependencies) -> Self {
        let (sessions, rate_sampler) =
            (Sessions::new(Arc::clone(&dependencies.resolve_principal)), RateSampler::default());
        Self {
            service,
            dependencies,
            sessions,
            rate_sampler,
            used: Mutex::default(),
            flashes: Mutex::default(),
            result_cache: ResultCache::default(),
            opened_at: Timestamp::now(),
        }
    }

    /// Ends a session of the token with the most when more than so many are signed in.
    pub fn with_most_sessions(self, most: usize) -> Self {
        Self { sessions: self.sessions.with_most(most), ..self }
    }

    /// Whether a path belongs to the console, which also decides who may see it.
    pub fn has(&self, path: &str) -> bool {
        routes::is_known(path)
    }

    /// Who is signed in and sends a request to another part of the service from a page of the console, so that no token
    /// need be sent. Changes must carry the CSRF token.
    pub fn vouch(&self, parts: &Parts) -> Option<SignedIn> {
        let visitor = self.sessions.visitor(&parts.headers);
        let secret = parts.headers.get(CSRF_HEADER).and_then(|secret| secret.to_str().ok());
        let is_look = matches!(parts.method, Method::GET | Method::HEAD);
        let may_ask = visitor.principal.is_some() && (is_look || visitor.has_valid_csrf(secret));
        if may_ask { self.sessions.owner(&visitor.id) } else { None }
    }

    /// A future that is ready when the session of a request ends; None if the request has no session.
    pub fn until_signed_out(&self, parts: &Parts) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.sessions.lasting(&parts.headers).filter(|_| !parts.headers.contains_key(http::header::AUTHORIZATION))
    }

    /// Whose session a request belongs to, whether or not it comes from a page of the console.
    pub fn session_owner(&self, parts: &Parts) -> Option<SignedIn> {
        let visitor = self.sessions.visitor(&parts.headers);
        visitor.principal.and_then(|_| self.sessions.owner(&visitor.id))
    }

    /// The role that a request needs.
    pub fn required_role(&self, method: &Method, path: &str) -> Role {
        roles::required(method, path)
    }

    /// Whether a request carries a token in its body. A wrong one is answered with status 401.
    pub fn is_sign_in(&self, parts: &Parts) -> bool {
        routes::is_sign_in(&parts.method, parts.uri.path())
    }

    /// Answers a request on behalf of `principal`.
    pub async fn answer(self: Arc<Self>, parts: Parts, body: Bytes, principal: Arc<Principal>) -> Response<Body> {
        if parts.uri.path() == callback::PATH {
            return match parts.method {
                Method::GET => callback::finish(&self.service, parts.uri.query().unwrap_or_default()).await,
                _ => callback::not_allowed(),
            };
        }
        let is_change = routes::is_change(&parts.method, parts.uri.path());
        let answering = async move { routes::answer(PageRequest::new(&self, &parts, &body, principal)).await };
        if is_change { service::to_the_end(answering).await } else { answering.await }
    }

    /// The response to a request that is refused.
    pub fn refuse(&self, status: StatusCode, why: &str) -> Response<Body> {
        response::refused(status, why)
    }

    /// Samples rates and usage, forever.
    pub async fn watch(&self) {
        let mut looks = tokio::time::interval(rates::SAMPLE_INTERVAL);
        loop {
            looks.tick().await;
            self.rate_sampler.sample(&self.service.reading());
            self.sessions.forget_revoked();
            self.sample_usage().await;
        }
    }

    async fn sample_usage(&self) {
        // An unreachable database says nothing about servers; the next sample may.
        let mut listed = self.service.servers(None, registry::Page::ALL);
        self.service.measure(&mut listed.items).await;
        let used = listed.items.into_iter().filter_map(|view| Some((view.record.name, view.usage?))).collect();
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = used;
    }

    /// Adds CPU and memory use: current for processes, last known for containers.
    fn add_usage(&self, views: &mut [ServerView]) {
        self.service.measure_processes(views);
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for view in views.iter_mut().filter(|view| view.container.is_some()) {
            view.usage = used.get(&view.record.name).copied();
        }
    }

    /// The period that charts and counts cover: the last half hour, or less after a start.
    fn counted(&self) -> String {
        match Timestamp::now().since(self.opened_at) < rates::WINDOW {
            true => format!("since {}", display::minute(self.opened_at)),
            false => "in half an hour".to_owned(),
        }
    }

    /// Something to be shown on the next page that this visitor sees.
    fn set_flash(&self, visitor: &str, mut flash: Flash) {
        if flash.message.len() > LONGEST_FLASH {
            flash.message.truncate(flash.message.floor_char_boundary(LONGEST_FLASH));
            flash.message.push('…');
        }
        let mut flashes = self.flashes.lock().unwrap_or_else(PoisonError::into_inner);
        if flashes.len() >= FLASHES {
            flashes.clear();
        }
        flashes.insert(visitor.to_owned(), flash);
    }

    fn take_flash(&self, visitor: &str) -> Option<Flash> {
        self.flashes.lock().unwrap_or_else(PoisonError::into_inner).remove(visitor)
    }
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").finish_non_exhaustive()
    }
}
