//! Signing in to servers, and out of them, for administrators; and what that means for their supervisors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, UNIX_EPOCH};

use aggregator::{SignInFuture, SignInHost, grant_key_of, grant_key_of_server};
use catalog::{LoopbackRedirect, Principal, Share};
use oauth::{CallbackError, Change, ChangeKind, LoggedOut, LoginState, Network, OAuth, Protected, SignedIn};
use registry::{Actor, AuditNote, ServerId, ServerRecord, Timestamp};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;

use crate::context::ServiceContext;
use crate::supervisor::{Command, CurrentState, ServerStatus, SupervisorHandle};
use crate::{Error, Event, Service, grant_store, spec, to_the_end};

/// How many sign-ins are remembered with who started them.
const MAX_INITIATORS: usize = 1000;

/// Who started a sign-in, if an MCP client without a token did.
const MCP_ACTOR: &str = "mcp client";

/// What the service needs for sign-ins.
#[derive(Debug, Clone)]
pub struct SignInSetup {
    /// The sign-ins of this process.
    pub oauth: Arc<OAuth>,
    /// Our own address that a browser is sent back to.
    pub redirect_uri: String,
    /// The same address for browsers of this machine, where we listen.
    pub local_redirect_uri: String,
    /// Where requests for the sign-in of a registered server may go. Servers of the config file may go anywhere.
    pub network: Network,
}

/// The sign-ins of the service.
#[derive(Debug)]
pub(crate) struct SignIns {
    pub(crate) setup: SignInSetup,
    /// Who started a sign-in, by its `state`, for the audit log.
    initiators: Mutex<HashMap<String, Initiator>>,
}

/// Who started a sign-in to which server.
#[derive(Debug)]
struct Initiator {
    by: Actor,
    server: ServerId,
    at: Instant,
}

/// A sign-in that was started.
#[derive(Debug, Clone, Serialize)]
pub struct SignInAttempt {
    /// The page at which the user continues.
    pub authorization_url: String,
    /// When the attempt expires.
    pub expires_at: Timestamp,
}

/// How far the sign-in of a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignInView {
    /// `none`, `pending`, `failed` or `signed_in`.
    pub state: &'static str,
    /// Why the last attempt failed, or why the sign-in has ended.
    pub error: Option<String>,
    /// Where the browser is sent back to: the address that the user configured for the server, else ours. None if
    /// nobody can sign in to the server.
    pub redirect_uri: Option<String>,
    /// Whether that is a loopback address at which we do not listen, so that a command has to.
    pub needs_listener: bool,
}

/// The outcome of a redirect back to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Returned {
    /// The user is signed in to this server.
    SignedIn {
        /// Its name.
        server: String,
    },
    /// The redirect belongs to no sign-in of ours. Nothing was changed.
    Rejected {
        /// Why, without anything that the redirect contained.
        why: String,
    },
    /// The sign-in failed.
    Failed {
        /// Why.
        why: String,
    },
}

impl SignIns {
    pub(crate) fn new(setup: SignInSetup) -> Self {
        Self { setup, initiators: Mutex::default() }
    }

    fn initiators(&self) -> MutexGuard<'_, HashMap<String, Initiator>> {
        self.initiators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, authorization_url: &str, by: &Actor, server: ServerId) {
        let Some(state) = state_in(authorization_url.split_once('?').map_or("", |(_, query)| query)) else { return };
        let mut initiators = self.initiators();
        if initiators.len() >= MAX_INITIATORS
            && let Some(oldest) =
                initiators.iter().min_by_key(|(_, initiator)| initiator.at).map(|(state, _)| state.clone())
        {
            initiators.remove(&oldest);
        }
        initiators.insert(state.to_owned(), Initiator { by: by.clone(), server, at: Instant::now() });
    }

    /// Takes whoever started the sign-in that a redirect belongs to.
    fn take_initiator(&self, query: &str) -> Option<Initiator> {
        self.initiators().remove(state_in(query)?)
    }

    /// Puts it back: the redirect was rejected, and the true one may still come.
    fn put_back(&self, query: &str, initiator: Option<Initiator>) {
        if let (Some(state), Some(initiator)) = (state_in(query), initiator) {
            self.initiators().insert(state.to_owned(), initiator);
        }
    }

    /// Whether the browser is sent back to a loopback address that the user configured, and at which we do not listen.
    fn needs_listener(&self, protected: &Protected) -> bool {
        let Some(configured) = protected.redirect_uri() else { return false };
        // An address elsewhere may lead to us, through a proxy.
        let Some(redirect) = LoopbackRedirect::parse(&configured) else { return false };
        let ours = [&self.setup.redirect_uri, &self.setup.local_redirect_uri];
        !ours.iter().filter_map(|ours| LoopbackRedirect::parse(ours)).any(|ours| redirect.leads_to(&ours))
    }

    /// What a sign-in to a server needs.
    ///
    /// A server with instances has a sign-in of its own, with which it is listed, and one for each identity.
    fn protected_for(&self, by: &Principal, current: &CurrentState) -> Result<Protected, Error> {
        let protected = self.protected(&current.record)?;
        match has_own_sign_in(by, current) {
            true => Ok(Protected { key: grant_key_of(&protected.key, by), ..protected }),
            false => Ok(protected),
        }
    }

    /// What the sign-in of a server itself needs.
    fn protected(&self, record: &ServerRecord) -> Result<Protected, Error> {
        let failed = |why: String| Error::SignInNotSupported { name: record.name.clone(), why };
        let spec = spec::resolve(record).map_err(failed)?;
        let is_remote = matches!(spec.transport, catalog::Transport::Remote(_));
        let protected = spec::protected_within(self.setup.network)(&spec);
        protected.ok_or_else(|| {
            failed(match is_remote {
                true => {
                    "its configuration has credentials or turns sign-ins off; remove the `Authorization` header, or \
                         `grant` in `oauth`"
                        .to_owned()
                }
                false => "it is not reached over HTTP".to_owned(),
            })
        })
    }
}

