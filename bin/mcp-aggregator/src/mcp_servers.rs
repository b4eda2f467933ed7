//! Converts an exported registry to the `mcpServers` that MCP clients read, with keys that every client supports.

use serde_json::{Map, Value, json};

/// The mask of a secret.
const MASK: &str = "***";

/// Keys of a connection config that concern how mcp-aggregator runs a server.
const ONLY_OURS: [&str; 6] = ["era", "lazy", "max_instances", "share", "startTimeout", "timeout"];

/// The servers in the format of clients, and remarks for the user.
pub(crate) struct Written {
    pub(crate) config: Value,
    pub(crate) notes: Vec<String>,
}

/// Converts the servers of an export.
pub(crate) fn written(export: &Value) -> Written {
    let (mut servers, mut notes) = (Map::new(), Vec::new());
    for server in export["servers"].as_array().into_iter().flatten() {
        let name = server["name"].as_str().unwrap_or_default();
        match entry(server) {
            Ok(entry) => {
                if Value::Object(entry.clone()).to_string().contains(MASK) {
                    notes.push(format!(
                        "secrets of `{name}` are written as {MASK}; --secrets writes them in plain text"
                    ));
                }
                let left_out: Vec<String> = ONLY_OURS
                    .iter()
                    .filter(|key| !server["connection_config"][**key].is_null())
                    .map(|key| format!("`{key}`"))
                    .collect();
                if !left_out.is_empty() {
                    let keys = left_out.join(", ");
                    notes.push(format!("left out of `{name}`, because other clients do not know it: {keys}"));
                }
                servers.insert(name.to_owned(), Value::Object(entry));
            }
            Err(why) => notes.push(format!("`{name}` is left out: {why}")),
        }
    }
    Written { config: json!({ "mcpServers": servers }), notes }
}

fn entry(server: &Value) -> Result<Map<String, Value>, String> {
    let config = &server["connection_config"];
    let transport = server["transport_type"].as_str().unwrap_or_default().to_ascii_lowercase();
    let mut entry = match (&config["docker"], transport.as_str()) {
        (Value::Object(docker), "stdio") => in_docker(docker),
        (Value::Object(_), _) => {
            return Err("it listens in a container, which clients cannot start".to_owned());
        }
        (_, "stdio") => members(config, &["command", "args", "env", "cwd"]),
        (_, transport) => {
            let url = ["url", "base_url"].iter().map(|key| &config[*key]).find(|url| url.is_string());
            let Some(url) = url else { return Err("it has no URL".to_owned()) };
            let mut entry = Map::from_iter([("type".to_owned(), json!(transport)), ("url".to_owned(), url.clone())]);
            entry.extend(members(config, &["headers", "oauth"]));
            entry
        }
    };
    if server["enabled"] == false {
        entry.insert("disabled".to_owned(), json!(true));
    }
    Ok(entry)
}

/// These members of an object, without empty ones.
fn members(config: &Value, names: &[&str]) -> Map<String, Value> {
    let is_empty = |value: &Value| {
        value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty) || value.is_null()
    };
    let found = names.iter().map(|&name| (name.to_owned(), config[name].clone()));
    found.filter(|(_, value)| !is_empty(value)).collect()
}

