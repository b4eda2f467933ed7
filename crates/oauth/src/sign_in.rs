//! All sign-ins of a process: begin, finish, log out, observe.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use tokio::sync::broadcast;

use crate::error::{CallbackError, FlowError, Step};
use crate::fetch::Fetch;
use crate::flow::authorization::{self, Authorization, Redirect};
use crate::flow::discovery::Evidence;
use crate::grant::{AuthorizationServer, ClientSource, Grant};
use crate::pending::{ATTEMPT_LIFETIME, PendingAttempt};
use crate::protected::Protected;
use crate::secret::Secret;
use crate::shared::Shared;
use crate::source::TokenSource;
use crate::store::{GrantStore, Replaced};

/// How many changes a subscriber may lag behind.
const CHANGE_BUFFER: usize = 1024;

/// All sign-ins of a process.
#[derive(Debug)]
pub struct OAuth {
    shared: Arc<Shared>,
    changes: broadcast::Sender<Change>,
    sources: Mutex<HashMap<String, Weak<TokenSource>>>,
}

/// How this program presents itself to authorization servers.
#[derive(Debug, Clone)]
pub struct OAuthOptions {
    /// The name that people see on the authorization page.
    pub client_name: String,
    /// The version of this program.
    pub client_version: String,
    /// The public address of our client ID metadata document, if there is one. Settings of a server override it.
    pub client_metadata_url: Option<String>,
    /// What follows `mcp-aggregator login NAME` to sign in to a server of this program, such as `--config mcp.json`.
    pub login_arguments: String,
}

impl OAuthOptions {
    /// Those of a service of this version.
    pub fn new(version: &str) -> Self {
        Self {
            client_name: "mcp-aggregator".to_owned(),
            client_version: version.to_owned(),
            client_metadata_url: None,
            login_arguments: String::new(),
        }
    }

    /// The command that signs in to a server.
    pub fn login_command(&self, server: &str) -> String {
        let command = format!("{} {}", catalog::login_command(server), self.login_arguments);
        command.trim_end().to_owned()
    }
}

/// A sign-in that has begun: the user has to open the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The page of the authorization server. It contains the state of this attempt.
    pub authorization_url: String,
    /// When the attempt expires.
    pub expires_at: SystemTime,
}

/// A completed sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedIn {
    /// Where it is stored.
    pub key: String,
    /// The name of the server.
    pub server: String,
    /// The authorization server.
    pub issuer: String,
    /// The scopes that were granted.
    pub scopes: Vec<String>,
}

/// The state of the sign-in to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginState {
    /// Nobody has signed in.
    None,
    /// An attempt has begun, and the redirect has not come back.
    Pending {
        /// When it expires.
        expires_at: SystemTime,
    },
    /// The last attempt failed, or the sign-in has ended.
    Failed {
        /// Why.
        error: String,
    },
    /// Somebody has signed in.
    SignedIn {
        /// The authorization server.
        issuer: String,
        /// The scopes that were granted.
        scopes: Vec<String>,
    },
}

/// The outcome of a logout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedOut {
    /// There was no sign-in.
    NotSignedIn,
    /// It is forgotten here; the authorization server offers no revocation.
    Forgotten,
    /// It is forgotten here and revoked there.
    Revoked,
    /// It is forgotten here, but the revocation failed.
    NotRevoked(Box<FlowError>),
}

/// A sign-in or sign-out of a key, in this process or in another one that shares the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where the sign-in is stored.
    pub key: String,
    /// What happened.
    pub kind: ChangeKind,
}

/// What happened to a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Somebody signed in.
    SignedIn,
    /// Somebody signed out.
    SignedOut,
    /// The sign-in has ended by itself: somebody has to sign in again.
    SignInRequired,
}

/// Ends, when dropped, that an attempt is being finished.
struct FinishingGuard {
    shared: Arc<Shared>,
    state: String,
}

impl Drop for FinishingGuard {
    fn drop(&mut self) {
        self.shared.pending().finished(&self.state);
    }
}

impl OAuth {
    /// The sign-ins in that store.
    pub fn new(fetch: Arc<dyn Fetch>, store: Arc<dyn GrantStore>, options: OAuthOptions) -> Arc<Self> {
        let changes = broadcast::Sender::new(CHANGE_BUFFER);
        let shared = Shared::new(fetch, store, options, changes.clone());
        Arc::new(Self { shared, changes, sources: Mutex::default() })
    }