impl Service {
    /// Starts a sign-in to a server; the user continues at the address. `redirect_uri` replaces our own address.
    pub async fn begin_sign_in(
        &self,
        by: &Actor,
        id_or_name: &str,
        redirect_uri: Option<String>,
    ) -> Result<SignInAttempt, Error> {
        let handle = self.context.find(id_or_name)?;
        let (context, by) = (Arc::clone(&self.context), by.clone());
        to_the_end(async move { context.begin_sign_in(&handle, &by, redirect_uri).await }).await
    }

    /// How far the sign-in of a server is.
    pub async fn sign_in_state(&self, id_or_name: &str) -> Result<SignInView, Error> {
        let record = self.context.find(id_or_name)?.current().record.clone();
        let Some(sign_ins) = &self.context.sign_ins else {
            return Ok(SignInView::from(LoginState::None));
        };
        let state = sign_ins.setup.oauth.login_state(&spec::grant_key(&record)).await;
        let state =
            state.map_err(|error| Error::SignInFailed { name: record.name.clone(), message: error.to_string() })?;
        let protected = sign_ins.protected(&record).ok();
        let needs_listener = protected.as_ref().is_some_and(|protected| sign_ins.needs_listener(protected));
        let redirect_uri = protected.map(|it| it.redirect_uri().unwrap_or_else(|| sign_ins.setup.redirect_uri.clone()));
        Ok(SignInView { redirect_uri, needs_listener, ..SignInView::from(state) })
    }

    /// Signs out of a server: revokes the tokens where that is offered, and forgets them. Returns what could not be
    /// revoked, as a sentence.
    pub async fn sign_out(&self, by: &Actor, id_or_name: &str) -> Result<Option<String>, Error> {
        let handle = self.context.find(id_or_name)?;
        let (context, by) = (Arc::clone(&self.context), by.clone());
        to_the_end(async move { context.sign_out(&handle, &by).await }).await
    }

    /// Completes the sign-in that a redirect belongs to. `query` is its query string.
    pub async fn finish_sign_in(&self, query: &str) -> Returned {
        let (context, query) = (Arc::clone(&self.context), query.to_owned());
        to_the_end(async move { context.finish_sign_in(&query).await }).await
    }
}

impl ServiceContext {
    fn sign_ins_for(&self, record: &ServerRecord) -> Result<&SignIns, Error> {
        let why = "this program has no support for it".to_owned();
        self.sign_ins.as_ref().ok_or_else(|| Error::SignInNotSupported { name: record.name.clone(), why })
    }

