//! The config file: `{"mcpServers": {"key": {"command": ..}}}`, as in Claude's configs, checked as a whole.
//!
//! There are two stages. First the bytes become a tree that keeps the order and duplicate keys; then every server is
//! checked, and its variables are replaced. All problems are reported, not only the first.
//!
//! Variables are replaced in the values we use (`type`, `command`, `args`, the values of `env`, `cwd`, `url`, the
//! values of `headers`, `oauth`, `docker`, `era`, `share`) and nowhere else: keys of other programs are ignored, whatever they contain.

mod check;
mod error;
mod excerpt;
pub(crate) mod path;
#[cfg(test)]
mod tests;
mod tree;

pub use error::{ConfigError, Problem, ProblemKind, Warning};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::jsonc;
use crate::server::{ServerName, ServerSpec};

/// The keys of a server's entry that [`Config`] reads. All others concern other programs, and are ignored.
pub const SERVER_KEYS: [&str; 19] = [
    "type",
    "transport",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
    "oauth",
    "docker",
    "era",
    "timeout",
    "startTimeout",
    "share",
    "max_instances",
    "enabled",
    "disabled",
];

/// A config without problems.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The servers to start, in file order. Their names are unique.
    pub servers: Vec<ServerSpec>,
    /// The servers with `"disabled": true` or `"enabled": false`, in file order.
    pub disabled: Vec<ServerName>,
    /// The servers that cannot start because variables they use have no value, in file order. Only
    /// [`Config::parse_each`] has any: [`Config::parse`] refuses such a file.
    pub unset: Vec<UnsetServer>,
    /// What works, but is probably not intended.
    pub warnings: Vec<Warning>,
}

/// A server that cannot start because variables it uses are not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsetServer {
    /// Its key in the file.
    pub name: ServerName,
    /// The variables, and where they are used.
    pub reason: String,
}

/// Which servers a program can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Those it starts itself. Others are refused, with a hint to the program that supports them.
    StdioOnly,
    /// Also those over HTTP, and those in containers. VS Code's top-level `servers` and `${env:NAME}` are accepted,
    /// too.
    All,
}

/// A variable of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// Its value.
    Set(String),
    /// It is not set.
    Unset,
    /// It is set, but its value is not UTF-8, so it cannot be used. Its default must not be used, either.
    NotUtf8,
}

impl From<Option<String>> for Variable {
    fn from(value: Option<String>) -> Self {
        value.map_or(Self::Unset, Self::Set)
    }
}

impl Config {
    /// Parses the bytes of a config file. `lookup` returns a variable.
    ///
    /// No error ever contains what `lookup` returned.
    pub fn parse<V: Into<Variable>>(
        bytes: &[u8],
        accepted: Accepted,
        lookup: impl Fn(&str) -> V,
    ) -> Result<Self, ConfigError> {
        let tree = parse_json(decode(bytes)?)?;
        let lookup = |name: &str| lookup(name).into();
        check::config(&tree, accepted, UnsetVariables::RefuseFile, &lookup).map_err(ConfigError::Problems)
    }

    /// The same, but a server whose variables are not set fails alone: it is in [`Config::unset`], and the others can start.
    pub fn parse_each<V: Into<Variable>>(
        bytes: &[u8],
        accepted: Accepted,
        lookup: impl Fn(&str) -> V,
    ) -> Result<Self, ConfigError> {
        let tree = parse_json(decode(bytes)?)?;
        let lookup = |name: &str| lookup(name).into();
        check::config(&tree, accepted, UnsetVariables::FailServer, &lookup).map_err(ConfigError::Problems)
    }

    /// The whole file as JSON, from the same parser: comments, trailing commas and a byte order mark are accepted.
    pub fn document(bytes: &[u8]) -> Result<Value, ConfigError> {
        parse_json(decode(bytes)?)
    }

    /// The servers as the file has them, variables untouched, in file order.
    pub fn entries(bytes: &[u8], accepted: Accepted) -> Result<Map<String, Value>, ConfigError> {
        let mut document = Self::document(bytes)?;
        let key = accepted.keys().iter().find(|key| document.get(**key).is_some());
        Ok(match key.map(|key| document[*key].take()) {
            Some(Value::Object(entries)) => entries,
            // `parse` reports other problems.
            _ => Map::new(),
        })
    }
}

impl Accepted {
    /// The top-level keys that may contain servers; the first one present is used.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::StdioOnly => &["mcpServers"],
            Self::All => &["mcpServers", OF_VS_CODE],
        }
    }
}

/// What VS Code calls `mcpServers`.
const OF_VS_CODE: &str = "servers";

/// How to treat a server whose variables are not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnsetVariables {
    RefuseFile,
    FailServer,
}

/// The text of the file, without the byte order mark that some editors write.
fn decode(bytes: &[u8]) -> Result<&str, ConfigError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        ConfigError::InvalidUtf8 {
            line: 1 + valid.iter().filter(|&&byte| byte == b'\n').count(),
            utf16: matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]),
        }
    })
}

fn parse_json<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    if text.trim().is_empty() {
        return Err(ConfigError::InvalidJson {
            line: 1,
            column: 1,
            excerpt: String::new(),
            reason: "the file is empty".to_owned(),
        });
    }
    // Configs of editors have comments, and people write them.
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&jsonc::plain(text))).map_err(|error| {
        let (column, excerpt) = excerpt::around(text, error.line(), error.column());
        let reason = error.to_string();
        let own_position = format!(" at line {} column {}", error.line(), error.column());
        let reason = reason.strip_suffix(&own_position).unwrap_or(&reason);
        ConfigError::InvalidJson { line: error.line(), column, excerpt, reason: reason.to_owned() }
    })
}
