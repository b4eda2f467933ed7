//! One configured server: its name and how to start it.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use protocol::Lifecycle;

use crate::container::Container;
use crate::mask;
use crate::secrets::Secrets;

/// The key of a server in the config, verbatim. Never empty.
///
/// Every tool, log line and error carries one, so a clone only counts a reference.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// A server must have a name, because its tools are told apart by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a server name must not be empty")]
pub struct EmptyServerName;

impl ServerName {
    /// Takes any text but the empty one.
    pub fn new(name: &str) -> Result<Self, EmptyServerName> {
        if name.is_empty() {
            return Err(EmptyServerName);
        }
        Ok(Self(name.into()))
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ServerName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

// Lets a map keyed by server names be asked with a plain `&str`.
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

/// One configured server. Checked, and its variables filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// The key in the config.
    pub name: ServerName,
    /// How it is reached.
    pub transport: Transport,
    /// The kind of conversation to have with it; found out when absent.
    pub lifecycle: Option<Lifecycle>,
    /// The longest one request to it may take; as long as any other's when absent.
    pub timeout: Option<Duration>,
    /// How long it may take to become ready; as long as any other when absent.
    pub start_timeout: Option<Duration>,
    /// What must not be told of it.
    pub secrets: Secrets,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// We start it, and talk to it over its stdin and stdout.
    Stdio(Program),
    /// It runs elsewhere, and we talk to it over HTTP.
    Remote(Remote),
    /// We have a container made for it.
    Container(Container),
}

/// A text with its variables filled in, which may hold a secret since, and as it stood in the config, which may be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Filled {
    /// With its variables filled in.
    pub value: String,
    /// As it was written, where that is something else.
    written: Option<Box<str>>,
}

impl Filled {
    /// `value` is what became of `written`.
    pub fn new(value: String, written: &str) -> Self {
        let written = (value != written).then(|| written.into());
        Self { value, written }
    }

    /// The text as it was written.
    pub fn shown(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.value)
    }

    /// Whether it says more than the config does.
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

/// What it takes to start a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The program: a path, or a name to be looked up in `PATH`. Not blank.
    pub command: Filled,
    /// The arguments after the program name.
    pub args: Vec<String>,
    /// Set on top of our own environment, in file order. Keys are unique, not empty and without `=`.
    pub env: Vec<(String, String)>,
    /// Where to start it; our own working directory when absent.
    pub cwd: Option<Filled>,
}

/// What it takes to reach a server that runs elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// Where it is: `http://` or `https://`.
    pub url: Filled,
    /// Sent with every request, in file order. Tokens live here.
    pub headers: Vec<(String, String)>,
    /// Which of the two transports over HTTP it speaks.
    pub dialect: Dialect,
}

/// The two ways MCP goes over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Nobody said: try the newer, then the older.
    Unknown,
    /// Streamable HTTP: one address, answers as JSON or as a stream.
    Streamable,
    /// HTTP+SSE of 2024-11-05: a stream for answers, an address for requests.
    Sse,
}

impl Transport {
    /// Where the server is, in a word that holds no secret: its program, its address without what is behind `?`, or its image.
    pub fn place(&self) -> Cow<'_, str> {
        match self {
            Self::Stdio(program) => program.command.shown().into(),
            Self::Remote(remote) => remote.place().into(),
            Self::Container(container) => container.image.shown().into(),
        }
    }
}

impl Remote {
    /// Its address as it was written, without its password and what is behind `?`.
    pub fn place(&self) -> String {
        mask::place(self.url.shown())
    }
}

/// Stands for arguments or values that may hold a secret.
pub(crate) struct Hidden(pub(crate) usize);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} hidden]", self.0)
    }
}

// Tokens are passed in `env`, in headers and, against all advice, in `args`: a stray `{:?}` must not log them.
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
    fn a_map_of_server_names_is_asked_with_plain_text() {
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
        };
        let name = ServerName::new("db").unwrap();
        let specs = [Transport::Stdio(program), Transport::Remote(remote)].map(|transport| ServerSpec {
            name: name.clone(),
            transport,
            lifecycle: None,
            timeout: None,
            start_timeout: None,
            secrets: Secrets::default(),
        });
        let shown = format!("{specs:?} {specs:#?} {}", specs[1].transport.place());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("API_KEY") && shown.contains("npx") && shown.contains("Authorization"), "{shown}");
    }
}
