//! The ids of our requests to servers.

use std::io::Write;

/// The number in an id or token of ours. A server must return it unchanged; some turn it into a string or a float,
/// which is unambiguous.
pub(crate) fn parse_request_id(token: &[u8]) -> Option<u64> {
    let inner = token.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(token);
    let digits = inner.strip_suffix(b".0").unwrap_or(inner);
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    is_plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// A number in decimal, without an allocation.
pub(crate) struct Digits {
    text: [u8; 20],
    length: usize,
}

impl Digits {
    /// The digits of `number`.
    pub(crate) fn new(number: u64) -> Self {
        let mut text = [0; 20];
        let mut rest = &mut text[..];
        write!(rest, "{number}").expect("twenty digits hold any u64");
        let length = 20 - rest.len();
        Self { text, length }
    }

    /// As they are written.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_and_read_back() {
        for number in [0, 7, 10, u64::MAX] {
            assert_eq!(parse_request_id(Digits::new(number).as_bytes()), Some(number));
        }
        for sloppy in ["\"7\"", "7.0"] {
            assert_eq!(parse_request_id(sloppy.as_bytes()), Some(7), "{sloppy}");
        }
        for foreign in ["-7", "+7", "7.5", "7e0", "null", "", "\"\"", "\"x\"", "18446744073709551616"] {
            assert_eq!(parse_request_id(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
