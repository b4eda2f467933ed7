//! Named bearer tokens.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::task::Poll;
use std::time::Duration;

use catalog::{Principal, Role};
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use identity::Rejection;
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::token_line::Grant;

/// The name of the token that comes from the environment.
const DEFAULT_NAME: &str = "default";
/// The minimum number of characters of a secure token.
pub const MIN_SECURE_TOKEN_CHARS: usize = 16;

/// The accepted tokens. Each has a name, which is all that is ever shown of it.
#[derive(Default)]
pub struct Tokens {
    all: RwLock<Vec<Arc<Token>>>,
    /// Notified when the tokens are replaced.
    replaced: watch::Sender<()>,
}

struct Token {
    principal: Arc<Principal>,
    secret: Box<[u8]>,
    /// The warning was logged that a client sends its role along.
    warned: AtomicBool,
}

impl Token {
    fn new(principal: Arc<Principal>, secret: Box<[u8]>) -> Arc<Self> {
        Arc::new(Self { principal, secret, warned: AtomicBool::new(false) })
    }
}

/// A name together with its secret, its role and its profile. If one of them is replaced, what was opened with the old ones
/// ends. `Debug` shows the name only.
#[derive(Clone)]
pub(crate) struct TokenCredential(Arc<Token>);

impl TokenCredential {
    /// The holder of the token.
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        &self.0.principal
    }

    /// The name of the token.
    pub(crate) fn name(&self) -> &Arc<str> {
        self.0.principal.name()
    }
}

impl PartialEq for TokenCredential {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&self.0, &other.0);
        let is_same = one.principal == other.principal
            && one.principal.role() == other.principal.role()
            && one.principal.profile() == other.principal.profile();
        is_same && bool::from(one.secret.ct_eq(&other.secret))
    }
}

impl fmt::Debug for TokenCredential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("TokenCredential").field(self.name()).finish()
    }
}

