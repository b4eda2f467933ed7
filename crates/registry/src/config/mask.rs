//! Which parts of a connection config are secrets, and what it looks like without them.

use serde_json::{Map, Value};

use super::MASK;
use super::arguments::{arguments, without_tokens};

/// Keys whose members are secrets, whatever they are called: people put tokens under any name.
const SECRET_MAPS: [&str; 2] = ["env", "headers"];

/// What names of secrets have in them, in options (`--api-key`), query parameters and keys.
const TELLTALES: [&str; 8] = ["token", "secret", "password", "passwd", "apikey", "api-key", "api_key", "authorization"];

pub(super) fn config(config: &Map<String, Value>) -> Map<String, Value> {
    config.iter().map(|(key, value)| (key.clone(), entry(key, value))).collect()
}

fn entry(key: &str, value: &Value) -> Value {
    match value {
        Value::Object(members) if SECRET_MAPS.iter().any(|map| key.eq_ignore_ascii_case(map)) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), secret(value))).collect())
        }
        _ if names_a_secret(key) => secret(value),
        Value::Object(members) => Value::Object(config(members)),
        Value::Array(items) => Value::Array(arguments(items)),
        Value::String(text) => Value::String(address(text)),
        other => other.clone(),
    }
}

pub(super) fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    TELLTALES.iter().any(|telltale| name.contains(telltale))
}

pub(super) fn secret(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::String(text) if is_reference(text) => Value::String(text.clone()),
        _ => Value::String(MASK.to_owned()),
    }
}

/// `${TOKEN}`, or `Bearer ${TOKEN}`: it names the secret and does not contain it.
pub(super) fn is_reference(text: &str) -> bool {
    let Some((before, rest)) = text.split_once("${") else { return text.is_empty() };
    let is_scheme = before.is_empty() || matches!(before.trim_end(), "Bearer" | "Basic" | "Token");
    // A default (`${TOKEN:-abc}`) is a value after all.
    is_scheme && rest.strip_suffix('}').is_some_and(|name| !name.contains([':', '{', '}', '$']))
}

/// A text without anything that looks like a token; an address also without its password and without query parameters
/// that name secrets.
pub(super) fn address(text: &str) -> String {
    let text = &without_tokens(text);
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let (host, path) = place.find('/').map_or((place, ""), |at| place.split_at(at));
    let host = match host.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, password)) if !is_reference(password) => format!("{user}:{MASK}@{host}"),
            _ => format!("{user}@{host}"),
        },
        None => host.to_owned(),
    };
    let Some(query) = query else { return format!("{scheme}://{host}{path}") };
    let query: Vec<String> = query.split('&').map(parameter).collect();
    format!("{scheme}://{host}{path}?{}", query.join("&"))
}

fn parameter(text: &str) -> String {
    match text.split_once('=') {
        Some((name, value)) if (names_a_secret(name) || name == "key") && !is_reference(value) => {
            format!("{name}={MASK}")
        }
        _ => text.to_owned(),
    }
}

/// Puts back what was masked: wherever `new` says what the old value was shown as.
pub(super) fn restore(new: &mut Value, old: &Value, shown: &Value) {
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

/// What is behind the masks of `shown`.
pub(super) fn differences(value: &Value, shown: &Value, found: &mut Vec<String>) {
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

/// Whether the mask is in it, alone or as a part (`https://me:***@host`).
pub(super) fn is_masked(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(MASK),
        Value::Array(items) => items.iter().any(is_masked),
        Value::Object(members) => members.values().any(is_masked),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::ConnectionConfig;

    fn config() -> ConnectionConfig {
        serde_json::from_value(json!({
            "command": "npx",
            "args": ["-y", "server", "--api-key", "hidden-1", "--token=hidden-2", "--verbose", "--token", "${TOKEN}",
                "postgres://me:hidden-3@db/x"],
            "env": {"ANYTHING": "hidden-4", "HOME_OF": "${HOME}", "DEFAULTED": "${X:-hidden-5}"},
            "headers": {"Authorization": "Bearer hidden-6", "X-Ref": "Bearer ${TOKEN}"},
            "url": "https://user:hidden-7@host/path?a=1&access_token=hidden-8",
            "oauth": {"client_secret": "hidden-9", "scope": "all"},
            "timeout": 5
        }))
        .unwrap()
    }

    #[test]
    fn what_is_shown_has_no_secret_and_all_the_rest() {
        let shown = config().masked();
        assert!(!shown.to_string().contains("hidden"), "{shown}");
        assert_eq!(shown["env"]["HOME_OF"], "${HOME}");
        assert_eq!(shown["env"]["ANYTHING"], "***");
        assert_eq!(shown["headers"]["X-Ref"], "Bearer ${TOKEN}");
        assert_eq!(shown["url"], "https://user:***@host/path?a=1&access_token=***");
        assert_eq!(shown["args"][4], "--token=***");
        assert_eq!(shown["args"][7], "${TOKEN}");
        assert_eq!(shown["oauth"]["scope"], "all");
        assert_eq!(shown["timeout"], 5);
    }

    #[test]
    fn what_is_hidden_is_known() {
        let mut secrets = config().secrets();
        secrets.sort();
        let expected =
            ["${X:-hidden-5}", "Bearer hidden-6", "hidden-1", "hidden-2", "hidden-3", "hidden-4", "hidden-7"];
        assert_eq!(secrets, [&expected[..], &["hidden-8", "hidden-9"]].concat());
    }

    #[test]
    fn a_debug_print_shows_nothing() {
        assert_eq!(format!("{:?}", config()), "ConnectionConfig(..)");
    }

    #[test]
    fn who_sends_the_shown_config_back_changes_nothing() {
        let shown: ConnectionConfig = serde_json::from_value(config().masked()).unwrap();
        assert!(shown.is_masked());
        assert_eq!(config().updated_with(shown), config());
    }

    #[test]
    fn a_secret_does_not_follow_to_another_host() {
        let known: ConnectionConfig = serde_json::from_value(json!({"url": "https://a.example/mcp?key=s",
            "headers": {"Authorization": "Bearer hunter2"}}))
        .unwrap();
        let sent = |url: &str| -> ConnectionConfig {
            serde_json::from_value(json!({"url": url, "headers": {"Authorization": "***"}})).unwrap()
        };
        let moved = known.updated_with(sent("https://b.example/mcp"));
        assert_eq!(moved.reveal()["headers"]["Authorization"], "***");
        assert!(moved.is_masked(), "so it is refused");
        let scheme = known.updated_with(sent("http://a.example/mcp"));
        assert!(scheme.is_masked(), "nor without TLS");
        let elsewhere_there = known.updated_with(sent("https://A.example/other"));
        assert_eq!(elsewhere_there.reveal()["headers"]["Authorization"], "Bearer hunter2");
    }

    #[test]
    fn a_new_secret_replaces_the_old_and_the_others_stay() {
        let mut sent = config().masked();
        sent["env"]["ANYTHING"] = "new".into();
        let updated = config().updated_with(serde_json::from_value(sent).unwrap());
        assert_eq!(updated.reveal()["env"]["ANYTHING"], "new");
        assert_eq!(updated.reveal()["headers"]["Authorization"], "Bearer hidden-6");
    }
}
