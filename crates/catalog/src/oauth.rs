//! How a user wants to sign in to a remote server: the key `oauth` of its entry.
//!
//! Everything is optional: each setting overrides one decision that is otherwise made from what the server and its
//! authorization server publish.

use std::fmt;

/// The overrides of one server. The default overrides nothing.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct OAuthSettings {
    /// The id of a client that is registered at the authorization server.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<String>,
    /// The scopes to ask for, instead of those that the server names.
    pub scopes: Option<Vec<String>>,
    /// The redirect address that is registered for the client.
    pub redirect_uri: Option<String>,
    /// The port of the redirect address `http://localhost:PORT/callback`, as Claude Code writes it.
    pub callback_port: Option<u16>,
    /// The authorization server to use, exactly as its metadata spells it.
    pub issuer: Option<String>,
    /// Where the metadata of the authorization server is, instead of the well-known addresses.
    pub server_metadata_url: Option<String>,
    /// The `resource` parameter.
    pub resource: ResourceParameter,
    /// The public address of a client ID metadata document.
    pub client_metadata_url: Option<String>,
    /// How the client authenticates at the token endpoint.
    pub token_endpoint_auth_method: Option<TokenEndpointAuthMethod>,
    /// How tokens are obtained.
    pub grant: GrantType,
    /// A file with the private key for `private_key_jwt`: PKCS #8 in PEM.
    pub private_key_file: Option<String>,
}

/// What is sent as `resource` (RFC 8707).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ResourceParameter {
    /// What the resource metadata says, else the URL of the server.
    #[default]
    FromMetadata,
    /// This value.
    Exactly(String),
    /// Nothing: some authorization servers refuse the parameter.
    Omitted,
}

/// How tokens are obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GrantType {
    /// A person signs in with a browser.
    #[default]
    AuthorizationCode,
    /// The client authenticates itself; no person is involved.
    ClientCredentials,
    /// Not at all (`"oauth": false`): a 401 is only reported.
    None,
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenEndpointAuthMethod {
    /// `none`: a public client sends its id only.
    None,
    /// `client_secret_basic`: id and secret in the `Authorization` header.
    ClientSecretBasic,
    /// `client_secret_post`: id and secret in the body.
    ClientSecretPost,
    /// `private_key_jwt`: an assertion signed with a private key.
    PrivateKeyJwt,
}

impl TokenEndpointAuthMethod {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::ClientSecretBasic, Self::ClientSecretPost, Self::PrivateKeyJwt];

    /// The registered name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
        }
    }

    /// The method of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

// The secret must not be logged with the other settings.
impl fmt::Debug for OAuthSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthSettings")
            .field("client_id", &self.client_id)
            .field("client_secret", &self.client_secret.as_ref().map(|_| "***"))
            .field("scopes", &self.scopes)
            .field("redirect_uri", &self.redirect_uri)
            .field("callback_port", &self.callback_port)
            .field("issuer", &self.issuer)
            .field("server_metadata_url", &self.server_metadata_url)
            .field("resource", &self.resource)
            .field("client_metadata_url", &self.client_metadata_url)
            .field("token_endpoint_auth_method", &self.token_endpoint_auth_method)
            .field("grant", &self.grant)
            .field("private_key_file", &self.private_key_file)
            .finish()
    }
}
