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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aggregator::cycle::Chain;
    use aggregator::{ClientLimits, MethodSet, NamePolicy, Options, ServerLimits, Surface};
    use catalog::{Offer, Profile, ProfileSpec, Role, ServerName, ServerState};
    use protocol::Lifecycle;

    use super::*;

    /// The servers `git` and `vault`, and the profiles `dev`, which has only `git`, and `ops`.
    async fn fleet() -> Arc<Fleet> {
        let options = Options {
            name: "test".into(),
            version: "1".into(),
            separator: ".".parse().unwrap(),
            names: NamePolicy::Canonical,
            start_timeout: Duration::from_secs(60),
            withheld: &[],
            servers_can_change: true,
            method_set: MethodSet::EVERYTHING,
            answer_timeout: Duration::from_secs(60),
            surface: Surface::Full,
            capabilities: "{}",
            server_limits: ServerLimits::from_settings(),
            client_limits: ClientLimits::default(),
            awaits_client: false,
        };
        let fleet = Fleet::empty(options, &Chain::enter(None, &std::env::temp_dir()).unwrap(), None);
        for name in ["git", "vault"] {
            let offer = Arc::new(Offer::new(Lifecycle::Session));
            fleet.register(ServerName::new(name).unwrap(), ServerState::Running, offer);
        }
        for (name, servers) in [("dev", Some(vec!["git".to_owned()])), ("ops", None)] {
            let spec = ProfileSpec { servers, ..ProfileSpec::default() };
            fleet.set_profile(name, Some(Profile::new(name, spec))).await;
        }
        fleet
    }

    fn bound(profile: Option<&str>) -> Arc<Principal> {
        Principal::of_token("ci", Role::Admin, profile)
    }

    fn seen(scope: Scope, profile: Option<&str>) -> Result<Sight, Unseen> {
        Ok(Sight { scope, profile: profile.map(Arc::from) })
    }

    #[tokio::test]
    async fn an_address_names_a_server_or_a_profile() {
        let (fleet, free) = (fleet().await, bound(None));
        let at = |name| sight(&fleet, &free, name);
        assert_eq!(at(None), seen(Scope::All, None));
        assert_eq!(at(Some("vault")), seen(Scope::One(1), None));
        assert_eq!(at(Some("@dev")), seen(Scope::All, Some("dev")));
        assert_eq!(at(Some("@nope")), Err(Unseen::NoProfile("nope".into())));
        assert_eq!(at(Some("nope")), Err(Unseen::NoServer("nope".into())));
    }

    #[tokio::test]
    async fn a_profile_that_binds_a_principal_cannot_be_left() {
        let (fleet, bound) = (fleet().await, bound(Some("dev")));
        let at = |name| sight(&fleet, &bound, name);
        assert_eq!(at(None), seen(Scope::All, Some("dev")));
        assert_eq!(at(Some("git")), seen(Scope::One(0), Some("dev")));
        assert_eq!(at(Some("@dev")), seen(Scope::All, Some("dev")));
        assert_eq!(at(Some("vault")), Err(Unseen::NoServer("vault".into())), "as if it did not exist");
        assert_eq!(at(Some("@ops")), Err(Unseen::NoProfile("ops".into())), "as if it did not exist");
    }

    #[tokio::test]
    async fn who_is_bound_to_a_profile_that_does_not_exist_sees_nothing() {
        let (fleet, bound) = (fleet().await, bound(Some("gone")));
        for name in [None, Some("git"), Some("@dev"), Some("@gone")] {
            let unseen = sight(&fleet, &bound, name).unwrap_err();
            assert_eq!(unseen, Unseen::BoundToNothing { principal: "ci".into(), profile: "gone".into() });
            assert_eq!(unseen.response().status(), StatusCode::FORBIDDEN);
        }
    }
}
