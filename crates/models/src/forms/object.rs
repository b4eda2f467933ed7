//! Schemas whose top is a plain object. OpenAI and Anthropic refuse `anyOf`, `oneOf`, `allOf`, `enum` and `not` there,
//! and OpenAI an object without `properties`. Below the top everything stays as the server gave it.

use serde_json::{Map, Value};

const UNWANTED: [&str; 6] = ["anyOf", "oneOf", "allOf", "enum", "not", "const"];

/// The same arguments, described by an object at the top. What cannot be said so is left out: a model may then give
/// arguments that the server refuses, and learns from its answer.
pub(super) fn plain(schema: &Value) -> Value {
    let mut top = schema.as_object().cloned().unwrap_or_default();
    let alternatives: Vec<(&str, Value)> =
        UNWANTED.iter().filter_map(|&word| Some((word, top.shift_remove(word)?))).collect();
    let mut properties = taken_object(&mut top, "properties");
    let mut required = taken_names(&mut top, "required");
    for (word, branch) in
        alternatives.iter().flat_map(|(word, list)| list.as_array().into_iter().flatten().map(|branch| (*word, branch)))
    {
        for (name, schema) in branch.get("properties").and_then(Value::as_object).into_iter().flatten() {
            properties.entry(name).or_insert_with(|| schema.clone());
        }
        // What only one of several alternatives wants is not wanted always.
        if word == "allOf" {
            required.extend(names(branch.get("required")).filter(|name| !required.contains(name)).collect::<Vec<_>>());
        }
    }
    top.insert("type".to_owned(), "object".into());
    top.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        top.insert("required".to_owned(), required.into());
    }
    Value::Object(top)
}

fn taken_object(top: &mut Map<String, Value>, member: &str) -> Map<String, Value> {
    match top.get_mut(member).map(Value::take) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

fn taken_names(top: &mut Map<String, Value>, member: &str) -> Vec<String> {
    // Not `remove`, which would give another member its place.
    let found: Vec<String> = names(top.get(member)).collect();
    if found.is_empty() {
        top.shift_remove(member);
    }
    found
}

fn names(list: Option<&Value>) -> impl Iterator<Item = String> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_ordinary_schema_stays_as_it_is() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/b"}]}},
            "required": ["a"],
            "additionalProperties": false,
            "$defs": {"b": {"type": "integer"}},
        });
        assert_eq!(plain(&schema).to_string(), schema.to_string());
    }

    #[test]
    fn alternatives_at_the_top_become_one_object_that_allows_them_all() {
        let schema = json!({
            "oneOf": [
                {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
                {"properties": {"name": {"type": "string"}}, "required": ["name"]},
            ],
            "allOf": [{"properties": {"user": {}}, "required": ["user"]}],
        });
        let properties = json!({"id": {"type": "integer"}, "name": {"type": "string"}, "user": {}});
        assert_eq!(plain(&schema), json!({"type": "object", "properties": properties, "required": ["user"]}));
    }
}
