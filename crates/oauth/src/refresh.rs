//! Refreshing a grant without ever losing it: one at a time across tasks and processes, and never the same refresh
//! token twice.
//!
//! Before the request is sent, a mark is stored by compare-and-swap; whoever loses waits until it is gone. The new
//! tokens are stored before they are used. A mark whose process is gone means that the request may have been sent:
//! it is never repeated, and a person has to sign in again.
//!
//! What a failed refresh means:
//! - Nothing was sent (no connection, or the request cannot be made): the grant is as good as before.
//! - It was sent, and there is no answer, or a success without tokens: it may have been carried out, so it is not
//!   repeated, and a person has to sign in again.
//! - The authorization server says that the grant has ended: a person has to sign in again.
//! - Any other answer says that it was not carried out: the grant stays, and is tried again later.

use std::time::Duration;

use catalog::TokenEndpointAuthMethod;
use http::HeaderValue;
use tokio::time::{Instant, sleep};

use crate::error::{FlowError, FlowErrorKind, Step, TokenError};
use crate::flow::challenge::Challenge;
use crate::grant::{ClientSource, Grant, RefreshMark, unix_now};
use crate::protected::Protected;
use crate::shared::{REFRESH_LIMIT, Shared, TokenRequest, Unsaved};
use crate::store::{Replaced, StoreError, Version};

/// How often a grant is read while another process refreshes it.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// The stored grant after an attempt to renew it, and whether it can be used.
pub(crate) struct Renewed {
    /// What is stored now.
    pub(crate) stored: Option<(Version, Grant)>,
    /// Why there is no new token.
    pub(crate) problem: Option<TokenError>,
}

/// What to do next with a stored grant.
pub(crate) enum Turn {
    /// It is settled.
    Done(Box<Renewed>),
    /// It has changed meanwhile: look again.
    Again,
    /// Somebody else refreshes it: look again soon.
    Wait,
}

impl Turn {
    pub(crate) fn done(stored: Option<(Version, Grant)>, problem: Option<TokenError>) -> Self {
        Self::Done(Box::new(Renewed { stored, problem }))
    }
}

pub(crate) fn unavailable(error: StoreError) -> TokenError {
    TokenError::Unavailable(Box::new(error.into()))
}

fn sign_in(why: impl Into<String>) -> Option<TokenError> {
    Some(TokenError::SignInRequired { why: why.into() })
}

impl Shared {
    /// Renews the token of a grant, if it still is the one of the header `used`. Whoever calls this holds the lock of
    /// the key, and does not abandon it.
    pub(crate) async fn renew(
        &self,
        protected: &Protected,
        used: Option<&HeaderValue>,
        challenge: &Challenge,
    ) -> Result<Renewed, TokenError> {
        let began = Instant::now();
        if let Some(unsaved) = self.take_unsaved(&protected.key) {
            self.keep(protected, unsaved).await?;
        }
        self.remove_unsent_mark(&protected.key).await.map_err(unavailable)?;
        loop {
            let stored = self.store.load(&protected.key).await.map_err(unavailable)?;
            let turn = match stored {
                Some((version, grant)) => self.take_turn(protected, used, challenge, version, grant, began).await?,
                None if is_machine(protected) => self.client_credentials(protected, challenge, None).await?,
                None => Turn::done(None, sign_in("nobody has signed in yet")),
            };
            match turn {
                Turn::Done(renewed) => return Ok(*renewed),
                Turn::Again => {}
                Turn::Wait => sleep(WAIT_INTERVAL).await,
            }
        }
    }

