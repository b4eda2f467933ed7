//! Every request from the door to the one who answers it: who asks, where to, and whether they may.

use std::sync::Arc;

use aggregator::surface::UnknownSurface;
use catalog::Scope;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use protocol::reply::code;
use upstream::ancestry::Circle;

use crate::body::Body;
use crate::front::{Asker, Shared};
use crate::guard::Door;
use crate::place::{Place, query};
use crate::{annexe, answer, cors, health, legacy, post, sse};

/// Answers a request that came in through `door`.
pub(crate) async fn answer(shared: &Arc<Shared>, door: &Door, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let origin = match shared.guard.check(&parts.uri, &parts.headers, door) {
        Ok(origin) => origin,
        Err(away) => {
            tracing::debug!(why = away.why, "a request was turned away");
            return match annexe::at(shared, parts.uri.path()) {
                Some(annexe) => annexe::refuse(annexe, away.status, away.why),
                None => answer::refuse(away.status, away.why),
            };
        }
    };
    let mut response = if parts.method == Method::OPTIONS && origin.is_some() && cors::is_preflight(&parts.headers) {
        cors::preflight(&parts.headers)
    } else if let Some(annexe) = annexe::at(shared, parts.uri.path()).or_else(|| annexe::for_people(shared, &parts)) {
        // Boxed: the way of every other request need not carry it about.
        Box::pin(annexe::answer(shared, annexe, parts.clone(), body)).await
    } else {
        route(shared, &parts, body).await
    };
    if let Some(origin) = origin {
        cors::allow(&mut response, origin);
    }
    response
}

/// The answer to a request that was not answered when everything ended.
pub(crate) fn too_late(shared: &Arc<Shared>, path: &str) -> Response<Body> {
    let why = "The service is ending, and this was not answered in time; it may have been carried out";
    match annexe::at(shared, path) {
        Some(annexe) => annexe::refuse(annexe, StatusCode::SERVICE_UNAVAILABLE, why),
        None => answer::refuse_request(StatusCode::SERVICE_UNAVAILABLE, b"null", code::INTERNAL_ERROR, why),
    }
}

async fn route(shared: &Arc<Shared>, parts: &Parts, body: Incoming) -> Response<Body> {
    let place = Place::at(parts.uri.path());
    if place == Place::Health {
        return match parts.method {
            Method::GET | Method::HEAD => health::answer(&shared.aggregator.fleet, shared.health()),
            _ => answer::not_allowed("GET"),
        };
    }
    let identity = match annexe::admit(shared, parts) {
        None => None,
        Some(Ok(identity)) => Some(identity),
        Some(Err(denied)) => return answer::unauthorized(denied),
    };
    // Only those who may come in are believed.
    if let Some(circle) = came_from_us(shared, parts) {
        return answer::circle(circle, shared.aggregator.fleet.ancestry().name());
    }
    let scope = match &place {
        Place::Mcp(Some(server)) | Place::Sse(Some(server)) => match find_server(shared, server) {
            Some(scope) => scope,
            None => return no_such_server(server),
        },
        _ => Scope::All,
    };
    let surface = match query(parts.uri.query(), "surface").map(|surface| surface.parse()) {
        None => shared.aggregator.options.surface,
        Some(Ok(surface)) => surface,
        Some(Err(error)) => return bad_surface(&error),
    };
    let principal = identity.as_ref().map_or(&shared.nobody, |identity| identity.name());
    let asker = Asker { principal: Arc::clone(principal), identity, scope, surface };
    match (place, &parts.method) {
        (Place::Mcp(_), &Method::POST) => post::answer(shared, asker, parts, body).await,
        (Place::Mcp(_), &Method::GET) => legacy::listen(shared, &asker, parts),
        (Place::Mcp(_), &Method::DELETE) => legacy::end(shared, &asker, parts),
        (Place::Mcp(_), _) => answer::not_allowed("GET, POST, DELETE"),
        (Place::Sse(_), &Method::GET) => sse::open(shared, asker, parts),
        (Place::Sse(_), _) => answer::not_allowed("GET"),
        (Place::Message, &Method::POST) => sse::take(shared, &asker, parts, body).await,
        (Place::Message, _) => answer::not_allowed("POST"),
        (Place::Health | Place::Nowhere, _) => {
            let why = "Not found: there is /mcp, /mcp/<server>, /sse, /sse/<server> and /health";
            answer::refuse(StatusCode::NOT_FOUND, why)
        }
    }
}

/// Whether the request comes from this very aggregator, which would be a server of itself.
fn came_from_us(shared: &Shared, parts: &Parts) -> Option<Circle> {
    let lineage = parts.headers.get(&answer::LINEAGE)?.to_str().ok()?;
    shared.aggregator.fleet.ancestry().hear(lineage).err()
}

fn find_server(shared: &Shared, name: &str) -> Option<Scope> {
    let view = shared.aggregator.fleet.view();
    view.snapshot.server_named(name).map(Scope::One)
}

fn bad_surface(error: &UnknownSurface) -> Response<Body> {
    let why = format!("Bad request: {error}, as in /mcp?surface=search");
    answer::refuse_request(StatusCode::BAD_REQUEST, b"null", code::INVALID_REQUEST, &why)
}

fn no_such_server(name: &str) -> Response<Body> {
    let why = format!("Not found: there is no server `{name}`; /mcp offers all there are");
    answer::refuse_request(StatusCode::NOT_FOUND, b"null", code::INVALID_REQUEST, &why)
}
