//! A configured server: its name and its transport.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use protocol::Lifecycle;

use crate::container::Container;
use crate::mask;
use crate::oauth::OAuthSettings;
use crate::secrets::Secrets;
use crate::sharing::Sharing;

/// The key of a server in the config, verbatim. Never empty.
///
/// Every tool, log line and error carries one, so a clone only counts a reference.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// A server must have a name, which distinguishes its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a server name must not be empty")]
pub struct EmptyServerName;

impl ServerName {
    /// Accepts any text but the empty one.
    pub fn new(name: &str) -> Result<Self, EmptyServerName> {
        if name.is_empty() {
            return Err(EmptyServerName);
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ServerName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

// Allows lookups by `&str` in maps with server names as keys.
impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A configured server, checked, with its variables replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// The key in the config.
    pub name: ServerName,
    /// Its transport.
    pub transport: Transport,
    /// The configured lifecycle; detected if absent.
    pub lifecycle: Option<Lifecycle>,
    /// The timeout of a request; the default if absent.
    pub timeout: Option<Duration>,
    /// The timeout of its start; the default if absent.
    pub start_timeout: Option<Duration>,
    /// Which clients share it.
    pub sharing: Sharing,
    /// Its secrets, which must not be shown.
    pub secrets: Secrets,
    /// Where its sign-in is stored; `None` if it cannot have one. It survives a restart, and contains no secret.
    pub grant_key: Option<String>,
}

/// The transport to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program that we start, over its stdin and stdout.
    Stdio(Program),
    /// A server elsewhere, over HTTP.
    Remote(Remote),
    /// A server in a container that we create.
    Container(Container),
}

/// A text with its variables replaced, which may contain a secret, and as it was written, which may be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Filled {
    /// With its variables replaced.
    pub value: String,
    /// As it was written, if that differs.
    written: Option<Box<str>>,
}

impl Filled {
    /// `value` is the result of replacing variables in `written`.
    pub fn new(value: String, written: &str) -> Self {
        let written = (value != written).then(|| written.into());
        Self { value, written }
    }

    /// The text as it was written.
    pub fn shown(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.value)
    }

    /// Whether it contains variables.
    pub fn has_variables(&self) -> bool {
        self.written.is_some()
    }
}

impl From<&str> for Filled {
    fn from(text: &str) -> Self {
        Self { value: text.to_owned(), written: None }
    }
}

impl fmt::Debug for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.shown(), f)
    }
}

/// How to start a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The program: a path, or a name that is looked up in `PATH`. Not blank.
    pub command: Filled,
    /// The arguments after the program name.
    pub args: Vec<String>,
    /// Added to our own environment, in file order. Keys are unique, not empty and without `=`.
    pub env: Vec<(String, String)>,
    /// The working directory; our own if absent.
    pub cwd: Option<Filled>,
}

/// How to reach a remote server.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// The address: `http://` or `https://`.
    pub url: Filled,
    /// Sent with every request, in file order. They may contain tokens.
    pub headers: Vec<(String, String)>,
    /// The HTTP transport it uses.
    pub dialect: Dialect,
    /// How to sign in, as far as the user decides it.
    pub oauth: Option<OAuthSettings>,
}

/// The two HTTP transports of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Not configured: try the newer, then the older.
    Unknown,
    /// Streamable HTTP: one address, responses as JSON or as a stream.
    Streamable,
    /// HTTP+SSE of 2024-11-05: a stream for responses, an address for requests.
    Sse,
}

impl Transport {
    /// A short description without secrets: the program, the address without its query, or the image.
    pub fn place(&self) -> Cow<'_, str> {
        match self {
            Self::Stdio(program) => program.command.shown().into(),
            Self::Remote(remote) => remote.place().into(),
            Self::Container(container) => container.image.shown().into(),
        }
    }
}

impl Remote {
    /// A server at that address, with these headers and nothing else configured.
    pub fn at(url: &str, headers: Vec<(String, String)>) -> Self {
        Self { url: url.into(), headers, dialect: Dialect::Unknown, oauth: None }
    }

    /// Whether the user configured its `Authorization` header, which takes precedence over a sign-in.
    pub fn has_authorization_header(&self) -> bool {
        self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    }

    /// The address as it was written, without password and query.
    pub fn place(&self) -> String {
        mask::address(self.url.shown())
    }
}

/// Stands for arguments or values that may contain a secret.
pub(crate) struct Hidden(pub(crate) usize);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} hidden]", self.0)
    }
}

// Tokens are passed in `env`, in headers and, although discouraged, in `args`: an accidental `{:?}` must not log them.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env_keys: Vec<&str> = self.env.iter().map(|(key, _)| key.as_str()).collect();
        f.debug_struct("Program")
            .field("command", &self.command)
            .field("args", &Hidden(self.args.len()))
            .field("env_keys", &env_keys)
            .field("cwd", &self.cwd)
            .finish()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header_names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Remote")
            .field("url", &self.place())
            .field("header_names", &header_names)
            .field("dialect", &self.dialect)
            .field("oauth", &self.oauth)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_server_name_is_any_text_but_the_empty_one() {
        assert_eq!(ServerName::new(""), Err(EmptyServerName));
        for name in ["git", "my server", "a:b", " ", "日本"] {
            assert_eq!(ServerName::new(name).unwrap().to_string(), name);
        }
    }

    #[test]
    fn a_map_of_server_names_is_looked_up_with_plain_text() {
        let map = HashMap::from([(ServerName::new("git").unwrap(), 7)]);
        assert_eq!(map.get("git"), Some(&7));
    }

    #[test]
    fn the_debug_form_of_a_spec_shows_no_secret() {
        let program = Program {
            command: "npx".into(),
            args: vec!["--token=hunter2".into()],
            env: vec![("API_KEY".into(), "hunter2".into())],
            cwd: None,
        };
        let remote = Remote {
            url: Filled::new("https://example.org/hunter2".into(), "https://example.org/$KEY?x=1"),
            headers: vec![("Authorization".into(), "Bearer hunter2".into())],
            dialect: Dialect::Unknown,
            oauth: Some(OAuthSettings { client_secret: Some("hunter2".into()), ..OAuthSettings::default() }),
        };
        let name = ServerName::new("db").unwrap();
        let specs = [Transport::Stdio(program), Transport::Remote(remote)].map(|transport| ServerSpec {
            name: name.clone(),
            transport,
            lifecycle: None,
            timeout: None,
            start_timeout: None,
            sharing: Sharing::default(),
            secrets: Secrets::default(),
            grant_key: None,
        });
        let shown = format!("{specs:?} {specs:#?} {}", specs[1].transport.place());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("API_KEY") && shown.contains("npx") && shown.contains("Authorization"), "{shown}");
    }
}
