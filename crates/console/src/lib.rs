//! The web console: pages for people, made by the service and served at its own address.
//!
//! Like the REST API this room knows what HTTP means and not how it is spoken. Pages are whole and work without scripts;
//! scripts keep parts of them up to date by the service's events, and speak MCP in the playground.
//!
//! # Layout, in the order a request travels
//! - [`Console`] (here): what it is given, and what it is asked
//! - `session`: who looks, and whether a change is meant; `request`: one request; `routes`: which page it is for
//! - `pages` and below: one file for each page and what can be done there
//! - `html`: markup in which every value is escaped by its type; `frame`: what is around a page; `form`: what was sent;
//!   `words`: numbers and times; `chart`: curves; `reply`: what is sent back
//! - `kept`: results that are too long for a page; `rate_sampler`: how much goes on, looked at every now and then; `assets`: styles and scripts

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
mod routes;
mod session;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use notebook::{Document, Folder, Outline};
use registry::Timestamp;
use serde_json::{Map, Value};
use service::servers::ServerView;
use service::usage::UsageView;
use service::{Actor, Error, Service};

use layout::Flash;
use rates::RateSampler;
use request::PageRequest;
pub use response::Body;
use result_cache::ResultCache;
use session::{CSRF_HEADER, Sessions};

/// So many messages may wait for a page to show them.
const FLASHES: usize = 1000;
/// Bytes of one of them.
const LONGEST_FLASH: usize = 16 << 10;

/// Whose a secret is, if it is a token.
pub type ResolvePrincipal = Arc<dyn Fn(&str) -> Option<Arc<str>> + Send + Sync>;

/// The token behind the code of a sign-in link, which opens once.
pub type RedeemCode = Box<dyn Fn(&str) -> Option<Arc<str>> + Send + Sync>;

/// A mark on a request that is let in although it shows no token and no session: its connection is enough.
#[derive(Debug, Clone, Copy)]
pub struct LetIn;

/// Who understands the configs of clients.
pub type ConfigReader = Box<dyn Fn(&str) -> Result<Vec<Found>, String> + Send + Sync>;

/// A document with its map, on its way.
pub type Opening = Pin<Box<dyn Future<Output = Result<(Document, Outline), Error>> + Send>>;

/// What became of a run, on its way: the answer of the API to the same.
pub type Running = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;

/// The documents that may be seen, run and written.
pub struct Documents {
    /// Where they are.
    pub folder: Arc<Folder>,
    /// Opens one, by its path in the folder.
    pub open: Box<dyn Fn(String) -> Opening + Send + Sync>,
    /// Runs one, on behalf of somebody, as the API is asked to.
    pub run: Box<dyn Fn(Actor, Value) -> Running + Send + Sync>,
}

/// What the console needs to know of the program around it.
pub struct ConsoleDependencies {
    /// Whose a secret is.
    pub resolve_principal: ResolvePrincipal,
    /// Where the tokens are that open, for who has to sign in.
    pub token_place: String,
    /// Signs in who follows a sign-in link.
    pub redeem_code: RedeemCode,
    /// The names of all tokens. None where only the connection decides.
    pub token_names: Box<dyn Fn() -> Vec<Arc<str>> + Send + Sync>,
    /// The servers in the config of any client.
    pub read_config: ConfigReader,
    /// The servers that programs on this machine know.
    pub on_this_machine: Box<dyn Fn() -> Vec<Found> + Send + Sync>,
    /// The documents, where a folder of them is served.
    pub documents: Option<Documents>,
}

/// A server that somebody else knows, as it could be registered here.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its name there.
    pub name: String,
    /// Where it was found.
    pub from: String,
    /// What would be registered.
    pub registration: Map<String, Value>,
    /// What cannot be taken over.
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
    /// What servers used when they were last looked at, by name. Engines are too slow to be asked for a page.
    used: Mutex<HashMap<String, UsageView>>,
    /// What became of what was asked for, to be shown on the next page, by visitor.
    flashes: Mutex<HashMap<String, Flash>>,
    /// What was too long to be shown.
    result_cache: ResultCache,
    /// Since when calls are counted.
    opened_at: Timestamp,
}

impl Console {
    /// The console of a service.
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

    /// Whether a path leads here. Who may see what is there is decided here, too.
    pub fn has(&self, path: &str) -> bool {
        routes::is_known(path)
    }

    /// The token with which somebody signed in who makes a request to somebody else at this address, if it comes from
    /// one of our pages: it need not be shown again. Changes must bring along what only our pages know.
    pub fn vouch(&self, parts: &Parts) -> Option<Arc<str>> {
        let visitor = self.sessions.visitor(&parts.headers);
        let secret = parts.headers.get(CSRF_HEADER).and_then(|secret| secret.to_str().ok());
        let is_look = matches!(parts.method, Method::GET | Method::HEAD);
        let may_ask = visitor.principal.is_some() && (is_look || visitor.has_valid_csrf(secret));
        if may_ask { self.sessions.token(&visitor.id) } else { None }
    }

    /// Ready when the session is over by which a request was let in; nothing if it came in by itself.
    pub fn until_signed_out(&self, parts: &Parts) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.sessions.lasting(&parts.headers).filter(|_| !parts.headers.contains_key(http::header::AUTHORIZATION))
    }

    /// The token with which somebody signed in whose session a request belongs to, whether or not it comes from one of our
    /// pages.
    pub fn session_token(&self, parts: &Parts) -> Option<Arc<str>> {
        let visitor = self.sessions.visitor(&parts.headers);
        visitor.principal.and_then(|_| self.sessions.token(&visitor.id))
    }

    /// Whether a request shows a token in its body. If that is a wrong one it is answered with status 401.
    pub fn is_sign_in(&self, parts: &Parts) -> bool {
        routes::is_sign_in(&parts.method, parts.uri.path())
    }

    /// Answers a request. `principal` is the name of its token, or empty if it showed none.
    pub async fn answer(self: Arc<Self>, parts: Parts, body: Bytes, principal: Arc<str>) -> Response<Body> {
        let is_change = routes::is_change(&parts.method, parts.uri.path());
        let answering = async move { routes::answer(PageRequest::new(&self, &parts, &body, principal)).await };
        if is_change { service::servers::to_the_end(answering).await } else { answering.await }
    }

    /// The answer to a request that is not let in.
    pub fn refuse(&self, status: StatusCode, why: &str) -> Response<Body> {
        response::refused(status, why)
    }

    /// Looks at how much goes on, for ever.
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
        // A database that is away says nothing about servers; the next look may.
        let Ok(mut listed) = self.service.servers(None, false, registry::Page::ALL).await else { return };
        self.service.measure(&mut listed.items).await;
        let used = listed.items.into_iter().filter_map(|view| Some((view.record.name, view.usage?))).collect();
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = used;
    }

    /// Adds what servers use: of processes as it is now, of containers as it was when they were last looked at.
    fn add_usage(&self, views: &mut [ServerView]) {
        self.service.measure_processes(views);
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for view in views.iter_mut().filter(|view| view.container.is_some()) {
            view.usage = used.get(&view.record.name).copied();
        }
    }

    /// Which calls curves and counts are of: those of the last half hour, or fewer if we are here for less.
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
