//! The fixed words of the registry: states, transports, kinds. Any case is read, lower case is shown, and the database
//! has them in upper case.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A word that is none of those it may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not a {what}; it may be {allowed}")]
pub struct UnknownValue {
    /// What was written.
    pub word: String,
    /// What was looked for, as in "transport".
    pub what: &'static str,
    /// The words there are, ready to be read.
    pub allowed: String,
}

/// A word of ours in upper case.
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
            /// Every one there is, in the order of their declaration.
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
        /// A program that we start.
        Stdio = "stdio",
        /// HTTP+SSE, as in 2024-11-05.
        Sse = "sse",
        /// Streamable HTTP.
        Http = "http",
    }
}

string_enum! {
    /// How things stand with a server.
    Status: "status" {
        /// Nobody is connected to it, and nobody tries.
        Disconnected = "disconnected",
        /// A connection is being made.
        Connecting = "connecting",
        /// It answers.
        Connected = "connected",
        /// It is connected, and failed lately.
        Degraded = "degraded",
        /// It cannot be reached; the error message says why.
        Error = "error",
        /// It is not to be connected: somebody, or too many failures, switched it off.
        Disabled = "disabled",
    }
}

impl Status {
    /// Whether a connection stands, well or not.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Connected | Self::Degraded)
    }
}

string_enum! {
    /// Who runs a server.
    Deployment: "deployment type" {
        /// We start and stop it.
        Managed = "managed",
        /// It runs elsewhere.
        External = "external",
    }
}

string_enum! {
    /// How a server came into the registry.
    Origin: "origin" {
        /// It was registered at run time, and may be changed and removed.
        Registered = "registered",
        /// A config file says it; it is changed there.
        Config = "config",
    }
}

string_enum! {
    /// What happened to a connection.
    EventKind: "event type" {
        /// A connection stands.
        Connected = "connected",
        /// It ended in good order.
        Disconnected = "disconnected",
        /// It failed, or the server did.
        Error = "error",
        /// It is being made for the first time.
        Connect = "connect",
        /// It is being made again.
        Reconnect = "reconnect",
    }
}

impl EventKind {
    /// What it means for the connection that a server's state became this.
    pub fn of(status: Status) -> Self {
        match status {
            Status::Connected => Self::Connected,
            Status::Disconnected | Status::Disabled => Self::Disconnected,
            Status::Degraded | Status::Error => Self::Error,
            Status::Connecting => Self::Reconnect,
        }
    }
}

string_enum! {
    /// How far an execution got.
    ExecutionStatus: "execution status" {
        /// It waits for its turn.
        Pending = "pending",
        /// The server has it.
        Executing = "executing",
        /// The tool answered.
        Success = "success",
        /// The tool, the server or the way there failed.
        Error = "error",
        /// Nothing came in time.
        Timeout = "timeout",
        /// Whoever asked, or the operator, took it back.
        Cancelled = "cancelled",
    }
}

impl ExecutionStatus {
    /// Whether nothing more will happen to it.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Executing)
    }
}

string_enum! {
    /// Which way a call came in.
    Source: "source" {
        /// An MCP client.
        Mcp = "mcp",
        /// The REST API.
        Rest = "rest",
        /// The command line.
        Cli = "cli",
        /// A code block that a person ran in a document.
        UserCodeblock = "user-codeblock",
        /// The assistant, by itself.
        AiAutonomous = "ai-autonomous",
    }
}

string_enum! {
    /// What part of a document a binding is about.
    SectionKind: "section type" {
        /// What stands under a heading.
        Heading = "heading",
        /// A block with an id.
        Block = "block",
        /// Lines from one to another.
        Range = "range",
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
    fn a_word_that_is_not_known_is_answered_with_those_that_are() {
        let error = "carrier pigeon".parse::<Transport>().unwrap_err();
        assert_eq!(error.to_string(), "`carrier pigeon` is not a transport; it may be stdio, sse, http");
    }
}
