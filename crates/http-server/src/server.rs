//! The front as a whole: what it was given, and what it keeps while it runs.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use aggregator::client::{Client, ClientSetup};
use aggregator::client_sink::{ClientSink, NullSink};
use aggregator::{Aggregator, Surface};
use catalog::Scope;
use hyper::http::uri::Authority;

use crate::auth_failures::AuthFailures;
use crate::fallback::FallbackService;
use crate::guard::{Guard, GuardError};
use crate::health::{Health, HealthCheck};
use crate::identity::{Identities, Identity};
use crate::limits::Limits;
use crate::local::LocalAccess;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::tokens::{Credential, Tokens};

/// What it takes to serve clients over HTTP.
pub struct HttpServer {
    /// The servers.
    pub aggregator: Arc<Aggregator>,
    /// The tokens that let requests in.
    pub tokens: Option<Arc<Tokens>>,
    /// Who is served if there are none.
    pub local: Arc<LocalAccess>,
    /// Requests that were not let in.
    pub auth_failures: Arc<AuthFailures>,
    /// Host names we are reached by, beside loopback and our own address.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may ask, beside loopback and our own.
    pub allowed_origins: Vec<String>,
    /// What clients may ask of us.
    pub limits: Limits,
    /// What else is served at this address.
    pub fallback: Option<Arc<dyn FallbackService>>,
    /// What `/health` says beside the number of servers.
    pub health: Option<HealthCheck>,
}

/// Whether `text` is a host name that can be allowed.
pub fn check_host(text: &str) -> Result<(), GuardError> {
    Guard::new(&[text.to_owned()], &[]).map(drop)
}

/// Whether a host name that can be allowed names a port too.
pub fn has_port(host: &str) -> bool {
    host.parse().is_ok_and(|authority: Authority| authority.port_u16().is_some())
}

/// Whether `text` is an origin that can be allowed.
pub fn check_origin(text: &str) -> Result<(), GuardError> {
    Guard::new(&[], &[text.to_owned()]).map(drop)
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) tokens: Option<Arc<Tokens>>,
    pub(crate) local: Arc<LocalAccess>,
    pub(crate) auth_failures: Arc<AuthFailures>,
    pub(crate) guard: Guard,
    pub(crate) limits: Limits,
    pub(crate) fallback: Option<Arc<dyn FallbackService>>,
    pub(crate) sessions: Sessions,
    pub(crate) identities: Identities,
    pub(crate) null_sink: Arc<dyn ClientSink>,
    /// On whose behalf everybody acts if there are no tokens.
    pub(crate) nobody: Arc<str>,
    health: Option<HealthCheck>,
    /// Modern clients that listen, to be told when we stop.
    listeners: Mutex<Vec<Weak<Client>>>,
}

/// Who asks, and what for.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    /// The name of its token, or nothing.
    pub(crate) principal: Arc<str>,
    /// How much of the HTTP server its token, or the local user, uses.
    pub(crate) identity: Arc<Identity>,
    /// That name with its secret, which sessions and streams are bound to; nothing without tokens.
    pub(crate) credential: Option<Credential>,
    pub(crate) scope: Scope,
    pub(crate) surface: Surface,
}

impl Shared {
    pub(crate) fn new(server: HttpServer) -> Result<Self, GuardError> {
        let guard = Guard::new(&server.allowed_hosts, &server.allowed_origins)?;
        let has_tokens = server.tokens.is_some();
        Ok(Self {
            aggregator: server.aggregator,
            tokens: server.tokens,
            local: server.local,
            auth_failures: server.auth_failures,
            guard,
            identities: Identities::new(&server.limits, has_tokens),
            limits: server.limits,
            fallback: server.fallback,
            sessions: Sessions::default(),
            null_sink: Arc::new(NullSink),
            nobody: Arc::from(""),
            health: server.health,
            listeners: Mutex::default(),
        })
    }

    /// How we are.
    pub(crate) fn health(&self) -> Health {
        self.health.as_ref().map_or(Health::Ok, |health| health())
    }

    /// A client that has said nothing yet.
    pub(crate) fn client(&self, request_context: &RequestContext, sink: Arc<dyn ClientSink>) -> Arc<Client> {
        Client::new(ClientSetup {
            sink,
            names: self.aggregator.options.names,
            scope: request_context.scope,
            principal: Arc::clone(&request_context.principal),
            is_alone: false,
            surface: request_context.surface,
        })
    }

    /// Lets a session in. If there are too many, one of the same identity or of the one that has the most makes room.
    pub(crate) fn admit(&self, session: &Arc<Session>) {
        // Without tokens there is only one identity.
        let of_identity = match self.tokens {
            Some(_) => self.limits.sessions_of_identity,
            None => self.limits.sessions,
        };
        for surplus in self.sessions.add(session, self.limits.sessions, of_identity) {
            tracing::warn!(
                token = %surplus.request_context.principal,
                most = self.limits.sessions,
                most_of_one = of_identity,
                "too many sessions; the one left alone the longest was ended (limits `sessions`, `sessions-per-token`)"
            );
            self.close_session(&surplus);
        }
        self.aggregator.fleet.add_client(&session.client);
    }

    /// Ends a session, with everything that still goes on in it.
    pub(crate) fn end(&self, session: &Session) {
        if self.sessions.remove(&session.id) {
            self.close_session(session);
        }
    }

    /// Ends what was left alone for too long.
    pub(crate) fn sweep(&self) {
        for session in self.sessions.take_idle(self.limits.idle_session) {
            tracing::debug!("a session was left alone for too long and ended");
            self.close_session(&session);
        }
        self.end_revoked();
        self.sessions.for_each(|session| session.prune(&self.limits));
    }

    /// Ends every session whose token was taken away or has another secret now.
    pub(crate) fn end_revoked(&self) {
        let Some(tokens) = &self.tokens else { return };
        let is_revoked = |credential: &Credential| !tokens.is_current(credential);
        for session in
            self.sessions.all().iter().filter(|it| it.request_context.credential.as_ref().is_some_and(is_revoked))
        {
            tracing::info!(token = %session.request_context.principal, "session ended: its token was removed or replaced");
            self.end(session);
        }
    }

    /// Ready as soon as somebody who came in would not be let in any more; nothing without tokens.
    pub(crate) fn until_revoked(
        &self,
        credential: Option<&Credential>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        Some(self.tokens.as_ref()?.until_revoked(credential?.clone()))
    }

    /// Does some work for somebody who came in. Nothing if they would not be let in any more; then it is dropped.
    pub(crate) async fn until_revoked_or_end<T>(
        &self,
        credential: Option<&Credential>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        match (&self.tokens, credential) {
            (Some(tokens), Some(credential)) => tokens.while_current(credential, work).await,
            _ => Some(work.await),
        }
    }

    fn close_session(&self, session: &Session) {
        self.aggregator.abandon(&session.client);
        session.close();
    }

    /// `client` listens until it leaves or we stop.
    pub(crate) fn remember_listener(&self, client: &Arc<Client>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(client));
    }

    /// Tells everybody that we stop: what waits gets what there is, what only listens ends.
    pub(crate) async fn begin_shutdown(&self) {
        if let Some(fallback) = &self.fallback {
            fallback.leave();
        }
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.leave().await;
        }
        for session in self.sessions.all() {
            session.retire();
            session.client.leave().await;
        }
    }

    /// Ends every session.
    pub(crate) fn end_all(&self) {
        for session in self.sessions.all() {
            self.end(&session);
        }
    }
}
