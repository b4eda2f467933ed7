//! The subset of JSON Schema that Gemini supports, a selection of OpenAPI 3.0. An unknown keyword fails the whole
//! request, so only known ones are kept.
//!
//! - Kept: `type`, `title`, `description`, `nullable`, `enum` (of strings), `items`, `minItems`, `maxItems`,
//!   `properties`, `required` (of known properties), `minProperties`, `maxProperties`, `minimum`, `maximum`,
//!   `minLength`, `maxLength`, `pattern`, `anyOf`, `default`, `example`, and `format` if it is `date-time`, `enum`,
//!   `float`, `double`, `int32` or `int64`.
//! - Converted: `$ref` within the schema is replaced by its target; `oneOf` becomes `anyOf`; `allOf` is merged; several
//!   types become `anyOf`; `null` becomes `nullable`; `const` becomes an `enum`; an `enum` of other values than strings
//!   becomes text in the description; a tuple becomes a list of any of its parts.
//! - Dropped: everything else, such as `additionalProperties`, `patternProperties`, `exclusiveMinimum`, `not`, `if`.

use std::cell::Cell;

use schema::CopyBudget;
use serde_json::{Map, Value, json};

use super::Cost;

/// The limits of depth and number of parts, where recursive schemas end.
const MAX_DEPTH: usize = 12;
const MAX_SCHEMA_PARTS: usize = 2000;

const KEPT: [&str; 15] = [
    "title",
    "description",
    "nullable",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "default",
    "example",
    "propertyOrdering",
];

const FORMATS: [&str; 6] = ["date-time", "enum", "float", "double", "int32", "int64"];

/// The schema for Gemini, as far as it can be expressed within the limit of copied values.
pub(super) fn schema(schema: &Value, most_copied: usize) -> (Value, Cost) {
    let top = super::object::with_plain_top(schema);
    let copies = CopyBudget::of(most_copied);
    let translation = Translation { root: schema, parts: Cell::new(0), copies, is_cut: Cell::new(false) };
    let mut result = translation.translated(&top, 0);
    result.insert("type".to_owned(), "object".into());
    let cost = Cost { copied: most_copied - translation.copies.left(), is_cut: translation.is_cut.get() };
    (Value::Object(result), cost)
}

struct Translation<'s> {
    root: &'s Value,
    /// How many parts were visited.
    parts: Cell<usize>,
    /// How much may still be copied for one tool.
    copies: CopyBudget,
    /// Whether a part was omitted because the schema is too large.
    is_cut: Cell<bool>,
}

