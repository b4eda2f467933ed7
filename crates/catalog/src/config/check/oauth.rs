//! The `oauth` key of a remote server. Other programs write it as well, so an unknown member is not an error.

use super::super::path::{JsonPath, quoted};
use super::super::tree::Node;
use super::report::Wanted;
use super::{Check, Entry, Variables};
use crate::oauth::{GrantType, OAuthSettings, ResourceParameter, TokenEndpointAuthMethod};

/// The key of the settings.
pub(super) const OAUTH: &str = "oauth";

/// The names of one setting. The first one is ours; the others are accepted.
type Names = &'static [&'static str];

const CLIENT_ID: Names = &["client_id", "clientId"];
const CLIENT_SECRET: Names = &["client_secret", "clientSecret"];
const SCOPES: Names = &["scopes", "scope"];
const REDIRECT_URI: Names = &["redirect_uri", "redirectUri"];
const CALLBACK_PORT: Names = &["callback_port", "callbackPort"];
const ISSUER: Names = &["issuer"];
const SERVER_METADATA_URL: Names = &["auth_server_metadata_url", "authServerMetadataUrl"];
const RESOURCE: Names = &["resource"];
const CLIENT_METADATA_URL: Names = &["client_metadata_url", "clientMetadataUrl"];
const AUTH_METHOD: Names = &["token_endpoint_auth_method", "tokenEndpointAuthMethod"];
const GRANT: Names = &["grant"];
const PRIVATE_KEY_FILE: Names = &["private_key_file", "privateKeyFile"];

