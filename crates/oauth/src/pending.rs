//! Sign-ins that have begun: what their redirects are checked with.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use crate::grant::{AuthorizationServer, ClientIdentity};
use crate::protected::Protected;
use crate::secret::Secret;

/// How long a sign-in may take from its address to the redirect.
pub(crate) const ATTEMPT_LIFETIME: Duration = Duration::from_secs(600);
/// How many sign-ins may be pending at once; the oldest is given up for a new one.
const MAX_ATTEMPTS: usize = 1000;

/// The sign-ins that have begun in this process.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// By their `state`.
    pub(crate) attempts: HashMap<String, PendingAttempt>,
    /// By their `state`: the keys of those whose redirect has come and whose tokens have not yet, and when they expire.
    finishing: HashMap<String, (String, SystemTime)>,
    /// By key: why the last attempt failed.
    pub(crate) failed: HashMap<String, String>,
}

/// What the redirect of a sign-in is checked with.
#[derive(Debug)]
pub(crate) struct PendingAttempt {
    pub(crate) protected: Protected,
    pub(crate) server: AuthorizationServer,
    pub(crate) has_iss_parameter: bool,
    pub(crate) client: ClientIdentity,
    pub(crate) redirect_uri: String,
    pub(crate) verifier: Secret,
    pub(crate) scopes: Vec<String>,
    pub(crate) resource: Option<String>,
    pub(crate) expires_at: SystemTime,
}

impl Pending {
    /// Forgets the attempts of a key, and why the last one failed: it is decided.
    pub(crate) fn settle(&mut self, key: &str) {
        self.attempts.retain(|_, attempt| attempt.protected.key != key);
        self.finishing.retain(|_, (of, _)| of != key);
        self.failed.remove(key);
    }

    /// Takes an attempt whose redirect has come. Nobody can take it again, but its server is still being signed in to, until
    /// [`Pending::finished`].
    pub(crate) fn take(&mut self, state: &str) -> Option<PendingAttempt> {
        let attempt = self.attempts.remove(state)?;
        self.finishing.insert(state.to_owned(), (attempt.protected.key.clone(), attempt.expires_at));
        Some(attempt)
    }

    /// The tokens of an attempt have come, or will not.
    pub(crate) fn finished(&mut self, state: &str) {
        self.finishing.remove(state);
    }

    /// When the last attempt of a key expires, if any has not yet.
    pub(crate) fn expires_at(&self, key: &str) -> Option<SystemTime> {
        let now = SystemTime::now();
        let begun = self.attempts.values().map(|attempt| (&attempt.protected.key, attempt.expires_at));
        let finishing = self.finishing.values().map(|(key, expires_at)| (key, *expires_at));
        let of_key = begun.chain(finishing).filter(|(of, _)| *of == key);
        of_key.map(|(_, expires_at)| expires_at).filter(|&end| end > now).max()
    }

    pub(crate) fn insert(&mut self, state: String, attempt: PendingAttempt) {
        // An expired one is kept for a while, so that its redirect is told that it is late.
        let forgotten = SystemTime::now() - ATTEMPT_LIFETIME;
        self.attempts.retain(|_, attempt| attempt.expires_at > forgotten);
        if self.attempts.len() >= MAX_ATTEMPTS {
            let oldest =
                self.attempts.iter().min_by_key(|(_, attempt)| attempt.expires_at).map(|(state, _)| state.clone());
            oldest.and_then(|oldest| self.attempts.remove(&oldest));
        }
        self.failed.remove(&attempt.protected.key);
        self.attempts.insert(state, attempt);
    }
}
