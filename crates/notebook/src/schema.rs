//! Checks parameters against the input schema of a tool, and reports the lines of errors.
//!
//! Schemas come from servers and parameters from anyone, so checks run on their own threads, with the limits of
//! `schema::Limits` and a deadline. What could not be checked is reported, and the server decides.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use offload::{Pool, PoolCounts, PoolLimits};
use schema::{Limits, NotChecked, Outcome, Violation};
use serde_json::Value;

use crate::block::{DisplayOptions, Written};
use crate::problem::Problem;
use crate::toolbox::ToolSchema;
use crate::yaml::{Fault, Node};

/// The time limit of one check, including its wait for others.
const CHECK_DEADLINE: Duration = Duration::from_secs(1);
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(10);
/// The time limit of all checks of one run.
pub const CHECK_TIME_OF_RUN: Duration = Duration::from_secs(30);

/// The threads for all checks of this process.
static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let slots = PoolLimits::half_of_the_processors();
    Pool::new(PoolLimits { slots, deadline: CHECK_DEADLINE, longest_wait: MAX_QUEUE_WAIT })
});

/// The counters of the checks of this process.
pub(crate) fn check_counts() -> PoolCounts {
    POOL.counts()
}

/// The remaining time for checks of one run.
#[derive(Debug)]
pub(crate) struct CheckTime {
    left: Mutex<Duration>,
}

impl Default for CheckTime {
    fn default() -> Self {
        Self { left: Mutex::new(CHECK_TIME_OF_RUN) }
    }
}

impl CheckTime {
    fn left(&self) -> Duration {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spend(&self, time: Duration) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(time);
    }
}

/// Checked parameters.
pub(crate) struct Checked {
    /// A JSON object.
    pub(crate) arguments: String,
    pub(crate) display_options: DisplayOptions,
    /// The problems.
    pub(crate) faults: Vec<Fault>,
    /// Why they were not, or not completely, checked.
    pub(crate) not_checked: Option<String>,
}

/// Whether arguments match a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentCheck {
    /// They match.
    Fit,
    /// They do not match, for these reasons.
    Misfit(Vec<String>),
    /// It is unknown, for this reason. The server decides.
    NotChecked(String),
}

/// Separates parameters and display hints of a block, and checks the parameters. Dropping the future ends the check.
pub(crate) async fn check(
    schema: Option<Arc<ToolSchema>>,
    written: Arc<Written>,
    time: Arc<CheckTime>,
) -> Result<Checked, Problem> {
    let (has_schema, kept) = (schema.is_some(), Arc::clone(&written));
    let checked = POOL.run(move |interrupt| {
        let left = time.left();
        if has_schema && left.is_zero() {
            return unchecked(&written, Some(format!("the checks of this run took more than {CHECK_TIME_OF_RUN:?}")));
        }
        let begun = Instant::now();
        let is_over = || interrupt.is_set() || begun.elapsed() >= left;
        let checked = check_now(schema.as_deref(), &written, &is_over);
        time.spend(begun.elapsed());
        checked
    });
    // Separating parameters and hints takes no longer than parsing them.
    checked.await.unwrap_or_else(|error| unchecked(&kept, has_schema.then(|| error.to_string())))
}

fn unchecked(written: &Written, why: Option<String>) -> Result<Checked, Problem> {
    let (parameters, display_options) = written.sorted(None)?;
    Ok(Checked { arguments: parameters.to_json(), display_options, faults: Vec::new(), not_checked: why })
}

/// Checks arguments outside of a document. Dropping the future ends the check.
pub async fn check_arguments(schema: Value, arguments: Value) -> ArgumentCheck {
    let checked = POOL.run(move |interrupt| {
        match schema::check(&schema, &arguments, Limits::default(), &|| interrupt.is_set()) {
            Outcome::Valid => ArgumentCheck::Fit,
            Outcome::Invalid(found) => {
                ArgumentCheck::Misfit(found.iter().map(|violation| described(violation, &arguments)).collect())
            }
            Outcome::NotChecked(why) => ArgumentCheck::NotChecked(why.to_string()),
        }
    });
    checked.await.unwrap_or_else(|error| ArgumentCheck::NotChecked(error.to_string()))
}

fn check_now(schema: Option<&ToolSchema>, written: &Written, is_over: &dyn Fn() -> bool) -> Result<Checked, Problem> {
    let schema = match schema.map(ToolSchema::read).transpose() {
        Ok(schema) => schema,
        Err(why) => return unchecked(written, Some(why)),
    };
    let schema = schema.as_deref();
    let (parameters, display_options) = written.sorted(schema)?;
    let arguments = parameters.to_json();
    let (faults, not_checked) = match schema.map(|schema| outcome(schema, &parameters, &arguments, is_over)) {
        None | Some(Ok(())) => (Vec::new(), None),
        Some(Err(Wrong::Faults(faults))) => (faults, None),
        Some(Err(Wrong::NotChecked(why))) => (Vec::new(), Some(why.to_string())),
    };
    Ok(Checked { arguments, display_options, faults, not_checked })
}

