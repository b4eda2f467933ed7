//! Compares what a client received through us with what it received directly.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::tour::Stop;

/// Members of one kind of revision only: caching hints and types of modern results, ids and tasks of legacy ones.
const LIFECYCLE_SPECIFIC_MEMBERS: [&str; 5] = ["resultType", "ttlMs", "cacheScope", "elicitationId", "execution"];
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Members of a form that clients in TypeScript drop.
const FORGOTTEN_OF_A_FORM: [&str; 2] = ["title", "$schema"];
/// Values that depend on the day, or on other clients of the server.
const FLEETING_MEMBERS: [&str; 3] = ["datetime", "day_of_week", "thoughtHistoryLength"];

/// Which parts of two answers must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// Everything: the same client, and the same revision on both sides of us.
    All,
    /// What all clients see in all revisions.
    WhatAllHave,
}

/// An answer, and the label of its tour.
pub(super) type Labelled<'a> = (&'a str, &'a Value);

/// Fails unless both answers to a step are equal, except for values that always differ: the label, the time, and the
/// name of the server in server requests and log messages.
#[track_caller]
pub(super) fn assert_same(context: &str, direct: Labelled, ours: Labelled, key: &str, precision: Precision) {
    let [mut expected, mut seen] = [direct, ours].map(|answer| comparable(answer, precision));
    take_server_names(context, &mut expected, &mut seen, key);
    assert_eq!(seen, expected, "{context}");
}

/// A list. Servers without items of a kind may refuse to list it.
pub(super) fn items(answer: &Value) -> &[Value] {
    answer.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Fails unless the list has these items, in this order.
#[track_caller]
pub(super) fn assert_same_items(seen: &Value, expected: &[Value], context: &str) {
    let names = |items: &[Value]| -> Vec<String> { items.iter().map(|item| item["name"].to_string()).collect() };
    assert_eq!(names(items(seen)), names(expected), "{context}");
    for (seen, expected) in items(seen).iter().zip(expected) {
        assert_same(context, ("LABEL", expected), ("LABEL", seen), "", Precision::WhatAllHave);
    }
}

/// The lists of all servers as we should list them: names have the server's key, and each URI occurs once.
pub(super) fn put_together<'a>(lists: impl Iterator<Item = (&'a Stop, &'a Value)>) -> Vec<Value> {
    let mut addresses = HashSet::new();
    let mut together = Vec::new();
    for (stop, list) in lists {
        for item in items(list) {
            let mut item = item.clone();
            if let Some(address) = item.get("uri").or(item.get("uriTemplate")).map(Value::to_string) {
                if addresses.insert(address) {
                    together.push(item);
                }
                continue;
            }
            let name = item["name"].as_str().expect("a tool or a prompt has a name");
            item["name"] = format!("{}{name}", stop.prefix()).into();
            together.push(item);
        }
    }
    together
}

/// The answer without its label and variable values, reduced to the given precision.
fn comparable((label, answer): Labelled, precision: Precision) -> Value {
    let text = answer.to_string().replace(label, "LABEL");
    let mut answer = serde_json::from_str(&text).expect("a label does not break JSON");
    forget(&mut answer, precision);
    answer
}

fn forget(value: &mut Value, precision: Precision) {
    match value {
        // Some clients parse all numbers as floats.
        Value::Number(number) => *value = number.as_f64().into(),
        Value::Array(items) => items.iter_mut().for_each(|item| forget(item, precision)),
        Value::Object(members) => {
            FLEETING_MEMBERS.iter().for_each(|member| drop(members.remove(*member)));
            if precision == Precision::WhatAllHave {
                forget_members(members);
            }
            members.values_mut().for_each(|member| forget(member, precision));
        }
        // Results are also given as text, with the same variable values.
        Value::String(text) if FLEETING_MEMBERS.iter().any(|member| text.contains(&format!("\"{member}\""))) => {
            *value = Value::Null;
        }
        _ => {}
    }
}

fn forget_members(members: &mut Map<String, Value>) {
    LIFECYCLE_SPECIFIC_MEMBERS.iter().for_each(|member| drop(members.remove(*member)));
    if let Some(Value::Object(form)) = members.get_mut("requestedSchema") {
        FORGOTTEN_OF_A_FORM.iter().for_each(|member| drop(form.remove(*member)));
    }
    if let Some(Value::Object(meta)) = members.get_mut("_meta") {
        meta.remove(SERVER_INFO);
        if meta.is_empty() {
            members.remove("_meta");
        }
    }
}

/// Through us, server requests and log messages name the server. Checks that, and removes the name from both.
#[track_caller]
fn take_server_names(context: &str, expected: &mut Value, seen: &mut Value, key: &str) {
    for (list, member) in [("asked", "message"), ("logs", "logger")] {
        let (Some(Value::Array(expected)), Some(Value::Array(seen))) = (expected.get_mut(list), seen.get_mut(list))
        else {
            continue;
        };
        for (expected, seen) in expected.iter_mut().zip(seen) {
            let (expected, seen) = (expected[member].take(), seen[member].take());
            if expected.is_null() && seen.is_null() {
                continue;
            }
            let reported = seen.as_str().unwrap_or_default();
            let own = expected.as_str().unwrap_or_default();
            assert!(
                reported.contains(own) && reported.contains(key),
                "{context}: {seen} does not tell {expected} of `{key}`"
            );
        }
    }
}
