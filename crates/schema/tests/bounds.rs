//! Checks end within their limits, and report what was not checked.

use std::cell::Cell;
use std::fs;
use std::time::{Duration, Instant};

use schema::{Limits, NotChecked, Outcome, check, check_fuzz_input};
use serde_json::{Value, json};

/// Far more than any of this takes, and far less than what is exponential would.
const SOON: Duration = Duration::from_secs(10);

fn outcome(schema: &Value, value: &Value) -> Outcome {
    let began = Instant::now();
    let outcome = check(schema, value, Limits::default(), &|| false);
    assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
    outcome
}

/// Every level applies the one below it twice.
fn doubling(levels: usize, keyword: &str) -> Value {
    let mut definitions = serde_json::Map::new();
    definitions.insert("d0".to_owned(), json!({ "type": "object" }));
    for level in 1..=levels {
        let below = json!({ "$ref": format!("#/$defs/d{}", level - 1) });
        definitions.insert(format!("d{level}"), json!({ keyword: [below, below] }));
    }
    json!({ "$ref": format!("#/$defs/d{levels}"), "$defs": definitions })
}

fn not_checked(outcome: Outcome) -> NotChecked {
    match outcome {
        Outcome::NotChecked(why) => why,
        other => panic!("it was checked: {other:?}"),
    }
}

#[test]
fn schemas_that_double_end_at_the_step_budget() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let schema = doubling(45, keyword);
        // `anyOf` may end at its first branch if that fits, so the value does not.
        let value = if keyword == "allOf" { json!({ "c": "x" }) } else { json!(1) };
        assert!(matches!(not_checked(outcome(&schema, &value)), NotChecked::TooManySteps(_)), "{keyword}");
        assert_eq!(outcome(&doubling(5, "allOf"), &json!({ "c": "x" })), Outcome::Valid);
    }
}

#[test]
fn schemas_that_refer_to_themselves_end_at_the_depth_bound() {
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }] }),
        json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
        json!({ "$dynamicRef": "#x", "$dynamicAnchor": "x" }),
        json!({ "not": { "$ref": "#" } }),
    ] {
        assert!(matches!(not_checked(outcome(&schema, &json!(1))), NotChecked::TooDeep(_)), "{schema}");
    }
}

#[test]
fn values_as_deep_as_a_parser_takes_are_checked() {
    let deep: Value = serde_json::from_str(&format!("{}1{}", "[".repeat(120), "]".repeat(120))).unwrap();
    let schema = json!({ "anyOf": [{ "type": "array", "items": { "$ref": "#" } }, { "type": "integer" }] });
    assert_eq!(outcome(&schema, &deep), Outcome::Valid);
}

#[test]
fn large_values_are_checked_in_linear_time() {
    let many: Vec<u32> = (0..40_000).collect();
    assert_eq!(outcome(&json!({ "uniqueItems": true, "items": { "type": "integer" } }), &json!(many)), Outcome::Valid);
    let members: serde_json::Map<String, Value> = (0..40_000).map(|it| (format!("k{it}"), json!(it))).collect();
    let schema = json!({ "additionalProperties": { "enum": (0..40_000).collect::<Vec<u32>>() }, "unevaluatedProperties": false });
    assert_eq!(outcome(&schema, &Value::Object(members)), Outcome::Valid);
}

#[test]
fn the_caller_can_end_a_check() {
    let asked = Cell::new(0);
    let is_interrupted = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let ended = check(&doubling(45, "allOf"), &json!({}), Limits::default(), &is_interrupted);
    assert_eq!(not_checked(ended), NotChecked::Interrupted);
    assert_eq!(asked.get(), 4);
}

#[test]
fn violations_are_bounded_and_end_the_check() {
    let schema = json!({ "items": { "type": "string" } });
    let Outcome::Invalid(found) = outcome(&schema, &json!(vec![1; 100_000])) else { panic!("it is invalid") };
    assert_eq!(found.len(), 20);
    assert_eq!(
        (found[1].path.join("."), &found[1].message),
        ("1".to_owned(), &"1 is not of type \"string\"".to_owned())
    );
}

#[test]
fn unchecked_parts_are_reported_and_the_rest_is_checked() {
    let ahead = json!({ "properties": { "a": { "pattern": "^foo(?=bar)" }, "b": { "type": "string" } } });
    let why = not_checked(outcome(&ahead, &json!({ "a": "foobar" }))).to_string();
    assert!(why.contains("look-ahead") && why.contains("^foo"), "{why}");
    assert!(matches!(outcome(&ahead, &json!({ "a": "foobar", "b": 1 })), Outcome::Invalid(_)));
    // Where nothing is matched, nothing is missed.
    assert_eq!(outcome(&ahead, &json!({ "a": 1 })), Outcome::Valid);
    let elsewhere = json!({ "$ref": "https://example.com/elsewhere.json", "required": ["x"] });
    assert!(not_checked(outcome(&elsewhere, &json!({ "x": 1 }))).to_string().contains("https://example.com"));
    assert!(matches!(outcome(&elsewhere, &json!({})), Outcome::Invalid(_)));
}