/// Why tokens cannot be used. Never contains the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// A line of the file is invalid.
    #[error("line {line}: {problem}")]
    Line {
        /// The line number, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A single token is invalid.
    #[error("{0}")]
    Token(&'static str),
    /// There is no token at all.
    #[error("it contains no token; write one `name:token` per line, or `name:token:role`")]
    None,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It has no token: no `Authorization`, or one of another scheme, as a proxy in front of us may need.
    Missing,
    /// It has an unknown token, or one in an unknown format.
    Wrong,
    /// It has a guessable token, after too many wrong ones from its address: it has to wait this long.
    Limited(Duration),
    /// There are no tokens, and its connection belongs to another user.
    OtherUser,
    /// There are no tokens, and the user of its connection is unknown.
    UnknownUser,
    /// It has a token that no identity provider issued for this request, or none that can be verified now.
    Rejected(Rejection),
}

impl Tokens {
    /// Parses a file with one `name:token[:role[:profile]]` per line; without a role, it is `admin`. Blank lines and lines that begin with `#` are ignored.
    pub fn read(text: &str) -> Result<Self, TokenError> {
        let tokens = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |problem| TokenError::Line { line: index + 1, problem };
            let (name, secret) = line.split_once(':').ok_or(wrong("expected `name:token`"))?;
            let grant = Grant::read(secret).map_err(wrong)?;
            tokens.add(name.trim(), &grant).map_err(wrong)?;
        }
        if tokens.all().is_empty() { Err(TokenError::None) } else { Ok(tokens) }
    }

    /// Adds the token from the environment. One that has a name already keeps it: a user of our commands has the same
    /// token in the environment as in the file of the service.
    pub fn with_default(self, secret: &str) -> Result<Self, TokenError> {
        if self.find(secret.trim().as_bytes()).is_some() {
            return Ok(self);
        }
        let grant = Grant { secret: secret.trim(), role: Role::Admin, profile: None };
        self.add(DEFAULT_NAME, &grant).map_err(TokenError::Token)?;
        Ok(self)
    }

    /// Binds each token without a profile to that of its role, if there is one.
    #[must_use]
    pub fn with_profiles(self, profile_of_role: &[(Role, String)]) -> Self {
        let bound = |token: &Arc<Token>| {
            let principal = &token.principal;
            let of_role = profile_of_role.iter().find(|(role, _)| *role == principal.role());
            match of_role.filter(|_| principal.profile().is_none()) {
                Some((role, profile)) => {
                    let principal = Principal::of_token(principal.name(), *role, Some(profile));
                    Token::new(principal, token.secret.clone())
                }
                None => Arc::clone(token),
            }
        };
        let all = self.all().iter().map(bound).collect();
        Self { all: RwLock::new(all), replaced: self.replaced }
    }

    /// The names of guessable tokens: those that are too short.
    pub fn guessable(&self) -> Vec<Arc<str>> {
        let all = self.all();
        let guessable = all.iter().filter(|token| token.secret.len() < MIN_SECURE_TOKEN_CHARS);
        guessable.map(|token| Arc::clone(token.principal.name())).collect()
    }

    /// Whether the token of that name is guessable.
    pub(crate) fn is_guessable(&self, name: &str) -> bool {
        self.all().iter().any(|token| &**token.principal.name() == name && token.secret.len() < MIN_SECURE_TOKEN_CHARS)
    }

    /// Whether both have the same names with the same secrets.
    pub fn is_same(&self, other: &Self) -> bool {
        let (all, others) = (self.all(), other.all());
        let is_in = |token: &Arc<Token>| {
            others.iter().any(|other| TokenCredential(Arc::clone(token)) == TokenCredential(Arc::clone(other)))
        };
        all.len() == others.len() && all.iter().all(is_in)
    }

    /// Replaces the accepted tokens.
    pub fn replace(&self, by: &Self) {
        let others = by.all().clone();
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = others;
        self.replaced.send_replace(());
    }

    /// Ready as soon as this name no longer has this secret.
    pub(crate) fn until_revoked(
        self: &Arc<Self>,
        credential: TokenCredential,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (tokens, mut replaced) = (Arc::clone(self), self.replaced.subscribe());
        async move {
            while tokens.is_current(&credential) {
                if replaced.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// Is notified when the tokens are replaced.
    pub(crate) fn replacements(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// Whether that name still has that secret.
    pub(crate) fn is_current(&self, credential: &TokenCredential) -> bool {
        let is_it =
            |token: &Arc<Token>| Arc::ptr_eq(token, &credential.0) || TokenCredential(Arc::clone(token)) == *credential;
        self.all().iter().any(is_it)
    }

    /// Runs `work` for a credential. `None` if the credential is revoked when it is done, or before: then it is
    /// dropped.
    pub(crate) async fn while_current<T>(
        self: &Arc<Self>,
        credential: &TokenCredential,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        // Work that is ready at once need not watch for replaced tokens.
        let polled = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        let done = match polled {
            Poll::Ready(done) => done,
            Poll::Pending => tokio::select! {
                biased;
                done = work => done,
                () = self.until_revoked(credential.clone()) => return None,
            },
        };
        self.is_current(credential).then_some(done)
    }

    /// The credential of a secret, if it is a token.
    pub(crate) fn identify(&self, secret: &str) -> Option<TokenCredential> {
        self.find(secret.as_bytes())
    }

    fn all(&self) -> RwLockReadGuard<'_, Vec<Arc<Token>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of a secret, if it is a token.
    pub fn owner_of(&self, secret: &str) -> Option<Arc<Principal>> {
        self.identify(secret).map(|credential| Arc::clone(credential.principal()))
    }

    /// The holders of all tokens.
    pub fn principals(&self) -> Vec<Arc<Principal>> {
        self.all().iter().map(|token| Arc::clone(&token.principal)).collect()
    }

    /// The names of all tokens.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.all().iter().map(|token| Arc::clone(token.principal.name())).collect()
    }

    fn add(&self, name: &str, grant: &Grant<'_>) -> Result<(), &'static str> {
        let secret = grant.secret;
        if name.is_empty() {
            return Err("the name before the `:` is missing");
        }
        if self.all().iter().any(|token| &**token.principal.name() == name) {
            return Err("the name is already taken");
        }
        if secret.is_empty() {
            return Err("the token is empty");
        }
        // A token with characters that a header cannot carry could never be sent.
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the token has characters that are not visible ASCII");
        }
        if self.find(secret.as_bytes()).is_some() {
            return Err("another name already has the same token");
        }
        let principal = Principal::of_token(name, grant.role, grant.profile);
        let token = Token::new(principal, secret.as_bytes().into());
        self.all.write().unwrap_or_else(PoisonError::into_inner).push(token);
        Ok(())
    }

    /// The credential of a request.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<TokenCredential, Denied> {
        self.find(bearer(headers)?).ok_or(Denied::Wrong)
    }

    /// Warns, once, that a client sends a token with its role: before there were roles, both were the token.
    pub(crate) fn warn_of_sent_role(&self, wrong: &[u8]) {
        let mut parts = wrong.splitn(3, |byte| *byte == b':');
        let (Some(secret), Some(role)) = (parts.next(), parts.next()) else { return };
        let Some(TokenCredential(token)) = self.find(secret) else { return };
        if token.principal.role().as_str().as_bytes() == role && !token.warned.swap(true, Ordering::Relaxed) {
            let token = token.principal.name();
            tracing::warn!(%token, "a client sends a token together with its role; what follows the `:` in the token file is no part of the token");
        }
    }

    /// Compares with every token, and each in full, so that the time it takes reveals nothing about any of them.
    pub(crate) fn find(&self, secret: &[u8]) -> Option<TokenCredential> {
        let all = self.all();
        let mut found = None;
        for token in all.iter() {
            if bool::from(token.secret.ct_eq(secret)) {
                found = Some(token);
            }
        }
        found.map(|token| TokenCredential(Arc::clone(token)))
    }
}

/// The bearer token that a request carries.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<&[u8], Denied> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Denied::Missing)?.as_bytes();
    if values.next().is_some() {
        return Err(Denied::Wrong);
    }
    let (scheme, secret) = value.split_at(memchr::memchr(b' ', value).unwrap_or(value.len()));
    if !scheme.eq_ignore_ascii_case(b"Bearer") {
        return Err(Denied::Missing);
    }
    Ok(secret.trim_ascii())
}
impl fmt::Debug for Tokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.all().iter().map(|token| token.principal.name())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(tokens: &Tokens, value: &str) -> Result<String, Denied> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        tokens.admit(&headers).map(|credential| credential.name().to_string())
    }

    #[test]
    fn a_request_is_known_by_the_name_of_its_token() {
        let tokens = Tokens::read("# mine\n\nann: secret-1 \r\nbob:a-b\n").unwrap().with_default("from:env\n").unwrap();
        assert_eq!(admitted(&tokens, "Bearer secret-1").unwrap(), "ann");
        assert_eq!(admitted(&tokens, "bearer a-b").unwrap(), "bob");
        assert_eq!(admitted(&tokens, "Bearer from:env").unwrap(), "default");
    }

    #[test]
    fn a_token_that_is_in_the_environment_too_keeps_its_name() {
        let tokens = Tokens::read("ann:secret-1").unwrap().with_default("secret-1").unwrap();
        assert_eq!(admitted(&tokens, "Bearer secret-1").unwrap(), "ann");
        assert_eq!(tokens.names(), ["ann".into()]);
    }

    #[test]
    fn anything_else_is_denied() {
        let tokens = Tokens::read("ann:secret").unwrap();
        for wrong in ["Bearer", "Bearer ", "Bearer secre", "Bearer secret2", "bearer  secret secret"] {
            assert_eq!(admitted(&tokens, wrong), Err(Denied::Wrong), "{wrong}");
        }
        for other in ["Basic secret", "Bearersecret", "secret", ""] {
            assert_eq!(admitted(&tokens, other), Err(Denied::Missing), "{other}");
        }
        assert_eq!(tokens.admit(&HeaderMap::new()), Err(Denied::Missing));
        let mut twice = HeaderMap::new();
        twice.append(AUTHORIZATION, "Bearer secret".parse().unwrap());
        twice.append(AUTHORIZATION, "Bearer secret".parse().unwrap());
        assert_eq!(tokens.admit(&twice), Err(Denied::Wrong));
    }

    #[test]
    fn a_problem_names_its_line_and_never_the_token() {
        for (text, line) in
            [("ann:ok\n\nhunter2", 3), ("ann:", 1), (":hunter2", 1), ("a:x\na:hunter2", 2), ("a:h nter2", 1)]
        {
            let error = Tokens::read(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}: ")), "{error}");
            assert!(!error.contains("nter2"), "{error}");
        }
        assert_eq!(Tokens::read("# nothing\n").unwrap_err(), TokenError::None);
    }

    #[test]
    fn a_line_may_give_a_role_and_a_profile() {
        let tokens = Tokens::read("ann:s1\nbob:s2:operator\neve: s3 : user : readers\n").unwrap();
        let grants: Vec<_> = tokens.principals().iter().map(|it| (it.role(), it.profile().cloned())).collect();
        assert_eq!(grants, [(Role::Admin, None), (Role::Operator, None), (Role::User, Some("readers".into()))]);
    }

    #[test]
    fn a_token_with_a_colon_is_an_error_that_names_its_line_and_the_fix() {
        for line in ["bob:hunter2:hunter3", "bob:hunter2:", "bob:hunter2::readers", "bob:hunter2:Admin"] {
            let error = Tokens::read(&format!("ann:ok\n{line}")).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && error.contains("openssl rand"), "{error}");
            assert!(!error.contains("hunter"), "{error}");
        }
        for line in ["bob:a:user:", "bob:a:user:p:q"] {
            assert!(Tokens::read(line).is_err(), "{line}");
        }
        assert!(Tokens::default().with_default("a:b:c").is_ok(), "the variable contains the token alone");
    }

    #[test]
    fn another_role_or_profile_makes_another_credential() {
        let tokens = Tokens::read("ann:secret-1:operator").unwrap();
        let ann = tokens.identify("secret-1").unwrap();
        for changed in ["ann:secret-1", "ann:secret-1:user", "ann:secret-1:operator:dev"] {
            let changed = Tokens::read(changed).unwrap();
            assert!(!changed.is_current(&ann) && !changed.is_same(&tokens));
        }
    }

    #[test]
    fn a_token_that_can_be_guessed_is_found_by_its_name() {
        let tokens = Tokens::read("ann:0123456789abcdef\nbob:0123456789abcde").unwrap();
        assert_eq!(tokens.guessable(), ["bob".into()]);
    }

    #[tokio::test]
    async fn a_name_with_another_secret_is_another_client() {
        let tokens = Arc::new(Tokens::read("ann:secret-1\nbob:secret-2").unwrap());
        let (ann, bob) = (tokens.identify("secret-1").unwrap(), tokens.identify("secret-2").unwrap());
        let revoked = tokens.until_revoked(ann.clone());
        let revoked = tokio::spawn(revoked);
        // Rewritten, but the same: nothing changes.
        tokens.replace(&Tokens::read("bob:secret-2\nann:secret-1").unwrap());
        assert!(tokens.is_current(&ann) && tokens.is_current(&bob));
        tokens.replace(&Tokens::read("ann:secret-3\nbob:secret-2").unwrap());
        assert!(!tokens.is_current(&ann) && tokens.is_current(&bob));
        revoked.await.unwrap();
        assert_ne!(tokens.identify("secret-3").unwrap(), ann, "the name alone does not count");
        // The same secret under another name is another principal.
        tokens.replace(&Tokens::read("eve:secret-2").unwrap());
        assert!(!tokens.is_current(&bob));
    }

    #[tokio::test]
    async fn work_for_a_replaced_secret_is_dropped() {
        let tokens = Arc::new(Tokens::read("ann:secret-1").unwrap());
        let ann = tokens.identify("secret-1").unwrap();
        assert_eq!(tokens.while_current(&ann, async { 7 }).await, Some(7));
        let rotate = || tokens.replace(&Tokens::read("ann:secret-2").unwrap());
        let waiting = tokens.while_current(&ann, std::future::pending::<()>());
        let (done, ()) = tokio::join!(waiting, async { rotate() });
        assert_eq!(done, None);
        assert_eq!(tokens.while_current(&ann, async { 7 }).await, None, "it was done in vain");
        let new = tokens.identify("secret-2").unwrap();
        assert_eq!(tokens.while_current(&new, async { 7 }).await, Some(7));
    }

    #[test]
    fn debugging_shows_names_only() {
        let tokens = Tokens::read("ann:hunter2").unwrap();
        assert_eq!(format!("{tokens:?}"), r#"["ann"]"#);
        assert_eq!(format!("{:?}", tokens.identify("hunter2").unwrap()), r#"TokenCredential("ann")"#);
    }
}
