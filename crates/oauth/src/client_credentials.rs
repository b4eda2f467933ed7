//! Tokens for a client that authenticates itself (`client_credentials`): no person is involved.

use crate::error::{FlowError, FlowErrorKind, Step, TokenError};
use crate::flow::challenge::Challenge;
use crate::flow::{authorization, registration};
use crate::grant::{AuthorizationServer, Grant};
use crate::protected::Protected;
use crate::refresh::{Turn, unavailable};
use crate::shared::Shared;
use crate::store::{Replaced, Version};

impl Shared {
    /// Gets a token with the credentials of the client alone. They go to the authorization server of the token before,
    /// `last`, unless the user names another one: the server alone cannot have them sent elsewhere.
    pub(crate) async fn client_credentials(
        &self,
        protected: &Protected,
        challenge: &Challenge,
        last: Option<(Version, Grant)>,
    ) -> Result<Turn, TokenError> {
        let failed = |error: FlowError| match error.kind {
            FlowErrorKind::Temporary | FlowErrorKind::Lost => TokenError::Unavailable(Box::new(error)),
            _ => TokenError::Failed(Box::new(error)),
        };
        let (expected, last) = last.unzip();
        let found = self.discover(protected, challenge).await.map_err(failed)?;
        let settings = &protected.settings;
        let id = settings.client_id.as_deref().ok_or_else(|| {
            let problem = "client_credentials needs a client";
            failed(FlowError::new(Step::TokenRequest, problem).hint("set `oauth.client_id`"))
        })?;
        registration::refuse_other_issuer(settings, &found.server, last.as_ref()).map_err(failed)?;
        let client = registration::configured(id, settings, &found.server, None);
        let missing_scopes = last.map(|last| last.missing_scopes).unwrap_or_default();
        // There is nobody to be offline.
        let mut scopes = authorization::scopes(settings, challenge, &found, &missing_scopes);
        scopes.retain(|scope| scope != "offline_access");
        let resource = authorization::resource(protected, &found);
        let mut parameters = vec![("grant_type", "client_credentials".into())];
        parameters.extend(resource.as_ref().map(|resource| ("resource", resource.as_str().into())));
        if !scopes.is_empty() {
            parameters.push(("scope", scopes.join(" ").into()));
        }
        let server = AuthorizationServer {
            issuer: found.server.issuer,
            token_endpoint: found.server.token_endpoint,
            revocation_endpoint: found.server.revocation_endpoint,
        };
        let tokens = self.request_tokens(Step::TokenRequest, protected, &server, &client, parameters, &scopes).await;
        let grant = Grant {
            server_url: protected.url.clone(),
            authorization_server: server,
            client,
            resource,
            requested_scopes: scopes,
            missing_scopes,
            tokens: tokens.map_err(failed)?,
            refresh: None,
            sign_in_required: None,
        };
        match self.save(&protected.key, expected, Some(&grant)).await.map_err(unavailable)? {
            Replaced::Stored(Some(version)) => Ok(Turn::done(Some((version, grant)), None)),
            // Another process got one as well.
            Replaced::Stored(None) | Replaced::Conflict => Ok(Turn::Again),
        }
    }
}