    async fn begin_sign_in(
        &self,
        handle: &SupervisorHandle,
        by: &Actor,
        redirect_uri: Option<String>,
    ) -> Result<SignInAttempt, Error> {
        let current = handle.current();
        let record = current.record.clone();
        let sign_ins = self.sign_ins_for(&record)?;
        let protected = sign_ins.protected_for(&by.principal, &current)?;
        // The browser would be sent back to nobody.
        if redirect_uri.is_none() && sign_ins.needs_listener(&protected) {
            let why = format!(
                "its redirect address {} is not at this service; run `{}`, which listens there",
                protected.redirect_uri().unwrap_or_default(),
                catalog::login_command(&record.name)
            );
            return Err(Error::SignInNotSupported { name: record.name.clone(), why });
        }
        let redirect_uri = redirect_uri.as_deref().unwrap_or(&sign_ins.setup.redirect_uri);
        let attempt = sign_ins.setup.oauth.begin(&protected, redirect_uri).await;
        let attempt =
            attempt.map_err(|error| Error::SignInFailed { name: record.name.clone(), message: error.to_string() })?;
        sign_ins.remember(&attempt.authorization_url, by, record.id);
        Ok(SignInAttempt {
            authorization_url: attempt.authorization_url,
            expires_at: Timestamp::from_micros(
                attempt
                    .expires_at
                    .duration_since(UNIX_EPOCH)
                    .ok()
                    .and_then(|since| i64::try_from(since.as_micros()).ok())
                    .unwrap_or(i64::MAX),
            ),
        })
    }

    async fn finish_sign_in(&self, query: &str) -> Returned {
        let Some(sign_ins) = &self.sign_ins else {
            return Returned::Rejected { why: CallbackError::Unknown.to_string() };
        };
        // Without one, it is no sign-in of ours, but that is not ours to decide.
        let initiator = sign_ins.take_initiator(query);
        let handle = initiator.as_ref().and_then(|initiator| self.find(&initiator.server.to_string()).ok());
        let name = handle.map(|handle| handle.current().record.name.clone());
        let by = initiator.as_ref().map_or_else(|| Actor::internal("unknown"), |initiator| initiator.by.clone());
        let note = AuditNote::new(&by, "server.login", name.as_deref(), None);
        let (done, note) = grant_store::audited(note, sign_ins.setup.oauth.finish(query)).await;
        match done {
            Ok(SignedIn { server, .. }) => {
                if let Some(note) = note
                    && let Err(error) = self.audit(note).await
                {
                    tracing::error!(%error, %server, "the sign-in is not in the audit log");
                }
                Returned::SignedIn { server: name.unwrap_or(server) }
            }
            Err(error @ (CallbackError::Unknown | CallbackError::ForeignIssuer { .. })) => {
                if error != CallbackError::Unknown {
                    sign_ins.put_back(query, initiator);
                }
                Returned::Rejected { why: error.to_string() }
            }
            Err(error) => Returned::Failed { why: error.to_string() },
        }
    }

    async fn sign_out(&self, handle: &SupervisorHandle, by: &Actor) -> Result<Option<String>, Error> {
        let current = handle.current();
        let record = current.record.clone();
        let sign_ins = self.sign_ins_for(&record)?;
        let own = sign_ins.protected_for(&by.principal, &current)?;
        let is_signed_in = matches!(sign_ins.setup.oauth.login_state(&own.key).await, Ok(LoginState::SignedIn { .. }));
        // Whoever has no sign-in of their own ends that of the server.
        let protected = if is_signed_in { own } else { sign_ins.protected(&record)? };
        let note = AuditNote::new(by, "server.logout", Some(&record.name), None);
        let (done, note) = grant_store::audited(note, sign_ins.setup.oauth.logout(&protected)).await;
        let done =
            done.map_err(|error| Error::SignInFailed { name: record.name.clone(), message: error.to_string() })?;
        if let (Some(note), true) = (note, done != LoggedOut::NotSignedIn) {
            self.audit(note).await?;
        }
        Ok(match done {
            LoggedOut::NotRevoked(error) => Some(error.to_string()),
            LoggedOut::NotSignedIn | LoggedOut::Forgotten | LoggedOut::Revoked => None,
        })
    }

    /// The supervisor of the server whose sign-in is stored under that key.
    fn handle_of(&self, key: &str) -> Option<Arc<SupervisorHandle>> {
        self.all().into_iter().find(|handle| spec::grant_key(&handle.current().record) == key)
    }

