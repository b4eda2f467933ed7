//! The documents that servers publish (RFC 9728, RFC 8414, OpenID Connect Discovery), and where they are.

use serde_json::{Map, Value};
use url::Url;

/// What a protected resource says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceMetadata {
    pub(crate) resource: String,
    pub(crate) authorization_servers: Vec<String>,
    pub(crate) scopes_supported: Option<Vec<String>>,
}

/// What an authorization server says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerMetadata {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: String,
    pub(crate) registration_endpoint: Option<String>,
    pub(crate) revocation_endpoint: Option<String>,
    pub(crate) scopes_supported: Option<Vec<String>>,
    pub(crate) code_challenge_methods_supported: Option<Vec<String>>,
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(crate) has_client_metadata_documents: bool,
    pub(crate) has_iss_parameter: bool,
}

/// The members of a JSON object; `None` for anything else, such as the page of a website.
pub(crate) fn object(body: &[u8]) -> Option<Map<String, Value>> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Some(members),
        _ => None,
    }
}

impl ResourceMetadata {
    /// `None` without a `resource`: then it is no such document.
    pub(crate) fn parse(members: &Map<String, Value>) -> Option<Self> {
        Some(Self {
            resource: text(members, "resource")?,
            authorization_servers: texts(members, "authorization_servers").unwrap_or_default(),
            scopes_supported: texts(members, "scopes_supported"),
        })
    }

    /// Whether it describes the server: its URL, or a prefix of it on the same origin.
    pub(crate) fn covers(&self, server: &Url) -> bool {
        let Ok(resource) = Url::parse(&self.resource) else { return false };
        let folder = |path: &str| if path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
        resource.origin() == server.origin() && folder(server.path()).starts_with(&folder(resource.path()))
    }
}

impl ServerMetadata {
    /// The error says what is missing.
    pub(crate) fn parse(members: &Map<String, Value>) -> Result<Self, &'static str> {
        let flag = |key: &str| members.get(key) == Some(&Value::Bool(true));
        Ok(Self {
            issuer: text(members, "issuer").ok_or("it has no `issuer`")?,
            authorization_endpoint: text(members, "authorization_endpoint"),
            token_endpoint: text(members, "token_endpoint").ok_or("it has no `token_endpoint`")?,
            registration_endpoint: text(members, "registration_endpoint"),
            revocation_endpoint: text(members, "revocation_endpoint"),
            scopes_supported: texts(members, "scopes_supported"),
            code_challenge_methods_supported: texts(members, "code_challenge_methods_supported"),
            token_endpoint_auth_methods_supported: texts(members, "token_endpoint_auth_methods_supported"),
            has_client_metadata_documents: flag("client_id_metadata_document_supported"),
            has_iss_parameter: flag("authorization_response_iss_parameter_supported"),
        })
    }

    /// The endpoints of a server of 2025-03-26 without metadata, at its own origin.
    pub(crate) fn at_origin(origin: &str) -> Self {
        Self {
            issuer: origin.to_owned(),
            authorization_endpoint: Some(format!("{origin}/authorize")),
            token_endpoint: format!("{origin}/token"),
            registration_endpoint: Some(format!("{origin}/register")),
            revocation_endpoint: None,
            scopes_supported: None,
            code_challenge_methods_supported: None,
            token_endpoint_auth_methods_supported: None,
            has_client_metadata_documents: false,
            has_iss_parameter: false,
        }
    }

    /// All of its addresses that we may use, by their names.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let optional = [
            ("authorization_endpoint", self.authorization_endpoint.as_deref()),
            ("registration_endpoint", self.registration_endpoint.as_deref()),
            ("revocation_endpoint", self.revocation_endpoint.as_deref()),
        ];
        let optional = optional.into_iter().filter_map(|(name, address)| Some((name, address?)));
        std::iter::once(("token_endpoint", self.token_endpoint.as_str())).chain(optional)
    }
}

/// Where the metadata of a resource may be, without an address from a challenge.
pub(crate) fn resource_metadata_addresses(server: &Url) -> Vec<Url> {
    let mut addresses = Vec::new();
    if server.path() != "/" {
        addresses.push(inserted(server, "/.well-known/oauth-protected-resource", server.path()));
    }
    addresses.push(inserted(server, "/.well-known/oauth-protected-resource", ""));
    addresses
}

/// Where the metadata of an authorization server may be.
pub fn server_metadata_addresses(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut addresses = vec![inserted(issuer, "/.well-known/oauth-authorization-server", path)];
    if !path.is_empty() {
        addresses.push(inserted(issuer, "/.well-known/openid-configuration", path));
    }
    addresses.push(inserted(issuer, path, "/.well-known/openid-configuration"));
    addresses
}

fn inserted(base: &Url, before: &str, after: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{before}{after}"));
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// The scheme, host and port of an address, without a slash.
pub(crate) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn text(members: &Map<String, Value>, key: &str) -> Option<String> {
    members.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn texts(members: &Map<String, Value>, key: &str) -> Option<Vec<String>> {
    let items = members.get(key)?.as_array()?;
    Some(items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn shown(addresses: &[Url]) -> Vec<&str> {
        addresses.iter().map(Url::as_str).collect()
    }

    #[test]
    fn metadata_is_looked_for_where_the_specification_says() {
        assert_eq!(
            shown(&resource_metadata_addresses(&url("https://a:8443/x/mcp?k=v#f"))),
            [
                "https://a:8443/.well-known/oauth-protected-resource/x/mcp",
                "https://a:8443/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            shown(&server_metadata_addresses(&url("https://a/t"))),
            [
                "https://a/.well-known/oauth-authorization-server/t",
                "https://a/.well-known/openid-configuration/t",
                "https://a/t/.well-known/openid-configuration"
            ]
        );
        for issuer in ["https://a", "https://a/"] {
            assert_eq!(
                shown(&server_metadata_addresses(&url(issuer))),
                ["https://a/.well-known/oauth-authorization-server", "https://a/.well-known/openid-configuration"]
            );
        }
    }

    #[test]
    fn a_resource_covers_its_url_and_what_is_below_it() {
        let covers = |resource: &str, server: &str| {
            let metadata = ResourceMetadata {
                resource: resource.to_owned(),
                authorization_servers: Vec::new(),
                scopes_supported: None,
            };
            metadata.covers(&url(server))
        };
        assert!(covers("https://a/mcp", "https://a/mcp"));
        assert!(covers("https://A:443/", "https://a/mcp/x?k=v"));
        assert!(covers("https://a/mcp/", "https://a/mcp"));
        for other in ["https://a/mc", "https://a/mcp/x", "https://b/mcp", "http://a/mcp", "https://a:1/mcp", "nonsense"]
        {
            assert!(!covers(other, "https://a/mcp"), "{other}");
        }
    }
}
