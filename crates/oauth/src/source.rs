//! The `Authorization` header for one server, kept fresh.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::error::{FlowErrorKind, TokenError};
use crate::flow::challenge::Challenge;
use crate::flow::discovery::Evidence;
use crate::grant::{Grant, unix_now};
use crate::protected::Protected;
use crate::shared::Shared;
use crate::sign_in::ChangeKind;
use crate::store::{Replaced, Version};

/// How often the store is read for what other processes did, unless the server waits for a sign-in.
const STORE_INTERVAL: Duration = Duration::from_secs(30);
/// The delay after a refresh that failed for now; it doubles with each further failure, up to the maximum.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Tokens with very short lifetimes are not looked at more often than this.
const MIN_PAUSE: Duration = Duration::from_millis(200);
/// How long it is known whether a server without a challenge offers a sign-in.
const OFFER_LIFETIME: Duration = Duration::from_secs(60);

/// The `Authorization` header for one server. All connections to it share one.
#[derive(Debug)]
pub struct TokenSource {
    protected: Protected,
    shared: Arc<Shared>,
    header: RwLock<Option<HeaderValue>>,
    state: Mutex<State>,
    /// Wakes the task that refreshes ahead of time.
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    version: Option<Version>,
    is_signed_in: bool,
    /// When to refresh, in seconds since 1970.
    refresh_at: Option<u64>,
    /// Whether the task that refreshes is running.
    is_watched: bool,
    /// A header that the server refused although it was fresh: refreshing again would not help.
    refused: Option<HeaderValue>,
    /// How often a token was renewed, and how it ended.
    attempts: u64,
    last_error: Option<TokenError>,
    /// Whether the server offers a sign-in, as of then.
    offer: Option<(Instant, Option<TokenError>)>,
}

impl TokenSource {
    pub(crate) fn new(shared: Arc<Shared>, protected: Protected) -> Arc<Self> {
        let (header, state) = (RwLock::default(), Mutex::default());
        Arc::new(Self { protected, shared, header, state, wake: Arc::default() })
    }

    /// The server.
    pub fn protected(&self) -> &Protected {
        &self.protected
    }

    /// The command that signs in to the server.
    pub fn login_command(&self) -> String {
        self.shared.options.login_command(self.protected.server.as_str())
    }

