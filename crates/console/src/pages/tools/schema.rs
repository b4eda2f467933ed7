//! Describes a JSON Schema as text: types, limits, and nested members. References within the schema are followed, so
//! that generated schemas read like hand-written ones.

use std::collections::HashSet;

use schema::CopyBudget;
use serde_json::{Map, Value};

use super::definition::cut;
use crate::html::{Html, html};
use crate::pages::overview::clip;

/// How deep objects are shown.
const MAX_DEPTH: usize = 5;
/// The limit of rows of a table.
const MAX_ROWS: usize = 200;
/// How many parts of a schema are visited.
const MAX_STEPS: usize = 300;
/// How many parts of a schema are merged.
const PARTS: usize = 32;
/// How many alternatives are listed, and how deep.
const KINDS: usize = 8;
const MAX_TYPE_DEPTH: usize = 3;
/// How many values of an enum are listed.
const CHOICES: usize = 20;

/// The members of an object as a table, with nested members below them.
pub(super) fn table(schema: &Value) -> Html {
    let whole = Whole { root: schema, copies: CopyBudget::default() };
    let mut table = Table { whole: &whole, rows: Html::default(), count: 0, steps_left: MAX_STEPS };
    table.members(&whole.resolved(schema), 0);
    if table.count == 0 {
        return html!(r#"<p class="muted">The schema names no parameters.</p>"#);
    }
    let more = (table.count >= MAX_ROWS).then(|| html!(r#"<p class="hint">The rest is in the definition below.</p>"#));
    html!(
        r#"<div class="scroll"><table class="cards schema"><thead><tr><th>Name</th><th>Type</th><th>Description</th></tr></thead><tbody>{rows}</tbody></table></div>{more}"#,
        rows = table.rows,
        more = more,
    )
}

/// A whole schema, which references point into.
struct Whole<'s> {
    root: &'s Value,
    /// The remaining copy budget of a table.
    copies: CopyBudget,
}

impl Whole<'_> {
    /// A copy of a part; empty if the budget is spent.
    fn copy(&self, part: &Value) -> Value {
        self.copies.copy(part).unwrap_or_else(|| Value::Object(Map::new()))
    }
}

struct Table<'s> {
    whole: &'s Whole<'s>,
    rows: Html,
    count: usize,
    /// How many more parts are visited: a schema may be recursive in many ways.
    steps_left: usize,
}

