//! A server that may require a sign-in.

use catalog::{GrantType, OAuthSettings, ServerName, ServerSpec, Transport};

use crate::fetch::Network;

/// A server that may require a sign-in, and what its user configured for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protected {
    /// Where its grant is stored.
    pub key: String,
    /// Its name, for messages.
    pub server: ServerName,
    /// Its URL, without a fragment.
    pub url: String,
    /// What its user configured.
    pub settings: OAuthSettings,
    /// Where requests for its sign-in may go.
    pub network: Network,
}

impl Protected {
    /// `None` if it cannot have a sign-in: it is not remote, its user configured an `Authorization` header, or turned
    /// sign-ins off.
    pub fn of(spec: &ServerSpec) -> Option<Self> {
        let (Transport::Remote(remote), Some(key)) = (&spec.transport, &spec.grant_key) else { return None };
        let settings = remote.oauth.clone().unwrap_or_default();
        if remote.has_authorization_header() || settings.grant == GrantType::None {
            return None;
        }
        Some(Self {
            key: key.clone(),
            server: spec.name.clone(),
            url: remote.url.value.split('#').next().unwrap_or_default().to_owned(),
            settings,
            network: Network::Any,
        })
    }

    /// The redirect address that the user configured for it, if any.
    pub fn redirect_uri(&self) -> Option<String> {
        let of_port = |port: u16| format!("http://localhost:{port}/callback");
        self.settings.redirect_uri.clone().or_else(|| self.settings.callback_port.map(of_port))
    }

    /// The same, with other limits on where requests may go.
    #[must_use]
    pub fn with_network(self, network: Network) -> Self {
        Self { network, ..self }
    }
}
