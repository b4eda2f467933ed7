//! Whether parameters fit a tool's input schema, and if not, in which line.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, PatternOptions, ValidationError, Validator};
use serde_json::Value;

use crate::yaml::{Fault, Node};

/// More are no help.
const MOST_FAULTS: usize = 20;

/// A schema's pattern may take this many steps back; it comes from a server and is not trusted.
const MOST_STEPS_BACK: usize = 100_000;

const LONGEST_MESSAGE: usize = 300;

/// What is wrong with parameters. A schema that makes no sense to us forbids nothing: its server decides.
pub(crate) fn check(schema: &Value, parameters: &Node) -> Vec<Fault> {
    let Some(validator) = validator(schema) else { return Vec::new() };
    let json = parameters.to_json();
    let Ok(instance) = serde_json::from_str::<Value>(&json) else { return Vec::new() };
    validator.iter_errors(&instance).take(MOST_FAULTS).map(|error| fault(&error, parameters)).collect()
}

/// The same for arguments that stand in no document: what is wrong with them, in words.
pub fn misfits(schema: &Value, arguments: &Value) -> Vec<String> {
    let Some(validator) = validator(schema) else { return Vec::new() };
    validator.iter_errors(arguments).take(MOST_FAULTS).map(|error| described(&error, &path_of(&error))).collect()
}

/// Whether a schema names a property.
pub(crate) fn has_property(schema: &Value, name: &str) -> bool {
    schema.get("properties").and_then(|properties| properties.get(name)).is_some()
}

fn validator(schema: &Value) -> Option<Validator> {
    let linear = jsonschema::options().with_pattern_options(PatternOptions::regex());
    linear.build(schema).ok().or_else(|| {
        let bounded = PatternOptions::fancy_regex().backtrack_limit(MOST_STEPS_BACK);
        jsonschema::options().with_pattern_options(bounded).build(schema).ok()
    })
}

fn fault(error: &ValidationError<'_>, parameters: &Node) -> Fault {
    let path = path_of(error);
    let node = parameters.nearest(path.iter().map(String::as_str));
    let line = unexpected(error.kind())
        .and_then(|key| node.entry(key))
        .map_or_else(|| line_of_key(parameters, &path).unwrap_or(node.line), |entry| entry.line);
    Fault { line, what: described(error, &path) }
}

