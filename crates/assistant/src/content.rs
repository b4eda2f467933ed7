//! Converts the result of a tool for a model: text and images, within a size limit.

use models::{Part, ToolCall, ToolResult};
use serde_json::Value;

/// How many characters of one result a model gets.
const MAX_RESULT_CHARS: usize = 40_000;

/// The result of a call, from the server's `result`.
pub(crate) fn result(call: &ToolCall, result: &str) -> ToolResult {
    let Ok(value) = serde_json::from_str::<Value>(result) else { return ToolResult::text(call, cut(result)) };
    let mut parts: Vec<Part> = value["content"].as_array().into_iter().flatten().filter_map(part).collect();
    if parts.is_empty() && !value["structuredContent"].is_null() {
        parts.push(Part::Text(value["structuredContent"].to_string()));
    }
    if parts.is_empty() {
        parts.push(Part::Text("(the tool returned nothing)".to_owned()));
    }
    let mut room = MAX_RESULT_CHARS;
    for part in &mut parts {
        if let Part::Text(text) = part {
            *text = cut_to(text, room);
            room = room.saturating_sub(text.chars().count());
        }
    }
    let is_error = value["isError"] == true;
    ToolResult { call: call.id.clone(), name: call.name.clone(), parts, is_error }
}

fn part(item: &Value) -> Option<Part> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match item["type"].as_str()? {
        "text" => text(&item["text"]).map(Part::Text),
        "image" => Some(Part::Image { media_type: text(&item["mimeType"])?, data: text(&item["data"])? }),
        "resource" => {
            let resource = &item["resource"];
            let name = text(&resource["uri"]).unwrap_or_default();
            let said = text(&resource["text"]).unwrap_or_else(|| "(not a text)".to_owned());
            Some(Part::Text(format!("{name}:\n{said}")))
        }
        "resource_link" => {
            let (uri, name) = (text(&item["uri"])?, text(&item["name"]).unwrap_or_default());
            Some(Part::Text(format!("a link to {name}: {uri}")))
        }
        other => Some(Part::Text(format!("(content of type {other})"))),
    }
}

/// The start of a result, for people.
pub(crate) fn excerpt(result: &ToolResult) -> String {
    let text = result.parts.iter().find_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Image { .. } => None,
    });
    text.unwrap_or_default().lines().next().unwrap_or_default().chars().take(200).collect()
}

fn cut(text: &str) -> String {
    cut_to(text, MAX_RESULT_CHARS)
}

fn cut_to(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most).collect();
    format!("{kept}\n[cut here: {} characters more]", count - most)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(result: &Value) -> ToolResult {
        let call = ToolCall { id: "1".to_owned(), name: "t".to_owned(), arguments: String::new() };
        super::result(&call, &result.to_string())
    }

    #[test]
    fn text_images_and_links_are_passed_on() {
        let content = json!([
            {"type": "text", "text": "a"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "x:y", "text": "b"}},
            {"type": "resource_link", "uri": "x:z", "name": "z"},
        ]);
        let parts = given(&json!({"content": content})).parts;
        let expected = ["a", "x:y:\nb", "a link to z: x:z"].map(|text| Part::Text(text.to_owned()));
        let picture = Part::Image { media_type: "image/png".to_owned(), data: "AA==".to_owned() };
        assert_eq!(parts, [expected[0].clone(), picture, expected[1].clone(), expected[2].clone()]);
    }

    #[test]
    fn long_values_are_truncated_and_marked() {
        let long = "é".repeat(MAX_RESULT_CHARS + 5);
        let result = given(&json!({"content": [{"type": "text", "text": long}], "isError": true}));
        let Part::Text(text) = &result.parts[0] else { panic!("no words") };
        assert!(text.ends_with("[cut here: 5 characters more]") && result.is_error);
    }

    #[test]
    fn a_result_without_content_shows_its_structured_content_or_none() {
        let text = |result: &Value| excerpt(&given(result));
        assert_eq!(text(&json!({"structuredContent": {"a": 1}, "content": []})), r#"{"a":1}"#);
        assert_eq!(text(&json!({})), "(the tool returned nothing)");
    }
}
