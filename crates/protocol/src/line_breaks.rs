//! Joins a message of several lines into one line, which pipes require.

use memchr::{memchr2, memchr3};

/// Replaces each line break between two tokens by a space, which means the same there.
///
/// A raw line break inside a string is not JSON. It stays, so that the next parser rejects the message: a space instead
/// would make it a valid string with another meaning.
pub fn replace_line_breaks(message: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = memchr3(b'"', b'\n', b'\r', &message[at..]) {
        at += found;
        if message[at] == b'"' {
            at = end_of_string(message, at + 1);
        } else {
            message[at] = b' ';
            at += 1;
        }
    }
}

/// The index after the closing quote of a string whose content starts at `at`.
fn end_of_string(message: &[u8], mut at: usize) -> usize {
    while let Some(found) = message.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if message[at] == b'"' {
            return at + 1;
        }
        // An escaped character does not end the string.
        at += 2;
    }
    message.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(message: &str) -> String {
        let mut bytes = message.as_bytes().to_vec();
        replace_line_breaks(&mut bytes);
        String::from_utf8(bytes).expect("only ASCII is replaced, by ASCII")
    }

    #[test]
    fn line_breaks_between_tokens_become_blanks() {
        assert_eq!(replaced("{\r\n\"a\\\"\": 1,\n\"b\\\\\":\n[\n]}\n"), r#"{  "a\"": 1, "b\\": [ ]} "#);
    }

    #[test]
    fn line_breaks_inside_strings_stay() {
        for message in
            ["{\"a\":\"x\ny\"}", "{\"a\":\"x\ry\"}", "{\"a\nb\":1}", "{\"a\":\"\\\n\"}", "{\"a\":\"\\\"\n\"}"]
        {
            assert_eq!(replaced(message), message);
        }
    }

    #[test]
    fn what_never_ends_is_left_alone() {
        for message in ["\"", "\"a\n", "\"\\", "\"\\\"\n", ""] {
            assert_eq!(replaced(message), message);
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_json_stays_the_same_json_and_what_is_not_does_not_become_it(
            message in r#"[{}\[\]:,1 "\\\n\ra]{0,24}"#,
        ) {
            let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
            let now = replaced(&message);
            proptest::prop_assert_eq!(is_json(&message), is_json(&now));
            if is_json(&now).is_some() {
                proptest::prop_assert!(!now.contains(['\n', '\r']), "{now:?}");
            }
        }
    }
}
