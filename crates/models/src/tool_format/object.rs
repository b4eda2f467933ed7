//! Schemas whose top is a plain object. OpenAI and Anthropic refuse `anyOf`, `oneOf`, `allOf`, `enum` and `not` there,
//! and OpenAI an object without `properties`, or an array without `items`, anywhere. Anthropic refuses properties of unusual
//! names. Each would refuse the whole request for one such tool. Everything else stays as the server gave it.

use std::collections::HashSet;

use serde_json::{Map, Value};

const UNWANTED: [&str; 6] = ["anyOf", "oneOf", "allOf", "enum", "not", "const"];

/// The same arguments as a schema with a plain object at the top. Constraints that cannot be expressed are dropped: a
/// model may then send arguments that the server refuses, and learns from the error.
pub(super) fn plain(schema: &Value) -> Value {
    let mut plain = with_plain_top(schema);
    say_items(&mut plain, 0);
    plain
}

/// The same, with everything below the top unchanged.
pub(super) fn with_plain_top(schema: &Value) -> Value {
    let mut top = schema.as_object().cloned().unwrap_or_default();
    let alternatives: Vec<(&str, Value)> =
        UNWANTED.iter().filter_map(|&word| Some((word, top.shift_remove(word)?))).collect();
    let mut properties = taken_object(&mut top, "properties");
    let mut required = taken_names(&mut top, "required");
    let mut known: HashSet<String> = required.iter().cloned().collect();
    for (word, branch) in
        alternatives.iter().flat_map(|(word, list)| list.as_array().into_iter().flatten().map(|branch| (*word, branch)))
    {
        for (name, schema) in branch.get("properties").and_then(Value::as_object).into_iter().flatten() {
            properties.entry(name).or_insert_with(|| schema.clone());
        }
        // A member that only one alternative requires is not always required.
        if word == "allOf" {
            required.extend(names(branch.get("required")).filter(|name| known.insert(name.clone())));
        }
    }
    top.insert("type".to_owned(), "object".into());
    top.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        top.insert("required".to_owned(), required.into());
    }
    Value::Object(top)
}

/// The same without properties that Anthropic would refuse. A model cannot use them, but it can use all other tools.
pub(super) fn with_usual_names(mut schema: Value) -> Value {
    leave_out_unusual(&mut schema, 0);
    schema
}

/// How deep schemas are visited.
const MAX_DEPTH: usize = 64;
/// The longest name of a property there.
const MAX_PROPERTY_NAME_LEN: usize = 64;

/// Adds `items` to arrays that have none.
fn say_items(schema: &mut Value, depth: usize) {
    let Some(members) = schema.as_object_mut().filter(|_| depth < MAX_DEPTH) else { return };
    let is_array = match members.get("type") {
        Some(Value::Array(types)) => types.iter().any(|word| word == "array"),
        word => word.is_some_and(|word| word == "array"),
    };
    if is_array && !["items", "prefixItems"].iter().any(|word| members.contains_key(*word)) {
        members.insert("items".to_owned(), Value::Object(Map::new()));
    }
    for_each_part(members, &mut |part| say_items(part, depth + 1));
}

fn leave_out_unusual(schema: &mut Value, depth: usize) {
    let Some(members) = schema.as_object_mut().filter(|_| depth < MAX_DEPTH) else { return };
    let is_usual = |name: &str| {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        (1..=MAX_PROPERTY_NAME_LEN).contains(&name.len()) && name.bytes().all(is_fine)
    };
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|name, _| is_usual(name));
    }
    if let Some(required) = members.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name.as_str().is_none_or(is_usual));
    }
    for_each_part(members, &mut |part| leave_out_unusual(part, depth + 1));
}

/// Visits every schema within a schema, but not examples and defaults.
fn for_each_part(members: &mut Map<String, Value>, apply: &mut dyn FnMut(&mut Value)) {
    for (word, value) in members {
        match (word.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(parts)) => {
                parts.values_mut().for_each(&mut *apply);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(parts)) => {
                parts.iter_mut().for_each(&mut *apply);
            }
            ("items" | "additionalProperties" | "not", part @ Value::Object(_)) => apply(part),
            _ => {}
        }
    }
}

fn taken_object(top: &mut Map<String, Value>, member: &str) -> Map<String, Value> {
    match top.get_mut(member).map(Value::take) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

fn taken_names(top: &mut Map<String, Value>, member: &str) -> Vec<String> {
    // Not `remove`, which would move another member to its place.
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
    fn an_ordinary_schema_stays_unchanged() {
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
    fn an_array_has_elements_whatever_they_are() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "array"},
            "b": {"type": ["array", "null"]},
            "c": {"type": "object", "properties": {"d": {"anyOf": [{"type": "array"}]}}, "default": {"type": "array"}},
            "e": {"type": "array", "items": {"type": "string"}},
        }});
        let converted = plain(&schema)["properties"].clone();
        assert_eq!((&converted["a"]["items"], &converted["b"]["items"]), (&json!({}), &json!({})));
        assert_eq!(converted["c"]["properties"]["d"]["anyOf"][0]["items"], json!({}));
        assert_eq!(converted["c"]["default"], json!({"type": "array"}), "that is no schema");
        assert_eq!(converted["e"], schema["properties"]["e"]);
    }

    #[test]
    fn properties_of_unusual_names_are_left_out_where_they_would_be_refused() {
        let schema = json!({"type": "object", "properties": {
            "$filter": {"type": "string"}, "top": {"type": "object", "properties": {"a b": {}, "a.b": {}}},
        }, "required": ["$filter", "top"]});
        let converted = with_usual_names(plain(&schema));
        let expected = json!({"top": {"type": "object", "properties": {"a.b": {}}}});
        assert_eq!((&converted["properties"], &converted["required"]), (&expected, &json!(["top"])));
        assert_eq!(plain(&schema)["required"], schema["required"]);
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
