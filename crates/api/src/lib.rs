//! The REST API: servers, tools, executions and settings, for programs.
//!
//! This crate gets authenticated requests whose bodies are read, and answers them. It does not speak HTTP on the wire
//! and knows nothing of MCP; it only uses the service.
//!
//! # Layout, in the order a request travels
//! - [`Api`] (here): from a request to its response
//! - `routes`: finds the endpoint; `request`: reads path, query and body; `schema`, `schemas`: check them
//! - `endpoint`: one endpoint; `endpoints`: all of them, and what they do
//! - `result`: the result of a tool with metadata; `events`: events as a stream; `log`: stderr of a server; `metrics`:
//!   metrics for Prometheus
//! - `documents`: Markdown documents that run tools; `assistant`: the assistant; `sse_job`: long work with progress
//!   events
//! - `response`: responses; `error`: errors as responses
//! - `openapi`: the OpenAPI document, generated from the endpoints; `page.html` shows it

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
use http::{Method, Response, StatusCode};
use models::Model;
use notebook::Folder;
use registry::{Actor, Principal, Role};
use service::Service;
use tokio::sync::watch;

pub use documents::open_document;
use endpoint::Endpoint;
use request::ApiRequest;
use response::ApiResponse;
pub use response::Body;

/// The actor in the audit log if there are no tokens: only the way in is known.
const ANONYMOUS_ACTOR: &str = "rest";

/// Refused requests, as counted by the HTTP server.
#[derive(Debug, Clone, Default)]
pub struct AuthCounts {
    /// The number of refused requests, by reason.
    pub failures: Vec<(&'static str, u64)>,
    /// The number of those that were delayed.
    pub limited: u64,
}

/// Returns the current counts.
pub type AuthCounter = Arc<dyn Fn() -> AuthCounts + Send + Sync>;

/// The API. It lives as long as the program.
pub struct Api {
    service: Arc<Service>,
    endpoints: Vec<Endpoint>,
    documents: Option<Arc<Folder>>,
    model: Option<Arc<Model>>,
    auth_counter: Option<AuthCounter>,
    job_limit: usize,
    closing: watch::Sender<bool>,
}

impl Api {
    /// Creates the API of a service.
    pub fn new(service: Arc<Service>) -> Self {
        let endpoints = endpoints::all();
        let closing = watch::Sender::new(false);
        Self {
            service,
            endpoints,
            documents: None,
            model: None,
            auth_counter: None,
            job_limit: sse_job::MAX_UNREAD,
            closing,
        }
    }

    /// Adds the counts of refused requests to the metrics.
    pub fn with_auth_counter(self, counter: AuthCounter) -> Self {
        Self { auth_counter: Some(counter), ..self }
    }

    /// Cancels a run or a question when its client has not read so many bytes of its progress.
    pub fn with_job_limit(self, job_limit: usize) -> Self {
        Self { job_limit, ..self }
    }

    /// Lets clients list, read, run and write the documents in this folder.
    pub fn with_documents(self, folder: Arc<Folder>) -> Self {
        Self { documents: Some(folder), ..self }
    }

    /// Lets this model answer questions.
    pub fn with_assistant(self, model: Arc<Model>) -> Self {
        Self { model: Some(model), ..self }
    }

    /// Whether a path belongs to the API.
    pub fn has(&self, path: &str) -> bool {
        path == "/metrics" || path == "/api" || path.starts_with("/api/")
    }

    /// Whether a path needs no token: its content is part of the program.
    pub fn is_public(&self, path: &str) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.is_public && endpoint.path == path)
    }

    /// The role that a request needs, as far as its method and path tell.
    pub fn required_role(&self, method: &Method, path: &str) -> Role {
        routes::find(&self.endpoints, method, path).map_or(Role::User, |(endpoint, _)| endpoint.role)
    }

    /// Answers a request on behalf of `principal`.
    pub async fn answer(&self, parts: Parts, body: Bytes, principal: Arc<Principal>) -> Response<Body> {
        let answered = self.find_and_run(parts, &body, principal).await;
        answered.unwrap_or_else(|refused| refused).into_response()
    }

    async fn find_and_run(
        &self,
        parts: Parts,
        body: &Bytes,
        principal: Arc<Principal>,
    ) -> Result<ApiResponse, ApiResponse> {
        let (endpoint, path) = routes::find(&self.endpoints, &parts.method, parts.uri.path())?;
        allow(&principal, endpoint.role)?;
        let actor = Actor::new(&principal, ANONYMOUS_ACTOR);
        let service = self.service_for(endpoint, &actor).map_err(|error| error::answer(&error))?;
        if let Some((_, value)) = path.iter().find(|(_, value)| value.contains('\0')) {
            let why = format!("`{}` does not exist", value.escape_debug());
            return Err(error::refused(StatusCode::NOT_FOUND, &why));
        }
        let query = request::query(endpoint, parts.uri.query()).map_err(|problems| error::invalid(&problems))?;
        let body = match &endpoint.body {
            Some(content) => request::body(content, &parts.headers, body)?,
            None => request::Members::default(),
        };
        let closing = self.closing.subscribe();
        let (documents, model) = (self.documents.clone(), self.model.clone());
        let (auth_counter, job_limit) = (self.auth_counter.clone(), self.job_limit);
        let headers = parts.headers;
        let request = ApiRequest {
            service,
            actor,
            headers,
            closing,
            documents,
            model,
            job_limit,
            auth_counter,
            path,
            query,
            body,
        };
        for (_, role) in endpoint.role_flags.iter().filter(|(member, _)| request.flag(member)) {
            allow(&request.actor.principal, *role)?;
        }
        let running = (endpoint.run)(request);
        let done = match endpoint.ends_with_client {
            true => running.await,
            false => service::to_the_end(running).await,
        };
        done.map_err(|error| error::answer(&error))
    }

    /// The service as the principal sees it. An endpoint that shows more than a profile is not for bound principals.
    fn service_for(&self, endpoint: &Endpoint, actor: &Actor) -> Result<Arc<Service>, service::Error> {
        match actor.principal.profile() {
            Some(profile) if !endpoint.is_within_profile && !endpoint.is_public => {
                Err(service::Error::BoundToProfile { profile: profile.to_string() })
            }
            _ => self.service.as_seen_by(actor),
        }
    }

    /// Runs a document like a request with the body `wanted` would, and waits for the end.
    pub async fn run_document(
        &self,
        actor: Actor,
        wanted: &serde_json::Value,
    ) -> Result<serde_json::Value, service::Error> {
        let request = ApiRequest {
            service: self.service.as_seen_by(&actor)?,
            actor,
            headers: http::HeaderMap::new(),
            closing: self.closing.subscribe(),
            documents: self.documents.clone(),
            model: self.model.clone(),
            job_limit: sse_job::MAX_UNREAD,
            auth_counter: None,
            path: Vec::new(),
            query: serde_json::Map::new(),
            body: request::Members::of(wanted)?,
        };
        endpoints::documents::run_to_the_end(request).await
    }

    /// The response to a request that is refused.
    pub fn refuse(&self, status: StatusCode, why: &str) -> Response<Body> {
        error::refused(status, why).into_response()
    }

    /// Ends the streams that have no end, because the service stops.
    pub fn leave(&self) {
        self.closing.send_replace(true);
    }
}

/// Refuses a principal whose role does not suffice.
fn allow(principal: &Principal, required: Role) -> Result<(), ApiResponse> {
    match principal.role() >= required {
        true => Ok(()),
        false => Err(error::role_required(principal.role(), required)),
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("endpoints", &self.endpoints.len()).finish_non_exhaustive()
    }
}