    /// Passes on sign-ins and sign-outs, of this process and of others that share the registry, until the service
    /// stops.
    ///
    /// Changes are received from the call on, not from the first poll.
    pub(crate) fn follow_sign_ins(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let changes = self.sign_ins.as_ref().map(|sign_ins| sign_ins.setup.oauth.subscribe());
        async move {
            let (Some(sign_ins), Some(mut changes)) = (&self.sign_ins, changes) else { return };
            loop {
                match changes.recv().await {
                    Ok(change) => self.pass_on(sign_ins, change).await,
                    Err(RecvError::Lagged(_)) => {
                        // Who signed in meanwhile is found out by connecting.
                        for handle in self.all() {
                            handle.command(Command::SignedIn).await;
                        }
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        }
    }

    async fn pass_on(&self, sign_ins: &SignIns, change: Change) {
        let of_server = grant_key_of_server(&change.key);
        let Some(handle) = self.handle_of(of_server) else { return };
        let is_of_identity = of_server != change.key;
        if is_of_identity {
            self.fleet.end_instances_with_grant(handle.slot_index, &change.key);
        }
        let record = handle.current().record.clone();
        let (server_id, name) = (record.id.to_string(), record.name.clone());
        match change.kind {
            ChangeKind::SignedIn => {
                self.events.emit(Event::ServerSignedIn { server_id, name });
                if !is_of_identity {
                    handle.command(Command::SignedIn).await;
                }
            }
            ChangeKind::SignedOut => {
                self.events.emit(Event::ServerSignedOut { server_id, name });
                if !is_of_identity {
                    handle.command(Command::SignedOut("nobody is signed in any more".to_owned())).await;
                }
            }
            ChangeKind::SignInRequired if is_of_identity => {}
            ChangeKind::SignInRequired => {
                let why = match sign_ins.setup.oauth.login_state(&change.key).await {
                    Ok(LoginState::Failed { error }) => error,
                    _ => "the sign-in is no longer valid".to_owned(),
                };
                handle.command(Command::SignedOut(why)).await;
            }
        }
    }
}

/// Sends MCP clients to sign-in pages.
pub(crate) struct ClientSignIns(pub(crate) Weak<ServiceContext>);

impl SignInHost for ClientSignIns {
    fn begin(&self, server: usize, principal: Arc<Principal>) -> SignInFuture<Option<String>> {
        let context = self.0.clone();
        Box::pin(async move {
            let context = context.upgrade()?;
            let handle = context.at(server)?;
            let by = Actor::new(&principal, MCP_ACTOR);
            match context.begin_sign_in(&handle, &by, None).await {
                Ok(attempt) => Some(attempt.authorization_url),
                Err(error) => {
                    tracing::warn!(server = %handle.current().record.name, %error, "failed to start a sign-in for a client");
                    None
                }
            }
        })
    }

    fn settled(&self, server: usize, principal: Arc<Principal>) -> SignInFuture<()> {
        let context = self.0.clone();
        Box::pin(async move {
            let Some(context) = context.upgrade() else { return };
            let Some(handle) = context.at(server) else { return };
            let current = handle.current();
            if let Some(sign_ins) = &context.sign_ins
                && has_own_sign_in(&principal, &current)
            {
                let key = grant_key_of(&spec::grant_key(&current.record), &principal);
                return signed_in(&sign_ins.setup.oauth, &key).await;
            }
            // It may be removed while somebody waits.
            drop(context);
            let is_settled = |current: &Arc<CurrentState>| {
                !matches!(current.status, ServerStatus::SignInRequired { .. } | ServerStatus::Connecting)
            };
            // If the supervisor has ended, nothing will change any more.
            drop(handle.subscribe().wait_for(is_settled).await);
        })
    }
}

/// Whether a sign-in of this principal is for its own instance of the server: not while nobody has signed in to the
/// server itself, because nothing of it is listed without that.
fn has_own_sign_in(principal: &Principal, current: &CurrentState) -> bool {
    let is_shared = spec::resolve(&current.record).is_ok_and(|spec| spec.sharing.share == Share::All);
    !principal.is_local() && !is_shared && !matches!(current.status, ServerStatus::SignInRequired { .. })
}

/// Waits until somebody is signed in under this key.
async fn signed_in(oauth: &OAuth, key: &str) {
    let mut changes = oauth.subscribe();
    while !matches!(oauth.login_state(key).await, Ok(LoginState::SignedIn { .. })) {
        if let Err(RecvError::Closed) = changes.recv().await {
            return;
        }
    }
}

impl From<LoginState> for SignInView {
    fn from(state: LoginState) -> Self {
        let of = |state, error| Self { state, error, redirect_uri: None, needs_listener: false };
        match state {
            LoginState::None => of("none", None),
            LoginState::Pending { .. } => of("pending", None),
            LoginState::Failed { error } => of("failed", Some(error)),
            LoginState::SignedIn { .. } => of("signed_in", None),
        }
    }
}

/// The `state` in a query. It is compared as it is written, and never decoded.
fn state_in(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("state="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_wherever_it_stands() {
        assert_eq!(state_in("code=a&state=b-_1&iss=c"), Some("b-_1"));
        assert_eq!(state_in("mystate=a"), None);
        assert_eq!(state_in(""), None);
    }
}