enum Wrong {
    Faults(Vec<Fault>),
    NotChecked(NotChecked),
}

fn outcome(schema: &Value, parameters: &Node, json: &str, is_over: &dyn Fn() -> bool) -> Result<(), Wrong> {
    let instance: Value =
        serde_json::from_str(json).map_err(|error| Wrong::NotChecked(NotChecked::Value(error.to_string())))?;
    match schema::check(schema, &instance, Limits::default(), is_over) {
        Outcome::Valid => Ok(()),
        Outcome::Invalid(found) => {
            Err(Wrong::Faults(found.iter().map(|violation| fault(violation, &instance, parameters)).collect()))
        }
        Outcome::NotChecked(why) => Err(Wrong::NotChecked(why)),
    }
}

/// What a schema says about a top-level property of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PropertyRule {
    /// The schema lists it, or allows any property.
    Allowed,
    /// The schema lists other properties and does not say whether there may be more.
    Unspecified,
    /// The schema allows no such property.
    Forbidden,
}

impl PropertyRule {
    pub(crate) fn of(schema: &Value, name: &str) -> Self {
        let Value::Object(schema) = schema else {
            return if *schema == Value::Bool(false) { Self::Forbidden } else { Self::Allowed };
        };
        let listed = schema.get("properties").and_then(Value::as_object);
        // Subschemas and patterns may allow the name; the check of the arguments decides then.
        let has = |keywords: &[&str]| keywords.iter().any(|keyword| schema.contains_key(*keyword));
        let is_composed = has(&["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"]);
        let says_no = |keyword: &str| schema.get(keyword) == Some(&Value::Bool(false));
        if listed.is_some_and(|listed| listed.contains_key(name)) || has(&["patternProperties"]) {
            Self::Allowed
        } else if says_no("additionalProperties") || says_no("unevaluatedProperties") && !is_composed {
            Self::Forbidden
        } else if has(&["additionalProperties", "unevaluatedProperties"]) || is_composed {
            Self::Allowed
        } else if listed.is_some_and(|listed| !listed.is_empty()) {
            Self::Unspecified
        } else {
            Self::Allowed
        }
    }
}

fn fault(violation: &Violation, instance: &Value, parameters: &Node) -> Fault {
    let path = &violation.path;
    let node = parameters.nearest(path.iter().map(String::as_str));
    let unexpected = violation.unexpected.as_deref().and_then(|key| node.entry(key));
    let line = unexpected.map_or_else(|| line_of_key(parameters, path).unwrap_or(node.line), |entry| entry.line);
    Fault { line, what: format!("{}{}", described(violation, instance), display_hint(violation)) }
}

/// Where a display hint must be written if the schema treats its name as an argument.
fn display_hint(violation: &Violation) -> &'static str {
    match violation.path.first().or(violation.unexpected.as_ref()).map(String::as_str) {
        Some("display") => "; to choose how the result is shown, write `display=...` after the language of the block",
        Some("format") => "; to choose how the result is shown, write `format=...` after the language of the block",
        _ => "",
    }
}

fn described(violation: &Violation, instance: &Value) -> String {
    let Violation { path, message, .. } = violation;
    let place = if path.is_empty() { String::new() } else { format!("`{}`: ", path.join(".")) };
    format!("{place}{message}{}", hint(violation, instance))
}

/// The line of the key whose value is wrong: a multi-line text starts below its key.
fn line_of_key(parameters: &Node, path: &[String]) -> Option<usize> {
    let (last, before) = path.split_last()?;
    parameters.nearest(before.iter().map(String::as_str)).entry(last).map(|entry| entry.line)
}

fn hint(violation: &Violation, instance: &Value) -> &'static str {
    let mut here = Some(instance);
    for step in &violation.path {
        here = here.and_then(|here| match here {
            Value::Array(items) => step.parse::<usize>().ok().and_then(|place| items.get(place)),
            other => other.get(step),
        });
    }
    let wants = |wanted: &str| violation.expected_types.contains(&wanted);
    match here {
        Some(Value::Number(_) | Value::Bool(_)) if wants("string") => "; quote it to make it text",
        Some(Value::String(word)) if wants("boolean") && is_yes_or_no(word) => "; write true or false",
        Some(Value::String(word)) if word.parse::<f64>().is_ok() && (wants("number") || wants("integer")) => {
            "; remove the quotes to make it a number"
        }
        _ => "",
    }
}

