//! One configured server: its name and how to start it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

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

/// What it takes to start a server over stdio. Checked, and its variables filled in.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// The key in the config.
    pub name: ServerName,
    /// The program: a path, or a name to be looked up in `PATH`. Not blank.
    pub command: String,
    /// The arguments after the program name.
    pub args: Vec<String>,
    /// Set on top of our own environment, in file order. Keys are unique, not empty and without `=`.
    pub env: Vec<(String, String)>,
    /// Where to start it; our own working directory when absent.
    pub cwd: Option<String>,
}

/// Stands for arguments or values that may hold a secret.
struct Hidden(usize);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} hidden]", self.0)
    }
}

// Tokens are passed in `env` and, against all advice, in `args`: a stray `{:?}` must not log them.
impl fmt::Debug for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env_keys: Vec<&str> = self.env.iter().map(|(key, _)| key.as_str()).collect();
        f.debug_struct("ServerSpec")
            .field("name", &self.name)
            .field("command", &self.command)
            .field("args", &Hidden(self.args.len()))
            .field("env_keys", &env_keys)
            .field("cwd", &self.cwd)
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
    fn the_debug_form_of_a_spec_shows_no_argument_and_no_env_value() {
        let spec = ServerSpec {
            name: ServerName::new("db").unwrap(),
            command: "npx".into(),
            args: vec!["--token=hunter2".into()],
            env: vec![("API_KEY".into(), "hunter2".into())],
            cwd: None,
        };
        let shown = format!("{spec:?} {spec:#?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("API_KEY") && shown.contains("npx"), "{shown}");
    }
}
