//! Authentication of requests: the principal of each, or the refusal.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use crate::answer;
use crate::auth_failures::Reason;
use crate::body::Body;
use crate::guard::GuardedConnection;
use crate::local::Peer;
use crate::server::Shared;
use crate::socket::ClientSocket;
use crate::tokens::{Credential, Denied};

const CHALLENGE: &str = "Bearer realm=\"mcp-aggregator\"";
const WRONG_TOKEN_CHALLENGE: &str = "Bearer realm=\"mcp-aggregator\", error=\"invalid_token\"";

/// One connection, and what is known of its peer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) guarded: Arc<GuardedConnection>,
    /// The program at its other end: the client, or a proxy.
    address: IpAddr,
    is_tls: bool,
    /// Looked up only where there are no tokens.
    peer: Peer,
}

/// What a refused request asked for, and its headers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requested<'r> {
    pub(crate) path: &'r str,
    pub(crate) headers: &'r HeaderMap,
}

impl<'r> Requested<'r> {
    pub(crate) fn by(parts: &'r Parts) -> Self {
        Self { path: parts.uri.path(), headers: &parts.headers }
    }
}

/// The response to a request that is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) why: Cow<'static, str>,
    challenge: Option<&'static str>,
    retry_after: Option<Duration>,
}

impl Connection {
    /// Inspects a connection that was just accepted. `None` if it has ended already.
    pub(crate) fn of(
        shared: &Shared,
        stream: &ClientSocket,
        guarded: Arc<GuardedConnection>,
        is_tls: bool,
    ) -> Option<Self> {
        let peer = match &shared.tokens {
            Some(_) => Peer::Unknown,
            None => shared.local.peer(stream)?,
        };
        let address = stream.peer_ip()?;
        Some(Self { guarded, address, is_tls, peer })
    }

    pub(crate) fn is_from_this_machine(&self) -> bool {
        self.address.is_loopback()
    }

    /// The address of the client that sent a request.
    fn client_address(&self, shared: &Shared, headers: &HeaderMap) -> IpAddr {
        shared.trusted_proxies.client_address(self.address, headers)
    }

    /// Removes what nobody whom we trust says about forwarding, and adds that the connection is encrypted.
    pub(crate) fn clean_forwarding(&self, shared: &Shared, headers: &mut HeaderMap) {
        shared.trusted_proxies.clean(self.address, self.is_tls, headers);
    }
}

/// The credential of a request, by its token or by a session of the fallback service; `None` if its connection
/// suffices.
pub(crate) fn admit(shared: &Shared, connection: &Connection, parts: &Parts) -> Option<Result<Credential, Denied>> {
    let admitted = match &shared.tokens {
        Some(tokens) => {
            let address = connection.client_address(shared, &parts.headers);
            tokens.admit(&parts.headers).and_then(|credential| match shared.auth_failures.wait(address) {
                Some(wait) if tokens.is_guessable(credential.name()) => Err(Denied::Limited(wait)),
                _ => Ok(credential),
            })
        }
        None => shared.local.admit(connection.peer, &parts.headers)?,
    };
    let identify = |token: Arc<str>| identify(shared, &token);
    // A wrong token is always refused, whatever else is known.
    let vouch = |denied| match (denied, &shared.fallback) {
        (Denied::Missing | Denied::OtherUser | Denied::UnknownUser, Some(fallback)) => {
            fallback.vouch(parts).and_then(identify).ok_or(denied)
        }
        _ => Err(denied),
    };
    Some(admitted.or_else(vouch))
}

/// The owner of a secret, if it is valid.
pub(crate) fn identify(shared: &Shared, secret: &str) -> Option<Credential> {
    match &shared.tokens {
        Some(tokens) => tokens.identify(secret),
        None => shared.local.identify(secret),
    }
}

/// Records that a request was refused, and builds the response.
pub(crate) fn refusal(shared: &Shared, connection: &Connection, request: Requested<'_>, denied: Denied) -> Refusal {
    let reason = match denied {
        Denied::Missing => Reason::MissingToken,
        Denied::Wrong | Denied::Limited(_) => Reason::WrongToken,
        Denied::OtherUser => Reason::OtherUser,
        Denied::UnknownUser => Reason::UnknownUser,
    };
    let address = connection.client_address(shared, request.headers);
    let wait = shared.auth_failures.note(address, reason, request.path);
    let refusal = |status, why, challenge| Refusal { status, why, challenge, retry_after: None };
    match (denied, wait) {
        (Denied::Limited(wait), _) | (Denied::Wrong, Some(wait)) => limited(wait),
        (Denied::Wrong, None) => {
            refusal(StatusCode::UNAUTHORIZED, "Unauthorized: unknown token".into(), Some(WRONG_TOKEN_CHALLENGE))
        }
        (Denied::Missing, _) => refusal(
            StatusCode::UNAUTHORIZED,
            "Unauthorized: send `Authorization: Bearer <token>`".into(),
            Some(CHALLENGE),
        ),
        (Denied::UnknownUser, _) => {
            refusal(StatusCode::UNAUTHORIZED, shared.local.unknown_user_hint().into(), Some(CHALLENGE))
        }
        (Denied::OtherUser, _) => refusal(StatusCode::FORBIDDEN, shared.local.other_user_hint().into(), None),
    }
}

/// The response to a request whose token was removed or replaced while it was read or handled.
pub(crate) fn revoked() -> Refusal {
    Refusal {
        status: StatusCode::UNAUTHORIZED,
        why: "Unauthorized: the token was removed or replaced during this request".into(),
        challenge: Some(WRONG_TOKEN_CHALLENGE),
        retry_after: None,
    }
}

/// Whether a sign-in from that address has to wait: one of the accepted tokens may be short enough to be guessed.
pub(crate) fn sign_in_refusal(shared: &Shared, connection: &Connection, headers: &HeaderMap) -> Option<Refusal> {
    let tokens = shared.tokens.as_ref()?;
    let wait = shared.auth_failures.wait(connection.client_address(shared, headers))?;
    (!tokens.guessable().is_empty()).then(|| limited(wait))
}

fn limited(wait: Duration) -> Refusal {
    Refusal {
        status: StatusCode::TOO_MANY_REQUESTS,
        why: "Too many wrong tokens from this address; wait before you send another".into(),
        challenge: None,
        retry_after: Some(wait),
    }
}

impl Refusal {
    /// The response, as a JSON-RPC error.
    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = answer::refuse(self.status, &self.why);
        self.add_headers(response.headers_mut());
        response
    }

    /// Adds the headers of the refusal.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        if let Some(challenge) = self.challenge {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
    }
}