    /// The tokens for a server. All who ask for the same one share them.
    pub fn source(&self, protected: Protected) -> Arc<TokenSource> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sources.get(&protected.key).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| *known.protected() == protected) {
            return known;
        }
        sources.retain(|_, source| source.strong_count() > 0);
        let source = TokenSource::new(Arc::clone(&self.shared), protected);
        sources.insert(source.protected().key.clone(), Arc::downgrade(&source));
        source
    }

    /// Begins a sign-in: finds the authorization server, and registers there if necessary. `redirect_uri` is ours; the
    /// address in the settings of the server takes precedence.
    pub async fn begin(&self, protected: &Protected, redirect_uri: &str) -> Result<Attempt, FlowError> {
        if protected.settings.grant == catalog::GrantType::ClientCredentials {
            let problem = "this server needs no person: it uses `client_credentials`";
            return Err(FlowError::new(Step::Authorization, problem));
        }
        let redirect_uri = protected.redirect_uri().unwrap_or_else(|| redirect_uri.to_owned());
        let last = self.shared.store.load(&protected.key).await?.map(|(_, grant)| grant);
        let (challenge, is_refused) = self.shared.challenge(protected).await?;
        let found = self.shared.discover(protected, &challenge).await?;
        if found.evidence == Evidence::Assumed && !is_refused {
            let problem = "the server does not ask for a sign-in, and publishes no way to sign in";
            return Err(FlowError::new(Step::Challenge, problem).at(&protected.url));
        }
        authorization::require_pkce(&found)?;
        let client = self.shared.identify(protected, &found.server, &redirect_uri, last.as_ref()).await?;
        let before = scopes_before(protected, last.as_ref(), &found.server.issuer);
        let scopes = authorization::scopes(&protected.settings, &challenge, &found, &before);
        let resource = authorization::resource(protected, &found);
        let (state, verifier) = (crate::random(), Secret::from(crate::random()));
        let authorization = Authorization {
            client_id: &client.id,
            redirect_uri: &redirect_uri,
            scopes: &scopes,
            resource: resource.as_deref(),
            state: &state,
            verifier: &verifier,
        };
        let authorization_url = authorization.url(&found.server)?;
        let expires_at = SystemTime::now() + ATTEMPT_LIFETIME;
        let server = AuthorizationServer {
            issuer: found.server.issuer,
            token_endpoint: found.server.token_endpoint,
            revocation_endpoint: found.server.revocation_endpoint,
        };
        let attempt = PendingAttempt {
            protected: protected.clone(),
            server,
            has_iss_parameter: found.server.has_iss_parameter,
            client,
            redirect_uri,
            verifier,
            scopes,
            resource,
            expires_at,
        };
        self.shared.pending().insert(state, attempt);
        Ok(Attempt { authorization_url, expires_at })
    }

    /// Completes the sign-in that a redirect belongs to. `query` is its query string, without the question mark.
    pub async fn finish(&self, query: &str) -> Result<SignedIn, CallbackError> {
        let redirect = Redirect::parse(query).ok_or(CallbackError::Unknown)?;
        let (attempt, _finishing) = self.take_attempt(&redirect)?;
        let key = attempt.protected.key.clone();
        let finished = self.finish_attempt(attempt, &redirect).await;
        // Before the attempt stops being pending: whoever asks gets one of both.
        match &finished {
            Ok(_) => self.shared.report(&key, ChangeKind::SignedIn),
            Err(error) => drop(self.shared.pending().failed.insert(key, error.to_string())),
        }
        finished
    }

    /// The attempt that a redirect belongs to. It is used up by this, whatever comes of it, but not by a redirect of
    /// another authorization server: the true one may still come.
    fn take_attempt(&self, redirect: &Redirect) -> Result<(PendingAttempt, FinishingGuard), CallbackError> {
        let state = redirect.state.as_ref().ok_or(CallbackError::Unknown)?;
        let mut pending = self.shared.pending();
        let attempt = pending.attempts.get(state).ok_or(CallbackError::Unknown)?;
        if let Some(problem) = redirect.problem_with_issuer(&attempt.server.issuer, attempt.has_iss_parameter) {
            return Err(CallbackError::ForeignIssuer { server: attempt.protected.server.to_string(), problem });
        }
        let attempt = pending.take(state).ok_or(CallbackError::Unknown)?;
        Ok((attempt, FinishingGuard { shared: Arc::clone(&self.shared), state: state.clone() }))
    }

    async fn finish_attempt(&self, attempt: PendingAttempt, redirect: &Redirect) -> Result<SignedIn, CallbackError> {
        let server = attempt.protected.server.to_string();
        if attempt.expires_at <= SystemTime::now() {
            return Err(CallbackError::Expired { server });
        }
        if let Some(error) = redirect.error() {
            return Err(CallbackError::Denied { server, error });
        }
        let failed = |error: FlowError| CallbackError::Failed { server: server.clone(), error: Box::new(error) };
        let code = redirect.code.clone();
        let code = code.ok_or_else(|| failed(FlowError::new(Step::Callback, "the redirect contains no code")))?;
        let _activity = self.shared.activity();
        let mut parameters = vec![
            ("grant_type", "authorization_code".into()),
            ("code", code),
            ("redirect_uri", attempt.redirect_uri.as_str().into()),
            ("code_verifier", attempt.verifier.clone()),
        ];
        parameters.extend(attempt.resource.as_ref().map(|resource| ("resource", resource.as_str().into())));
        let PendingAttempt { protected, server: at, client, scopes, .. } = &attempt;
        let tokens = self.shared.request_tokens(Step::TokenRequest, protected, at, client, parameters, scopes).await;
        let grant = Grant {
            server_url: attempt.protected.url.clone(),
            authorization_server: attempt.server,
            client: attempt.client,
            resource: attempt.resource,
            requested_scopes: attempt.scopes,
            missing_scopes: Vec::new(),
            tokens: tokens.map_err(failed)?,
            refresh: None,
            sign_in_required: None,
        };
        let key = attempt.protected.key.clone();
        let signed_in = SignedIn {
            key: key.clone(),
            server: server.clone(),
            issuer: grant.authorization_server.issuer.clone(),
            scopes: grant.tokens.scopes.clone(),
        };
        self.keep(&key, Some(grant)).await.map_err(failed)?;
        Ok(signed_in)
    }

    /// Stores a grant in place of whatever is there.
    async fn keep(&self, key: &str, grant: Option<Grant>) -> Result<(), FlowError> {
        loop {
            let current = self.shared.store.load(key).await?.map(|(version, _)| version);
            if grant.is_none() && current.is_none() {
                return Ok(());
            }
            if let Replaced::Stored(version) = self.shared.save(key, current, grant.as_ref()).await? {
                if let Some(source) = self.known_source(key) {
                    source.adopt(version.zip(grant));
                }
                return Ok(());
            }
        }
    }

    /// The state of the sign-in to a server: an attempt that is pending, else a sign-in that can be used, else why the
    /// last attempt failed or the sign-in has ended. A store that cannot be read is an error.
    pub async fn login_state(&self, key: &str) -> Result<LoginState, FlowError> {
        if let Some(expires_at) = self.shared.pending().expires_at(key) {
            return Ok(LoginState::Pending { expires_at });
        }
        let ended = match self.shared.store.load(key).await? {
            Some((_, Grant { sign_in_required: None, authorization_server, tokens, .. })) => {
                return Ok(LoginState::SignedIn { issuer: authorization_server.issuer, scopes: tokens.scopes });
            }
            ended => ended.and_then(|(_, grant)| grant.sign_in_required),
        };
        let failed = self.shared.pending().failed.get(key).cloned();
        Ok(failed.or(ended).map_or(LoginState::None, |error| LoginState::Failed { error }))
    }

    /// Revokes the tokens where that is offered, and forgets them.
    pub async fn logout(&self, protected: &Protected) -> Result<LoggedOut, FlowError> {
        let _activity = self.shared.activity();
        let lock = self.shared.lock_of(&protected.key);
        let _alone = lock.lock().await;
        self.shared.pending().settle(&protected.key);
        self.shared.forget_challenge(&protected.key);
        let Some((_, grant)) = self.shared.store.load(&protected.key).await? else {
            return Ok(LoggedOut::NotSignedIn);
        };
        let outcome = match &grant.authorization_server.revocation_endpoint {
            None => LoggedOut::Forgotten,
            Some(endpoint) => match self.shared.revoke(protected, &grant, endpoint).await {
                Ok(()) => LoggedOut::Revoked,
                Err(error) => LoggedOut::NotRevoked(Box::new(error)),
            },
        };
        self.keep(&protected.key, None).await?;
        self.shared.report(&protected.key, ChangeKind::SignedOut);
        let source = self.known_source(&protected.key).map_or_else(Weak::new, |source| Arc::downgrade(&source));
        self.shared.watch_for_sign_in(&protected.key, None, source);
        Ok(outcome)
    }

    /// The redirect address of the last sign-in, if its client was registered for it: using it again needs no new
    /// registration.
    pub async fn last_redirect_uri(&self, key: &str) -> Option<String> {
        let (_, grant) = self.shared.store.load(key).await.ok()??;
        grant.client.redirect_uri.filter(|_| grant.client.source == ClientSource::Registered)
    }

    /// Reports sign-ins and sign-outs from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// The server of a key is gone: nobody waits for a sign-in to it any more.
    pub fn forget(&self, key: &str) {
        self.shared.waiting.remove(key);
    }

    /// Waits until no refresh is in flight, within the time limit of one. Call it before the program exits: a refresh
    /// that is interrupted costs the sign-in.
    pub async fn drain(&self) {
        self.shared.drain().await;
    }

    /// Whether the store is read from time to time.
    #[cfg(test)]
    pub(crate) fn is_watching(&self) -> bool {
        self.shared.waiting.is_watched()
    }

    /// As if ten minutes had passed.
    #[cfg(test)]
    pub(crate) fn expire_attempts(&self) {
        self.shared.pending().attempts.values_mut().for_each(|attempt| attempt.expires_at = SystemTime::now());
    }

    fn known_source(&self, key: &str) -> Option<Arc<TokenSource>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).get(key).and_then(Weak::upgrade)
    }
}

/// The scopes of earlier sign-ins at the same authorization server that the next one asks for again, and those that
/// were missing.
fn scopes_before(protected: &Protected, last: Option<&Grant>, issuer: &str) -> Vec<String> {
    let last = last.filter(|last| last.authorization_server.issuer == issuer);
    let requested = last.filter(|_| protected.settings.scopes.is_none()).map(|last| &last.requested_scopes);
    let missing = last.map(|last| &last.missing_scopes);
    [requested, missing].into_iter().flatten().flatten().cloned().collect()
}
