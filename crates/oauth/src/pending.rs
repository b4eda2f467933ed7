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
        self.failed.remove(key);
    }

    /// When the last attempt of a key expires, if any has not yet.
    pub(crate) fn expires_at(&self, key: &str) -> Option<SystemTime> {
        let now = SystemTime::now();
        let of_key = self.attempts.values().filter(|attempt| attempt.protected.key == key);
        of_key.map(|attempt| attempt.expires_at).filter(|&end| end > now).max()
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