#[test]
fn what_is_unknown_is_neither_true_nor_false() {
    let unknown = json!({ "pattern": "(?=a)" });
    for schema in [
        json!({ "not": unknown }),
        json!({ "anyOf": [unknown, false] }),
        json!({ "oneOf": [unknown, true] }),
        json!({ "if": unknown, "then": false, "else": false }),
    ] {
        assert!(matches!(outcome(&schema, &json!("a")), Outcome::NotChecked(NotChecked::Pattern { .. })), "{schema}");
    }
    for schema in [json!({ "anyOf": [unknown, true] }), json!({ "not": { "allOf": [unknown, false] } })] {
        assert_eq!(outcome(&schema, &json!("a")), Outcome::Valid, "{schema}");
    }
    let named = json!({ "patternProperties": { "(?=a)": true }, "additionalProperties": false });
    assert!(matches!(outcome(&named, &json!({ "a": 1 })), Outcome::NotChecked(_)));
}

#[test]
fn an_invalid_schema_is_reported() {
    for (schema, part) in [
        (json!(null), "an object"),
        (json!({ "type": "nonsense" }), "`type`"),
        (json!({ "properties": { "a": { "minLength": -1 } } }), "`minLength`"),
        (json!({ "required": "a" }), "`required`"),
        (json!({ "$ref": 5 }), "`$ref`"),
        (json!({ "$schema": "https://example.com/unheard-of" }), "not supported"),
        (json!({ "allOf": [5] }), "`allOf`"),
        (json!({ "multipleOf": 0 }), "`multipleOf`"),
    ] {
        let why = not_checked(outcome(&schema, &json!({}))).to_string();
        assert!(why.contains(part), "{schema}: {why}");
    }
}

#[test]
fn older_drafts_are_read_as_they_were_meant() {
    let draft4 =
        json!({ "$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": true });
    assert!(matches!(outcome(&draft4, &json!(3)), Outcome::Invalid(_)));
    let draft7 = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "format": "email" });
    assert!(matches!(outcome(&draft7, &json!("nobody")), Outcome::Invalid(_)));
    assert_eq!(outcome(&json!({ "format": "email" }), &json!("nobody")), Outcome::Valid);
}

#[test]
fn many_expensive_patterns_end_at_the_step_budget() {
    let patterns: serde_json::Map<String, Value> =
        (0..2000).map(|it| (format!("(?:a|b|[c-f{it}]){{0,{}}}x$", 50 + it % 50), json!(true))).collect();
    let members: serde_json::Map<String, Value> =
        (0..500).map(|it| (format!("{}{it}", "ab".repeat(40)), json!(1))).collect();
    outcome(&json!({ "patternProperties": patterns }), &Value::Object(members));
}

#[test]
fn many_identifiers_with_a_long_base_end_at_the_step_budget() {
    let inner: serde_json::Map<String, Value> =
        (0..20_000).map(|it| (format!("d{it}"), json!({ "$id": format!("x{it}") }))).collect();
    let schema = json!({ "$id": format!("http://example.com/{}/", "a".repeat(100_000)), "$defs": inner });
    assert!(matches!(not_checked(outcome(&schema, &json!(1))), NotChecked::TooManySteps(_)));
}

#[test]
fn a_type_counts_once_however_often_it_is_listed() {
    let schema = json!({ "type": vec!["null"; 20_000] });
    let Outcome::Invalid(found) = outcome(&schema, &json!("x")) else { panic!("it is no null") };
    assert_eq!(found[0].expected_types, ["null"]);
    let few = Limits { steps: 10_000, ..Limits::default() };
    let ended = check(&schema, &json!("x"), few, &|| false);
    assert!(matches!(not_checked(ended), NotChecked::TooManySteps(_)), "reading the list counts");
}

#[test]
fn patterns_as_values_count_as_patterns_of_the_schema_do() {
    let schema = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "items": { "format": "regex" } });
    let patterns = |count: usize| json!(vec!["(a|b|[c-f]){0,100}x$"; count]);
    assert_eq!(outcome(&schema, &patterns(100)), Outcome::Valid);
    assert!(matches!(not_checked(outcome(&schema, &patterns(1_000))), NotChecked::TooManySteps(_)));
    // Only as much as is compiled counts.
    let long = json!(vec!["x".repeat(100_000); 10]);
    assert_eq!(outcome(&schema, &long), Outcome::Valid);
}

#[test]
fn what_the_fuzzer_found_stays_found() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/schema");
    let files: Vec<_> = fs::read_dir(corpus).expect("the corpus is there").flatten().collect();
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        let began = Instant::now();
        check_fuzz_input(&fs::read(file.path()).expect("it can be read"));
        assert!(began.elapsed() < SOON, "{}: {:?}", file.path().display(), began.elapsed());
    }
}
