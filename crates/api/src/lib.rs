//! The REST API: servers, tools, executions and settings, for programs.
//!
//! This room knows what HTTP means and not how it is spoken: it is given requests that were let in and read, and
//! answers them. It knows nothing of MCP either; all it does is ask the service.
//!
//! # Layout, in the order a request travels
//! - [`Api`] (here): from a request to its answer
//! - `routes`: which endpoint it is for; `request`: what its path, query and body say; `schema`, `schemas`: whether they
//!   may
//! - `endpoint`: one thing that can be asked for; `endpoints` and below: all of them, and what they do
//! - `result`: what a tool answered, with a note on how it got there; `events`: what happens, as a stream; `log`: what a
//!   server writes to stderr; `metrics`: numbers
//! - `documents`: Markdown documents that run tools, and who makes their calls; `assistant_context`: the assistant, and who makes its;
//!   `work`: what takes its time, told as it goes on
//! - `answer`: what is sent back; `known_error`: what can go wrong
//! - `openapi`: the document, made from the endpoints; `page.html` shows it

mod assistant;
mod documents;
mod endpoint;
mod endpoints;
mod error;
mod events;
mod log;
mod metrics;
mod openapi;
mod request;
mod response;
mod result;
mod routes;
mod schema;
mod schemas;
mod sse_job;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use models::Model;
use notebook::Folder;
use service::{Actor, Service};
use tokio::sync::watch;

pub use documents::open_document;
use endpoint::Endpoint;
use request::ApiRequest;
use response::ApiResponse;
pub use response::Body;

/// Whose name is written down where there are no tokens: only which way they came is known.
const ANONYMOUS_ACTOR: &str = "rest";

/// Requests that were not let in, as whoever lets them in has counted them.
#[derive(Debug, Clone, Default)]
pub struct AuthCounts {
    /// How many, by reason.
    pub failures: Vec<(&'static str, u64)>,
    /// Those of them that were told to wait.
    pub limited: u64,
}

/// Who has counted them.
pub type AuthCounter = Arc<dyn Fn() -> AuthCounts + Send + Sync>;

/// The API. It lives as long as the program.
pub struct Api {
    service: Arc<Service>,
    endpoints: Vec<Endpoint>,
    documents: Option<Arc<Folder>>,
    model: Option<Arc<Model>>,
    auth_counter: Option<AuthCounter>,
    closing: watch::Sender<bool>,
}

impl Api {
    /// The API of a service.
    pub fn new(service: Arc<Service>) -> Self {
        let endpoints = endpoints::all();
        let closing = watch::Sender::new(false);
        Self { service, endpoints, documents: None, model: None, auth_counter: None, closing }
    }

    /// The metrics show how many requests were not let in.
    pub fn with_auth_counter(self, counter: AuthCounter) -> Self {
        Self { auth_counter: Some(counter), ..self }
    }

    /// The documents in this folder may be listed, read, run and written.
    pub fn with_documents(self, folder: Arc<Folder>) -> Self {
        Self { documents: Some(folder), ..self }
    }

    /// Questions to the assistant are answered by this model.
    pub fn with_assistant(self, model: Arc<Model>) -> Self {
        Self { model: Some(model), ..self }
    }

    /// Whether a path leads here.
    pub fn has(&self, path: &str) -> bool {
        path == "/metrics" || path == "/api" || path.starts_with("/api/")
    }

    /// Whether everybody may ask for it: it tells nothing that is not in the program itself.
    pub fn is_public(&self, path: &str) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.is_public && endpoint.path == path)
    }

    /// Answers a request on behalf of who sent it. Without tokens, nobody has a name.
    pub async fn answer(&self, parts: Parts, body: Bytes, principal: Arc<str>) -> Response<Body> {
        let answered = self.find_and_run(parts, &body, principal).await;
        answered.unwrap_or_else(|refused| refused).into_response()
    }

    async fn find_and_run(&self, parts: Parts, body: &Bytes, principal: Arc<str>) -> Result<ApiResponse, ApiResponse> {
        let (endpoint, path) = routes::find(&self.endpoints, &parts.method, parts.uri.path())?;
        if let Some((_, value)) = path.iter().find(|(_, value)| value.contains('\0')) {
            let why = format!("nothing is called `{}`", value.escape_debug());
            return Err(error::refused(StatusCode::NOT_FOUND, &why));
        }
        let query = request::query(endpoint, parts.uri.query()).map_err(|problems| error::invalid(&problems))?;
        let body = match &endpoint.body {
            Some(content) => request::body(content, &parts.headers, body)?,
            None => request::Members::default(),
        };
        let service = Arc::clone(&self.service);
        let name = if principal.is_empty() { Arc::from(ANONYMOUS_ACTOR) } else { principal };
        let (actor, closing) = (Actor { name }, self.closing.subscribe());
        let (documents, model) = (self.documents.clone(), self.model.clone());
        let auth_counter = self.auth_counter.clone();
        let headers = parts.headers;
        let request =
            ApiRequest { service, actor, headers, closing, documents, model, auth_counter, path, query, body };
        let running = (endpoint.run)(request);
        let done = match endpoint.ends_with_client {
            true => running.await,
            false => service::servers::to_the_end(running).await,
        };
        done.map_err(|error| error::answer(&error))
    }

    /// Runs a document as a request for that would, and waits until it is over: `wanted` is what its body would be.
    pub async fn run_document(
        &self,
        actor: Actor,
        wanted: &serde_json::Value,
    ) -> Result<serde_json::Value, service::Error> {
        let request = ApiRequest {
            service: Arc::clone(&self.service),
            actor,
            headers: http::HeaderMap::new(),
            closing: self.closing.subscribe(),
            documents: self.documents.clone(),
            model: self.model.clone(),
            auth_counter: None,
            path: Vec::new(),
            query: serde_json::Map::new(),
            body: request::Members::of(wanted)?,
        };
        endpoints::documents::run_to_the_end(request).await
    }

    /// The answer to a request that is not let in.
    pub fn refuse(&self, status: StatusCode, why: &str) -> Response<Body> {
        error::refused(status, why).into_response()
    }

    /// Ends the streams that have no end: we stop.
    pub fn leave(&self) {
        self.closing.send_replace(true);
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("endpoints", &self.endpoints.len()).finish_non_exhaustive()
    }
}