    async fn take_turn(
        &self,
        protected: &Protected,
        used: Option<&HeaderValue>,
        challenge: &Challenge,
        version: Version,
        grant: Grant,
        began: Instant,
    ) -> Result<Turn, TokenError> {
        let is_used = used.is_some() && grant.tokens.header().as_ref() == used;
        if !grant.is_for(protected) {
            if is_machine(protected) {
                return self.client_credentials(protected, challenge, Some((version, grant))).await;
            }
            let problem = sign_in("its address has changed since the sign-in");
            return Ok(Turn::done(Some((version, grant)), problem));
        }
        if let Some(mark) = &grant.refresh {
            if self.is_abandoned(mark, began) {
                let why = "a refresh of the sign-in was interrupted, and repeating it could revoke the sign-in";
                return self.end_sign_in(protected, version, grant, why.to_owned()).await;
            }
            return Ok(Turn::Wait);
        }
        let is_expired = grant.tokens.is_expired(unix_now());
        if !is_used && !is_expired && grant.sign_in_required.is_none() {
            return Ok(Turn::done(Some((version, grant)), None));
        }
        if is_machine(protected) {
            return self.client_credentials(protected, challenge, Some((version, grant))).await;
        }
        if let Some(why) = grant.sign_in_required.clone() {
            return Ok(Turn::done(Some((version, grant)), sign_in(why)));
        }
        if grant.tokens.refresh_token.is_none() {
            let why = if is_expired {
                "the sign-in has expired, and the authorization server gave no refresh token"
            } else {
                "the server no longer accepts the token, and the authorization server gave no refresh token"
            };
            return self.end_sign_in(protected, version, grant, why.to_owned()).await;
        }
        if is_of_another_client(protected, &grant) {
            let problem = sign_in("another client is configured than the one that was used for the sign-in");
            return Ok(Turn::done(Some((version, grant)), problem));
        }
        self.refresh(protected, version, grant).await
    }

    /// Whether a refresh that was begun will never end. The lock is ours, so a mark of ours is left over.
    fn is_abandoned(&self, mark: &RefreshMark, watched_since: Instant) -> bool {
        let limit = REFRESH_LIMIT.as_secs();
        mark.owner == self.owner
            || mark.owner.is_gone()
            || unix_now().saturating_sub(mark.began) > limit
            // The clock of another machine may be ahead of ours.
            || watched_since.elapsed() > REFRESH_LIMIT
    }

    async fn refresh(&self, protected: &Protected, version: Version, grant: Grant) -> Result<Turn, TokenError> {
        // A request that cannot be made costs nothing.
        let request = self.refresh_request(protected, &grant).await;
        let request = request.map_err(|error| TokenError::Failed(Box::new(error)))?;
        let marked = self.mark(&protected.key, version, &grant).await.map_err(unavailable)?;
        let Some(version) = marked else { return Ok(Turn::Again) };
        let error = match self.send_token_request(request, &grant.tokens.scopes).await {
            Ok(tokens) => {
                let tokens = crate::Tokens {
                    refresh_token: tokens.refresh_token.or_else(|| grant.tokens.refresh_token.clone()),
                    ..tokens
                };
                let used = grant.tokens.refresh_token.clone();
                return self.keep(protected, Unsaved { version, used, grant: Grant { tokens, ..grant } }).await;
            }
            Err(error) => error,
        };
        tracing::debug!(server = %protected.server, %error, "a refresh failed");
        let is_registered = grant.client.source == ClientSource::Registered;
        match error.kind {
            FlowErrorKind::Lost => {
                let why = format!("{error}; the response is lost, and repeating the request could revoke the sign-in");
                self.end_sign_in(protected, version, grant, why).await
            }
            // Another process may have used it: then the store has a newer one.
            FlowErrorKind::InvalidGrant if self.has_changed(protected, version).await? => Ok(Turn::Again),
            FlowErrorKind::InvalidGrant => self.end_sign_in(protected, version, grant, error.to_string()).await,
            FlowErrorKind::InvalidClient if is_registered => {
                let mut grant = grant;
                // A registration without its redirect address is not used again.
                grant.client.redirect_uri = None;
                // Its user has configured nothing that could be corrected.
                let why = FlowError { hint: None, ..error }.to_string();
                self.end_sign_in(protected, version, grant, why).await
            }
            kind @ (FlowErrorKind::Temporary | FlowErrorKind::InvalidClient | FlowErrorKind::Final) => {
                let used = grant.tokens.refresh_token.clone();
                self.keep(protected, Unsaved { version, used, grant }).await?;
                Err(match kind {
                    FlowErrorKind::Temporary => TokenError::Unavailable(Box::new(error)),
                    _ => TokenError::Failed(Box::new(error)),
                })
            }
        }
    }