/// Where it is wrong, step by step.
fn path_of(error: &ValidationError<'_>) -> Vec<String> {
    let pointer = error.instance_path().to_string();
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

fn described(error: &ValidationError<'_>, path: &[String]) -> String {
    let place = if path.is_empty() { String::new() } else { format!("`{}`: ", path.join(".")) };
    format!("{place}{}{}", shortened(&error.to_string()), hint(error))
}

/// The line of the key whose value is wrong: a text of several lines begins below its key.
fn line_of_key(parameters: &Node, path: &[String]) -> Option<usize> {
    let (last, before) = path.split_last()?;
    parameters.nearest(before.iter().map(String::as_str)).entry(last).map(|entry| entry.line)
}

fn unexpected(kind: &ValidationErrorKind) -> Option<&str> {
    match kind {
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => unexpected.first().map(String::as_str),
        _ => None,
    }
}

fn hint(error: &ValidationError<'_>) -> &'static str {
    let ValidationErrorKind::Type { kind } = error.kind() else { return "" };
    let wants = |wanted: JsonType| match kind {
        TypeKind::Single(only) => *only == wanted,
        TypeKind::Multiple(set) => set.contains(wanted),
    };
    match &**error.instance() {
        Value::Number(_) | Value::Bool(_) if wants(JsonType::String) => "; quote it to make it text",
        Value::String(word) if wants(JsonType::Boolean) && is_yes_or_no(word) => "; write true or false",
        Value::String(word) if word.parse::<f64>().is_ok() && (wants(JsonType::Number) || wants(JsonType::Integer)) => {
            "; take the quotes away to make it a number"
        }
        _ => "",
    }
}

fn is_yes_or_no(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off" | "true" | "false")
}

fn shortened(message: &str) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{check, misfits};
    use crate::yaml::parse;

    #[test]
    fn faults_point_at_the_line_they_are_in() {
        let schema = json!({
            "type": "object",
            "properties": {
                "city": { "type": "string", "minLength": 2 },
                "days": { "type": "integer", "minimum": 1 },
                "verbose": { "type": "boolean" },
                "unit": { "enum": ["C", "F"] },
                "where": { "type": "object", "properties": { "lat": { "type": "number" } }, "required": ["lat", "lon"] },
                "tags": { "type": "array", "items": { "type": "string", "pattern": "^[a-z]+$" } },
                "note": { "type": "string", "maxLength": 3 }
            },
            "required": ["city"],
            "additionalProperties": false
        });
        for (yaml, expected) in [
            ("city: Rome\ndays: 3", vec![]),
            ("city: 5", vec![(1, "quote it")]),
            ("days: 3", vec![(1, "city")]),
            ("city: Rome\ndays: three", vec![(2, "`days`")]),
            ("city: Rome\ndays: '3'", vec![(2, "take the quotes away")]),
            ("city: Rome\n\ndays: 0", vec![(3, "minimum")]),
            ("city: Rome\nverbose: yes", vec![(2, "true or false")]),
            ("city: Rome\nunit: K", vec![(2, "unit")]),
            ("city: Rome\nwhere:\n  lat: x\n  lon: 1", vec![(3, "`where.lat`")]),
            ("city: Rome\nwhere:\n  lat: 1", vec![(2, "lon")]),
            ("city: Rome\ntags:\n  - ok\n  - Not OK", vec![(4, "`tags.1`")]),
            ("city: Rome\ntown: x", vec![(2, "town")]),
            ("city: Rome\nnote: |\n  several\n  lines", vec![(2, "note")]),
            ("city: R\ndays: 0\n", vec![(1, "city"), (2, "days")]),
        ] {
            let mut found = check(&schema, &parse(yaml).expect(yaml));
            found.sort_by_key(|fault| fault.line);
            assert_eq!(found.len(), expected.len(), "{yaml}: {found:?}");
            for (fault, (line, part)) in found.iter().zip(expected) {
                assert!(fault.line == line && fault.what.contains(part), "{yaml}: {fault:?}");
            }
        }
    }

    #[test]
    fn arguments_without_lines_are_checked_in_the_same_way() {
        let schema = json!({ "type": "object", "properties": { "days": { "type": "integer" } }, "required": ["city"] });
        assert_eq!(misfits(&schema, &json!({ "city": "Rome", "days": 3 })), Vec::<String>::new());
        let found = misfits(&schema, &json!({ "days": "3" })).join("; ");
        assert!(found.contains("`days`: \"3\" is not of type") && found.contains("\"city\" is a required"), "{found}");
        assert_eq!(misfits(&json!({ "type": "nonsense" }), &json!({})), Vec::<String>::new());
    }

    #[test]
    fn schemas_that_make_no_sense_forbid_nothing() {
        let parameters = parse("a: 1").expect("YAML");
        for schema in [
            json!({ "type": "nonsense" }),
            json!({ "$ref": "https://example.com/elsewhere.json" }),
            json!({ "properties": { "a": { "pattern": "(" } } }),
            json!(null),
            json!(true),
            json!({ "$schema": "https://example.com/unheard-of" }),
        ] {
            assert_eq!(check(&schema, &parameters), vec![], "{schema}");
        }
    }

    #[test]
    fn schemas_that_refer_to_themselves_come_to_an_end() {
        let parameters = parse("a: {a: {a: {a: 1}}}").expect("YAML");
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "$ref": "#" }] }),
            json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
            json!({ "properties": { "a": { "$ref": "#" } }, "not": { "$ref": "#" } }),
            json!({ "properties": { "a": { "$ref": "#" } }, "type": "object" }),
            json!({ "$dynamicRef": "#x", "$dynamicAnchor": "x" }),
        ] {
            assert!(check(&schema, &parameters).len() < 5, "{schema}");
        }
    }

    #[test]
    fn patterns_and_references_of_all_drafts_are_understood() {
        let parameters = parse("a: foobar\nb: 1").expect("YAML");
        let ahead = json!({ "properties": { "a": { "pattern": "^foo(?=baz)" } } });
        assert_eq!(check(&ahead, &parameters).len(), 1);
        let older = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": { "word": { "type": "string" } },
            "properties": { "b": { "$ref": "#/definitions/word" } }
        });
        assert_eq!(check(&older, &parameters)[0].line, 2);
        let newer =
            json!({ "$defs": { "word": { "type": "string" } }, "properties": { "b": { "$ref": "#/$defs/word" } } });
        assert_eq!(check(&newer, &parameters)[0].line, 2);
    }
}