impl Table<'_> {
    fn members(&mut self, schema: &Value, level: usize) {
        let nothing = Map::new();
        let members = schema["properties"].as_object().unwrap_or(&nothing);
        let required: HashSet<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, member) in members {
            if self.count >= MAX_ROWS {
                return;
            }
            let member = self.whole.resolved(member);
            self.row(name, required.contains(name.as_str()), &member, level);
            self.inside(&member, level + 1);
        }
    }

    fn row(&mut self, name: &str, is_required: bool, member: &Value, level: usize) {
        self.count += 1;
        let about = member["description"].as_str().or(member["title"].as_str());
        self.rows.add(&html!(
            r#"<tr><th scope="row" class="level-{level}"><code>{name}</code>{required}</th><td data-name="Type">{kind}</td><td>{about}</td></tr>"#,
            level = level.min(MAX_DEPTH),
            name = clip(name, 120),
            required = is_required.then(|| html!(r#" <span class="tag">required</span>"#)),
            kind = self.whole.kind(member, 0),
            about = about.map(cut),
        ));
    }

    /// The members inside a member: of an object, of the items of a list, of each alternative.
    fn inside(&mut self, member: &Value, level: usize) {
        if level > MAX_DEPTH || self.steps_left == 0 {
            return;
        }
        self.steps_left -= 1;
        if member["properties"].is_object() {
            return self.members(member, level);
        }
        if member["items"].is_object() {
            let items = self.whole.resolved(&member["items"]);
            return self.inside(&items, level);
        }
        if member["additionalProperties"].is_object() {
            let value = self.whole.resolved(&member["additionalProperties"]);
            return self.inside(&value, level);
        }
        let branches = branches(member).iter().take(self.steps_left);
        let branches: Vec<Value> = branches.map(|branch| self.whole.resolved(branch)).collect();
        let objects: Vec<&Value> = branches.iter().filter(|branch| is_deep(branch)).collect();
        for (place, object) in objects.iter().enumerate() {
            if objects.len() > 1 && self.count < MAX_ROWS {
                let title = object["title"].as_str().map(|title| format!(": {}", clip(title, 80)));
                self.count += 1;
                self.rows.add(&html!(
                    r#"<tr><th scope="row" class="level-{level}" colspan="3"><span class="muted">{word}{title}</span></th></tr>"#,
                    level = level.min(MAX_DEPTH),
                    word = if place == 0 { "either" } else { "or" },
                    title = title,
                ));
            }
            self.inside(object, level);
        }
    }
}

/// Whether there are nested members.
fn is_deep(schema: &Value) -> bool {
    schema["properties"].is_object() || schema["items"].is_object() || schema["additionalProperties"].is_object()
}

/// The alternatives of a schema.
fn branches(schema: &Value) -> &[Value] {
    let list = |key: &str| schema[key].as_array().map(Vec::as_slice).filter(|list| !list.is_empty());
    list("anyOf").or(list("oneOf")).unwrap_or_default()
}

impl Whole<'_> {
    /// A schema with references resolved and `allOf` merged.
    fn resolved(&self, schema: &Value) -> Value {
        let mut schema = self.copy(schema);
        let mut waiting = Vec::new();
        // A reference may be circular.
        for _ in 0..PARTS {
            let Some(members) = schema.as_object_mut() else { break };
            if let Some(Value::String(place)) = members.remove("$ref") {
                let target =
                    place.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)).map(|part| self.copy(part));
                merge(members, target.unwrap_or_default());
            } else if let Some(Value::Array(parts)) = members.remove("allOf") {
                waiting.extend(parts.into_iter().take(PARTS));
            } else if let Some(part) = waiting.pop() {
                merge(members, part);
            } else {
                break;
            }
        }
        schema
    }

    /// The type of a value in few words.
    fn kind(&self, schema: &Value, depth: usize) -> String {
        let schema = self.resolved(schema);
        let default = match schema.get("default") {
            Some(Value::Null) | None => String::new(),
            Some(default) => format!(", else {}", clip(&display_value(default), 80)),
        };
        let mut word = self.main_word(&schema, depth);
        let limits = limits(&schema);
        if !limits.is_empty() {
            word = format!("{word}, {}", limits.join(", "));
        }
        word + &default
    }

    fn main_word(&self, schema: &Value, depth: usize) -> String {
        if let Some(value) = schema.get("const") {
            return format!("always {}", clip(&display_value(value), 80));
        }
        if let Some(choices) = schema["enum"].as_array() {
            let mut named: Vec<String> =
                choices.iter().take(CHOICES).map(|choice| clip(&display_value(choice), 80)).collect();
            if choices.len() > named.len() {
                named.push(format!("… ({} in all)", choices.len()));
            }
            return format!("one of {}", named.join(", "));
        }
        let branches = branches(schema);
        if !branches.is_empty() && depth < MAX_TYPE_DEPTH {
            return one_of(branches.iter().take(KINDS).map(|branch| self.kind(branch, depth + 1)));
        }
        match &schema["type"] {
            Value::String(word) => self.of_type(word, schema, depth),
            Value::Array(words) => {
                one_of(words.iter().take(KINDS).filter_map(Value::as_str).map(|word| self.of_type(word, schema, depth)))
            }
            _ if schema["properties"].is_object() => "object".to_owned(),
            _ => "anything".to_owned(),
        }
    }

    fn of_type(&self, word: &str, schema: &Value, depth: usize) -> String {
        match word {
            "string" => match schema["format"].as_str() {
                Some("date") => "date, as 2024-01-31".to_owned(),
                Some("date-time") => "date and time, as 2024-01-31T12:00:00Z".to_owned(),
                Some("time") => "time, as 12:00:00Z".to_owned(),
                Some("email") => "email address".to_owned(),
                Some("uri" | "url") => "URL, as https://example.com".to_owned(),
                Some(format) => format!("text ({})", clip(format, 40)),
                None => "text".to_owned(),
            },
            "integer" => "whole number".to_owned(),
            "boolean" => "true or false".to_owned(),
            "null" => "nothing".to_owned(),
            "array" if depth < MAX_TYPE_DEPTH && schema["items"].is_object() => {
                format!("list of {}", self.kind(&schema["items"], depth + 1))
            }
            "array" => "list".to_owned(),
            "object"
                if depth < MAX_TYPE_DEPTH
                    && schema["additionalProperties"].is_object()
                    && schema["properties"].is_null() =>
            {
                format!("object, each of its members {}", self.kind(&schema["additionalProperties"], depth + 1))
            }
            other => clip(other, 40),
        }
    }
}

/// Adds the members of another schema; existing ones take precedence.
fn merge(members: &mut Map<String, Value>, other: Value) {
    let Value::Object(other) = other else { return };
    for (name, value) in other {
        match (members.get_mut(&name), value) {
            (Some(Value::Object(here)), Value::Object(there)) if name == "properties" => {
                for (name, value) in there {
                    here.entry(name).or_insert(value);
                }
            }
            (Some(Value::Array(here)), Value::Array(there)) if name == "required" => here.extend(there),
            (Some(_), _) => {}
            (None, value) => {
                members.insert(name, value);
            }
        }
    }
}

