//! Arguments to begin with: what a tool must be given, and nothing that somebody has to decide.

use serde_json::{Map, Value, json};

/// Schemas may name themselves; so deep they are followed.
const DEEPEST: usize = 6;

/// The least that a tool must be given, but for what must be chosen: nobody has agreed to the first of several.
pub(super) fn of(schema: &Value) -> Value {
    members(schema, schema, 0)
}

fn members(schema: &Value, root: &Value, depth: usize) -> Value {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let member = |name: &str| Some((name.to_owned(), value(&schema["properties"][name], root, depth)?));
    Value::Object(required.filter_map(member).collect::<Map<_, _>>())
}

/// What a schema refers to, or allows beside `null`.
fn meant<'s>(schema: &'s Value, root: &'s Value) -> Option<&'s Value> {
    if let Some(target) = schema["$ref"].as_str() {
        return root.pointer(target.strip_prefix('#')?);
    }
    let all = ["allOf", "anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array())?;
    all.iter().find(|one| one["type"] != "null")
}

fn is_choice(schema: &Value) -> bool {
    let is_one = |all: &Value| all.as_array().is_some_and(|all| all.iter().any(|one| one.get("const").is_some()));
    schema["enum"].is_array() || schema["type"] == "boolean" || is_one(&schema["oneOf"]) || is_one(&schema["anyOf"])
}

fn value(schema: &Value, root: &Value, depth: usize) -> Option<Value> {
    if let Some(value) = schema.get("default").or(schema.get("const")) {
        return Some(value.clone());
    }
    if is_choice(schema) {
        return None;
    }
    if let Some(meant) = meant(schema, root).filter(|_| depth < DEEPEST && schema["type"].is_null()) {
        return value(meant, root, depth + 1);
    }
    Some(match schema["type"].as_str() {
        Some("number" | "integer") => schema.get("minimum").cloned().unwrap_or(json!(0)),
        Some("array") => json!([]),
        Some("object") if depth >= DEEPEST => json!({}),
        Some("object") => members(schema, root, depth + 1),
        Some("null") => Value::Null,
        _ => json!(""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_has_what_is_required_and_decides_nothing() {
        let schema = json!({"required": ["a", "b", "c", "f", "g", "h"], "properties": {
            "a": {"type": "string"}, "b": {"enum": ["x", "y"]}, "c": {"type": "object", "required": ["d"], "properties": {"d": {"type": "integer", "minimum": 3}}}, "e": {},
            "f": {"type": "boolean"}, "g": {"type": "boolean", "default": true}, "h": {"const": "fixed"}}});
        assert_eq!(of(&schema), json!({"a": "", "c": {"d": 3}, "g": true, "h": "fixed"}));
        assert_eq!(of(&json!(true)), json!({}));
    }

    #[test]
    fn what_a_schema_refers_to_is_looked_at_and_never_for_ever() {
        let schema = json!({"required": ["node", "size"], "$defs": {"Node": {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/Node"}}}, "Size": {"enum": [1]}},
            "properties": {"node": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}, "size": {"$ref": "#/$defs/Size"}}});
        assert_eq!(of(&schema)["size"], Value::Null, "there is something to choose");
        assert!(of(&schema)["node"]["next"].is_object());
    }
}
