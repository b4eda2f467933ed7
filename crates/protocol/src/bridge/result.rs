//! Translates results between lifecycles: their type, their caching hints, and structured content.

use bytes::Bytes;

use crate::bridge::change::{Change, is_object};
use crate::bridge::definition;
use crate::reply;
use crate::scan::{Span, count_elements, elements, member};
use crate::text;

/// The type of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultType {
    /// A complete result; the default.
    Complete,
    /// The server requires input first.
    InputRequired,
    /// A type that an extension defines.
    Other(String),
}

/// The methods whose modern results must have caching hints.
pub(crate) const CACHEABLE: [&str; 6] =
    ["server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"];

/// The type of this result.
pub fn kind(line: &[u8], result: Span) -> ResultType {
    let Some(token) = member(line, result, "resultType").map(|span| span.of(line)) else {
        return ResultType::Complete;
    };
    match text::decode(token).as_deref() {
        Some("complete") => ResultType::Complete,
        Some("input_required") => ResultType::InputRequired,
        Some(other) => ResultType::Other(other.to_owned()),
        None => ResultType::Other(String::from_utf8_lossy(token).into_owned()),
    }
}

/// A result for a legacy client; `None` if it stays unchanged. `method` is that of the request.
pub fn to_legacy(line: &Bytes, result: Span, method: &str) -> Option<Bytes> {
    let mut change = Change::new(line);
    for name in ["resultType", "ttlMs", "cacheScope"] {
        change.remove_member(result, name);
    }
    match method {
        "tools/call" => keep_structured_content_an_object(&mut change, line, result),
        "tools/list" => keep_output_schemas_objects(&mut change, line, result),
        _ => {}
    }
    (!change.is_empty()).then(|| change.apply())
}

/// Legacy clients accept structured content only if it is an object, and reject the whole result otherwise. Servers
/// repeat it as text for them; if a server did not, this adds the text.
fn keep_structured_content_an_object(change: &mut Change, line: &[u8], result: Span) {
    let Some(structured) = change.member(result, "structuredContent") else { return };
    if is_object(line, structured) {
        return;
    }
    change.remove_member(result, "structuredContent");
    let blocks = change.member(result, "content").and_then(|content| count_elements(line, content));
    if matches!(blocks, None | Some(0)) {
        let text = reply::string(&String::from_utf8_lossy(structured.of(line)));
        let block = reply::object([("type", reply::string("text")), ("text", text)]);
        change.set_member(result, "content", &[b"[".as_slice(), &block, b"]"].concat());
    }
}

fn keep_output_schemas_objects(change: &mut Change, line: &[u8], result: Span) {
    let tools = change.member(result, "tools").and_then(|tools| elements(line, tools));
    for tool in tools.unwrap_or_default() {
        definition::keep_output_schema_an_object(change, line, tool);
    }
}

