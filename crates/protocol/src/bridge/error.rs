//! Translates error codes that have a meaning in one lifecycle only.

use bytes::Bytes;

use crate::bridge::change::Change;
use crate::reply::code;
use crate::scan::{Span, member};

/// An error for a legacy client; `None` if it stays unchanged. `method` is that of the request.
///
/// Only one code would be misunderstood: a modern server reports a missing resource as an invalid parameter. The codes
/// that modern revisions add mean nothing to a legacy client, and are passed on with their messages.
pub fn to_legacy(line: &Bytes, error: Span, method: &str) -> Option<Bytes> {
    if method != "resources/read" {
        return None;
    }
    recoded(line, error, |found| (found == code::INVALID_PARAMS).then_some(code::RESOURCE_NOT_FOUND))
}

/// An error for a modern client; `None` if it stays unchanged. Two legacy codes must not occur there, whatever the
/// method.
pub fn to_modern(line: &Bytes, error: Span, _method: &str) -> Option<Bytes> {
    recoded(line, error, |found| match found {
        code::RESOURCE_NOT_FOUND => Some(code::INVALID_PARAMS),
        // A valid one becomes an elicitation (see `input::from_url_error`); this one is invalid.
        code::URL_ELICITATION_REQUIRED => Some(code::INTERNAL_ERROR),
        _ => None,
    })
}

fn recoded(line: &Bytes, error: Span, new: impl Fn(i32) -> Option<i32>) -> Option<Bytes> {
    let span = member(line, error, "code")?;
    let found = std::str::from_utf8(span.of(line)).ok()?.parse().ok()?;
    let mut change = Change::new(line);
    change.replace(span, new(found)?.to_string());
    Some(change.apply())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::change::whole;

    type Translation = fn(&Bytes, Span, &str) -> Option<Bytes>;

    fn translated(translation: Translation, error: &str, method: &str) -> Option<String> {
        let error = Bytes::copy_from_slice(error.as_bytes());
        translation(&error, whole(&error), method).map(|error| String::from_utf8(error.to_vec()).unwrap())
    }

    #[test]
    fn a_missing_resource_has_a_code_in_each_lifecycle() {
        let modern = r#"{"code": -32602,"message":"no","data":{"uri":"a:b"}}"#;
        let legacy = r#"{"code": -32002,"message":"no","data":{"uri":"a:b"}}"#;
        assert_eq!(translated(to_legacy, modern, "resources/read").unwrap(), legacy);
        assert_eq!(translated(to_modern, legacy, "resources/read").unwrap(), modern);
        assert_eq!(translated(to_modern, legacy, "tools/call").unwrap(), modern, "it must occur nowhere");
    }

    #[test]
    fn other_codes_pass() {
        for error in [r#"{"code":-32603}"#, r#"{"code":-32021}"#, r#"{"code":7}"#, r#"{"code":"x"}"#, "{}", "null"] {
            assert_eq!(translated(to_legacy, error, "resources/read"), None);
            assert_eq!(translated(to_modern, error, "resources/read"), None);
        }
        assert_eq!(translated(to_legacy, r#"{"code":-32602}"#, "tools/call"), None);
    }

    #[test]
    fn a_url_elicitation_that_cannot_be_bridged_is_an_error() {
        assert_eq!(translated(to_modern, r#"{"code":-32042}"#, "tools/call").unwrap(), r#"{"code":-32603}"#);
    }
}
