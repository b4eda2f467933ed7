//! Arguments to begin with: what can be nothing else or what its server proposes, and nothing that somebody has to decide.

use serde_json::{Map, Value, json};

/// Schemas may name themselves; so deep they are followed.
const DEEPEST: usize = 6;
/// So many values are looked at, and so long a proposal may be: a schema may name itself many times at each level.
const MOST_VALUES: usize = 1_000;
const LONGEST_DEFAULT: usize = 10_000;

/// Of what a tool must be given only that which needs nobody's word: nobody has agreed to the first of several, nor to a
/// text without letters, nor to nought.
pub(super) fn of(schema: &Value) -> Value {
    members(schema, schema, 0, &mut { MOST_VALUES })
}

fn members(schema: &Value, root: &Value, depth: usize, left: &mut usize) -> Value {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let member = |name: &str| Some((name.to_owned(), value(&schema["properties"][name], root, depth, left)?));
    Value::Object(required.filter_map(member).collect::<Map<_, _>>())
}

fn value(schema: &Value, root: &Value, depth: usize, left: &mut usize) -> Option<Value> {
    *left = left.checked_sub(1)?;
    if let Some(value) = schema.get("default").or(schema.get("const")) {
        return Some(value.clone()).filter(|_| is_short(value, &mut { LONGEST_DEFAULT }));
    }
    if can_be_null(schema) {
        return Some(Value::Null);
    }
    if let Some(meant) = meant(schema, root).filter(|_| depth < DEEPEST) {
        return value(meant, root, depth + 1, left);
    }
    let has_members = schema["properties"].as_object().is_some_and(|members| !members.is_empty());
    if schema["type"] != "object" || !has_members {
        return None;
    }
    Some(if depth < DEEPEST { members(schema, root, depth + 1, left) } else { json!({}) })
}

/// Whether a value has at most so many bytes, roughly.
fn is_short(value: &Value, left: &mut usize) -> bool {
    let own = 1 + value.as_str().map_or(0, str::len);
    let Some(rest) = left.checked_sub(own) else { return false };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| is_short(item, left)),
        Value::Object(members) => members.values().all(|member| is_short(member, left)),
        _ => true,
    }
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

    #[test]
    fn a_schema_that_names_itself_many_times_ends_soon() {
        let names: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
        let members: Map<String, Value> = names.iter().map(|name| (name.clone(), json!({"$ref": "#"}))).collect();
        let schema = json!({"type": "object", "required": names, "properties": members});
        // At every one of six levels a hundred members: 10^12 values.
        assert!(of(&schema).to_string().len() < 100_000);
    }
}
