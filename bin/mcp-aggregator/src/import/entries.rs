//! Reads servers from a file of another program.

use serde_json::{Map, Value, json};

/// Keys of a server's address in the configs of clients.
const ADDRESS_KEYS: [&str; 4] = ["url", "serverUrl", "httpUrl", "base_url"];
/// Keys that become another member of the registration. The other keys that we know are imported unchanged, and those
/// that we do not know concern the other program.
const TRANSLATED: [&str; 4] = ["type", "transport", "enabled", "disabled"];

/// A server of another program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// Its name there.
    pub(crate) name: String,
    /// Where it was found, for people.
    pub(crate) from: String,
    /// Its registration, with the name it has there.
    pub(crate) registration: Map<String, Value>,
    /// Remarks for the user.
    pub(crate) notes: Vec<String>,
}

/// The servers in a file of any program.
pub(crate) fn found_in(file: &Value, from: &str) -> Vec<Found> {
    let of_user = ["mcpServers", "servers"].map(|key| (&file[key], from.to_owned()));
    let in_settings = ["servers", "mcpServers"].map(|key| (&file["mcp"][key], from.to_owned()));
    let projects = file["projects"].as_object().into_iter().flatten();
    let of_projects = projects.map(|(folder, project)| (&project["mcpServers"], format!("{from} ({folder})")));
    let maps = of_user.into_iter().chain(in_settings).chain(of_projects);
    maps.filter_map(|(servers, from)| servers.as_object().map(|servers| (servers, from)))
        .flat_map(|(servers, from)| servers.iter().map(move |(name, entry)| found(name, entry, &from)))
        .collect()
}

fn found(name: &str, entry: &Value, from: &str) -> Found {
    let (name, from) = (name.to_owned(), from.to_owned());
    let Value::Object(entry) = entry else {
        // An invalid entry is kept, so that the plan can report it.
        let registration = Map::from_iter([("connection_config".to_owned(), entry.clone())]);
        return Found { name, from, notes: Vec::new(), registration };
    };
    Found { notes: notes(entry), registration: registration_of_entry(&name, entry), name, from }
}

/// The registration of the server that an entry describes.
pub(crate) fn registration_of_entry(name: &str, entry: &Map<String, Value>) -> Map<String, Value> {
    let mut config: Map<String, Value> = Map::new();
    let is_kept = |key: &str| service::is_known_key(key) && !TRANSLATED.contains(&key) && !ADDRESS_KEYS.contains(&key);
    for (key, value) in entry.iter().filter(|(key, _)| is_kept(key)) {
        config.insert(key.clone(), translated(&texts(key, value)));
    }
    if let Some(url) = ADDRESS_KEYS.iter().find_map(|key| entry.get(*key)) {
        config.insert("url".to_owned(), translated(url));
    }
    let is_off = entry.get("disabled") == Some(&json!(true)) || entry.get("enabled") == Some(&json!(false));
    let mut registration = Map::new();
    registration.insert("name".to_owned(), json!(name));
    registration.insert("transport_type".to_owned(), json!(transport(entry, &config)));
    registration.insert("connection_config".to_owned(), Value::Object(config));
    registration.insert("enabled".to_owned(), json!(!is_off));
    if let Some(description) = entry.get("description").filter(|description| description.is_string()) {
        registration.insert("description".to_owned(), description.clone());
    }
    registration
}

/// The transport that an entry states, or the one derived from its members. An older server over HTTP is recognised by
/// the end of its address.
fn transport(entry: &Map<String, Value>, config: &Map<String, Value>) -> &'static str {
    let said = ["type", "transport"].iter().find_map(|key| entry.get(*key)).and_then(Value::as_str);
    match said.map(str::to_ascii_lowercase).as_deref() {
        Some("stdio") => return "stdio",
        Some("sse") => return "sse",
        Some("http" | "streamable-http" | "streamablehttp" | "streamable_http") => return "http",
        _ => {}
    }
    let url = config.get("url").and_then(Value::as_str);
    match url {
        _ if config.contains_key("command") => "stdio",
        Some(url) if url.split(['?', '#']).next().is_some_and(|url| url.trim_end_matches('/').ends_with("/sse")) => {
            "sse"
        }
        Some(_) => "http",
        None => "stdio",
    }
}

/// Some programs accept numbers instead of strings.
fn texts(key: &str, value: &Value) -> Value {
    match (key, value) {
        ("env" | "headers", Value::Object(members)) => {
            let text = |value: &Value| match value {
                Value::Number(_) | Value::Bool(_) => Value::String(value.to_string()),
                other => other.clone(),
            };
            Value::Object(members.iter().map(|(name, value)| (name.clone(), text(value))).collect())
        }
        _ => value.clone(),
    }
}

/// The same with variables in our syntax.
fn translated(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(with_our_variables(text)),
        Value::Array(items) => items.iter().map(translated).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), translated(value))).collect())
        }
        other => other.clone(),
    }
}

/// `${env:NAME}` becomes `${NAME}`, `${userHome}` becomes `${HOME}`; an editor's input prompt becomes a variable.
fn with_our_variables(text: &str) -> String {
    let mut ours = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, reference)) = rest.split_once("${") {
        let Some((name, after)) = reference.split_once('}') else { break };
        ours.push_str(before);
        let input = name.strip_prefix("input:").map(variable_for);
        let name = match (name, input) {
            ("userHome", _) => "HOME".to_owned(),
            (_, Some(variable)) => variable,
            (name, None) => name.strip_prefix("env:").unwrap_or(name).to_owned(),
        };
        ours.push_str(&format!("${{{name}}}"));
        rest = after;
    }
    ours.push_str(rest);
    ours
}

