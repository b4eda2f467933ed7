//! Initial arguments: only values that are determined or proposed by the schema, and nothing that the user has to
//! decide.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// The depth limit, because schemas may be recursive.
const MAX_DEPTH: usize = 6;

/// The limit of members: a small schema can expand to a huge one.
const MAX_MEMBERS: usize = 1000;
/// The limit of a proposed value, as JSON.
const MAX_VALUE_LEN: usize = 10_000;

/// Required arguments as far as they need no decision: not the first of several choices, not an empty text, not zero.
pub(super) fn of(schema: &Value) -> Value {
    Example { root: schema, members_left: Cell::new(MAX_MEMBERS) }.members(schema, 0)
}

struct Example<'s> {
    /// The schema that references point into.
    root: &'s Value,
    members_left: Cell<usize>,
}

impl Example<'_> {
    fn members(&self, schema: &Value, depth: usize) -> Value {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut members = Map::new();
        for name in required {
            // A name may be required more than once.
            if self.members_left.get() == 0 || members.contains_key(name) {
                continue;
            }
            self.members_left.set(self.members_left.get() - 1);
            members.extend(self.value(&schema["properties"][name], depth).map(|value| (name.to_owned(), value)));
        }
        Value::Object(members)
    }

    fn value(&self, schema: &Value, depth: usize) -> Option<Value> {
        if let Some(value) = schema.get("default").or(schema.get("const")) {
            return Some(value.clone()).filter(|value| value.to_string().len() <= MAX_VALUE_LEN);
        }
        if can_be_null(schema) {
            return Some(Value::Null);
        }
        if let Some(meant) = meant(schema, self.root).filter(|_| depth < MAX_DEPTH) {
            return self.value(meant, depth + 1);
        }
        let has_members = schema["properties"].as_object().is_some_and(|members| !members.is_empty());
        if schema["type"] != "object" || !has_members {
            return None;
        }
        Some(if depth < MAX_DEPTH { self.members(schema, depth + 1) } else { json!({}) })
    }
}

/// The target of a schema that is only a reference.
fn meant<'s>(schema: &'s Value, root: &'s Value) -> Option<&'s Value> {
    if let Some(target) = schema["$ref"].as_str() {
        return root.pointer(target.strip_prefix('#')?);
    }
    match schema["allOf"].as_array()?.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

/// Whether null is allowed.
fn can_be_null(schema: &Value) -> bool {
    let among = |all: &Value| all.as_array().is_some_and(|all| all.iter().any(|one| one["type"] == "null"));
    let has_word = schema["type"].as_array().is_some_and(|words| words.iter().any(|word| word == "null"));
    schema["type"] == "null" || has_word || among(&schema["anyOf"]) || among(&schema["oneOf"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponential_schema_makes_a_small_example() {
        let names: Vec<String> = (0..40).map(|n| format!("p{n}")).collect();
        let properties: Map<String, Value> = names.iter().map(|name| (name.clone(), json!({"$ref": "#"}))).collect();
        let schema = json!({"type": "object", "properties": properties, "required": names});
        assert!(of(&schema).to_string().len() < 100 * MAX_MEMBERS);
        let repeated = vec!["a"; 10_000];
        let schema = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": repeated});
        assert!(of(&schema).to_string().len() < 100);
    }

    #[test]
    fn an_example_fills_in_what_is_unambiguous() {
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