/// Distinct alternatives, with null at the end.
fn one_of(words: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for word in words {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all.sort_by_key(|word| word == "nothing");
    all.join(" or ")
}

/// Further constraints of a value.
fn limits(schema: &Value) -> Vec<String> {
    let number = |key: &str| schema.get(key).filter(|value| value.is_number()).map(Value::to_string);
    let between = |least: Option<String>, most: Option<String>, what: &str| match (least, most) {
        (Some(least), Some(most)) if least == most => Some(format!("{least}{what}")),
        (Some(least), Some(most)) => Some(format!("{least} to {most}{what}")),
        (Some(least), None) => Some(format!("at least {least}{what}")),
        (None, Some(most)) => Some(format!("at most {most}{what}")),
        (None, None) => None,
    };
    [
        between(number("minimum"), number("maximum"), ""),
        number("exclusiveMinimum").map(|least| format!("more than {least}")),
        number("exclusiveMaximum").map(|most| format!("less than {most}")),
        number("multipleOf").map(|step| format!("in steps of {step}")),
        between(number("minLength"), number("maxLength"), " letters"),
        between(number("minItems"), number("maxItems"), " items"),
        schema["pattern"].as_str().map(|pattern| format!("fitting {}", clip(pattern, 80))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A value for display.
fn display_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(schema: &Value) -> String {
        Whole { root: schema, copies: CopyBudget::default() }.kind(schema, 0)
    }

    #[test]
    fn the_table_of_an_exponential_schema_is_short() {
        let branches = vec![json!({"$ref": "#"}); 8];
        let filler: Vec<String> = (0..500).map(|n| format!("filler {n}")).collect();
        let properties: Map<String, Value> =
            (0..200).map(|n| (format!("p{n}"), json!({"anyOf": branches, "allOf": branches}))).collect();
        let schema = json!({"type": "object", "properties": properties, "anyOf": branches, "examples": filler});
        assert!(table(&schema).0.len() < 200_000);
    }

    #[test]
    fn a_schema_is_reported_in_few_words() {
        for (schema, words) in [
            (json!({"type": "array", "items": {"type": ["string", "null"]}}), "list of text or nothing"),
            (json!({"enum": ["a", 1], "default": "a"}), "one of a, 1, else a"),
            (json!({"type": "integer", "minimum": 1, "maximum": 8, "default": 5}), "whole number, 1 to 8, else 5"),
            (json!({"anyOf": [{"type": "null"}, {"type": "string"}], "default": null}), "text or nothing"),
            (json!({"type": "string", "format": "date"}), "date, as 2024-01-31"),
            (json!({"const": "cat"}), "always cat"),
            (json!({"type": "string", "minLength": 3, "pattern": "^a"}), "text, at least 3 letters, fitting ^a"),
            (
                json!({"type": "object", "additionalProperties": {"type": "integer"}}),
                "object, each of its members whole number",
            ),
            (json!(true), "anything"),
        ] {
            assert_eq!(said(&schema), words);
        }
    }

    #[test]
    fn references_are_followed_and_what_is_inside_is_shown() {
        let schema = json!({
            "$defs": {
                "Mode": {"enum": ["fast", "slow"]},
                "Item": {"type": "object", "properties": {"name": {"type": "string", "description": "its name"}, "next": {"$ref": "#/$defs/Item"}}, "required": ["name"]},
            },
            "properties": {
                "mode": {"allOf": [{"$ref": "#/$defs/Mode"}], "default": "fast"},
                "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
                "pet": {"oneOf": [{"title": "Cat", "type": "object", "properties": {"lives": {"type": "integer"}}}, {"title": "Dog", "type": "object", "properties": {"barks": {"type": "boolean"}}}]},
            },
        });
        let table = table(&schema).0;
        for part in
            ["one of fast, slow, else fast", "list of object", "its name", "either: Cat", "or: Dog", "true or false"]
        {
            assert!(table.contains(part), "{part} in {table}");
        }
        assert!(table.contains(r#"class="level-1"><code>name</code> <span class="tag">required</span>"#), "{table}");
        assert!(table.matches("<code>next</code>").count() <= MAX_DEPTH, "what leads to itself has an end: {table}");
    }

    #[test]
    fn whatever_a_server_writes_there_is_a_table() {
        for odd in [
            json!(null),
            json!([]),
            json!({"properties": 7}),
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
            json!({"properties": {"a": {"items": {"$ref": "#/properties/a"}}}}),
        ] {
            table(&odd);
        }
        let wide: Map<String, Value> =
            (0..1000).map(|number| (format!("p{number}"), json!({"type": "string"}))).collect();
        assert!(table(&json!({ "properties": wide })).0.matches("<tr>").count() <= MAX_ROWS + 1);
    }
}
