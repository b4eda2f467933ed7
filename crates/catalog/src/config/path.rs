//! A path in the config: `$.mcpServers.postgres.args[2]`.

use std::fmt;

#[derive(Debug, Clone)]
pub(crate) struct JsonPath(String);

impl JsonPath {
    pub(crate) fn root() -> Self {
        Self("$".to_owned())
    }

    /// The value of a key. A key that is not an identifier is quoted: `$.mcpServers["my key"]`.
    pub(crate) fn member(&self, key: &str) -> Self {
        if is_identifier(key) { Self(format!("{self}.{key}")) } else { Self(format!("{self}[{}]", quoted(key))) }
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        Self(format!("{self}[{index}]"))
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The text as a JSON string, with control characters escaped.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_follow_a_dot_and_other_keys_are_quoted() {
        let servers = JsonPath::root().member("mcpServers");
        assert_eq!(servers.member("git").member("args").index(2).to_string(), "$.mcpServers.git.args[2]");
        for (key, written) in [
            ("my key", r#""my key""#),
            ("my-key", r#""my-key""#),
            ("", r#""""#),
            ("9", r#""9""#),
            ("a\"b\\", r#""a\"b\\""#),
            ("\u{1b}[2J\u{9b}", r#""\u001b[2J\u009b""#),
        ] {
            assert_eq!(servers.member(key).to_string(), format!("$.mcpServers[{written}]"));
        }
    }
}