impl Check<'_> {
    /// How to sign in to a remote server; `None` if nothing is configured.
    pub(super) fn oauth(&mut self, server: &Entry<'_>) -> Option<OAuthSettings> {
        let path = server.path.member(OAUTH);
        let members = match server.get(OAUTH)? {
            Node::Object(members) => members,
            Node::Bool(false) => return Some(OAuthSettings { grant: GrantType::None, ..OAuthSettings::default() }),
            Node::Bool(true) => return Some(OAuthSettings::default()),
            other => {
                self.wrong_kind(&path, other, Wanted::Object);
                return None;
            }
        };
        self.refuse_repeated_keys(&path, members);
        let entry = Entry { path, members, variables: server.variables, keys: None };
        let settings = OAuthSettings {
            client_id: self.setting(&entry, CLIENT_ID),
            client_secret: self.setting(&entry, CLIENT_SECRET),
            scopes: self.scopes(&entry),
            redirect_uri: self.http_address(&entry, REDIRECT_URI),
            callback_port: self.callback_port(&entry),
            issuer: self.http_address(&entry, ISSUER),
            server_metadata_url: self.http_address(&entry, SERVER_METADATA_URL),
            resource: self.resource(&entry),
            client_metadata_url: self.http_address(&entry, CLIENT_METADATA_URL),
            token_endpoint_auth_method: self.auth_method(&entry),
            grant: self.grant(&entry),
            private_key_file: self.setting(&entry, PRIVATE_KEY_FILE),
        };
        self.refuse_contradictions(&entry, &settings);
        Some(settings)
    }

    fn refuse_contradictions(&mut self, entry: &Entry<'_>, settings: &OAuthSettings) {
        let member = |names: Names| entry.path.member(names[0]);
        let needs_key = settings.token_endpoint_auth_method == Some(TokenEndpointAuthMethod::PrivateKeyJwt);
        if settings.client_secret.is_some() && settings.client_id.is_none() && find(entry, CLIENT_ID).is_none() {
            self.problem(&member(CLIENT_ID), "is missing, although `client_secret` is given");
        }
        if settings.redirect_uri.is_some() && settings.callback_port.is_some() {
            let hint = Some("keep only one of `redirect_uri` and `callbackPort`");
            self.problem_with_hint(&member(REDIRECT_URI), "contradicts \"callbackPort\"", hint);
        }
        if needs_key && find(entry, PRIVATE_KEY_FILE).is_none() {
            self.problem(&member(PRIVATE_KEY_FILE), "is missing: \"private_key_jwt\" signs with it");
        }
        if settings.grant != GrantType::ClientCredentials {
            return;
        }
        if find(entry, CLIENT_ID).is_none() {
            self.problem(&member(CLIENT_ID), "is missing: \"client_credentials\" needs a registered client");
        }
        if find(entry, CLIENT_SECRET).is_none() && find(entry, PRIVATE_KEY_FILE).is_none() {
            let hint = Some("give `client_secret` or `private_key_file`");
            self.problem_with_hint(&member(CLIENT_SECRET), "is missing: \"client_credentials\" needs one", hint);
        }
    }

    /// A text; the path of a problem has the name that was used.
    fn setting(&mut self, entry: &Entry<'_>, names: Names) -> Option<String> {
        let (path, value) = self.found(entry, names)?;
        Some(self.text_not_blank(&path, value, entry.variables)?.value)
    }

    fn found<'e>(&mut self, entry: &Entry<'e>, names: Names) -> Option<(JsonPath, &'e Node)> {
        let mut given = names.iter().filter_map(|name| Some((*name, entry.get(name)?)));
        let (name, value) = given.next()?;
        if let Some((second, _)) = given.next() {
            let message = format!("is the same setting as {}", quoted(name));
            self.problem_with_hint(&entry.path.member(second), message, Some("keep only one of the two"));
        }
        // Exports of other programs write unset members as null.
        (!matches!(value, Node::Null)).then(|| (entry.path.member(name), value))
    }

    fn http_address(&mut self, entry: &Entry<'_>, names: Names) -> Option<String> {
        let path = self.found(entry, names)?.0;
        let address = self.setting(entry, names)?;
        let is_http = ["http://", "https://"].iter().any(|scheme| address.to_ascii_lowercase().starts_with(scheme));
        if is_http || entry.variables == Variables::LeaveAlone {
            return Some(address);
        }
        self.problem(&path, "must start with http:// or https://");
        None
    }

    /// An array of scopes, or a string with spaces between them.
    fn scopes(&mut self, entry: &Entry<'_>) -> Option<Vec<String>> {
        let (path, value) = self.found(entry, SCOPES)?;
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        match value {
            Node::Array(items) => {
                let texts = items.iter().enumerate();
                let texts = texts.filter_map(|(at, item)| self.text(&path.index(at), item, entry.variables));
                Some(texts.flat_map(|text| words(&text)).collect())
            }
            Node::String(_) => Some(words(&self.text(&path, value, entry.variables)?)),
            other => {
                self.wrong_kind(&path, other, Wanted::Texts);
                None
            }
        }
    }

    fn callback_port(&mut self, entry: &Entry<'_>) -> Option<u16> {
        let (path, value) = self.found(entry, CALLBACK_PORT)?;
        let port = match value {
            Node::Number(number) if number.fract() == 0.0 && (1.0..=65535.0).contains(number) => Some(*number as u16),
            _ => None,
        };
        if port.is_none() {
            self.problem(&path, "must be a port: a number from 1 to 65535");
        }
        port
    }

    fn resource(&mut self, entry: &Entry<'_>) -> ResourceParameter {
        let Some((path, value)) = self.found(entry, RESOURCE) else { return ResourceParameter::FromMetadata };
        match value {
            Node::Bool(false) => ResourceParameter::Omitted,
            Node::String(_) => match self.text_not_blank(&path, value, entry.variables) {
                Some(text) => ResourceParameter::Exactly(text.value),
                None => ResourceParameter::FromMetadata,
            },
            other => {
                self.problem(&path, format!("must be a string or false, not {}", other.kind()));
                ResourceParameter::FromMetadata
            }
        }
    }

    fn auth_method(&mut self, entry: &Entry<'_>) -> Option<TokenEndpointAuthMethod> {
        let (path, value) = self.found(entry, AUTH_METHOD)?;
        let word = self.keyword(entry, &path, value)?;
        let method = TokenEndpointAuthMethod::parse(&word);
        if method.is_none() {
            let known = TokenEndpointAuthMethod::ALL.map(|method| quoted(method.as_str())).join(", ");
            self.problem(&path, format!("must be one of {known}"));
        }
        method
    }

    fn grant(&mut self, entry: &Entry<'_>) -> GrantType {
        let Some((path, value)) = self.found(entry, GRANT) else { return GrantType::default() };
        let Some(word) = self.keyword(entry, &path, value) else { return GrantType::default() };
        match word.as_str() {
            "authorization_code" => GrantType::AuthorizationCode,
            "client_credentials" => GrantType::ClientCredentials,
            _ => {
                self.problem(&path, "must be \"authorization_code\" or \"client_credentials\"");
                GrantType::default()
            }
        }
    }

    /// A word with its variables replaced; `None` if they are not.
    fn keyword(&mut self, entry: &Entry<'_>, path: &JsonPath, value: &Node) -> Option<String> {
        let word = self.text(path, value, entry.variables)?;
        let is_unknown = entry.variables == Variables::LeaveAlone && word.contains('$');
        (!is_unknown).then_some(word)
    }
}