    /// The header for the next request, if there is a token. Neither waits nor does any I/O.
    pub fn header(&self) -> Option<HeaderValue> {
        self.header.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the stored sign-in, so that [`header`](Self::header) has it, and starts to keep it fresh. Call it before
    /// the first request.
    pub async fn prepare(self: &Arc<Self>) {
        if let Err(error) = self.reread().await {
            tracing::warn!(server = %self.protected.server, %error, "failed to read the stored sign-in");
        }
        if !std::mem::replace(&mut self.lock().is_watched, true) {
            tokio::spawn(keep_fresh(Arc::downgrade(self), Arc::clone(&self.wake)));
        }
    }

    /// The server answered 401 to a request with the header `used`. Returns the header for the same request once more;
    /// all callers share one refresh.
    pub async fn after_unauthorized(
        self: &Arc<Self>,
        used: Option<&HeaderValue>,
        www_authenticate: &[String],
    ) -> Result<HeaderValue, TokenError> {
        let header = self.renew_refused(used, Challenge::parse(www_authenticate)).await;
        if let Err(TokenError::SignInRequired { .. }) = &header {
            self.watch_for_sign_in();
        }
        header
    }

    async fn renew_refused(
        self: &Arc<Self>,
        used: Option<&HeaderValue>,
        challenge: Challenge,
    ) -> Result<HeaderValue, TokenError> {
        if challenge.is_other_scheme && used.is_none() {
            return Err(TokenError::NotOffered);
        }
        if let Some(header) = self.header().filter(|header| Some(header) != used) {
            return Ok(header);
        }
        self.shared.note_challenge(&self.protected, challenge);
        let attempts = {
            let state = self.lock();
            if used.is_some() && state.refused.as_ref() == used {
                return Err(refused());
            }
            state.attempts
        };
        // A caller may give up at any time, a refresh must not.
        let (source, used) = (Arc::clone(self), used.cloned());
        let renewing = tokio::spawn(async move { source.renew(used.as_ref(), attempts).await });
        match renewing.await {
            Ok(renewed) => renewed,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The program is stopping.
            Err(_) => Err(TokenError::SignInRequired { why: "the program is stopping".to_owned() }),
        }
    }

    /// The server answered 401 again, to a request with the header that [`after_unauthorized`](Self::after_unauthorized)
    /// returned. Until there is another token, it is not refreshed for this server again.
    pub fn after_refusal(self: &Arc<Self>, used: &HeaderValue) -> TokenError {
        self.lock().refused = Some(used.clone());
        self.watch_for_sign_in();
        refused()
    }

    /// The server answered 403 with `error="insufficient_scope"` to a request with the header `used`. Returns the header
    /// for the same request once more if there has been another sign-in since; otherwise records the scopes for the
    /// next one. `None` if the challenge is about something else.
    pub async fn after_insufficient_scope(
        &self,
        used: Option<&HeaderValue>,
        www_authenticate: &[String],
    ) -> Option<Result<HeaderValue, TokenError>> {
        let challenge = Challenge::parse(www_authenticate);
        if !challenge.wants_more_scopes() {
            return None;
        }
        // The person may have signed in with another process.
        self.take_up_stored().await;
        let header = self.header()?;
        if Some(&header) != used {
            return Some(Ok(header));
        }
        // These are for the next sign-in in addition: what the server said in its 401 still holds.
        let wanted = challenge.scopes.unwrap_or_default();
        if let Err(error) = self.add_missing_scopes(&wanted).await {
            tracing::warn!(server = %self.protected.server, %error, "failed to store the scopes of the next sign-in");
        }
        let shown = crate::error::excerpt(wanted.join(" ").as_bytes());
        let why = if shown.is_empty() {
            "this needs more rights than the sign-in includes".to_owned()
        } else {
            format!("this needs more rights than the sign-in includes (scopes: {shown})")
        };
        Some(Err(TokenError::SignInRequired { why }))
    }

    pub(crate) async fn add_missing_scopes(&self, wanted: &[String]) -> Result<(), crate::StoreError> {
        loop {
            let Some((version, mut grant)) = self.shared.store.load(&self.protected.key).await? else { return Ok(()) };
            let before = grant.missing_scopes.len();
            for scope in wanted {
                if !grant.requested_scopes.contains(scope) && !grant.missing_scopes.contains(scope) {
                    grant.missing_scopes.push(scope.clone());
                }
            }
            if grant.missing_scopes.len() == before {
                return Ok(());
            }
            let replaced = self.shared.store.replace(&self.protected.key, Some(version), Some(grant)).await?;
            if let Replaced::Stored(stored) = replaced {
                let mut state = self.lock();
                // Tokens that another process has stored meanwhile are still to be taken up.
                if state.version == Some(version) {
                    state.version = stored;
                }
                return Ok(());
            }
        }
    }

    /// Renews the token, unless another task has just done that. `attempts` is what the caller has seen.
    async fn renew(self: &Arc<Self>, used: Option<&HeaderValue>, attempts: u64) -> Result<HeaderValue, TokenError> {
        let _activity = self.shared.activity();
        let lock = self.shared.lock_of(&self.protected.key);
        let _alone = lock.lock().await;
        if let Some(header) = self.header().filter(|header| Some(header) != used) {
            return Ok(header);
        }
        {
            let state = self.lock();
            if let Some(error) = state.last_error.clone().filter(|_| state.attempts != attempts) {
                return Err(error);
            }
        }
        let challenge = self.shared.last_challenge(&self.protected).unwrap_or_default();
        let renewed = self.renew_alone(used, &challenge).await;
        let mut state = self.lock();
        state.attempts += 1;
        state.last_error = renewed.as_ref().err().cloned();
        renewed
    }

    async fn renew_alone(
        self: &Arc<Self>,
        used: Option<&HeaderValue>,
        challenge: &Challenge,
    ) -> Result<HeaderValue, TokenError> {
        let renewed = self.shared.renew(&self.protected, used, challenge).await?;
        let is_stored = renewed.stored.is_some();
        // Requests that wait for a token continue anyway, so a new token is not reported, only the end of a sign-in.
        let change = self.adopt(renewed.stored).filter(|change| *change != ChangeKind::SignedIn);
        if let Some(change) = change {
            self.shared.report(&self.protected.key, change);
        }
        match renewed.problem {
            None => self.header().ok_or_else(|| TokenError::SignInRequired { why: "there is no token".to_owned() }),
            Some(problem) if is_stored || challenge.is_bearer => Err(problem),
            // Nobody has signed in, and the server does not say that anybody could.
            Some(problem) => Err(self.offer(challenge).await.unwrap_or(problem)),
        }
    }

    /// Why the server offers no sign-in; `None` if it does.
    async fn offer(&self, challenge: &Challenge) -> Option<TokenError> {
        if let Some((_, known)) = self.lock().offer.clone().filter(|(at, _)| at.elapsed() < OFFER_LIFETIME) {
            return known;
        }
        let offer = match self.shared.discover(&self.protected, challenge).await {
            Ok(found) if found.evidence == Evidence::Assumed => Some(TokenError::NotOffered),
            Ok(_) => None,
            Err(error) if error.kind == FlowErrorKind::Final => {
                Some(TokenError::SignInRequired { why: error.to_string() })
            }
            Err(error) => {
                tracing::debug!(server = %self.protected.server, %error, "failed to look for a way to sign in");
                return Some(TokenError::NotOffered);
            }
        };
        self.lock().offer = Some((Instant::now(), offer.clone()));
        offer
    }

    /// Uses what is stored now. Returns what has changed.
    pub(crate) fn adopt(&self, stored: Option<(Version, Grant)>) -> Option<ChangeKind> {
        let stored = stored.filter(|(_, grant)| grant.is_for(&self.protected));
        let grant = stored.as_ref().map(|(_, grant)| grant);
        let is_signed_in = grant.is_some_and(|grant| grant.sign_in_required.is_none());
        let usable = grant.filter(|grant| is_signed_in || !grant.tokens.is_expired(unix_now()));
        *self.header.write().unwrap_or_else(PoisonError::into_inner) = usable.and_then(|grant| grant.tokens.header());
        let mut state = self.lock();
        let can_refresh = |grant: &&Grant| {
            grant.tokens.refresh_token.is_some()
                || self.protected.settings.grant == catalog::GrantType::ClientCredentials
        };
        state.refresh_at =
            grant.filter(|_| is_signed_in).filter(can_refresh).and_then(|grant| grant.tokens.refresh_at());
        state.version = stored.as_ref().map(|(version, _)| *version);
        let was_signed_in = std::mem::replace(&mut state.is_signed_in, is_signed_in);
        drop(state);
        self.wake.notify_one();
        match (was_signed_in, is_signed_in) {
            (false, true) => Some(ChangeKind::SignedIn),
            (true, false) if stored.is_some() => Some(ChangeKind::SignInRequired),
            (true, false) => Some(ChangeKind::SignedOut),
            _ => None,
        }
    }

    /// Reads the store. Returns what has changed.
    async fn reread(&self) -> Result<Option<ChangeKind>, crate::StoreError> {
        let stored = self.shared.store.load(&self.protected.key).await?;
        let version = stored.as_ref().map(|(version, _)| *version);
        if version == self.lock().version {
            return Ok(None);
        }
        Ok(self.adopt(stored))
    }

    /// The same. First removes a mark of ours whose request was not sent: other processes would wait for it in vain.
    async fn reread_without_unsent_mark(&self) -> Result<Option<ChangeKind>, crate::StoreError> {
        if self.shared.has_unsent_mark(&self.protected.key) {
            let lock = self.shared.lock_of(&self.protected.key);
            let _alone = lock.lock().await;
            self.shared.remove_unsent_mark(&self.protected.key).await?;
        }
        self.reread().await
    }

    /// Uses what is stored now, after a refresh that is under way. Returns what has changed; a store that cannot be
    /// read changes nothing.
    pub(crate) async fn take_up_stored(&self) -> Option<ChangeKind> {
        let lock = self.shared.lock_of(&self.protected.key);
        let _alone = lock.lock().await;
        self.reread().await.unwrap_or_else(|error| {
            tracing::warn!(server = %self.protected.server, %error, "failed to read the stored sign-in");
            None
        })
    }

    /// Has a sign-in of another process reported, whether or not there will still be a connection to the server then.
    pub(crate) fn watch_for_sign_in(self: &Arc<Self>) {
        let seen = self.lock().version;
        self.shared.watch_for_sign_in(&self.protected.key, seen, Arc::downgrade(self));
    }

    /// How long to wait until something may have to be done.
    fn pause(&self, failures: u32) -> Duration {
        if failures > 0 {
            return (MIN_RETRY_DELAY * 2_u32.saturating_pow(failures - 1)).min(MAX_RETRY_DELAY);
        }
        let state = self.lock();
        let until_due = state.refresh_at.map(|at| Duration::from_secs(at.saturating_sub(unix_now())));
        until_due.unwrap_or(STORE_INTERVAL).clamp(MIN_PAUSE, STORE_INTERVAL)
    }

    /// Refreshes the token if that is due, and looks for what other processes did. False if it failed for now.
    async fn look_ahead(self: &Arc<Self>) -> bool {
        let (is_due, attempts) = {
            let state = self.lock();
            (state.refresh_at.is_some_and(|at| at <= unix_now()), state.attempts)
        };
        if is_due {
            let used = self.header();
            // The caller is a task of its own, which nobody cancels.
            let renewed = self.renew(used.as_ref(), attempts).await;
            if let Err(TokenError::SignInRequired { .. }) = &renewed {
                self.watch_for_sign_in();
            }
            // An end is settled; whatever else failed is tried again, later and later.
            return matches!(renewed, Ok(_) | Err(TokenError::SignInRequired { .. }));
        }
        match self.reread_without_unsent_mark().await {
            Ok(change) => {
                if let Some(change) = change {
                    self.shared.report(&self.protected.key, change);
                    if change != ChangeKind::SignedIn {
                        self.watch_for_sign_in();
                    }
                }
                true
            }
            Err(error) => {
                tracing::debug!(server = %self.protected.server, %error, "failed to read the stored sign-in");
                false
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused() -> TokenError {
    TokenError::SignInRequired { why: "the server refuses a token that was just issued for it".to_owned() }
}

/// Keeps the token fresh for as long as anybody uses its source.
async fn keep_fresh(source: Weak<TokenSource>, wake: Arc<Notify>) {
    let mut failures = 0_u32;
    loop {
        let Some(pause) = source.upgrade().map(|source| source.pause(failures)) else { return };
        tokio::select! {
            () = sleep(pause) => {
                let Some(source) = source.upgrade() else { return };
                failures = if source.look_ahead().await { 0 } else { failures.saturating_add(1) };
            }
            // Something has changed: wait anew.
            () = wake.notified() => failures = 0,
        }
    }
}