fn is_yes_or_no(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off" | "true" | "false")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ArgumentCheck, PropertyRule, Wrong, check_arguments, outcome};
    use crate::yaml::{Fault, Node, parse};

    fn looked_at(schema: &serde_json::Value, parameters: &Node) -> Result<(), Wrong> {
        outcome(schema, parameters, &parameters.to_json(), &|| false)
    }

    fn check(schema: &serde_json::Value, parameters: &Node) -> Vec<Fault> {
        match looked_at(schema, parameters) {
            Err(Wrong::Faults(faults)) => faults,
            _ => Vec::new(),
        }
    }

    fn not_checked(schema: &serde_json::Value, parameters: &Node) -> String {
        match looked_at(schema, parameters) {
            Err(Wrong::NotChecked(why)) => why.to_string(),
            _ => panic!("{schema} was checked"),
        }
    }

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
            ("city: Rome\ndays: '3'", vec![(2, "remove the quotes")]),
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
    fn a_schema_allows_forbids_or_leaves_open_what_it_does_not_list() {
        use PropertyRule::{Allowed, Forbidden, Unspecified};
        for (schema, expected) in [
            (json!({ "type": "object" }), Allowed),
            (json!({ "type": "object", "properties": {} }), Allowed),
            (json!({}), Allowed),
            (json!(null), Allowed),
            (json!(true), Allowed),
            (json!(false), Forbidden),
            (json!({ "properties": { "format": {} }, "additionalProperties": false }), Allowed),
            (json!({ "properties": { "a": {} }, "additionalProperties": true }), Allowed),
            (json!({ "properties": { "a": {} }, "additionalProperties": {} }), Allowed),
            (json!({ "properties": { "a": {} }, "additionalProperties": { "type": "string" } }), Allowed),
            (json!({ "patternProperties": { "^f": {} }, "additionalProperties": false }), Allowed),
            (json!({ "allOf": [{ "properties": { "format": {} } }], "unevaluatedProperties": false }), Allowed),
            (json!({ "properties": { "a": {} }, "anyOf": [{}, {}] }), Allowed),
            (json!({ "properties": { "a": {} } }), Unspecified),
            (json!({ "properties": { "a": {} }, "additionalProperties": false }), Forbidden),
            (json!({ "properties": { "a": {} }, "unevaluatedProperties": false }), Forbidden),
            (json!({ "allOf": [{ "properties": { "format": {} } }], "additionalProperties": false }), Forbidden),
        ] {
            assert_eq!(PropertyRule::of(&schema, "format"), expected, "{schema}");
        }
    }

    #[tokio::test]
    async fn arguments_without_lines_are_checked_in_the_same_way() {
        let schema = json!({ "type": "object", "properties": { "days": { "type": "integer" } }, "required": ["city"] });
        assert_eq!(check_arguments(schema.clone(), json!({ "city": "Rome", "days": 3 })).await, ArgumentCheck::Fit);
        let ArgumentCheck::Misfit(found) = check_arguments(schema, json!({ "days": "3" })).await else { panic!("no") };
        let found = found.join("; ");
        assert!(found.contains("`days`: \"3\" is not of type") && found.contains("\"city\" is a required"), "{found}");
        let nonsense = check_arguments(json!({ "type": "nonsense" }), json!({})).await;
        assert!(matches!(nonsense, ArgumentCheck::NotChecked(why) if why.contains("`type`")));
    }

    #[tokio::test]
    async fn an_exponential_schema_is_reported_as_not_checked() {
        let mut definitions = serde_json::Map::new();
        definitions.insert("d0".to_owned(), json!({ "type": "object" }));
        for level in 1..=45 {
            let below = json!({ "$ref": format!("#/$defs/d{}", level - 1) });
            definitions.insert(format!("d{level}"), json!({ "allOf": [below, below] }));
        }
        let schema = json!({ "$defs": definitions, "$ref": "#/$defs/d45" });
        let ArgumentCheck::NotChecked(why) = check_arguments(schema, json!({ "c": "x" })).await else { panic!("no") };
        assert!(why.contains("steps") || why.contains("in time"), "{why}");
    }

    #[test]
    fn numbers_that_cannot_be_held_are_not_checked_and_not_taken_for_valid() {
        let parameters = parse("a: 1e999").expect("YAML");
        assert!(not_checked(&json!({ "type": "object" }), &parameters).contains("number out of range"));
    }

    #[test]
    fn schemas_that_make_no_sense_forbid_nothing() {
        let parameters = parse("a: 1").expect("YAML");
        for schema in [
            json!({ "type": "nonsense" }),
            json!({ "$ref": "https://example.com/elsewhere.json" }),
            json!({ "properties": { "a": { "pattern": "(" } }, "propertyNames": { "pattern": "(" } }),
            json!(null),
            json!({ "$schema": "https://example.com/unheard-of" }),
        ] {
            assert!(!not_checked(&schema, &parameters).is_empty(), "{schema}");
        }
        assert!(looked_at(&json!(true), &parameters).is_ok());
    }

    #[test]
    fn recursive_schemas_terminate() {
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
        assert!(not_checked(&ahead, &parameters).contains("look-ahead"));
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
