//! The HTTP server as a whole: its configuration, and its state while it runs.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use aggregator::client_sink::{ClientSink, NullSink};
use aggregator::{Aggregator, Client, ClientSetup, Surface};
use catalog::{Principal, Scope};
use hyper::http::uri::Authority;

use crate::auth_failures::AuthFailures;
use crate::client_certificate::CertificateRules;
use crate::credential::Credential;
use crate::fallback::FallbackService;
use crate::guard::{Guard, GuardError};
use crate::health::{Health, HealthCheck};
use crate::identity::{Identities, Identity};
use crate::limits::Limits;
use crate::local::LocalAccess;
use crate::resource::ProtectedResource;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::tokens::Tokens;
use crate::trusted_proxies::{TrustedProxies, TrustedProxy};

/// The configuration of the HTTP server.
pub struct HttpServer {
    /// The servers.
    pub aggregator: Arc<Aggregator>,
    /// The accepted tokens.
    pub tokens: Option<Arc<Tokens>>,
    /// Accepts the tokens of identity providers. Needs `tokens`, which may be empty.
    pub resource: Option<ProtectedResource>,
    /// What clients with a certificate may do, if they are asked for one. Needs `tokens`, which may be empty.
    pub client_certificates: Option<CertificateRules>,
    /// The access rules without tokens.
    pub local: Arc<LocalAccess>,
    /// Failed authentication.
    pub auth_failures: Arc<AuthFailures>,
    /// Host names that are accepted besides loopback and our own address.
    pub allowed_hosts: Vec<String>,
    /// Origins that are accepted besides loopback and our own.
    pub allowed_origins: Vec<String>,
    /// Proxies whose word about a client counts.
    pub trusted_proxies: Vec<TrustedProxy>,
    /// What clients may ask of us.
    pub limits: Limits,
    /// Other paths at this address.
    pub fallback: Option<Arc<dyn FallbackService>>,
    /// Checks that `/health` reports besides the number of servers.
    pub health: Option<HealthCheck>,
}

/// Whether `text` is a host name that can be allowed.
pub fn check_host(text: &str) -> Result<(), GuardError> {
    Guard::new(&[text.to_owned()], &[]).map(drop)
}

/// Whether an allowed host name contains a port.
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
    pub(crate) resource: Option<ProtectedResource>,
    pub(crate) client_certificates: Option<CertificateRules>,
    pub(crate) local: Arc<LocalAccess>,
    pub(crate) auth_failures: Arc<AuthFailures>,
    pub(crate) guard: Guard,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) limits: Limits,
    pub(crate) fallback: Option<Arc<dyn FallbackService>>,
    pub(crate) sessions: Sessions,
    pub(crate) identities: Identities,
    pub(crate) null_sink: Arc<dyn ClientSink>,
    /// The principal of all requests if there are no tokens.
    pub(crate) local_user: Arc<Principal>,
    health: Option<HealthCheck>,
    /// Modern clients with a listen stream, which end at shutdown.
    listeners: Mutex<Vec<Weak<Client>>>,
}

/// The origin and the scope of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) principal: Arc<Principal>,
    /// How much of the HTTP server its token, or the local user, uses.
    pub(crate) identity: Arc<Identity>,
    /// That name with its secret, which sessions and streams are bound to; `None` without tokens.
    pub(crate) credential: Option<Credential>,
    pub(crate) scope: Scope,
    /// The profile of the address, or else the one that the principal is bound to.
    pub(crate) profile: Option<Arc<str>>,
    pub(crate) surface: Surface,
}

impl RequestContext {
    /// For how long its streams may be open, if its token expires.
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        self.credential.as_ref()?.lifetime()
    }
}