impl Translation<'_> {
    /// A copy of a schema's members; None if it is not an object, or the budget is spent.
    fn copy(&self, schema: &Value) -> Option<Map<String, Value>> {
        if !schema.is_object() {
            return None;
        }
        match self.copies.copy(schema) {
            Some(Value::Object(members)) => Some(members),
            _ => self.cut(),
        }
    }

    /// Records that a part was omitted.
    fn cut<T>(&self) -> Option<T> {
        self.is_cut.set(true);
        None
    }

    fn translated(&self, schema: &Value, depth: usize) -> Map<String, Value> {
        let mut result = Map::new();
        let Some(schema) = self.whole(schema, depth) else { return result };
        let (types, mut is_nullable) = types(&schema);
        match types.as_slice() {
            [] => {}
            [one] => {
                result.insert("type".to_owned(), (*one).into());
            }
            several => {
                let each: Vec<Value> = several.iter().map(|one| json!({ "type": one })).collect();
                result.insert("anyOf".to_owned(), each.into());
            }
        }
        for word in KEPT {
            result.extend(schema.get(word).map(|value| (word.to_owned(), value.clone())));
        }
        if let Some(format) =
            schema.get("format").filter(|format| format.as_str().is_some_and(|f| FORMATS.contains(&f)))
        {
            result.insert("format".to_owned(), format.clone());
        }
        for list in ["anyOf", "oneOf"] {
            let Some(branches) = schema.get(list).and_then(Value::as_array) else { continue };
            let (nulls, others): (Vec<&Value>, Vec<&Value>) =
                branches.iter().partition(|branch| branch.get("type").is_some_and(|kind| kind == "null"));
            is_nullable |= !nulls.is_empty();
            self.add_alternatives(&mut result, &others, depth);
        }
        self.add_properties(&mut result, &schema, depth);
        self.add_items(&mut result, &schema, depth);
        add_values(&mut result, &schema);
        if is_nullable {
            result.insert("nullable".to_owned(), true.into());
        }
        result
    }

    fn add_alternatives(&self, result: &mut Map<String, Value>, branches: &[&Value], depth: usize) {
        if let [only] = branches {
            for (word, value) in self.translated(only, depth + 1) {
                result.entry(word).or_insert(value);
            }
            return;
        }
        let each: Vec<Value> =
            branches.iter().map(|branch| Value::Object(self.translated(branch, depth + 1))).collect();
        if !each.is_empty() {
            result.insert("anyOf".to_owned(), each.into());
        }
    }

    fn add_properties(&self, result: &mut Map<String, Value>, schema: &Map<String, Value>, depth: usize) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        let each: Map<String, Value> = properties
            .iter()
            .map(|(name, schema)| (name.clone(), Value::Object(self.translated(schema, depth + 1))))
            .collect();
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: Vec<Value> =
            required.filter(|name| name.as_str().is_some_and(|name| each.contains_key(name))).cloned().collect();
        if !each.is_empty() {
            result.insert("properties".to_owned(), Value::Object(each));
        }
        if !required.is_empty() {
            result.insert("required".to_owned(), required.into());
        }
    }

    fn add_items(&self, result: &mut Map<String, Value>, schema: &Map<String, Value>, depth: usize) {
        let tuple = schema.get("prefixItems").or_else(|| schema.get("items")).and_then(Value::as_array);
        if let Some(parts) = tuple {
            let mut items = Map::new();
            self.add_alternatives(&mut items, &parts.iter().collect::<Vec<_>>(), depth);
            result.insert("items".to_owned(), Value::Object(items));
        } else if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            result.insert("items".to_owned(), Value::Object(self.translated(items, depth + 1)));
        } else if result.get("type").is_some_and(|kind| kind == "array") {
            // An array without `items` is refused, and most arrays contain strings.
            result.insert("items".to_owned(), json!({ "type": "string" }));
        }
    }

    /// A schema with references expanded and `allOf` merged; None if it is too deep or not a schema.
    fn whole(&self, schema: &Value, depth: usize) -> Option<Map<String, Value>> {
        let parts = self.parts.get() + 1;
        if depth > MAX_DEPTH {
            return None;
        }
        if parts > MAX_SCHEMA_PARTS {
            return self.cut();
        }
        self.parts.set(parts);
        let mut whole = self.copy(schema)?;
        for _ in 0..MAX_DEPTH {
            let Some(Value::String(place)) = whole.shift_remove("$ref") else { break };
            let target = place.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            merge(&mut whole, target.and_then(|target| self.copy(target)).unwrap_or_default());
        }
        if let Some(Value::Array(parts)) = whole.shift_remove("allOf") {
            for part in parts {
                merge(&mut whole, self.whole(&part, depth + 1).unwrap_or_default());
            }
        }
        Some(whole)
    }
}

/// Adds missing members; properties and required members are combined.
fn merge(whole: &mut Map<String, Value>, more: Map<String, Value>) {
    for (word, value) in more {
        match (word.as_str(), whole.get_mut(&word), value) {
            ("properties", Some(Value::Object(known)), Value::Object(others)) => {
                for (name, schema) in others {
                    known.entry(name).or_insert(schema);
                }
            }
            ("required", Some(Value::Array(known)), Value::Array(others)) => {
                known.extend(others);
            }
            (_, Some(_), _) => {}
            (_, None, value) => {
                whole.insert(word, value);
            }
        }
    }
}

/// The allowed types, and whether null is allowed.
fn types(schema: &Map<String, Value>) -> (Vec<&str>, bool) {
    let all: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ if schema.contains_key("properties") => vec!["object"],
        _ if schema.contains_key("items") || schema.contains_key("prefixItems") => vec!["array"],
        _ => Vec::new(),
    };
    let is_nullable = all.contains(&"null");
    (all.into_iter().filter(|&one| one != "null").collect(), is_nullable)
}

