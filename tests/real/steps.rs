//! The steps of a client, which `client.py` and `client.mjs` run in order.
//!
//! Every step gives one answer: a list, or an object with `result` or `error` as the client received them. The answer
//! also contains what happened in the meantime: `asked`, the server requests; `progress`; `logs`; `changes`, the
//! announced changes; `cancelled`.

use serde_json::{Value, json};

/// Lists the tools repeatedly until there is at least one with each of these prefixes.
pub(super) fn list<P: AsRef<str>>(prefixes: impl IntoIterator<Item = P>) -> Value {
    let prefixes: Vec<String> = prefixes.into_iter().map(|prefix| prefix.as_ref().to_owned()).collect();
    json!({"list": prefixes})
}

/// Lists everything but tools: resources, templates and prompts, a step each.
pub(super) fn other_lists() -> [Value; 3] {
    [json!({"resources": true}), json!({"templates": true}), json!({"prompts": true})]
}

pub(super) fn call(tool: &str, arguments: &Value) -> Value {
    json!({"call": tool, "arguments": arguments})
}

/// A call during which the server sends requests; these are the replies, in order.
pub(super) fn call_with_replies(tool: &str, arguments: &Value, replies: &[Value]) -> Value {
    json!({"call": tool, "arguments": arguments, "replies": replies})
}

/// A call with progress.
pub(super) fn call_with_progress(tool: &str, arguments: &Value) -> Value {
    json!({"call": tool, "arguments": arguments, "progress": true})
}

/// A call that the client cancels after this many progress notifications.
pub(super) fn cancelled_call(tool: &str, arguments: &Value, after: usize) -> Value {
    json!({"call": tool, "arguments": arguments, "progress": true, "cancelAfter": after})
}

/// The same step with log messages; it waits until there are at least this many.
pub(super) fn with_logs(least: usize, mut step: Value) -> Value {
    step["logs"] = least.into();
    step
}

/// Sets the level of log messages, which only legacy clients can.
pub(super) fn level(level: &str) -> Value {
    json!({"level": level})
}

pub(super) fn read(uri: &str) -> Value {
    json!({"read": uri})
}

pub(super) fn prompt(name: &str, arguments: &Value) -> Value {
    json!({"prompt": name, "arguments": arguments})
}

/// Completes an argument of a prompt, given the arguments that are already known.
pub(super) fn complete_prompt(name: &str, (argument, value): (&str, &str), known: &Value) -> Value {
    let argument = json!({"name": argument, "value": value});
    json!({"complete": {"type": "ref/prompt", "name": name}, "argument": argument, "context": known})
}

/// Completes a variable of a template.
pub(super) fn complete_template(template: &str, (variable, value): (&str, &str)) -> Value {
    let argument = json!({"name": variable, "value": value});
    json!({"complete": {"type": "ref/resource", "uri": template}, "argument": argument})
}

/// Subscribes to resources and lists during a call, until each was announced as changed.
pub(super) fn watch(uris: &[&str], lists: &[&str], during: &Value) -> Value {
    json!({"watch": {"uris": uris, "lists": lists}, "then": during})
}

/// The same step where the server's tools and prompts have this prefix.
pub(super) fn with_prefix(prefix: &str, mut step: Value) -> Value {
    for pointer in ["/call", "/prompt", "/complete/name", "/then/call"] {
        if let Some(name) = step.pointer_mut(pointer) {
            *name = format!("{prefix}{}", name.as_str().expect("a name is a string")).into();
        }
    }
    step
}