/// A result for a modern client; `None` if it stays unchanged. `method` is that of the request.
///
/// The results of a legacy server may not be cached or shared, because nothing in them allows it.
pub fn to_modern(line: &Bytes, result: Span, method: &str) -> Option<Bytes> {
    let mut change = Change::new(line);
    let mut default = |name: &str, value: &str| {
        if change.member(result, name).is_none() {
            change.set_member(result, name, value.as_bytes());
        }
    };
    default("resultType", "\"complete\"");
    if CACHEABLE.contains(&method) && kind(line, result) == ResultType::Complete {
        default("ttlMs", "0");
        default("cacheScope", "\"private\"");
    }
    (!change.is_empty()).then(|| change.apply())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Envelope, Kind};

    type Translation = fn(&Bytes, Span, &str) -> Option<Bytes>;

    fn translated(translation: Translation, result: &str, method: &str) -> Option<String> {
        let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        let Kind::Response { outcome: Ok(span), .. } = Envelope::scan(&line).unwrap().kind else { panic!() };
        let line = String::from_utf8(translation(&line, span, method)?.to_vec()).unwrap();
        let result = line.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#).unwrap();
        Some(result.strip_suffix('}').unwrap().to_owned())
    }

    fn legacy(result: &str, method: &str) -> Option<String> {
        translated(to_legacy, result, method)
    }

    fn modern(result: &str, method: &str) -> Option<String> {
        translated(to_modern, result, method)
    }

    #[test]
    fn a_legacy_client_sees_neither_kind_nor_caching() {
        let result = r#"{"resultType":"complete","tools":[ ],"ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#;
        let expected = r#"{"tools":[ ],"_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#;
        assert_eq!(legacy(result, "tools/list").unwrap(), expected);
        assert_eq!(legacy(r#"{"resultType":"complete"}"#, "x").unwrap(), "{}");
        assert_eq!(legacy(r#"{"content":[]}"#, "tools/call"), None);
        assert_eq!(legacy("null", "tools/call"), None);
    }

    #[test]
    fn structured_content_a_legacy_client_cannot_read_is_left_out() {
        let with_text = r#"{"content":[{"type":"text","text":"[1]"}],"structuredContent":[1]}"#;
        assert_eq!(legacy(with_text, "tools/call").unwrap(), r#"{"content":[{"type":"text","text":"[1]"}]}"#);
        let object = r#"{"content":[],"structuredContent":{"a":1}}"#;
        assert_eq!(legacy(object, "tools/call"), None);
        assert_eq!(legacy(with_text, "prompts/get"), None);
    }

    #[test]
    fn structured_content_that_is_all_there_is_becomes_text() {
        let expected = r#"{"content":[{"type":"text","text":"[1.0,\"é\"]"}]}"#;
        assert_eq!(legacy(r#"{"content":[],"structuredContent":[1.0,"é"]}"#, "tools/call").unwrap(), expected);
        assert_eq!(legacy(r#"{"structuredContent":[1.0,"é"]}"#, "tools/call").unwrap(), expected);
        assert_eq!(legacy(r#"{"structuredContent":[1.0,"é"],"content":null}"#, "tools/call").unwrap(), expected);
    }

    #[test]
    fn output_schemas_a_legacy_client_cannot_read_are_left_out() {
        let result = r#"{"tools":[{"name":"a","outputSchema":{"type":"array"}},{"name":"b","outputSchema":{"type":"object"}},{"outputSchema":true,"name":"c"},7]}"#;
        let expected = r#"{"tools":[{"name":"a"},{"name":"b","outputSchema":{"type":"object"}},{"name":"c"},7]}"#;
        assert_eq!(legacy(result, "tools/list").unwrap(), expected);
    }

    #[test]
    fn a_legacy_result_gets_its_kind_and_caching_for_a_modern_client() {
        assert_eq!(modern(r#"{"content":[]}"#, "tools/call").unwrap(), r#"{"content":[],"resultType":"complete"}"#);
        assert_eq!(modern("{}", "completion/complete").unwrap(), r#"{"resultType":"complete"}"#);
        for method in CACHEABLE {
            let expected = r#"{"a": 1,"resultType":"complete","ttlMs":0,"cacheScope":"private" }"#;
            assert_eq!(modern(r#"{"a": 1 }"#, method).unwrap(), expected);
        }
        let result = r#"{"ttlMs":7,"cacheScope":"public","resultType":"complete"}"#;
        assert_eq!(modern(result, "tools/list"), None);
        assert_eq!(modern(r#"{"resultType":"input_required"}"#, "resources/read"), None);
        assert_eq!(modern("[]", "tools/list"), None);
    }

    #[test]
    fn a_result_without_a_type_is_complete() {
        let kind = |result: &str| kind(result.as_bytes(), Span { start: 0, end: result.len() });
        assert_eq!(kind("{}"), ResultType::Complete);
        assert_eq!(kind(r#"{"resultType":"complete"}"#), ResultType::Complete);
        assert_eq!(kind(r#"{"resultType":"input\u005frequired"}"#), ResultType::InputRequired);
        assert_eq!(kind(r#"{"resultType":"task"}"#), ResultType::Other("task".to_owned()));
        assert_eq!(kind(r#"{"resultType":1}"#), ResultType::Other("1".to_owned()));
        assert_eq!(kind("7"), ResultType::Complete);
    }
}
