//! Every request from the door to the one who answers it: who asks, where to, and whether they may.

use std::sync::Arc;

use aggregator::surface::UnknownSurface;
use catalog::Scope;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use protocol::reply::code;
use upstream::ancestry::Circle;

use crate::admission::{self, Connection};
use crate::annexe::Annexe;
use crate::body::Body;
use crate::front::{Asker, Shared};
use crate::guard::{PageKind, TurnedAway};
use crate::panics::Panicked;
use crate::place::{Place, query};
use crate::{annexe, answer, cors, guard, health, intake, legacy, post, sse};

/// Answers a request of a connection.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    connection: &Connection,
    request: Request<Incoming>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let page = match shared.guard.check(&parts.uri, &parts.headers, &connection.door) {
        Ok(page) => page,
        Err(away) => return turn_away(annexe::at(shared, path), away),
    };
    let annexe = annexe::at(shared, path).or_else(|| annexe::for_people(shared, &parts));
    if annexe.is_some()
        && let Err(away) = guard::check_own_page(page, &parts.method, &parts.headers)
    {
        return turn_away(annexe, away);
    }
    let shared_with = page.filter(|page| match annexe {
        Some(annexe) => page.kind == PageKind::Allowed && annexe.is_for_allowed_origins(path),
        None => true,
    });
    let mut response = match (annexe, shared_with) {
        (_, Some(_)) if parts.method == Method::OPTIONS && cors::is_preflight(&parts.headers) => {
            cors::preflight(&parts.headers)
        }
        // Boxed: the way of every other request need not carry it about.
        (Some(annexe), _) => Box::pin(annexe::answer(shared, connection, annexe, parts.clone(), body)).await,
        (None, _) => route(shared, connection, &parts, body).await,
    };
    if let Some(page) = shared_with {
        cors::allow(&mut response, page.origin);
    }
    response
}

fn turn_away(annexe: Option<&Arc<dyn Annexe>>, away: TurnedAway) -> Response<Body> {
    tracing::debug!(why = away.why, "a request was turned away");
    match annexe {
        Some(annexe) => annexe::refuse(annexe, away.status, away.why),
        None => answer::refuse(away.status, away.why),
    }
}

/// The answer to a request that was not answered when everything ended.
pub(crate) fn too_late(shared: &Arc<Shared>, path: &str) -> Response<Body> {
    let why = "The service is ending, and this was not answered in time; it may have been carried out";
    match annexe::at(shared, path) {
        Some(annexe) => annexe::refuse(annexe, StatusCode::SERVICE_UNAVAILABLE, why),
        None => answer::refuse_request(StatusCode::SERVICE_UNAVAILABLE, b"null", code::INTERNAL_ERROR, why),
    }
}

/// The answer to a request over which something of ours panicked.
pub(crate) fn panicked(shared: &Arc<Shared>, path: &str, Panicked(problem): &Panicked) -> Response<Body> {
    tracing::error!(path, problem, "a request could not be answered: this is a defect of mcp-aggregator");
    let why = "Internal error: something went wrong in mcp-aggregator; its log says what";
    match annexe::at(shared, path) {
        Some(annexe) => annexe::refuse(annexe, StatusCode::INTERNAL_SERVER_ERROR, why),
        None => answer::refuse_request(StatusCode::INTERNAL_SERVER_ERROR, b"null", code::INTERNAL_ERROR, why),
    }
}

async fn route(shared: &Arc<Shared>, connection: &Connection, parts: &Parts, body: Incoming) -> Response<Body> {
    let place = Place::at(parts.uri.path());
    if place == Place::Health {
        return match parts.method {
            Method::GET | Method::HEAD => health::answer(&shared.aggregator.fleet, shared.health()),
            _ => answer::not_allowed("GET"),
        };
    }
    let credential = match admission::admit(shared, connection, parts) {
        None => None,
        Some(Ok(credential)) => Some(credential),
        Some(Err(denied)) => return admission::refusal(shared, connection, parts.uri.path(), denied).response(),
    };
    let principal = Arc::clone(credential.as_ref().map_or(&shared.nobody, |credential| credential.name()));
    let identity = match connection.door.identify(&shared.identities, &principal) {
        Ok(identity) => identity,
        Err(full) => return answer::too_many_connections(&full.why),
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
    let asker = Asker { principal, credential, identity, scope, surface };
    match (place, &parts.method) {
        (Place::Mcp(_), &Method::POST) => {
            let credential = asker.credential.clone();
            let answered = shared.while_welcome(credential.as_ref(), post::answer(shared, asker, parts, body)).await;
            answered.unwrap_or_else(|| intake::closing(admission::revoked().response()))
        }
        (Place::Mcp(_), &Method::GET) => legacy::listen(shared, &asker, parts),
        (Place::Mcp(_), &Method::DELETE) => legacy::end(shared, &asker, parts),
        (Place::Mcp(_), _) => answer::not_allowed("GET, POST, DELETE"),
        (Place::Sse(_), &Method::GET) => sse::open(shared, asker, parts),
        (Place::Sse(_), _) => answer::not_allowed("GET"),
        (Place::Message, &Method::POST) => {
            let taken = shared.while_welcome(asker.credential.as_ref(), sse::take(shared, &asker, parts, body)).await;
            taken.unwrap_or_else(|| intake::closing(admission::revoked().response()))
        }
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
