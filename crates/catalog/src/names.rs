//! The names of tools for clients.
//!
//! Every tool has two names, and a call is accepted under either:
//!
//! - the **canonical** name, `server` + separator + `tool`, both verbatim;
//! - the **safe alias**, in the alphabet `[a-zA-Z0-9_-]{1,64}` that model APIs require.
//!
//! Names are built here and looked up whole; nothing ever splits one at the separator.

mod alias;
mod policy;

pub use alias::{safe_alias, safe_alias_long, sanitised};
pub use policy::{NamePolicy, NameStyle, UnknownNamePolicy};

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The canonical name of a tool.
pub fn canonical(server: &str, separator: &Separator, tool: &str) -> String {
    [server, separator.as_str(), tool].concat()
}

/// The separator of server and tool in a canonical name. `:` by default.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Separator(Arc<str>);

impl Separator {
    /// The separator as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Separator {
    fn default() -> Self {
        Self(":".into())
    }
}

impl AsRef<str> for Separator {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Separator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is not a valid separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSeparator {
    /// Server and tool would not be separated.
    #[error("the separator must not be empty")]
    Empty,
    /// No client accepts a tool name with white space.
    #[error("the separator must not contain white space")]
    WhiteSpace,
    /// It would garble terminals and logs.
    #[error("the separator must not contain control characters")]
    ControlCharacter,
}

impl FromStr for Separator {
    type Err = InvalidSeparator;

    fn from_str(text: &str) -> Result<Self, InvalidSeparator> {
        if text.is_empty() {
            return Err(InvalidSeparator::Empty);
        }
        if text.contains(char::is_whitespace) {
            return Err(InvalidSeparator::WhiteSpace);
        }
        if text.contains(char::is_control) {
            return Err(InvalidSeparator::ControlCharacter);
        }
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_canonical_name_joins_both_parts_verbatim() {
        let colon = Separator::default();
        assert_eq!(canonical("git", &colon, "log"), "git:log");
        assert_eq!(canonical("my server", &colon, "a:b"), "my server:a:b");
        assert_eq!(canonical("git", &"::".parse().unwrap(), "log"), "git::log");
    }

    #[test]
    fn a_separator_is_visible_text() {
        for good in [":", ".", "__", "/", "→"] {
            assert_eq!(good.parse::<Separator>().unwrap().to_string(), good);
        }
        assert_eq!("".parse::<Separator>(), Err(InvalidSeparator::Empty));
        for blank in [" ", "a b", "\t", "\n", "\u{a0}"] {
            assert_eq!(blank.parse::<Separator>(), Err(InvalidSeparator::WhiteSpace));
        }
        for control in ["\0", "\u{1b}[", "\u{7f}"] {
            assert_eq!(control.parse::<Separator>(), Err(InvalidSeparator::ControlCharacter));
        }
    }

    proptest! {
        #[test]
        fn a_canonical_name_begins_with_the_server_and_ends_with_the_tool(
            server in "\\PC{1,12}", separator in "[^\\s\\pC]{1,3}", tool in "\\PC{0,12}",
        ) {
            let separator: Separator = separator.parse().unwrap();
            let name = canonical(&server, &separator, &tool);
            let between = name.strip_prefix(&server).and_then(|rest| rest.strip_suffix(&tool));
            prop_assert_eq!(between, Some(separator.as_str()));
        }
    }
}
