//! Arguments to begin with: what can be nothing else or what its server proposes, and nothing that somebody has to decide.

use serde_json::{Map, Value, json};

/// Schemas may name themselves; so deep they are followed.
const DEEPEST: usize = 6;

/// Of what a tool must be given only that which needs nobody's word: nobody has agreed to the first of several, nor to a
/// text without letters, nor to nought.
pub(super) fn of(schema: &Value) -> Value {
    members(schema, schema, 0)
}

fn members(schema: &Value, root: &Value, depth: usize) -> Value {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let member = |name: &str| Some((name.to_owned(), value(&schema["properties"][name], root, depth)?));
    Value::Object(required.filter_map(member).collect::<Map<_, _>>())
}

fn value(schema: &Value, root: &Value, depth: usize) -> Option<Value> {
    if let Some(value) = schema.get("default").or(schema.get("const")) {
        return Some(value.clone());
    }
    if can_be_null(schema) {
        return Some(Value::Null);
    }
    if let Some(meant) = meant(schema, root).filter(|_| depth < DEEPEST) {
        return value(meant, root, depth + 1);
    }
    let has_members = schema["properties"].as_object().is_some_and(|members| !members.is_empty());
    if schema["type"] != "object" || !has_members {
        return None;
    }
    Some(if depth < DEEPEST { members(schema, root, depth + 1) } else { json!({}) })
}

/// What a schema refers to, if that is all it says.
fn meant<'s>(schema: &'s Value, root: &'s Value) -> Option<&'s Value> {
    if let Some(target) = schema["$ref"].as_str() {
        return root.pointer(target.strip_prefix('#')?);
    }
    match schema["allOf"].as_array()?.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

/// Whether nothing will do.
fn can_be_null(schema: &Value) -> bool {
    let among = |all: &Value| all.as_array().is_some_and(|all| all.iter().any(|one| one["type"] == "null"));
    let has_word = schema["type"].as_array().is_some_and(|words| words.iter().any(|word| word == "null"));
    schema["type"] == "null" || has_word || among(&schema["anyOf"]) || among(&schema["oneOf"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_has_what_needs_no_word_and_decides_nothing() {
        let schema = json!({"required": ["a", "b", "c", "f", "g", "h", "i", "j", "k"], "properties": {
            "a": {"type": "string"}, "b": {"enum": ["x", "y"]}, "c": {"type": "object", "required": ["d", "t"], "properties": {"d": {"type": "integer", "minimum": 3}, "t": {"const": "z"}}}, "e": {},
            "f": {"type": "boolean"}, "g": {"type": "boolean", "default": true}, "h": {"const": "fixed"}, "i": {"type": "array"},
            "j": {"anyOf": [{"type": "object", "properties": {"kind": {"const": "cat"}}}, {"type": "string"}]}, "k": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
        assert_eq!(of(&schema), json!({"c": {"t": "z"}, "g": true, "h": "fixed", "k": null}));
        assert_eq!(of(&json!(true)), json!({}));
    }

    #[test]
    fn what_a_schema_refers_to_is_looked_at_and_never_for_ever() {
        let schema = json!({"required": ["node", "size"], "$defs": {"Node": {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/Node"}}}, "Size": {"enum": [1]}},
            "properties": {"node": {"$ref": "#/$defs/Node"}, "size": {"$ref": "#/$defs/Size"}}});
        assert_eq!(of(&schema)["size"], Value::Null, "there is something to choose");
        assert!(of(&schema)["node"]["next"].is_object());
    }
}
