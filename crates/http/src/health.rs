//! How we are: up, and how many of our servers are.

use aggregator::{Fleet, ServerState};
use bytes::Bytes;
use hyper::{Response, StatusCode};
use protocol::reply;

use crate::answer;
use crate::body::Body;

/// Tells numbers only: whoever may ask this need not know who the servers are.
pub(crate) fn answer(fleet: &Fleet) -> Response<Body> {
    let view = fleet.view();
    let count = |is_meant: fn(&ServerState) -> bool| {
        let servers = view.snapshot.servers().iter();
        servers.filter(|server| is_meant(&server.state)).count().to_string().into_bytes()
    };
    let servers = reply::object([
        ("running", count(|state| matches!(state, ServerState::Running))),
        ("starting", count(|state| matches!(state, ServerState::Initializing | ServerState::Waking))),
        ("failed", count(has_failed)),
        ("stopped", count(is_at_rest)),
    ]);
    let health = reply::object([("status", reply::string("ok")), ("servers", servers)]);
    answer::json(StatusCode::OK, Body::Whole(Bytes::from(health)))
}

/// It should be there and is not.
fn has_failed(state: &ServerState) -> bool {
    match state {
        ServerState::Failed(_) => true,
        ServerState::Down(downtime) => downtime.why.is_some(),
        _ => false,
    }
}

/// It is not there because nobody wants it to be, or nobody needs it now.
fn is_at_rest(state: &ServerState) -> bool {
    match state {
        ServerState::Stopped | ServerState::Dormant => true,
        ServerState::Down(downtime) => downtime.why.is_none(),
        _ => false,
    }
}