fn add_values(result: &mut Map<String, Value>, schema: &Map<String, Value>) {
    let values: Vec<Value> = match (schema.get("const"), schema.get("enum")) {
        (Some(one), _) => vec![one.clone()],
        (None, Some(Value::Array(several))) => several.iter().filter(|value| !value.is_null()).cloned().collect(),
        _ => return,
    };
    if values.is_empty() {
        return;
    }
    if values.iter().all(Value::is_string) {
        result.entry("type").or_insert_with(|| "string".into());
        result.insert("enum".to_owned(), values.into());
        return;
    }
    let choices = values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
    let before = result.get("description").and_then(Value::as_str).map(|text| format!("{text} ")).unwrap_or_default();
    result.insert("description".to_owned(), format!("{before}One of: {choices}.").into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(given: &Value) -> Value {
        super::schema(given, 100_000).0
    }

    fn property(given: &Value) -> Value {
        schema(&json!({"type": "object", "properties": {"p": given}}))["properties"]["p"].clone()
    }

    #[test]
    fn keywords_it_refuses_are_left_out_at_every_depth() {
        let given = json!({
            "$schema": "x", "type": "object", "additionalProperties": false, "$defs": {},
            "properties": {"a": {"type": "array", "uniqueItems": true, "items": {"type": "string", "format": "uri"}},
                "b": {"type": "integer", "exclusiveMinimum": 0, "format": "int32", "minimum": 1}},
            "required": ["a", "ghost"],
        });
        let expected = json!({
            "type": "object",
            "properties": {"a": {"type": "array", "items": {"type": "string"}},
                "b": {"type": "integer", "format": "int32", "minimum": 1}},
            "required": ["a"],
        });
        assert_eq!(schema(&given), expected);
    }

    #[test]
    fn gemini_schemas_are_rewritten_where_an_equivalent_exists() {
        for (given, expected) in [
            (json!({"type": ["string", "null"]}), json!({"type": "string", "nullable": true})),
            (json!({"type": ["string", "integer"]}), json!({"anyOf": [{"type": "string"}, {"type": "integer"}]})),
            (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!({"type": "string", "nullable": true})),
            (
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
                json!({"anyOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            (json!({"const": "on"}), json!({"type": "string", "enum": ["on"]})),
            (
                json!({"type": "integer", "enum": [1, 2], "description": "How."}),
                json!({"type": "integer", "description": "How. One of: 1, 2."}),
            ),
            (json!({"type": "array"}), json!({"type": "array", "items": {"type": "string"}})),
            (
                json!({"prefixItems": [{"type": "string"}, {"type": "number"}]}),
                json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}}),
            ),
            (
                json!({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a"]}]}),
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            ),
            (json!(true), json!({})),
        ] {
            assert_eq!(property(&given), expected, "{given}");
        }
    }

    #[test]
    fn references_are_followed_and_circles_end() {
        let given = json!({
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/node"}, "lost": {"$ref": "#/$defs/nowhere"}},
            "$defs": {"node": {"type": "object", "properties": {
                "name": {"type": "string"}, "child": {"$ref": "#/$defs/node"}, "self": {"$ref": "#/$defs/loop"}}},
                "loop": {"$ref": "#/$defs/loop"}},
        });
        let result = schema(&given);
        assert_eq!(
            result["properties"]["tree"]["properties"]["child"]["properties"]["name"],
            json!({"type": "string"})
        );
        assert_eq!(result["properties"]["lost"], json!({}));
        assert!(!result.to_string().contains("$ref"));
    }

    #[test]
    fn copies_are_bounded_whatever_references_exist() {
        let many: Map<String, Value> = (0..1000).map(|n| (format!("p{n}"), json!({"$ref": "#/$defs/large"}))).collect();
        let names: Vec<Value> = (0..1000).map(|n| format!("r{n}").into()).collect();
        let given = json!({"type": "object", "properties": many, "$defs": {"large": {"required": names}}});
        let (result, cost) = super::schema(&given, 100_000);
        assert_eq!(result["properties"].as_object().unwrap().len(), 1000, "each is there, but not all have members");
        assert!(cost.is_cut && (99_000..=100_000).contains(&cost.copied), "{cost:?}");
    }

    #[test]
    fn a_schema_that_multiplies_itself_stays_small() {
        let many: Map<String, Value> = (0..20).map(|n| (format!("p{n}"), json!({"$ref": "#"}))).collect();
        let result = schema(&json!({"type": "object", "properties": many}));
        assert!(result.to_string().len() < 500_000);
    }
}
