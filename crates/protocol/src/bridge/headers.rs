//! The parts of modern requests that are repeated in HTTP headers, so that proxies need not read the body.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::envelope::Params;
use crate::text;

/// The revision.
pub const PROTOCOL_VERSION: &str = "MCP-Protocol-Version";
/// The method.
pub const METHOD: &str = "Mcp-Method";
/// The name of the tool or prompt, the URI of the resource, or the id of the task.
pub const NAME: &str = "Mcp-Name";
/// The prefix of headers that repeat an argument.
pub(crate) const PARAM_PREFIX: &str = "Mcp-Param-";

const ENCODED_PREFIX: &str = "=?base64?";
const ENCODED_SUFFIX: &str = "?=";

/// Encodes a header value: unchanged if a header can carry it, otherwise as marked Base64.
pub fn encode(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let is_padded = value.starts_with(' ') || value.ends_with(' ');
    let looks_encoded = value.starts_with(ENCODED_PREFIX) && value.ends_with(ENCODED_SUFFIX);
    if is_plain && !is_padded && !looks_encoded {
        return value.to_owned();
    }
    format!("{ENCODED_PREFIX}{}{ENCODED_SUFFIX}", STANDARD.encode(value))
}

/// Decodes a header value; `None` if it is marked as Base64 of a text and is not. White space around it is ignored.
pub fn decode(value: &str) -> Option<String> {
    let value = value.trim_matches([' ', '\t']);
    match value.strip_prefix(ENCODED_PREFIX).and_then(|value| value.strip_suffix(ENCODED_SUFFIX)) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

/// The value of the header [`NAME`] for such a request, not encoded; `None` if it has none.
pub fn name_of<'l>(method: &str, line: &'l [u8], params: &Params) -> Option<Cow<'l, str>> {
    let named = match method {
        "tools/call" | "prompts/get" => params.name,
        "resources/read" => params.uri,
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.task_id,
        _ => None,
    };
    text::decode(named?.of(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Envelope;
    use proptest::prelude::*;

    #[test]
    fn plain_text_is_sent_unchanged_and_anything_else_in_base64() {
        for (value, header) in [
            ("", ""),
            ("us-west1", "us-west1"),
            ("us west 1", "us west 1"),
            ("a=?base64?b?=", "a=?base64?b?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            (" us-west1", "=?base64?IHVzLXdlc3Qx?="),
            ("us-west1 ", "=?base64?dXMtd2VzdDEg?="),
            ("\tindented", "=?base64?CWluZGVudGVk?="),
            ("a\tb", "=?base64?YQli?="),
            ("line1\r\nline2", "=?base64?bGluZTENCmxpbmUy?="),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(value), header);
            assert_eq!(decode(header).unwrap(), value);
        }
    }

    #[test]
    fn a_value_marked_as_base64_must_be_some() {
        assert_eq!(decode("=?base64?SGVsbG8?="), None, "padding is missing");
        assert_eq!(decode("=?base64?SGVs!!!bG8=?="), None);
        assert_eq!(decode("=?base64?/w==?="), None, "not a text");
        assert_eq!(decode("SGVsbG8=").unwrap(), "SGVsbG8=");
        assert_eq!(decode("=?base64?SGVsbG8=").unwrap(), "=?base64?SGVsbG8=", "no mark without its end");
        assert_eq!(decode("=?base64?=").unwrap(), "=?base64?=");
        assert_eq!(decode("  echo\t").unwrap(), "echo", "blanks around a value are no part of it");
    }

    fn decode_marked(encoded: &str) -> Option<String> {
        decode(&format!("{ENCODED_PREFIX}{encoded}{ENCODED_SUFFIX}"))
    }

    #[test]
    fn reads_the_base64_that_others_write() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("Hello", "SGVsbG8=")]
        {
            assert_eq!(decode_marked(encoded).unwrap(), plain);
        }
    }

    #[test]
    fn a_value_has_no_second_spelling_in_base64() {
        for encoded in [
            "SGVsbG8",
            "SGVs!!!bG8=",
            "Zg=",
            "Zg",
            "Zh==",
            "Zm9=",
            "====",
            "=",
            "Z===",
            "Zg==Zg==",
            "Zm9v\n",
            "-_-_",
            "Zm 9",
            "é",
        ] {
            assert_eq!(decode_marked(encoded), None, "{encoded:?}");
        }
    }

    #[test]
    fn the_name_is_what_the_method_is_about() {
        let line = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"n\u0061","uri":"a:b","taskId":"t"}}"#;
        let params = Envelope::scan(line).unwrap().params;
        for (method, name) in [
            ("tools/call", Some("na")),
            ("prompts/get", Some("na")),
            ("resources/read", Some("a:b")),
            ("tasks/get", Some("t")),
            ("tools/list", None),
        ] {
            assert_eq!(name_of(method, line, &params).as_deref(), name, "{method}");
        }
        assert_eq!(name_of("tools/call", b"{}", &Params::default()), None);
    }

    proptest! {
        #[test]
        fn every_text_survives_a_header(value in any::<String>()) {
            let header = encode(&value);
            prop_assert!(header.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(decode(&header).unwrap(), value);
        }

        #[test]
        fn what_decodes_is_what_an_encoder_writes(encoded in "[A-Za-z0-9+/=]{0,12}") {
            if let Some(value) = decode_marked(&encoded) {
                prop_assert_eq!(STANDARD.encode(value), encoded);
            }
        }
    }
}
