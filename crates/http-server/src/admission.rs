//! Authentication of requests: the principal of each, or the refusal.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Principal, Role};
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use identity::Rejection;

use crate::answer;
use crate::auth_failures::Reason;
use crate::body::Body;
use crate::credential::Credential;
use crate::fallback::Voucher;
use crate::guard::GuardedConnection;
use crate::local::Peer;
use crate::server::Shared;
use crate::socket::ClientSocket;
use crate::tokens::{Denied, TokenCredential, Tokens, bearer};

const CHALLENGE: &str = "Bearer realm=\"mcp-aggregator\"";
const WRONG_TOKEN_CHALLENGE: &str = "Bearer realm=\"mcp-aggregator\", error=\"invalid_token\"";
const INVALID_TOKEN: &str = "invalid_token";
/// When a client may try again whose token could not be verified.
const ISSUER_RETRY: Duration = Duration::from_secs(5);

/// One connection, and what is known of its peer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) guarded: Arc<GuardedConnection>,
    /// The program at its other end: the client, or a proxy.
    address: IpAddr,
    is_tls: bool,
    /// Whom the client's certificate is for, if it has one.
    certified: Option<Arc<Principal>>,
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
    challenge: Option<Cow<'static, str>>,
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
        Some(Self { guarded, address, is_tls, certified: None, peer })
    }

    /// Records the certificate that the client has shown in the handshake, which has verified it.
    pub(crate) fn set_certificate(&mut self, shared: &Shared, certificate: &[u8]) {
        let Some(rules) = &shared.client_certificates else { return };
        match rules.principal(certificate) {
            Ok(principal) => self.certified = Some(principal),
            Err(why) => tracing::warn!(peer = %self.address, "a client certificate names nobody: {why}"),
        }
    }

    /// Records a TLS handshake that failed. Usually the client has ended it; its certificate is a reason of ours.
    pub(crate) fn note_failed_handshake(&self, shared: &Shared, error: &io::Error) {
        tracing::debug!(peer = %self.address, %error, "a TLS handshake failed");
        let reason = error.get_ref().and_then(|error| error.downcast_ref());
        if let Some(rustls::Error::InvalidCertificate(_)) = reason {
            shared.auth_failures.note(self.address, Reason::RejectedCertificate, &error.to_string());
        }
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

/// The credential of a request, by its token, by a session of the fallback service, or by the certificate of its
/// connection; `None` if its connection belongs to the user of the service.
pub(crate) async fn admit(
    shared: &Shared,
    connection: &Connection,
    parts: &Parts,
) -> Option<Result<Credential, Denied>> {
    let admitted = match &shared.tokens {
        Some(tokens) => match tokens.admit(&parts.headers) {
            Ok(token) => unless_limited(shared, connection, parts, tokens, token),
            Err(Denied::Wrong) => {
                let admitted = by_identity_provider(shared, connection, parts).await;
                if let (Err(_), Ok(wrong)) = (&admitted, bearer(&parts.headers)) {
                    tokens.warn_of_sent_role(wrong);
                }
                admitted
            }
            Err(denied) => Err(denied),
        },
        None => shared.local.admit(connection.peer, &parts.headers)?.map(Credential::Token),
    };
    // A wrong token is always refused, whatever else is known.
    let vouch = |denied| match (denied, &shared.fallback) {
        (Denied::Missing | Denied::OtherUser | Denied::UnknownUser, Some(fallback)) => {
            fallback.vouch(parts).and_then(|voucher| identify(shared, voucher)).ok_or(denied)
        }
        _ => Err(denied),
    };
    Some(admitted.or_else(vouch).or_else(|denied| by_certificate(shared, connection, parts, denied)))
}

/// Admits a request without a token if its connection has a certificate. A browser sends that with every request, whoever
/// causes it, so it does not open pages for people.
fn by_certificate(
    shared: &Shared,
    connection: &Connection,
    parts: &Parts,
    denied: Denied,
) -> Result<Credential, Denied> {
    let path = parts.uri.path();
    let is_page = shared.fallback.as_ref().is_some_and(|fallback| fallback.has(path) && fallback.is_public(path));
    match (denied, &connection.certified) {
        (Denied::Missing, Some(principal)) if !is_page => Ok(Credential::Certificate(Arc::clone(principal))),
        _ => Err(denied),
    }
}

/// A static token, unless it can be guessed and its address has sent too many wrong ones.
fn unless_limited(
    shared: &Shared,
    connection: &Connection,
    parts: &Parts,
    tokens: &Tokens,
    token: TokenCredential,
) -> Result<Credential, Denied> {
    match shared.auth_failures.wait(connection.client_address(shared, &parts.headers)) {
        Some(wait) if tokens.is_guessable(token.name()) => Err(Denied::Limited(wait)),
        _ => Ok(token.into()),
    }
}

/// A token that is none of ours: perhaps one of an identity provider, for what the request asks for.
async fn by_identity_provider(shared: &Shared, connection: &Connection, parts: &Parts) -> Result<Credential, Denied> {
    let Some(resource) = &shared.resource else { return Err(Denied::Wrong) };
    let token = std::str::from_utf8(bearer(&parts.headers)?).map_err(|_| Denied::Wrong)?;
    let is_audience = |audience: &str| resource.is_audience(parts.uri.path(), audience);
    let verified = match resource.verifier().recall(token, is_audience) {
        Some(known) => known,
        None => {
            // An issuer is not asked about guesses.
            let address = connection.client_address(shared, &parts.headers);
            if let Some(wait) = shared.auth_failures.wait(address).filter(|_| !looks_signed(token)) {
                return Err(Denied::Limited(wait));
            }
            Box::pin(resource.verifier().verify(token, is_audience)).await
        }
    };
    verified.map(Credential::Identity).map_err(|rejection| match rejection {
        Rejection::Unknown => Denied::Wrong,
        rejection => Denied::Rejected(rejection),
    })
}

/// Whether a token may be verified without a request.
fn looks_signed(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Whom the fallback service vouches for, if the voucher is valid.
pub(crate) fn identify(shared: &Shared, voucher: Voucher) -> Option<Credential> {
    match (voucher, &shared.tokens) {
        (Voucher::Token(secret), Some(tokens)) => tokens.identify(&secret).map(Credential::Token),
        (Voucher::Token(secret), None) => shared.local.identify(&secret).map(Credential::Token),
        (Voucher::Person(principal), _) => Some(Credential::Person(principal)),
    }
}

/// Records that a request was refused, and builds the response. `needed` is the role that it takes.
pub(crate) fn refusal(
    shared: &Shared,
    connection: &Connection,
    request: Requested<'_>,
    denied: Denied,
    needed: Role,
) -> Refusal {
    let reason = match denied {
        Denied::Missing => Reason::MissingToken,
        Denied::Rejected(rejection) if !rejection.may_be_guess() => Reason::RejectedToken,
        Denied::Wrong | Denied::Limited(_) | Denied::Rejected(_) => Reason::WrongToken,
        Denied::OtherUser => Reason::OtherUser,
        Denied::UnknownUser => Reason::UnknownUser,
    };
    let address = connection.client_address(shared, request.headers);
    let wait = shared.auth_failures.note(address, reason, request.path);
    let challenge = |problem: Option<(&'static str, &str)>, otherwise: &'static str| match &shared.resource {
        Some(resource) => Some(resource.challenge(request.path, problem, needed).into()),
        None => Some(Cow::Borrowed(otherwise)),
    };
    let invalid = |why: &str| challenge(Some((INVALID_TOKEN, why)), WRONG_TOKEN_CHALLENGE);
    let refusal = |status, why, challenge| Refusal { status, why, challenge, retry_after: None };
    match (denied, wait) {
        (Denied::Limited(wait), _) | (Denied::Wrong | Denied::Rejected(_), Some(wait)) => limited(wait),
        (Denied::Wrong, None) => {
            refusal(StatusCode::UNAUTHORIZED, "Unauthorized: unknown token".into(), invalid("unknown token"))
        }
        (Denied::Rejected(Rejection::Unavailable), None) => Refusal {
            status: StatusCode::SERVICE_UNAVAILABLE,
            why: format!("The token could not be verified: {}", Rejection::Unavailable).into(),
            challenge: None,
            retry_after: Some(ISSUER_RETRY),
        },
        (Denied::Rejected(rejection), None) => {
            let why = rejection.to_string();
            refusal(StatusCode::UNAUTHORIZED, format!("Unauthorized: {why}").into(), invalid(&why))
        }
        (Denied::Missing, _) => refusal(
            StatusCode::UNAUTHORIZED,
            match shared.client_certificates {
                Some(_) => "Unauthorized: connect with a client certificate, or send `Authorization: Bearer <token>`",
                None => "Unauthorized: send `Authorization: Bearer <token>`",
            }
            .into(),
            challenge(None, CHALLENGE),
        ),
        (Denied::UnknownUser, _) => {
            refusal(StatusCode::UNAUTHORIZED, shared.local.unknown_user_hint().into(), Some(CHALLENGE.into()))
        }
        (Denied::OtherUser, _) => refusal(StatusCode::FORBIDDEN, shared.local.other_user_hint().into(), None),
    }
}

/// The response to a request whose token was removed or replaced while it was read or handled.
pub(crate) fn revoked() -> Refusal {
    Refusal {
        status: StatusCode::UNAUTHORIZED,
        why: "Unauthorized: the token was removed or replaced during this request".into(),
        challenge: Some(WRONG_TOKEN_CHALLENGE.into()),
        retry_after: None,
    }
}

/// Adds to a response with status 403 what a token needs for the request, if its identity could get such a token.
pub(crate) fn add_missing_scope(shared: &Shared, path: &str, needed: Role, headers: &mut HeaderMap) {
    let Some(resource) = shared.resource.as_ref().filter(|resource| resource.verifier().has_role_scopes()) else {
        return;
    };
    let problem = ("insufficient_scope", "the token does not have the role that this needs");
    if let Ok(challenge) = HeaderValue::from_str(&resource.challenge(path, Some(problem), needed)) {
        headers.insert(WWW_AUTHENTICATE, challenge);
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
        if let Some(challenge) = self.challenge.as_deref().and_then(|challenge| HeaderValue::from_str(challenge).ok()) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
    }
}
