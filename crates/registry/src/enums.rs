//! The enums of the registry: statuses, transports, kinds. They are read in any case, shown in lower case, and stored
//! in upper case.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A word that is not one of an enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not a {what}; expected {allowed}")]
pub struct UnknownValue {
    /// The word.
    pub word: String,
    /// The enum, such as "transport".
    pub what: &'static str,
    /// The allowed words.
    pub allowed: String,
}

/// A word in upper case.
const fn upper_case<const LENGTH: usize>(word: &str) -> [u8; LENGTH] {
    let mut upper = [0; LENGTH];
    upper.copy_from_slice(word.as_bytes());
    upper.make_ascii_uppercase();
    upper
}

macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident: $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word as it is shown.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The word as the database has it.
            pub(crate) const fn stored(self) -> &'static str {
                match self {
                    $(Self::$variant => {
                        const STORED: [u8; $word.len()] = upper_case($word);
                        match std::str::from_utf8(&STORED) {
                            Ok(stored) => stored,
                            Err(_) => panic!("upper case letters are text"),
                        }
                    })+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownValue;

            fn from_str(word: &str) -> Result<Self, UnknownValue> {
                let found = Self::ALL.iter().copied().find(|known| known.as_str().eq_ignore_ascii_case(word.trim()));
                found.ok_or_else(|| UnknownValue {
                    word: word.to_owned(),
                    what: $what,
                    allowed: Self::ALL.iter().map(|known| known.as_str()).collect::<Vec<_>>().join(", "),
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

string_enum! {
    /// How a server is reached.
    Transport: "transport" {
        /// A program that mcp-aggregator starts.
        Stdio = "stdio",
        /// HTTP+SSE, as in 2024-11-05.
        Sse = "sse",
        /// Streamable HTTP.
        Http = "http",
    }
}

string_enum! {
    /// The status of a server.
    Status: "status" {
        /// Not connected, and no attempt is made.
        Disconnected = "disconnected",
        /// Connecting.
        Connecting = "connecting",
        /// Connected.
        Connected = "connected",
        /// Connected, with recent failures.
        Degraded = "degraded",
        /// Unreachable; the error message has the reason.
        Error = "error",
        /// Disabled, by a user or after too many failures.
        Disabled = "disabled",
        /// Not connected until a person signs in to it; not a failure.
        SignInRequired = "sign_in_required",
    }
}

impl Status {
    /// Whether there is a connection.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Connected | Self::Degraded)
    }
}

string_enum! {
    /// Who runs a server.
    Deployment: "deployment type" {
        /// mcp-aggregator starts and stops it.
        Managed = "managed",
        /// It runs elsewhere.
        External = "external",
    }
}

string_enum! {
    /// Where a server is defined.
    Origin: "origin" {
        /// Registered at run time; it can be changed and removed.
        Registered = "registered",
        /// In the config file; it is changed there.
        Config = "config",
    }
}

string_enum! {
    /// An event of a connection.
    EventKind: "event type" {
        /// Connected.
        Connected = "connected",
        /// Disconnected regularly.
        Disconnected = "disconnected",
        /// The connection or the server failed.
        Error = "error",
        /// Connecting for the first time.
        Connect = "connect",
        /// Reconnecting.
        Reconnect = "reconnect",
    }
}

impl EventKind {
    /// The event for a new status of a server.
    pub fn of(status: Status) -> Self {
        match status {
            Status::Connected => Self::Connected,
            Status::Disconnected | Status::Disabled | Status::SignInRequired => Self::Disconnected,
            Status::Degraded | Status::Error => Self::Error,
            Status::Connecting => Self::Reconnect,
        }
    }
}

string_enum! {
    /// The status of an execution.
    ExecutionStatus: "execution status" {
        /// In the queue.
        Pending = "pending",
        /// Sent to the server.
        Executing = "executing",
        /// The tool returned a result.
        Success = "success",
        /// The tool, the server or the connection failed.
        Error = "error",
        /// It timed out.
        Timeout = "timeout",
        /// The caller or an operator cancelled it.
        Cancelled = "cancelled",
    }
}

impl ExecutionStatus {
    /// Whether the execution has ended.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Executing)
    }
}

string_enum! {
    /// Where a call comes from.
    Source: "source" {
        /// An MCP client.
        Mcp = "mcp",
        /// The REST API.
        Rest = "rest",
        /// The command line.
        Cli = "cli",
        /// A block of a document that a person ran.
        UserCodeblock = "user-codeblock",
        /// An assistant.
        AiAutonomous = "ai-autonomous",
    }
}

string_enum! {
    /// The kind of a section that a binding is for.
    SectionKind: "section type" {
        /// The section of a heading.
        Heading = "heading",
        /// A block with an id.
        Block = "block",
        /// A range of lines.
        Range = "range",
    }
}

string_enum! {
    /// What a limit of calls is for.
    LimitKind: "kind of limit" {
        /// Who makes a call.
        Identity = "identity",
        /// The profile of whoever makes it.
        Profile = "profile",
        /// The server that it is made to.
        Server = "server",
        /// The tool that is called.
        Tool = "tool",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_case_is_read_and_lower_case_is_shown() {
        for word in ["HTTP", "http", " Http "] {
            assert_eq!(word.parse::<Transport>().unwrap(), Transport::Http);
        }
        assert_eq!(Transport::Http.to_string(), "http");
        assert_eq!(Source::UserCodeblock.stored(), "USER-CODEBLOCK");
        assert_eq!(serde_json::to_string(&Status::Degraded).unwrap(), r#""degraded""#);
        assert_eq!(serde_json::from_str::<Status>(r#""DEGRADED""#).unwrap(), Status::Degraded);
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let error = "carrier pigeon".parse::<Transport>().unwrap_err();
        assert_eq!(error.to_string(), "`carrier pigeon` is not a transport; expected stdio, sse, http");
    }
}