fn find<'e>(entry: &Entry<'e>, names: Names) -> Option<&'e Node> {
    names.iter().find_map(|name| entry.get(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accepted, Config, Transport};

    fn parse(oauth: &str) -> Result<(OAuthSettings, crate::Secrets), String> {
        let text = format!(r#"{{"mcpServers": {{"s": {{"url": "https://x/mcp", "oauth": {oauth}}}}}}}"#);
        let lookup = |name: &str| (name == "SECRET").then(|| "hunter2-long".to_owned());
        let config = Config::parse(text.as_bytes(), Accepted::All, lookup).map_err(|error| error.to_string())?;
        let spec = config.servers.into_iter().next().expect("the server is not disabled");
        let Transport::Remote(remote) = spec.transport else { panic!("it is remote") };
        Ok((remote.oauth.expect("it is configured"), spec.secrets))
    }

    #[test]
    fn both_spellings_and_the_keys_of_claude_code_are_read() {
        let ours = r#"{"client_id": "c", "client_secret": "${SECRET}", "scopes": ["a", "b"], "callbackPort": 8080,
            "issuer": "https://as", "resource": false, "token_endpoint_auth_method": "client_secret_post"}"#;
        let theirs = r#"{"clientId": "c", "clientSecret": "hunter2-long", "scopes": "a b", "callback_port": 8080,
            "issuer": "https://as", "resource": false, "tokenEndpointAuthMethod": "client_secret_post", "x": [1]}"#;
        let (settings, secrets) = parse(ours).unwrap();
        assert_eq!(parse(theirs).unwrap().0, settings);
        assert_eq!(secrets.hide("it was hunter2-long"), "it was ***");
        assert!(!format!("{settings:?}").contains("hunter2"));
        let expected = OAuthSettings {
            client_id: Some("c".into()),
            client_secret: Some("hunter2-long".into()),
            scopes: Some(vec!["a".into(), "b".into()]),
            callback_port: Some(8080),
            issuer: Some("https://as".into()),
            resource: ResourceParameter::Omitted,
            token_endpoint_auth_method: Some(TokenEndpointAuthMethod::ClientSecretPost),
            ..OAuthSettings::default()
        };
        assert_eq!(settings, expected);
        let claude = parse(r#"{"clientId": "c", "authServerMetadataUrl": "https://as/meta"}"#).unwrap().0;
        assert_eq!(claude.server_metadata_url.as_deref(), Some("https://as/meta"));
        assert_eq!(parse("false").unwrap().0.grant, GrantType::None);
    }

    #[test]
    fn every_mistake_is_reported_at_its_place() {
        for (oauth, place, message) in [
            (r#"{"client_id": 5}"#, "oauth.client_id", "must be a string, not a number"),
            (r#"{"clientSecret": "x"}"#, "oauth.client_id", "is missing, although `client_secret` is given"),
            (r#"{"redirect_uri": "ftp://x"}"#, "oauth.redirect_uri", "must start with http:// or https://"),
            (r#"{"callbackPort": 70000}"#, "oauth.callbackPort", "must be a port: a number from 1 to 65535"),
            (r#"{"resource": true}"#, "oauth.resource", "must be a string or false, not a boolean"),
            (r#"{"grant": "password"}"#, "oauth.grant", "must be \"authorization_code\" or \"client_credentials\""),
            (r#"{"token_endpoint_auth_method": "x"}"#, "oauth.token_endpoint_auth_method", "must be one of \"none\""),
            (r#"{"scopes": 5}"#, "oauth.scopes", "must be an array of strings, not a number"),
            (r#"{"clientId": "a", "client_id": "b"}"#, "oauth.clientId", "is the same setting as \"client_id\""),
            (
                r#"{"grant": "client_credentials", "client_id": "c"}"#,
                "oauth.client_secret",
                "is missing: \"client_credentials\" needs one",
            ),
            (
                r#"{"client_id": "c", "token_endpoint_auth_method": "private_key_jwt"}"#,
                "oauth.private_key_file",
                "is missing: \"private_key_jwt\" signs with it",
            ),
            ("[]", "oauth", "must be an object, not an array"),
        ] {
            let error = parse(oauth).unwrap_err();
            assert!(error.contains(&format!("$.mcpServers.s.{place}  {message}")), "{oauth}: {error}");
        }
    }
}