    async fn refresh_request(&self, protected: &Protected, grant: &Grant) -> Result<TokenRequest, FlowError> {
        let refresh_token = grant.tokens.refresh_token.clone();
        let refresh_token = refresh_token.ok_or_else(|| FlowError::new(Step::Refresh, "there is no refresh token"))?;
        let mut parameters = vec![("grant_type", "refresh_token".into()), ("refresh_token", refresh_token)];
        match &grant.resource {
            Some(resource) => parameters.push(("resource", resource.as_str().into())),
            // Without a resource, some authorization servers know from the scopes whom the token is for.
            None if !grant.requested_scopes.is_empty() => {
                parameters.push(("scope", grant.requested_scopes.join(" ").into()));
            }
            None => {}
        }
        let (server, client) = (&grant.authorization_server, &grant.client);
        self.token_request(Step::Refresh, protected, server, client, parameters).await
    }

    /// Stores the outcome of a refresh, without our mark. Only then it may be used; what cannot be stored now is kept.
    async fn keep(&self, protected: &Protected, mut unsaved: Unsaved) -> Result<Turn, TokenError> {
        let key = &protected.key;
        loop {
            match self.save(key, Some(unsaved.version), Some(&unsaved.grant)).await {
                Ok(Replaced::Stored(Some(version))) => {
                    return Ok(Turn::done(Some((version, unsaved.grant)), None));
                }
                Ok(Replaced::Stored(None)) => return Ok(Turn::Again),
                Ok(Replaced::Conflict) => {}
                Err(error) => {
                    self.keep_unsaved(key, unsaved);
                    return Err(unavailable(error));
                }
            }
            match self.store.load(key).await {
                // Somebody took us for dead: what we have replaces that.
                Ok(Some((current, grant))) if grant.tokens.refresh_token == unsaved.used => {
                    unsaved.version = current;
                    unsaved.grant.missing_scopes = grant.missing_scopes;
                }
                // Somebody signed in meanwhile.
                Ok(Some(_)) => return Ok(Turn::Again),
                // Somebody signed out: nobody will use these.
                Ok(None) => {
                    self.discard(protected, &unsaved.grant).await;
                    return Ok(Turn::Again);
                }
                Err(error) => {
                    self.keep_unsaved(key, unsaved);
                    return Err(unavailable(error));
                }
            }
        }
    }

    async fn discard(&self, protected: &Protected, grant: &Grant) {
        let Some(endpoint) = &grant.authorization_server.revocation_endpoint else { return };
        if let Err(error) = self.revoke(protected, grant, endpoint).await {
            tracing::debug!(server = %protected.server, %error, "unused tokens were not revoked");
        }
    }

    async fn has_changed(&self, protected: &Protected, version: Version) -> Result<bool, TokenError> {
        let stored = self.store.load(&protected.key).await.map_err(unavailable)?;
        Ok(stored.map(|(version, _)| version) != Some(version))
    }

    /// Notes that a person has to sign in again. The access token may be used until it expires.
    pub(crate) async fn note_end(
        &self,
        protected: &Protected,
        version: Version,
        grant: Grant,
        why: String,
    ) -> Result<Option<Renewed>, TokenError> {
        let grant = Grant { refresh: None, sign_in_required: Some(why.clone()), ..grant };
        match self.save(&protected.key, Some(version), Some(&grant)).await.map_err(unavailable)? {
            Replaced::Stored(Some(version)) => {
                tracing::info!(server = %protected.server, why, "a person has to sign in again");
                Ok(Some(Renewed { stored: Some((version, grant)), problem: sign_in(why) }))
            }
            Replaced::Stored(None) | Replaced::Conflict => Ok(None),
        }
    }

    async fn end_sign_in(
        &self,
        protected: &Protected,
        version: Version,
        grant: Grant,
        why: String,
    ) -> Result<Turn, TokenError> {
        let ended = self.note_end(protected, version, grant, why).await?;
        Ok(ended.map_or(Turn::Again, |renewed| Turn::Done(Box::new(renewed))))
    }
}

fn is_machine(protected: &Protected) -> bool {
    protected.settings.grant == catalog::GrantType::ClientCredentials
}

/// Whether the configured credentials are no longer those of the client that the grant was issued to.
fn is_of_another_client(protected: &Protected, grant: &Grant) -> bool {
    let client = &grant.client;
    client.source == ClientSource::Configured
        && client.auth_method != TokenEndpointAuthMethod::None
        && protected.settings.client_id.as_ref() != Some(&client.id)
}
