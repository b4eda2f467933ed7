//! `/health`: whether we are up, and how many of our servers are.

use std::borrow::Cow;

use aggregator::{Fleet, ServerState};
use bytes::Bytes;
use catalog::SIGN_IN_REQUIRED;
use hyper::{Response, StatusCode};
use protocol::reply;

use crate::answer;
use crate::body::Body;

/// Checks what the HTTP server does not know: above all, whether changes can be stored. Must return at once.
pub type HealthCheck = Box<dyn Fn() -> Health + Send + Sync>;

/// The health of the service. Reasons name no servers, folders or addresses: the endpoint needs no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// No problem.
    Ok,
    /// Calls are served, but there is a problem that may pass.
    Degraded(Cow<'static, str>),
    /// An operator has to act. Load balancers see it by the status 503.
    Failed(Cow<'static, str>),
}

/// Returns numbers only: the caller need not know the names of the servers.
pub(crate) fn answer(fleet: &Fleet, health: Health) -> Response<Body> {
    let view = fleet.view();
    let count = |is_meant: fn(&ServerState) -> bool| {
        let servers = view.snapshot.servers().iter();
        servers.filter(|server| is_meant(&server.state)).count().to_string().into_bytes()
    };
    let mut servers = vec![
        ("running", count(|state| matches!(state, ServerState::Running))),
        ("starting", count(|state| matches!(state, ServerState::Initializing | ServerState::Starting))),
        ("failed", count(has_failed)),
        ("stopped", count(is_at_rest)),
    ];
    // What needs a person is only there if something does.
    let waiting = count(needs_sign_in);
    if waiting != b"0" {
        servers.push(("sign_in_required", waiting));
    }
    let servers = reply::object(servers);
    let (status, word, why) = match health {
        Health::Ok => (StatusCode::OK, "ok", None),
        Health::Degraded(why) => (StatusCode::OK, "degraded", Some(why)),
        Health::Failed(why) => (StatusCode::SERVICE_UNAVAILABLE, "failed", Some(why)),
    };
    let word = ("status", reply::string(word));
    let report = match why {
        None => reply::object([word, ("servers", servers)]),
        Some(why) => reply::object([word, ("message", reply::string(&why)), ("servers", servers)]),
    };
    answer::json(status, Body::Whole(Bytes::from(report)))
}

/// It should be connected and is not.
fn has_failed(state: &ServerState) -> bool {
    match state {
        ServerState::Failed(_) => true,
        ServerState::Unavailable(unavailable) => unavailable.why.is_some() && !needs_sign_in(state),
        _ => false,
    }
}

/// It waits for a person to sign in, which is no failure.
fn needs_sign_in(state: &ServerState) -> bool {
    matches!(state, ServerState::Unavailable(unavailable) if unavailable.status == SIGN_IN_REQUIRED)
}

/// It is not connected because it is disabled, disconnected or not needed now.
fn is_at_rest(state: &ServerState) -> bool {
    match state {
        ServerState::Stopped | ServerState::Asleep => true,
        ServerState::Unavailable(unavailable) => unavailable.why.is_none(),
        _ => false,
    }
}