/// `api-key` becomes `API_KEY`.
fn variable_for(input: &str) -> String {
    let fit = |character: char| if character.is_ascii_alphanumeric() { character.to_ascii_uppercase() } else { '_' };
    input.chars().map(fit).collect()
}

/// Parts of an entry that we do not support.
fn notes(entry: &Map<String, Value>) -> Vec<String> {
    let text = Value::Object(entry.clone()).to_string();
    let mut notes = Vec::new();
    let mut inputs: Vec<&str> = text.split("${input:").skip(1).filter_map(|rest| rest.split('}').next()).collect();
    inputs.sort_unstable();
    inputs.dedup();
    notes.extend(inputs.into_iter().map(|input| format!("the service needs `{input}` in ${}", variable_for(input))));
    if entry.contains_key("envFile") {
        notes.push("its `envFile` is not read; set those variables for the service".to_owned());
    }
    if text.contains("${workspaceFolder") {
        notes.push("it names the folder of a project (`${workspaceFolder}`), which is unknown here".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_and_places(file: &Value) -> Vec<(String, String)> {
        found_in(file, "f").into_iter().map(|found| (found.name, found.from)).collect()
    }

    fn config(entry: Value) -> (Value, Value) {
        let Value::Object(entry) = entry else { panic!("an entry is an object") };
        let mut registration = registration_of_entry("x", &entry);
        (registration.remove("transport_type").unwrap(), registration.remove("connection_config").unwrap())
    }

    #[test]
    fn every_program_has_its_own_key_for_servers() {
        let entry = json!({"command": "x"});
        let place = |name: &str, from: &str| (name.to_owned(), from.to_owned());
        assert_eq!(names_and_places(&json!({"mcpServers": {"a": entry}})), [place("a", "f")]);
        assert_eq!(names_and_places(&json!({"inputs": [], "servers": {"a": entry}})), [place("a", "f")]);
        assert_eq!(names_and_places(&json!({"mcp": {"servers": {"a": entry}}, "editor": 1})), [place("a", "f")]);
        let code = json!({"mcpServers": {"a": entry}, "projects": {"/p": {"mcpServers": {"b": entry}}, "/q": {}}});
        assert_eq!(names_and_places(&code), [place("a", "f"), place("b", "f (/p)")]);
        assert!(names_and_places(&json!({"other": 1})).is_empty() && names_and_places(&json!([])).is_empty());
    }

    #[test]
    fn the_transport_of_a_server_is_stated_or_derived() {
        for (entry, transport) in [
            (json!({"command": "x"}), "stdio"),
            (json!({"url": "http://x/mcp"}), "http"),
            (json!({"serverUrl": "http://x/sse"}), "sse"),
            (json!({"url": "http://x/sse", "type": "http"}), "http"),
            (json!({"url": "http://x", "type": "SSE"}), "sse"),
            (json!({"httpUrl": "http://x", "transport": "streamable-http"}), "http"),
        ] {
            assert_eq!(config(entry.clone()).0, transport, "{entry}");
        }
    }

    #[test]
    fn every_key_that_we_know_survives() {
        for key in catalog::SERVER_KEYS.into_iter().chain(["lazy"]) {
            let (given, expected) = match key {
                "args" => (json!(["a"]), None),
                "env" | "headers" => (json!({"A": "b"}), None),
                "docker" => (json!({"image": "a"}), None),
                "oauth" => (json!({"clientId": "a", "scopes": ["b"], "resource": false}), None),
                "timeout" | "startTimeout" | "max_instances" => (json!(5000), None),
                "lazy" => (json!(true), None),
                "serverUrl" | "httpUrl" => {
                    (json!("http://x/mcp"), Some(("/connection_config/url", json!("http://x/mcp"))))
                }
                "type" | "transport" => (json!("sse"), Some(("/transport_type", json!("sse")))),
                "enabled" => (json!(false), Some(("/enabled", json!(false)))),
                "disabled" => (json!(true), Some(("/enabled", json!(false)))),
                "command" | "cwd" | "url" | "era" | "share" => (json!("a"), None),
                other => panic!("there is no example of `{other}`"),
            };
            let unchanged = format!("/connection_config/{key}");
            let (place, expected) = expected.unwrap_or((&unchanged, given.clone()));
            let entry = Map::from_iter([(key.to_owned(), given)]);
            let registration = Value::Object(registration_of_entry("x", &entry));
            assert_eq!(registration.pointer(place), Some(&expected), "{key}: {registration}");
        }
    }

    #[test]
    fn variables_are_written_our_way_and_texts_are_texts() {
        let (_, config) = config(json!({
            "command": "${userHome}/bin/x", "args": ["${env:A}-${B}", "${input:api-key}", "${"],
            "env": {"N": 5, "T": true, "S": "s"}, "alwaysAllow": ["y"], "type": "stdio"
        }));
        assert_eq!(
            config,
            json!({
                "command": "${HOME}/bin/x", "args": ["${A}-${B}", "${API_KEY}", "${"],
                "env": {"N": "5", "T": "true", "S": "s"}
            })
        );
    }

    #[test]
    fn what_we_cannot_do_is_reported() {
        let entry = json!({"servers": {"a": {
            "command": "x", "args": ["${input:key}", "${input:key}", "${workspaceFolder}/y"], "envFile": ".env"
        }}});
        let notes = found_in(&entry, "f").remove(0).notes;
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert_eq!(notes[0], "the service needs `key` in $KEY");
    }
}
