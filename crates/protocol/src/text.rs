//! JSON string tokens, decoded and encoded.

use std::borrow::Cow;

/// The text of a string token (including quotes); `None` if it is not a string, or if it has a lone surrogate.
pub fn decode(token: &[u8]) -> Option<Cow<'_, str>> {
    let inner = token.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if !inner.contains(&b'\\') {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    let mut rest = std::str::from_utf8(inner).ok()?;
    let mut text = String::with_capacity(rest.len());
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let (character, used) = decode_escape(&rest.as_bytes()[at..])?;
        text.push(character);
        rest = &rest[at + used..];
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

/// The character of an escape, and the length of the escape in bytes.
fn decode_escape(escape: &[u8]) -> Option<(char, usize)> {
    let simple = match escape.get(1)? {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return decode_unicode(escape),
        &other => char::from(other),
    };
    Some((simple, 2))
}

fn decode_unicode(escape: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| u32::from_str_radix(std::str::from_utf8(escape.get(at..at + 4)?).ok()?, 16).ok();
    let first = unit(2)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    if escape.get(6..8) != Some(b"\\u") {
        return None;
    }
    let second = unit(8)?;
    let is_pair = (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second);
    is_pair.then(|| char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).map(|c| (c, 12)))?
}

/// Whether a string token has exactly this `text`, however it is escaped.
#[inline]
pub fn token_is(token: &[u8], text: &str) -> bool {
    let [b'"', inner @ .., b'"'] = token else { return false };
    if inner == text.as_bytes() {
        return !text.contains('\\');
    }
    // An escape is always longer than its character.
    inner.len() > text.len() && inner.contains(&b'\\') && decode(token).is_some_and(|decoded| decoded == text)
}

/// Appends `text` as a string token, including quotes.
pub fn encode(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    encode_inner(text, out);
    out.push(b'"');
}

/// Appends `text` as the content of a string token, without quotes.
pub fn encode_inner(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decodes_every_kind_of_escape() {
        let token = br#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00""#;
        assert_eq!(decode(token).unwrap(), "a\"\\/\u{8}\u{c}\n\r\té😀");
    }

    #[test]
    fn a_lone_surrogate_is_no_text() {
        for token in [&br#""\ud800""#[..], br#""\udc00""#, br#""\ud800\u0041""#, br#""\ud800x""#] {
            assert_eq!(decode(token), None);
        }
    }

    #[test]
    fn a_key_is_recognised_however_it_is_written() {
        assert!(token_is(br#""id""#, "id"));
        assert!(token_is(br#""\u0069d""#, "id"));
        assert!(token_is(br#""\u0069\u0064""#, "id"));
        assert!(!token_is(br#""ID""#, "id"));
        assert!(!token_is(br#""\u0069e""#, "id"));
        assert!(!token_is(br#""i""#, "id"));
        assert!(!token_is(br#""\n""#, "\\n"));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_again_and_serde_json_agrees(text in any::<String>()) {
            let mut token = Vec::new();
            encode(&text, &mut token);
            prop_assert_eq!(decode(&token).unwrap(), text.as_str());
            prop_assert_eq!(serde_json::from_slice::<String>(&token).unwrap(), text);
        }

        #[test]
        fn decodes_what_serde_json_decodes(inner in "([a-zé\"]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-Fd]{4}){0,12}") {
            let token = format!("\"{inner}\"");
            if let Ok(expected) = serde_json::from_str::<String>(&token) {
                prop_assert_eq!(decode(token.as_bytes()).unwrap(), expected);
            } else if serde_json::from_str::<&serde_json::value::RawValue>(&token).is_ok() {
                prop_assert_eq!(decode(token.as_bytes()), None);
            }
        }
    }
}
