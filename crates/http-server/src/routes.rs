//! Routes every request to its handler, after the host, origin and authentication checks.

use std::sync::Arc;

use aggregator::surface::UnknownSurface;
use catalog::Role;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use protocol::reply::code;
use upstream::loop_detection::Loop;

use crate::admission::{self, Connection, Requested};
use crate::body::Body;
use crate::credential::Credential;
use crate::fallback::FallbackService;
use crate::guard::{PageKind, Rejection};
use crate::panics::Panicked;
use crate::path::{PathTarget, query};
use crate::server::{RequestContext, Shared};
use crate::sight::Sight;
use crate::{answer, cors, fallback, guard, health, legacy, post, read_body, resource, sight, sse};

/// Answers a request of a connection.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    connection: &Connection,
    request: Request<Incoming>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let page = match shared.guard.check(&parts.uri, &parts.headers, &connection.guarded) {
        Ok(page) => page,
        Err(rejection) => return reject(fallback::at(shared, path), rejection),
    };
    if let Some(mut metadata) = resource::answer(shared.resource.as_ref(), &parts) {
        if let Some(page) = page {
            cors::allow(&mut metadata, page.origin);
        }
        return metadata;
    }
    let fallback = fallback::at(shared, path).or_else(|| fallback::for_people(shared, &parts));
    if fallback.is_some()
        && let Err(rejection) = guard::check_own_page(page, &parts.method, &parts.headers)
    {
        return reject(fallback, rejection);
    }
    let shared_with = page.filter(|page| match fallback {
        Some(fallback) => page.kind == PageKind::Allowed && fallback.is_for_allowed_origins(path),
        None => true,
    });
    let mut response = match (fallback, shared_with) {
        (_, Some(_)) if parts.method == Method::OPTIONS && cors::is_preflight(&parts.headers) => {
            cors::preflight(&parts.headers)
        }
        // Boxed: the future of every other request need not contain it.
        (Some(fallback), _) => Box::pin(fallback::answer(shared, connection, fallback, parts.clone(), body)).await,
        (None, _) => route(shared, connection, &parts, body).await,
    };
    if let Some(page) = shared_with {
        cors::allow(&mut response, page.origin);
    }
    response
}

fn reject(fallback: Option<&Arc<dyn FallbackService>>, rejection: Rejection) -> Response<Body> {
    tracing::debug!(why = rejection.why, "refused a request");
    match fallback {
        Some(fallback) => fallback::refuse(fallback, rejection.status, rejection.why),
        None => answer::refuse(rejection.status, rejection.why),
    }
}

/// The response to a request that was pending when the shutdown ended.
pub(crate) fn too_late(shared: &Arc<Shared>, path: &str) -> Response<Body> {
    let why = "The service is shutting down, and this request was not answered in time; it may have been executed";
    match fallback::at(shared, path) {
        Some(fallback) => fallback::refuse(fallback, StatusCode::SERVICE_UNAVAILABLE, why),
        None => answer::refuse_request(StatusCode::SERVICE_UNAVAILABLE, b"null", code::INTERNAL_ERROR, why),
    }
}

/// The response to a request whose handler panicked.
pub(crate) fn panicked(shared: &Arc<Shared>, path: &str, Panicked(problem): &Panicked) -> Response<Body> {
    tracing::error!(path, problem, "failed to answer a request: this is a bug in mcp-aggregator");
    let why = "Internal error in mcp-aggregator; its log has the details";
    match fallback::at(shared, path) {
        Some(fallback) => fallback::refuse(fallback, StatusCode::INTERNAL_SERVER_ERROR, why),
        None => answer::refuse_request(StatusCode::INTERNAL_SERVER_ERROR, b"null", code::INTERNAL_ERROR, why),
    }
}

async fn route(shared: &Arc<Shared>, connection: &Connection, parts: &Parts, body: Incoming) -> Response<Body> {
    let target = PathTarget::at(parts.uri.path());
    if target == PathTarget::Health {
        return match parts.method {
            Method::GET | Method::HEAD => health::answer(&shared.aggregator.fleet, shared.health()),
            _ => answer::not_allowed("GET"),
        };
    }
    let credential = match admission::admit(shared, connection, parts).await {
        None => None,
        Some(Ok(credential)) => Some(credential),
        Some(Err(denied)) => {
            return admission::refusal(shared, connection, Requested::by(parts), denied, Role::User).response();
        }
    };
    let principal = Arc::clone(credential.as_ref().map_or(&shared.local_user, Credential::principal));
    let identity = match connection.guarded.identify(&shared.identities, &principal) {
        Ok(identity) => identity,
        Err(full) => return answer::too_many_connections(&full.why),
    };
    // The header is trusted only after authentication.
    if let Some(detected) = detected_loop(shared, parts) {
        return answer::refuse_loop(detected, shared.aggregator.fleet.loop_detector().name());
    }
    let name = match &target {
        PathTarget::Mcp(name) | PathTarget::Sse(name) => name.as_deref(),
        _ => None,
    };
    let Sight { scope, profile } = match sight::sight(&shared.aggregator.fleet, &principal, name) {
        Ok(sight) => sight,
        Err(unseen) => return unseen.response(),
    };
    let surface = match query(parts.uri.query(), "surface").map(|surface| surface.parse()) {
        None => shared.aggregator.options.surface,
        Some(Ok(surface)) => surface,
        Some(Err(error)) => return bad_surface(&error),
    };
    let request_context = RequestContext { principal, credential, identity, scope, profile, surface };
    match (target, &parts.method) {
        (PathTarget::Mcp(_), &Method::POST) => {
            let credential = request_context.credential.clone();
            let answered = shared
                .until_revoked_or_end(credential.as_ref(), post::answer(shared, request_context, parts, body))
                .await;
            answered.unwrap_or_else(|| read_body::closing(admission::revoked().response()))
        }
        (PathTarget::Mcp(_), &Method::GET) => legacy::listen(shared, &request_context, parts),
        (PathTarget::Mcp(_), &Method::DELETE) => legacy::end(shared, &request_context, parts),
        (PathTarget::Mcp(_), _) => answer::not_allowed("GET, POST, DELETE"),
        (PathTarget::Sse(_), &Method::GET) => sse::open(shared, request_context, parts),
        (PathTarget::Sse(_), _) => answer::not_allowed("GET"),
        (PathTarget::Message, &Method::POST) => {
            let taken = shared
                .until_revoked_or_end(
                    request_context.credential.as_ref(),
                    sse::take(shared, &request_context, parts, body),
                )
                .await;
            taken.unwrap_or_else(|| read_body::closing(admission::revoked().response()))
        }
        (PathTarget::Message, _) => answer::not_allowed("POST"),
        (PathTarget::Health | PathTarget::Unknown, _) => {
            let why = "Not found: use /mcp, /mcp/<server>, /sse, /sse/<server> or /health";
            answer::refuse(StatusCode::NOT_FOUND, why)
        }
    }
}

/// Whether the request comes from this very aggregator, which would be a server of itself.
fn detected_loop(shared: &Shared, parts: &Parts) -> Option<Loop> {
    let instances = parts.headers.get(&answer::LOOP_HEADER)?.to_str().ok()?;
    shared.aggregator.fleet.loop_detector().note_sender(instances).err()
}

fn bad_surface(error: &UnknownSurface) -> Response<Body> {
    let why = format!("Bad request: {error}, as in /mcp?surface=search");
    answer::refuse_request(StatusCode::BAD_REQUEST, b"null", code::INVALID_REQUEST, &why)
}
