//! What a query or a form says, and how to write one.

use std::fmt::Write;

/// Names and values as they were sent, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads `a=1&b=2`. What is not UTF-8 is made so.
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

    /// The value of a name without the blanks around it; nothing if that is nothing.
    pub(crate) fn value_of(&self, name: &str) -> Option<&str> {
        self.get(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// The value of a name, or an empty text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Whether a box was ticked.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Names that begin so, without that beginning, and their values.
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

/// One part of a path, read.
pub(crate) fn segment(text: &str) -> String {
    decoded(text.replace('+', "%2B").as_bytes())
}

/// A text as it may stand in a path or a query.
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

/// A path with a query; pairs without a value are left out.
pub(crate) fn address(path: &str, pairs: &[(&str, &str)]) -> String {
    let said: Vec<String> = pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    if said.is_empty() { path.to_owned() } else { format!("{path}?{}", said.join("&")) }
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
    fn an_address_has_only_what_is_said() {
        assert_eq!(address("/tools", &[("q", "a b"), ("server", "")]), "/tools?q=a%20b");
    }
}
