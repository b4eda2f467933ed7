//! How we are: up, and how many of our servers are.

use std::borrow::Cow;

use aggregator::{Fleet, ServerState};
use bytes::Bytes;
use hyper::{Response, StatusCode};
use protocol::reply;

use crate::answer;
use crate::body::Body;

/// How what the HTTP server does not know of is: above all, whether what is changed is kept. Must answer at once.
pub type HealthCheck = Box<dyn Fn() -> Health + Send + Sync>;

/// How well we are. Reasons name no servers, folders or addresses: everybody may ask for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// All is well.
    Ok,
    /// Calls are served, but something is wrong that may pass.
    Degraded(Cow<'static, str>),
    /// Somebody has to do something. Load balancers see it by the status, which is 503.
    Failed(Cow<'static, str>),
}

/// Tells numbers only: whoever may ask this need not know who the servers are.
pub(crate) fn answer(fleet: &Fleet, health: Health) -> Response<Body> {
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
    let (status, word, why) = match health {
        Health::Ok => (StatusCode::OK, "ok", None),
        Health::Degraded(why) => (StatusCode::OK, "degraded", Some(why)),
        Health::Failed(why) => (StatusCode::SERVICE_UNAVAILABLE, "failed", Some(why)),
    };
    let word = ("status", reply::string(word));
    let told = match why {
        None => reply::object([word, ("servers", servers)]),
        Some(why) => reply::object([word, ("message", reply::string(&why)), ("servers", servers)]),
    };
    answer::json(status, Body::Whole(Bytes::from(told)))
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