impl Shared {
    pub(crate) fn new(server: HttpServer) -> Result<Self, GuardError> {
        let guard = Guard::new(&server.allowed_hosts, &server.allowed_origins)?;
        let has_tokens = server.tokens.is_some();
        Ok(Self {
            aggregator: server.aggregator,
            tokens: server.tokens,
            resource: server.resource,
            client_certificates: server.client_certificates,
            local: server.local,
            auth_failures: server.auth_failures,
            guard,
            trusted_proxies: TrustedProxies(server.trusted_proxies),
            identities: Identities::new(&server.limits, has_tokens),
            limits: server.limits,
            fallback: server.fallback,
            sessions: Sessions::default(),
            null_sink: Arc::new(NullSink),
            local_user: Principal::local(),
            health: server.health,
            listeners: Mutex::default(),
        })
    }

    /// The health of the service.
    pub(crate) fn health(&self) -> Health {
        self.health.as_ref().map_or(Health::Ok, |health| health())
    }

    /// A client that has sent nothing yet.
    pub(crate) fn client(&self, request_context: &RequestContext, sink: Arc<dyn ClientSink>) -> Arc<Client> {
        Client::new(ClientSetup {
            sink,
            names: self.aggregator.options.names,
            scope: request_context.scope,
            profile: request_context.profile.clone(),
            principal: Arc::clone(&request_context.principal),
            is_alone: false,
            surface: request_context.surface,
        })
    }

    /// Adds a session. If there are too many, one of the same identity or of the one that has the most ends.
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
                "too many sessions; ended the one that was idle the longest (limits `sessions`, `sessions-per-token`)"
            );
            self.close_session(&surplus);
        }
        self.aggregator.fleet.add_client(&session.client);
    }

    /// Ends a session with all its pending requests.
    pub(crate) fn end(&self, session: &Session) {
        if self.sessions.remove(&session.id) {
            self.close_session(session);
        }
    }

    /// Ends what was idle for too long.
    pub(crate) fn sweep(&self) {
        for session in self.sessions.take_idle(self.limits.idle_session) {
            tracing::debug!("ended a session that was idle for too long");
            self.close_session(&session);
        }
        self.end_revoked();
        self.sessions.for_each(|session| session.prune(&self.limits));
    }

    /// Ends every session whose token was removed or has another secret now.
    pub(crate) fn end_revoked(&self) {
        let Some(tokens) = &self.tokens else { return };
        // The session of an identity goes on with another token of it, and ends when it is idle.
        let is_revoked =
            |credential: &Credential| matches!(credential, Credential::Token(token) if !tokens.is_current(token));
        for session in
            self.sessions.all().iter().filter(|it| it.request_context.credential.as_ref().is_some_and(is_revoked))
        {
            tracing::info!(token = %session.request_context.principal, "session ended: its token was removed or replaced");
            self.end(session);
        }
    }

    /// Ready as soon as a credential is revoked or has expired; `None` if that cannot happen.
    pub(crate) fn until_revoked(
        &self,
        credential: Option<&Credential>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let credential = credential?;
        let revoked = match (credential, &self.tokens) {
            (Credential::Token(token), Some(tokens)) => Some(tokens.until_revoked(token.clone())),
            _ => None,
        };
        let lifetime = credential.lifetime();
        (revoked.is_some() || lifetime.is_some()).then_some(async move {
            match (revoked, lifetime) {
                (Some(revoked), _) => revoked.await,
                (None, lifetime) => tokio::time::sleep(lifetime.unwrap_or(Duration::MAX)).await,
            }
        })
    }

    /// Runs `work` for a credential. `None` if it is revoked meanwhile; then the work is dropped.
    pub(crate) async fn until_revoked_or_end<T>(
        &self,
        credential: Option<&Credential>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        match (&self.tokens, credential) {
            // What began with a token that expires meanwhile is finished.
            (Some(tokens), Some(Credential::Token(token))) => tokens.while_current(token, work).await,
            _ => Some(work.await),
        }
    }

    fn close_session(&self, session: &Session) {
        self.aggregator.abandon(&session.client);
        session.close();
    }

    /// Remembers a client with a listen stream, until it leaves or we stop.
    pub(crate) fn remember_listener(&self, client: &Arc<Client>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(client));
    }

    /// Begins the shutdown: deferred requests get what is known, listen streams end.
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
