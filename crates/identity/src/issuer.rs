//! An identity provider: how it is configured, and what it publishes about itself.

use std::fmt;

use oauth::Secret;
use serde_json::{Map, Value};
use url::{Host, Url};

/// An issuer whose tokens are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSettings {
    /// Its identifier: an address, exactly as it stands in its tokens.
    pub issuer: String,
    /// Who we are there, to ask about tokens and to sign people in.
    pub client: Option<ClientSettings>,
}

/// A client that is registered at an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Its id.
    pub id: String,
    /// Its secret, if it has one.
    pub secret: Option<Secret>,
}

/// Why an issuer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerError {
    /// The issuer.
    pub issuer: String,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub hint: String,
    /// Whether it may pass by itself: the issuer is unreachable, or fails.
    pub is_temporary: bool,
}

impl fmt::Display for IssuerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the issuer {} cannot be used: {}", self.issuer, self.problem)
    }
}

impl std::error::Error for IssuerError {}

/// What an issuer publishes about itself (RFC 8414, OpenID Connect Discovery).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) jwks_uri: Option<String>,
    pub(crate) introspection_endpoint: Option<String>,
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    /// How a client authenticates, at the token endpoint and at the introspection endpoint.
    pub(crate) token_auth_methods: Vec<String>,
    pub(crate) introspection_auth_methods: Vec<String>,
    pub(crate) has_iss_parameter: bool,
    pub(crate) scopes_supported: Vec<String>,
}

/// Checks an identifier of an issuer. The error says what is expected.
pub fn check_issuer(text: &str) -> Result<(), String> {
    let expected = "expected the address of an identity provider, such as https://id.example.com/realms/team";
    let url = Url::parse(text).map_err(|error| format!("{error}; {expected}"))?;
    let has_more = url.query().is_some() || url.fragment().is_some() || !url.username().is_empty();
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() || has_more || text.contains(' ') {
        return Err(expected.to_owned());
    }
    if is_safe(&url) {
        Ok(())
    } else {
        Err("expected https: over http, anybody on the way could forge tokens".to_owned())
    }
}

/// Whether what comes from an address is what its owner sent.
fn is_safe(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback)
}

impl Metadata {
    /// Reads a document that was found for an issuer. The error says why it cannot be used.
    pub(crate) fn parse(body: &[u8], issuer: &str) -> Result<Self, String> {
        let document: Map<String, Value> =
            serde_json::from_slice(body).map_err(|_| "it is not a JSON object".to_owned())?;
        let text = |name: &str| document.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        match text("issuer") {
            Some(found) if found == issuer => {}
            Some(found) => return Err(format!("its `issuer` is {found:?}, and not exactly {issuer:?}")),
            None => return Err("it has no `issuer`".to_owned()),
        }
        let address = |name: &str| match text(name) {
            Some(address) if Url::parse(address).is_ok_and(|url| is_safe(&url)) => Ok(Some(address.to_owned())),
            Some(address) => Err(format!("its `{name}` is {address:?}, which is not an https address")),
            None => Ok(None),
        };
        let texts = |name: &str| {
            let items = document.get(name).and_then(Value::as_array);
            items.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        Ok(Self {
            jwks_uri: address("jwks_uri")?,
            introspection_endpoint: address("introspection_endpoint")?,
            authorization_endpoint: address("authorization_endpoint")?,
            token_endpoint: address("token_endpoint")?,
            token_auth_methods: texts("token_endpoint_auth_methods_supported"),
            introspection_auth_methods: texts("introspection_endpoint_auth_methods_supported"),
            has_iss_parameter: document.get("authorization_response_iss_parameter_supported")
                == Some(&Value::Bool(true)),
            scopes_supported: texts("scopes_supported"),
        })
    }
}
