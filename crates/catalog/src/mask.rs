//! Masks the secrets of a connection config.
//!
//! Every text that shows how a server is reached goes through this module: output of commands, REST and the console,
//! exports without secrets, logs and errors.

mod arguments;
mod names;
mod text;
mod wrappers;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use names::{has_secretive_part, means_a_secret};

/// Replaces a secret.
pub const MASK: &str = "***";

/// Keys that only look like those of secrets.
const NO_SECRETS: [&str; 2] = ["token_endpoint_auth_method", "tokenEndpointAuthMethod"];

/// Keys whose members are all secrets, whatever their names.
const SECRET_MAPS: [&str; 2] = ["env", "headers"];

/// A connection config for display: the values of `env` and `headers`, credentials in addresses, and arguments that
/// look like secrets are replaced by [`MASK`]. References to variables, such as `${TOKEN}`, are not secrets.
pub fn config(config: &Map<String, Value>) -> Map<String, Value> {
    let command = config.get("command").and_then(Value::as_str);
    config.iter().map(|(key, value)| (key.clone(), entry(command, key, value))).collect()
}

/// The arguments of a command for display.
pub fn arguments(command: &str, arguments: &[String]) -> Vec<String> {
    let items: Vec<Value> = arguments.iter().map(|argument| Value::String(argument.clone())).collect();
    let shown = arguments::arguments(Some(command), &items);
    shown.into_iter().map(|item| item.as_str().unwrap_or(MASK).to_owned()).collect()
}

/// Any other text for display: addresses, connection strings, headers.
pub fn text(text: &str) -> String {
    text::text(text)
}

/// An address for display without its password and query.
pub fn address(address: &str) -> String {
    text::address(address)
}

/// The parts of `text` that are masked in `shown`.
pub fn replaced(text: &str, shown: &str) -> Vec<String> {
    if text == shown { Vec::new() } else { behind_masks(text, shown) }
}

fn entry(command: Option<&str>, key: &str, value: &Value) -> Value {
    match value {
        Value::Object(members) if SECRET_MAPS.iter().any(|map| key.eq_ignore_ascii_case(map)) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), secret(value))).collect())
        }
        Value::String(_) if means_a_secret(key) => secret(value),
        Value::String(text) if NO_SECRETS.contains(&key) => Value::String(text.clone()),
        _ if has_secretive_part(key) => secret(value),
        Value::Object(members) => Value::Object(config(members)),
        Value::Array(items) => Value::Array(arguments::arguments(command, items)),
        Value::String(text) => Value::String(text::text(text)),
        other => other.clone(),
    }
}

fn secret(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::String(text) if is_reference(text) => Value::String(text.clone()),
        _ => Value::String(MASK.to_owned()),
    }
}

/// A masked value, except for a reference and the space before it.
fn hidden(value: &str) -> String {
    let bare = value.trim_start();
    if is_reference(bare) {
        return value.to_owned();
    }
    format!("{}{MASK}", &value[..value.len() - bare.len()])
}

/// `${TOKEN}`, or `Bearer ${TOKEN}`: it names the secret and does not contain it.
fn is_reference(text: &str) -> bool {
    let Some((before, rest)) = text.split_once("${") else { return text.is_empty() };
    let is_scheme = before.is_empty() || matches!(before.trim_end(), "Bearer" | "Basic" | "Token");
    // A default (`${TOKEN:-abc}`) is a value.
    is_scheme && rest.strip_suffix('}').is_some_and(|name| !name.contains([':', '{', '}', '$']))
}

/// Restores masked values: wherever `new` has what the old value was shown as.
pub fn restore(new: &mut Value, old: &Value, shown: &Value) {
    if new == shown {
        new.clone_from(old);
        return;
    }
    match (new, old, shown) {
        (Value::Object(new), Value::Object(old), Value::Object(shown)) => {
            for (key, value) in new {
                if let (Some(old), Some(shown)) = (old.get(key), shown.get(key)) {
                    restore(value, old, shown);
                }
            }
        }
        (Value::Array(new), Value::Array(old), Value::Array(shown)) => {
            for ((value, old), shown) in new.iter_mut().zip(old).zip(shown) {
                restore(value, old, shown);
            }
        }
        _ => {}
    }
}

/// The values behind the masks of `shown`.
pub fn differences(value: &Value, shown: &Value, found: &mut Vec<String>) {
    match (value, shown) {
        (Value::Object(members), Value::Object(shown)) => {
            members.iter().for_each(|(name, value)| differences(value, &shown[name], found));
        }
        (Value::Array(items), Value::Array(shown)) => {
            items.iter().zip(shown).for_each(|(value, shown)| differences(value, shown, found));
        }
        (Value::String(text), Value::String(shown)) if text != shown => found.extend(behind_masks(text, shown)),
        _ => {}
    }
}

/// The parts of a text in place of which there are masks.
fn behind_masks(text: &str, shown: &str) -> Vec<String> {
    let mut around = shown.split(MASK);
    let mut rest = around.next().and_then(|before| text.strip_prefix(before)).unwrap_or(text);
    let mut hidden = Vec::new();
    for after in around {
        let end = if after.is_empty() { rest.len() } else { rest.find(after).unwrap_or(rest.len()) };
        hidden.push(rest[..end].to_owned());
        rest = rest.get(end + after.len()..).unwrap_or_default();
    }
    hidden
}

/// Whether the mask occurs in it, alone or as a part (`https://me:***@host`).
pub fn is_masked(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(MASK),
        Value::Array(items) => items.iter().any(is_masked),
        Value::Object(members) => members.values().any(is_masked),
        _ => false,
    }
}
