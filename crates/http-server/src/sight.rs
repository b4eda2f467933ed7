//! What a request may see: the servers of its address, and the profile of its address or of its principal.

use std::sync::Arc;

use aggregator::Fleet;
use catalog::{Principal, Scope};
use hyper::{Response, StatusCode};
use protocol::reply::code;

use crate::answer;
use crate::body::Body;

/// What a request may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) scope: Scope,
    pub(crate) profile: Option<Arc<str>>,
}

/// Why an address shows nothing to a principal. What a profile hides is refused like what does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unseen {
    NoServer(String),
    NoProfile(String),
    /// The principal is bound to a profile that does not exist. It must not see everything instead.
    BoundToNothing {
        principal: Arc<str>,
        profile: Arc<str>,
    },
}

/// What `principal` may see at the address of `name`: of a server, or with an `@` of a profile.
pub(crate) fn sight(fleet: &Fleet, principal: &Principal, name: Option<&str>) -> Result<Sight, Unseen> {
    let whole = fleet.view();
    let bound = principal.profile();
    let view = match bound {
        None => &whole,
        Some(profile) => whole.profile(profile).ok_or_else(|| Unseen::BoundToNothing {
            principal: Arc::clone(principal.name()),
            profile: Arc::clone(profile),
        })?,
    };
    let Some(name) = name else { return Ok(Sight { scope: Scope::All, profile: bound.cloned() }) };
    let profile = name.strip_prefix('@');
    let is_there = |profile: &&str| match bound {
        None => whole.profile(profile).is_some(),
        Some(bound) => **bound == **profile,
    };
    if let Some(profile) = profile.filter(is_there) {
        return Ok(Sight { scope: Scope::All, profile: Some(profile.into()) });
    }
    match (view.snapshot.server_named(name), profile) {
        (Some(server), _) => Ok(Sight { scope: Scope::One(server), profile: bound.cloned() }),
        (None, Some(profile)) => Err(Unseen::NoProfile(profile.to_owned())),
        (None, None) => Err(Unseen::NoServer(name.to_owned())),
    }
}

impl Unseen {
    pub(crate) fn response(&self) -> Response<Body> {
        let (status, why) = match self {
            Self::NoServer(name) => {
                (StatusCode::NOT_FOUND, format!("Not found: there is no server `{name}`; /mcp serves all servers"))
            }
            Self::NoProfile(name) => (
                StatusCode::NOT_FOUND,
                format!(
                    "Not found: there is no profile `{name}`; check the address, or ask an administrator to add it"
                ),
            ),
            Self::BoundToNothing { principal, profile } => (
                StatusCode::FORBIDDEN,
                format!(
                    "Forbidden: `{principal}` is bound to the profile `{profile}`, which does not exist; an \
                     administrator can add it with `mcp-aggregator profiles set {profile}`"
                ),
            ),
        };
        answer::refuse_request(status, b"null", code::INVALID_REQUEST, &why)
    }
}