/// The command that runs the same container. It names variables, and the client sets them, so that no secret is on a
/// command line.
fn in_docker(docker: &Map<String, Value>) -> Map<String, Value> {
    let mut args: Vec<Value> = ["run", "-i", "--rm"].map(|word| json!(word)).to_vec();
    let mut option = |name: &str, value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        args.extend([json!(name), json!(text)]);
    };
    let member = |name: &str| docker.get(name).unwrap_or(&Value::Null);
    // As mcp-aggregator runs it: without a network, unless one is configured.
    option("--network", &Some(member("network").clone()).filter(Value::is_string).unwrap_or(json!("none")));
    for variable in member("env").as_object().into_iter().flatten().map(|(name, _)| json!(name)) {
        option("-e", &variable);
    }
    for volume in member("volumes").as_array().into_iter().flatten() {
        option("-v", volume);
    }
    for (name, flag) in [("memory", "--memory"), ("cpus", "--cpus"), ("user", "--user"), ("pull", "--pull")] {
        if !member(name).is_null() {
            option(flag, member(name));
        }
    }
    // `--entrypoint` takes one word; the others come before the arguments.
    let texts = |value: &Value| match value {
        Value::Array(words) => words.clone(),
        Value::Null => Vec::new(),
        word => vec![word.clone()],
    };
    let command = texts(member("command"));
    if let Some(program) = command.first() {
        option("--entrypoint", program);
    }
    if member("readOnly") == &json!(true) {
        args.push(json!("--read-only"));
    }
    args.push(member("image").clone());
    args.extend(command.into_iter().skip(1).chain(texts(member("args"))));
    let mut entry = Map::from_iter([("command".to_owned(), json!("docker")), ("args".to_owned(), json!(args))]);
    entry.extend(members(&Value::Object(docker.clone()), &["env"]));
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_clients_know_is_written() {
        let export = json!({"servers": [
            {"name": "a", "transport_type": "stdio", "enabled": true,
                "connection_config": {"command": "x", "args": [], "env": {"K": "***"}, "lazy": true, "timeout": 5}},
            {"name": "b", "transport_type": "http", "enabled": false, "connection_config": {
                "base_url": "http://b/mcp", "oauth": {"clientId": "me"}}},
            {"name": "c", "transport_type": "stdio", "connection_config": {"docker": {
                "image": "mcp/time", "args": ["--utc"], "env": {"T": "${T}"}, "volumes": ["/a:/b:ro"]}}},
            {"name": "d", "transport_type": "sse", "connection_config": {"docker": {"image": "x", "ports": [80]}}},
        ]});
        let Written { config, notes } = written(&export);
        let docker = ["run", "-i", "--rm", "--network", "none", "-e", "T", "-v", "/a:/b:ro", "mcp/time", "--utc"];
        let expected = json!({"mcpServers": {
            "a": {"command": "x", "env": {"K": "***"}},
            "b": {"type": "http", "url": "http://b/mcp", "oauth": {"clientId": "me"}, "disabled": true},
            "c": {"command": "docker", "args": docker, "env": {"T": "${T}"}},
        }});
        assert_eq!(config, expected);
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].contains("`a`") && notes[0].contains("--secrets") && notes[2].contains("`d`"), "{notes:?}");
        assert_eq!(notes[1], "left out of `a`, because other clients do not know it: `lazy`, `timeout`");
    }

    #[test]
    fn every_key_that_we_know_is_written_or_reported() {
        for key in catalog::SERVER_KEYS.into_iter().chain(["lazy"]) {
            // The address and the transport have their own form, and the enabled state is none of the config.
            if ["type", "transport", "serverUrl", "httpUrl", "enabled", "disabled"].contains(&key) {
                continue;
            }
            let is_remote = ["url", "headers", "oauth"].contains(&key);
            let (transport, value) = if is_remote { ("http", json!("x")) } else { ("stdio", json!("x")) };
            let value = if key == "docker" { json!({"image": "x"}) } else { value };
            let mut config = if is_remote { json!({"url": "http://x"}) } else { json!({"command": "x"}) };
            config[key] = value;
            let server = json!({"name": "a", "transport_type": transport, "connection_config": config});
            let Written { config, notes } = written(&json!({"servers": [server]}));
            let entry = &config["mcpServers"]["a"];
            let is_written = !entry[key].is_null() || key == "docker" && entry["command"] == "docker";
            assert!(
                is_written || notes.iter().any(|note| note.contains(&format!("`{key}`"))),
                "{key}: {config} {notes:?}"
            );
        }
    }
}
