//! Sessions of the console: a cookie, and a CSRF token for every change.
//!
//! The cookie is a random id. The CSRF token is derived from it, so nothing is stored for visitors who only read.
//! Sessions of tokens are stored by id, and end after half a day without use or when the service stops.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use http::header::{COOKIE, HOST};
use registry::Principal;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ResolvePrincipal;

/// How long a session lives without being used.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// The limit of sessions where nobody sets one.
const MAX_SESSIONS: usize = 1000;
/// The header in which scripts send the CSRF token.
pub(crate) const CSRF_HEADER: &str = "x-csrf-token";

/// All sessions.
pub(crate) struct Sessions {
    key: [u8; 32],
    /// Checks a token.
    resolve_principal: ResolvePrincipal,
    /// How many sessions there may be.
    most: usize,
    opened: Mutex<HashMap<String, Opened>>,
}

/// Who is signed in.
#[derive(Clone)]
pub enum SignedIn {
    /// The holder of a token.
    Token(Arc<str>),
    /// A person that signed in at an identity provider.
    Person(Arc<dyn Person>),
}

/// A person that signed in at an identity provider.
pub trait Person: Send + Sync {
    /// Who it is now; `None` if the sign-in has ended.
    fn principal(&self) -> Option<Arc<Principal>>;
}

struct Opened {
    principal: Arc<Principal>,
    owner: SignedIn,
    used: Instant,
    /// Receivers learn that the session ended when this is dropped.
    alive: watch::Sender<()>,
}

/// A visitor of the console.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    /// The value of the cookie.
    pub(crate) id: String,
    /// Whether the cookie must still be set.
    pub(crate) is_new: bool,
    /// The name of the token that opened the session.
    pub(crate) principal: Option<Arc<Principal>>,
    /// The CSRF token of the session.
    pub(crate) csrf: String,
}

impl Sessions {
    pub(crate) fn new(resolve_principal: ResolvePrincipal) -> Self {
        Self { key: random(), resolve_principal, most: MAX_SESSIONS, opened: Mutex::default() }
    }

    pub(crate) fn with_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// The visitor of a request with these headers.
    pub(crate) fn visitor(&self, headers: &HeaderMap) -> Visitor {
        let known = cookie(headers).filter(|id| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let is_new = known.is_none();
        let id = known.unwrap_or_else(|| hex(&random()));
        let principal = if is_new { None } else { self.principal(&id) };
        Visitor { csrf: self.csrf(&id), id, is_new, principal }
    }

    /// Opens a session for the owner of a token.
    pub(crate) fn open(&self, principal: Arc<Principal>, token: &str) -> Visitor {
        self.open_for(principal, SignedIn::Token(token.into()))
    }

    /// Opens a session. It has a new id: the old one may be known to others.
    pub(crate) fn open_for(&self, principal: Arc<Principal>, owner: SignedIn) -> Visitor {
        let id = hex(&random());
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        opened.retain(|_, session| now.duration_since(session.used) < IDLE);
        // Of the token with the most sessions: frequent sign-ins of one user do not sign out others.
        if opened.len() >= self.most {
            let mut counts = HashMap::<Arc<Principal>, usize>::new();
            opened.values().for_each(|session| *counts.entry(Arc::clone(&session.principal)).or_default() += 1);
            let surplus =
                opened.iter().max_by_key(|(_, session)| (counts.get(&session.principal), Reverse(session.used)));
            if let Some(id) = surplus.map(|(id, _)| id.clone()) {
                opened.remove(&id);
            }
        }
        let session = Opened { principal: Arc::clone(&principal), owner, used: now, alive: watch::Sender::new(()) };
        opened.insert(id.clone(), session);
        Visitor { csrf: self.csrf(&id), id, is_new: true, principal: Some(principal) }
    }

    /// Who opened a session.
    pub(crate) fn owner(&self, id: &str) -> Option<SignedIn> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.get(id).map(|session| session.owner.clone())
    }

    /// The token that opened a session, if one did: for configs of clients on request.
    pub(crate) fn token(&self, id: &str) -> Option<Arc<str>> {
        match self.owner(id)? {
            SignedIn::Token(token) => Some(token),
            SignedIn::Person(_) => None,
        }
    }

