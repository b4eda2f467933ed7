//! Reads and writes queries and forms.

use std::fmt::Write;

/// Names and values as they were sent, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Parses `a=1&b=2`. Invalid UTF-8 is replaced.
    pub(crate) fn read(text: &[u8]) -> Self {
        let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
                    (decoded(&pair[..at]), decoded(pair.get(at + 1..).unwrap_or_default()))
                })
                .collect(),
        )
    }

    /// The value of a name, if it was sent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The trimmed value of a name; None if it is empty.
    pub(crate) fn value_of(&self, name: &str) -> Option<&str> {
        self.get(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// The value of a name, or an empty text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Whether a checkbox was ticked.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The names with a prefix, without it, and their values.
    pub(crate) fn beginning_with<'f>(&'f self, start: &'f str) -> impl Iterator<Item = (&'f str, &'f str)> {
        self.0.iter().filter_map(move |(name, value)| Some((name.strip_prefix(start)?, value.as_str())))
    }

    /// Every value of a name.
    pub(crate) fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let escaped = if *first == b'%' { digit(0).zip(digit(1)) } else { None };
        rest = tail;
        match escaped {
            Some((high, low)) => {
                bytes.push(u8::try_from(high * 16 + low).expect("two hex digits make a byte"));
                rest = &tail[2..];
            }
            None => bytes.push(if *first == b'+' { b' ' } else { *first }),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Decodes one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    decoded(text.replace('+', "%2B").as_bytes())
}

/// Encodes a text for a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_~.".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes everything");
        }
        out
    })
}

/// A path with a query; pairs without a value are omitted.
pub(crate) fn address(path: &str, pairs: &[(&str, &str)]) -> String {
    let parts: Vec<String> = pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    if parts.is_empty() { path.to_owned() } else { format!("{path}?{}", parts.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let evil = "a b+c&d=e%zz/é\"<";
        let form = Form::read(format!("x={}&y&x=2&z=%", encoded(evil)).as_bytes());
        assert_eq!(form.get("x"), Some(evil));
        assert_eq!((form.get("y"), form.get("z"), form.get("w")), (Some(""), Some("%"), None));
        assert_eq!(form.all("x").count(), 2);
        assert_eq!(segment("a%20b+c"), "a b+c");
    }

    #[test]
    fn an_address_has_only_the_given_parts() {
        assert_eq!(address("/tools", &[("q", "a b"), ("server", "")]), "/tools?q=a%20b");
    }
}
