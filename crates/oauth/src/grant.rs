//! What a sign-in leaves behind, and is stored: the client registration, the tokens, and whether they are being
//! refreshed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use catalog::TokenEndpointAuthMethod;
use http::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::owner::Owner;
use crate::protected::Protected;
use crate::secret::Secret;

/// The sign-in of one server. Stored as JSON, sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The URL of the server at which its user signed in. Its tokens are for this origin only.
    pub server_url: String,
    /// The authorization server: its issuer and endpoints.
    pub authorization_server: AuthorizationServer,
    /// Who we are at that authorization server.
    pub client: ClientIdentity,
    /// The `resource` parameter, if it is sent.
    pub resource: Option<String>,
    /// The scopes that were asked for.
    pub requested_scopes: Vec<String>,
    /// The scopes that the next sign-in asks for in addition (step-up).
    #[serde(default)]
    pub missing_scopes: Vec<String>,
    /// The tokens.
    pub tokens: Tokens,
    /// A refresh that has begun. As long as it is there, nobody else may use the refresh token.
    #[serde(default)]
    pub refresh: Option<RefreshMark>,
    /// Why a person has to sign in again. A valid access token may be used until it expires.
    #[serde(default)]
    pub sign_in_required: Option<String>,
}

/// The parts of an authorization server that are needed after a sign-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationServer {
    /// Its issuer, byte for byte.
    pub issuer: String,
    /// Where tokens are requested.
    pub token_endpoint: String,
    /// Where tokens are revoked (RFC 7009).
    pub revocation_endpoint: Option<String>,
}

/// A client at one authorization server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientIdentity {
    /// Its id.
    pub id: String,
    /// Its secret, if it is a confidential client. Not stored for configured clients.
    pub secret: Option<Secret>,
    /// When the secret expires, in seconds since 1970.
    pub secret_expires_at: Option<u64>,
    /// How it authenticates at the token endpoint.
    #[serde(with = "auth_method")]
    pub auth_method: TokenEndpointAuthMethod,
    /// Where it comes from.
    pub source: ClientSource,
    /// The redirect address that it was registered or used with.
    pub redirect_uri: Option<String>,
}

/// Where the identity of a client comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientSource {
    /// The user configured it.
    Configured,
    /// Its id is the address of a client ID metadata document.
    MetadataDocument,
    /// It was registered dynamically (RFC 7591).
    Registered,
}

/// The tokens of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// What servers get.
    pub access_token: Secret,
    /// What replaces it.
    pub refresh_token: Option<Secret>,
    /// When the access token was issued, in seconds since 1970.
    pub issued_at: u64,
    /// For how many seconds it is valid; `None` if the authorization server does not say.
    pub lifetime: Option<u64>,
    /// The scopes that were granted.
    pub scopes: Vec<String>,
}

/// Says that a process has begun a refresh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefreshMark {
    /// The process.
    pub owner: Owner,
    /// When it began, in seconds since 1970.
    pub began: u64,
}

/// Tokens are refreshed this much ahead of their end, unless they are short-lived.
const MAX_REFRESH_MARGIN: u64 = 300;

impl Grant {
    /// The grant as it is stored.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a grant consists of texts and numbers")
    }

    /// Whether it is for that server: a token goes to the origin at which its user signed in, and nowhere else.
    pub(crate) fn is_for(&self, protected: &Protected) -> bool {
        let origin = |url: &str| url::Url::parse(url).map(|url| url.origin());
        matches!((origin(&self.server_url), origin(&protected.url)), (Ok(one), Ok(other)) if one == other)
    }

    /// A stored grant. The error contains nothing of it.
    pub fn from_json(text: &str) -> Result<Self, MalformedGrant> {
        serde_json::from_str(text).map_err(|_| MalformedGrant)
    }
}

/// A stored grant that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored sign-in has an unknown format")]
pub struct MalformedGrant;

impl Tokens {
    /// The `Authorization` header for requests to the server; `None` if the token cannot stand in one.
    pub fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.access_token.reveal())).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// When the access token expires, in seconds since 1970.
    pub fn expires_at(&self) -> Option<u64> {
        Some(self.issued_at.saturating_add(self.lifetime?))
    }

    /// Whether the access token has expired.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires_at().is_some_and(|end| now >= end)
    }

    /// When to refresh: ahead of the end by at most a quarter of the lifetime.
    pub fn refresh_at(&self) -> Option<u64> {
        let lifetime = self.lifetime?;
        Some(self.expires_at()?.saturating_sub((lifetime / 4).min(MAX_REFRESH_MARGIN)))
    }
}

/// Seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Methods are stored by their registered names.
mod auth_method {
    use catalog::TokenEndpointAuthMethod;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape serde asks for")]
    pub(super) fn serialize<S: Serializer>(method: &TokenEndpointAuthMethod, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(method.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<TokenEndpointAuthMethod, D::Error> {
        let name = String::deserialize(input)?;
        TokenEndpointAuthMethod::parse(&name).ok_or_else(|| D::Error::custom("unknown authentication method"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A grant with that access token and a refresh token, valid for an hour.
    pub(crate) fn grant(access_token: &str) -> Grant {
        Grant {
            server_url: "https://mcp.example/mcp".into(),
            authorization_server: AuthorizationServer {
                issuer: "https://as.example".into(),
                token_endpoint: "https://as.example/token".into(),
                revocation_endpoint: None,
            },
            client: ClientIdentity {
                id: "client".into(),
                secret: None,
                secret_expires_at: None,
                auth_method: TokenEndpointAuthMethod::None,
                source: ClientSource::Registered,
                redirect_uri: Some("http://127.0.0.1:7/callback".into()),
            },
            resource: Some("https://mcp.example/mcp".into()),
            requested_scopes: vec!["read".into()],
            missing_scopes: Vec::new(),
            tokens: Tokens {
                access_token: access_token.into(),
                refresh_token: Some("refresh-1-secret".into()),
                issued_at: unix_now(),
                lifetime: Some(3600),
                scopes: vec!["read".into()],
            },
            refresh: None,
            sign_in_required: None,
        }
    }

    #[test]
    fn a_grant_is_read_as_it_was_written_and_never_shown() {
        let grant = grant("access-secret");
        assert_eq!(Grant::from_json(&grant.to_json()).unwrap(), grant);
        assert!(!format!("{grant:?}").contains("secret\""), "{grant:?}");
        assert_eq!(Grant::from_json("{}").unwrap_err(), MalformedGrant);
        assert!(grant.tokens.header().unwrap().is_sensitive());
    }

    #[test]
    fn the_refresh_margin_is_at_most_a_quarter_of_the_lifetime() {
        for (lifetime, margin) in [(4, 1), (3, 0), (60, 15), (3600, 300), (1 << 40, 300)] {
            let tokens = Tokens { issued_at: 1000, lifetime: Some(lifetime), ..grant("x").tokens };
            assert_eq!(tokens.refresh_at(), Some(1000 + lifetime - margin), "{lifetime}");
        }
        let tokens = Tokens { lifetime: None, ..grant("x").tokens };
        assert_eq!((tokens.refresh_at(), tokens.is_expired(u64::MAX)), (None, false));
    }
}
