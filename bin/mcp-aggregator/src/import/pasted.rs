//! Parses pasted text: a whole config, or only the part of one that a README shows.

use serde_json::{Map, Value, json};

use super::{found_in, read_jsonc};

/// An entry has at least one of these keys.
const SIGNS: [&str; 5] = ["command", "url", "serverUrl", "httpUrl", "docker"];

/// The hint about text that cannot be parsed.
const EXPECTED: &str =
    r#"there are no servers in it; paste {"mcpServers": {...}}, or one entry like "github": {"command": "npx", ...}"#;

/// The pasted text as a whole config.
pub(crate) fn understood(text: &str) -> Result<Value, String> {
    let text = text.trim();
    let whole = read_jsonc(text).or_else(|error| {
        // An entry from the middle of a file: with its name, and perhaps with the comma after it.
        let entry = text.trim_end_matches([',', ' ', '\n']);
        read_jsonc(&format!("{{{entry}}}")).map_err(|_| error)
    });
    let whole = whole.map_err(|error| error.to_string())?;
    if !found_in(&whole, "").is_empty() {
        return Ok(whole);
    }
    match whole {
        Value::Object(entry) if is_entry(&entry) => Ok(json!({"mcpServers": {name_for(&entry): entry}})),
        Value::Object(entries) if entries.values().any(|entry| entry.as_object().is_some_and(is_entry)) => {
            Ok(json!({ "mcpServers": entries }))
        }
        _ => Err(EXPECTED.to_owned()),
    }
}

fn is_entry(entry: &Map<String, Value>) -> bool {
    SIGNS.iter().any(|sign| entry.contains_key(*sign))
}

/// A name for an entry without one: that of its package, its program or its host.
fn name_for(entry: &Map<String, Value>) -> String {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let words = entry.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let package = words.into_iter().find(|word| !word.starts_with('-') && *word != "run");
    let host =
        SIGNS.iter().filter_map(|key| text(key)).find_map(|url| url.split("://").nth(1)?.split(['/', ':']).next());
    let named = host.or(package).or(text("command")).unwrap_or("server");
    let last = named.trim_end_matches('/').rsplit(['/', '\\']).next().unwrap_or(named);
    last.split('@').next().filter(|name| !name.is_empty()).unwrap_or("server").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        found_in(&understood(text).unwrap(), "").into_iter().map(|found| found.name).collect()
    }

    #[test]
    fn what_readmes_print_is_understood() {
        assert_eq!(names(r#"{"mcpServers": {"a": {"command": "x"}}}"#), ["a"]);
        assert_eq!(names(r#"{"a": {"command": "x"}, "b": {"url": "http://h"}}"#), ["a", "b"]);
        assert_eq!(names("\"github\": {\"command\": \"npx\"},\n"), ["github"]);
        assert_eq!(names(r#"{"command": "npx", "args": ["-y", "@org/server-git@1.2"]}"#), ["server-git"]);
        assert_eq!(names(r#"{"url": "https://mcp.example.com/mcp"}"#), ["mcp.example.com"]);
    }

    #[test]
    fn text_that_is_not_a_config_is_refused_with_the_expected_form() {
        for nonsense in ["{}", "[1]", "7", r#"{"foo": 1}"#] {
            assert!(understood(nonsense).unwrap_err().contains("mcpServers"), "{nonsense}");
        }
        assert!(understood("{{").is_err());
    }
}