    /// A future that is ready when the session of these headers ends. None if there is no session.
    pub(crate) fn lasting(&self, headers: &HeaderMap) -> Option<impl Future<Output = ()> + Send + use<>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alive = opened.get(&cookie(headers)?)?.alive.subscribe();
        // Nothing is ever sent: the channel only closes.
        Some(async move { while alive.changed().await.is_ok() {} })
    }

    /// Removes every session whose token is no longer valid. Such a session grants no access even before that.
    pub(crate) fn forget_revoked(&self) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|_, session| self.current(session).is_some());
    }

    /// Who the owner of a session is now: with another role, perhaps. `None` if the token or the sign-in has ended.
    fn current(&self, session: &Opened) -> Option<Arc<Principal>> {
        let current = match &session.owner {
            SignedIn::Token(token) => (self.resolve_principal)(token),
            SignedIn::Person(person) => person.principal(),
        };
        current.filter(|principal| *principal == session.principal)
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    fn principal(&self, id: &str) -> Option<Arc<Principal>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let session = opened.get_mut(id)?;
        let now = Instant::now();
        let current = self.current(session).filter(|_| now.duration_since(session.used) < IDLE);
        match current {
            Some(_) => session.used = now,
            None => drop(opened.remove(id)),
        }
        current
    }

    fn csrf(&self, id: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key may have any length");
        mac.update(id.as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

impl Visitor {
    /// Whether a request carries the right CSRF token.
    pub(crate) fn has_valid_csrf(&self, secret: Option<&str>) -> bool {
        secret.is_some_and(|secret| bool::from(secret.as_bytes().ct_eq(self.csrf.as_bytes())))
    }
}

/// The name of the cookie. Cookies ignore ports, and there may be a second service on this machine.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    let port: String = port.chars().filter(char::is_ascii_digit).collect();
    format!("mcp_console_{port}")
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    cookie_named(headers, &cookie_name(headers))
}

fn cookie_named(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
}

/// The header that sets the cookie of a visitor.
pub(crate) fn set_cookie(headers: &HeaderMap, id: &str) -> String {
    format!("{}={id}; Path=/; HttpOnly; SameSite=Strict{}", cookie_name(headers), secure(headers))
}

fn secure(headers: &HeaderMap) -> &'static str {
    // Only a proxy knows whether the client uses TLS.
    let is_https = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    if is_https { "; Secure" } else { "" }
}

/// The name of the cookie of a pending sign-in at an identity provider.
fn attempt_name(headers: &HeaderMap) -> String {
    cookie_name(headers).replace("console", "sign_in")
}

/// The header that marks the browser that began a sign-in. The browser sends it when it comes back from the provider, so
/// it is `Lax`, and good for nothing else.
pub(crate) fn set_attempt(headers: &HeaderMap, state: &str) -> String {
    let (name, secure) = (attempt_name(headers), secure(headers));
    format!("{name}={state}; Path=/login; Max-Age=600; HttpOnly; SameSite=Lax{secure}")
}

/// Whether this browser began a sign-in.
pub(crate) fn has_attempt(headers: &HeaderMap, state: &str) -> bool {
    let known = cookie_named(headers, &attempt_name(headers));
    known.is_some_and(|known| bool::from(known.as_bytes().ct_eq(state.as_bytes())))
}

/// The header that removes the mark.
pub(crate) fn forget_attempt(headers: &HeaderMap) -> String {
    format!("{}=; Path=/login; Max-Age=0; HttpOnly; SameSite=Lax{}", attempt_name(headers), secure(headers))
}

fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string takes everything");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry::Role;

    fn named(name: &str) -> Arc<Principal> {
        Principal::of_token(name, Role::Admin, None)
    }

    /// Every secret is the token of somebody who is called the same.
    fn named_by_token() -> ResolvePrincipal {
        Arc::new(|secret| Some(named(secret)))
    }

    fn headers(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "127.0.0.1:8808".parse().unwrap());
        headers.insert(COOKIE, cookie.parse().unwrap());
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_known_by_its_cookie_until_it_ends_or_is_left_alone() {
        let sessions = Sessions::new(named_by_token());
        let ann = sessions.open(named("ann"), "ann");
        let sent = headers(&format!("other=1; mcp_console_8808={}", ann.id));
        assert_eq!(sessions.visitor(&sent).principal, Some(named("ann")));
        assert!(sessions.visitor(&sent).has_valid_csrf(Some(&ann.csrf)));
        let over = sessions.lasting(&sent).expect("there is a session");
        sessions.end(&ann.id);
        over.await;
        assert!(sessions.lasting(&sent).is_none());
        assert_eq!(sessions.visitor(&sent).principal, None);
        let bob = sessions.open(named("bob"), "bob");
        tokio::time::advance(IDLE).await;
        assert_eq!(sessions.visitor(&headers(&format!("mcp_console_8808={}", bob.id))).principal, None);
    }

    #[test]
    fn the_number_of_sessions_is_a_limit_and_the_token_with_the_most_makes_room() {
        let sessions = Sessions::new(named_by_token()).with_most(4);
        let ann = sessions.open(named("ann"), "ann");
        let bobs: Vec<Visitor> = (0..6).map(|_| sessions.open(named("bob"), "bob")).collect();
        let is_open = |visitor: &Visitor| sessions.token(&visitor.id).is_some();
        assert!(is_open(&ann) && is_open(&bobs[5]));
        assert_eq!(bobs.iter().filter(|bob| is_open(bob)).count(), 3);
    }

    #[tokio::test]
    async fn a_session_ends_at_once_with_its_token() {
        let token = Arc::new(Mutex::new("old"));
        let known = Arc::clone(&token);
        let resolve_principal: ResolvePrincipal =
            Arc::new(move |secret| (secret == *known.lock().unwrap()).then(|| named("ann")));
        let sessions = Sessions::new(resolve_principal);
        let ann = sessions.open(named("ann"), "old");
        let sent = headers(&format!("mcp_console_8808={}", ann.id));
        assert_eq!(sessions.visitor(&sent).principal, Some(named("ann")));
        let over = sessions.lasting(&sent).expect("there is a session");
        *token.lock().unwrap() = "new";
        assert_eq!(sessions.visitor(&sent).principal, None);
        over.await;
        assert_eq!(sessions.token(&ann.id), None);
    }

    struct Ann(Mutex<Option<Role>>);

    impl Person for Ann {
        fn principal(&self) -> Option<Arc<Principal>> {
            let role = *self.0.lock().unwrap();
            role.map(|role| Principal::of_identity("https://id.example", "1", "ann", role, None))
        }
    }

    #[test]
    fn a_session_of_a_person_has_the_role_of_now_and_ends_with_the_sign_in() {
        let sessions = Sessions::new(named_by_token());
        let person = Arc::new(Ann(Mutex::new(Some(Role::Admin))));
        let ann = Arc::clone(&person) as Arc<dyn Person>;
        let visitor = sessions.open_for(ann.principal().unwrap(), SignedIn::Person(ann));
        let sent = headers(&format!("mcp_console_8808={}", visitor.id));
        let role = || sessions.visitor(&sent).principal.map(|principal| principal.role());
        assert_eq!(role(), Some(Role::Admin));
        *person.0.lock().unwrap() = Some(Role::User);
        assert_eq!(role(), Some(Role::User));
        *person.0.lock().unwrap() = None;
        assert_eq!(role(), None);
        assert!(sessions.owner(&visitor.id).is_none() && sessions.token(&visitor.id).is_none());
    }

    #[test]
    fn a_sign_in_is_completed_by_the_browser_that_began_it() {
        let began = headers("mcp_sign_in_8808=abc; mcp_console_8808=x");
        assert!(has_attempt(&began, "abc") && !has_attempt(&began, "abd") && !has_attempt(&began, ""));
        assert!(!has_attempt(&headers("mcp_console_8808=abc"), "abc"));
        assert!(set_attempt(&began, "abc").starts_with("mcp_sign_in_8808=abc; Path=/login; Max-Age=600; HttpOnly"));
    }

    #[test]
    fn a_client_cannot_choose_an_id_or_use_the_secret_of_another() {
        let sessions = Sessions::new(named_by_token());
        let chosen = sessions.visitor(&headers("mcp_console_8808=chosen"));
        assert!(chosen.is_new && chosen.id != "chosen");
        let (one, other) = (sessions.open(named("a"), "a"), sessions.open(named("b"), "b"));
        assert!(!one.has_valid_csrf(Some(&other.csrf)) && !one.has_valid_csrf(None) && !one.has_valid_csrf(Some("")));
        assert!(sessions.visitor(&headers(&format!("mcp_console_9={}", one.id))).principal.is_none());
    }
}
