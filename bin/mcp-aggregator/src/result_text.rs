//! The result of a call as text for people.

use protocol::scan::{elements, member};
use protocol::{Envelope, Kind, Span, text};
use registry::RawJson;
use serde_json::Value;

use crate::table::printable;

/// The result of a call as plain text: text blocks unchanged, other blocks as one line of JSON each, and
/// `structuredContent` if there is no block.
pub(crate) fn plain(result: &[u8]) -> Vec<u8> {
    let blocks = member(result, whole(result), "content").and_then(|content| elements(result, content));
    let blocks = blocks.unwrap_or_default();
    let mut out = Vec::new();
    for block in &blocks {
        match text_of(result, *block) {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.extend_from_slice(block.of(result)),
        }
        if !out.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    if blocks.is_empty()
        && let Some(structured) = member(result, whole(result), "structuredContent")
    {
        out.extend_from_slice(structured.of(result));
        out.push(b'\n');
    }
    out
}

/// Whether the tool reports that it failed.
pub(crate) fn is_error(result: &[u8]) -> bool {
    member(result, whole(result), "isError").is_some_and(|flag| flag.of(result) == b"true")
}

/// A JSON-RPC error in words.
pub(crate) fn refusal(error: &[u8]) -> String {
    let raw = |name: &str| member(error, whole(error), name).map(|span| String::from_utf8_lossy(span.of(error)));
    let message = member(error, whole(error), "message").and_then(|span| text::decode(span.of(error)));
    let Some(message) = message else { return String::from_utf8_lossy(error).into_owned() };
    let code = raw("code").map(|code| format!(" (code {code})")).unwrap_or_default();
    let data = raw("data").map(|data| format!("\n  data: {data}")).unwrap_or_default();
    format!("{message}{code}{data}")
}

/// JSON of a server as a tree; as text where a tree cannot represent it, such as a number that no double holds.
pub(crate) fn tree(json: &[u8]) -> Value {
    let text = String::from_utf8_lossy(json);
    RawJson::parse(&*text).map_or_else(|_| Value::String(text.to_string()), |json| json.to_value())
}

/// A member of an object as a tree; null without one. Another member that a tree cannot represent is no obstacle.
pub(crate) fn member_tree(object: &[u8], name: &str) -> Value {
    member(object, whole(object), name).map_or(Value::Null, |member| tree(member.of(object)))
}

/// `[3/10] reading␊files`, if `line` is a progress notification.
pub(crate) fn progress(line: &[u8]) -> Option<String> {
    let Envelope { kind: Kind::Notification { method }, params } = Envelope::scan(line).ok()? else { return None };
    if !text::token_is(method.of(line), "notifications/progress") {
        return None;
    }
    let params = params.span?;
    let raw = |name: &str| member(line, params, name).map(|span| String::from_utf8_lossy(span.of(line)));
    let total = raw("total").map(|total| format!("/{total}")).unwrap_or_default();
    let message = member(line, params, "message").and_then(|span| text::decode(span.of(line)));
    let message = message.map(|message| format!(" {message}")).unwrap_or_default();
    Some(printable(&format!("[{}{total}]{message}", raw("progress")?)))
}

fn text_of(result: &[u8], block: Span) -> Option<std::borrow::Cow<'_, str>> {
    let kind = member(result, block, "type")?;
    if kind.of(result) != b"\"text\"" {
        return None;
    }
    // A text with a lone surrogate cannot be decoded; such a block is printed as JSON.
    text::decode(member(result, block, "text")?.of(result))
}

fn whole(json: &[u8]) -> Span {
    Span { start: 0, end: json.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(result: &str) -> String {
        String::from_utf8(plain(result.as_bytes())).unwrap()
    }

    #[test]
    fn text_is_shown_as_it_is_and_the_rest_as_json_lines() {
        let image = r#"{"type":"image", "data":"AA==","n":1.0}"#;
        let result = format!(
            r#"{{"content":[{{"type":"text","text":"a\nb"}},{image},{{"type":"text","text":"end\n"}}],"structuredContent":{{}}}}"#
        );
        assert_eq!(shown(&result), format!("a\nb\n{image}\nend\n"));
        assert_eq!(
            shown(r#"{"content":[{"type":"text","text":"\ud800"}]}"#),
            "{\"type\":\"text\",\"text\":\"\\ud800\"}\n"
        );
    }

    #[test]
    fn structured_content_is_shown_only_if_there_is_nothing_else() {
        assert_eq!(shown(r#"{"content":[],"structuredContent":{"a": 1e2}}"#), "{\"a\": 1e2}\n");
        assert_eq!(shown(r#"{"structuredContent":{"a":1}}"#), "{\"a\":1}\n");
        assert_eq!(shown("{}"), "");
    }

    #[test]
    fn errors_are_reported_with_code_and_data() {
        assert_eq!(
            refusal(br#"{"code":-32602,"message":"no \"x\"","data":{"a":1}}"#),
            "no \"x\" (code -32602)\n  data: {\"a\":1}"
        );
        assert_eq!(refusal(br#"{"odd":1}"#), r#"{"odd":1}"#);
        assert!(is_error(br#"{"isError" : true}"#) && !is_error(br#"{"isError":false}"#) && !is_error(b"{}"));
    }

    #[test]
    fn what_no_tree_holds_costs_only_itself() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for odd in ["1e400", r#""\ud800""#, &deep] {
            let error = format!(r#"{{"code":1,"data":{{"reason":"r"}},"odd":{odd}}}"#);
            assert_eq!(tree(error.as_bytes()), Value::String(error.clone()));
            assert_eq!(member_tree(error.as_bytes(), "data")["reason"], "r");
            assert_eq!(member_tree(error.as_bytes(), "odd"), odd);
            assert_eq!(member_tree(error.as_bytes(), "none"), Value::Null);
        }
        assert_eq!(tree(br#"{"code":1}"#)["code"], 1);
    }

    #[test]
    fn progress_is_one_short_line() {
        let line = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":3,"total":10,"message":"reading\nfiles"}}"#;
        assert_eq!(progress(line).unwrap(), "[3/10] reading␊files");
        assert_eq!(
            progress(br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.5}}"#).unwrap(),
            "[0.5]"
        );
        assert_eq!(progress(br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"progress":1}}"#), None);
    }
}
