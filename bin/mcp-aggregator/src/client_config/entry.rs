//! Our entry in the config of each client.

use std::path::Path;

use serde_json::{Value, json};

use crate::import::clients::Client;

/// How a client reaches mcp-aggregator.
pub(crate) enum ClientTransport<'a> {
    /// At the address of a running service, with its token if needed.
    Http { url: &'a str, token: Option<&'a str> },
    /// As a program that the client starts, with a config.
    Stdio { program: &'a Path, config: &'a Path },
}

/// The key of the servers in a client's config.
pub(crate) const fn group(client: Client) -> &'static str {
    match client {
        Client::VsCode => "servers",
        Client::ClaudeDesktop | Client::ClaudeCode | Client::Cursor | Client::Windsurf => "mcpServers",
    }
}

/// The reference to the token for a shared file, if the client expands variables.
pub(crate) fn reference(client: Client, variable: &str) -> String {
    match client {
        Client::ClaudeCode => format!("${{{variable}}}"),
        _ => format!("${{env:{variable}}}"),
    }
}

/// The entry for mcp-aggregator.
pub(crate) fn entry(client: Client, way: &ClientTransport<'_>) -> Value {
    match way {
        ClientTransport::Stdio { program, config } => {
            let program = json!({"command": program, "args": ["stdio", "--config", config]});
            match client {
                Client::VsCode | Client::ClaudeCode => with_type("stdio", program),
                _ => program,
            }
        }
        ClientTransport::Http { url, token } if client == Client::ClaudeDesktop => bridge(url, *token),
        ClientTransport::Http { url, token } => {
            let mut entry = json!({"url": format!("{url}/mcp")});
            if let Some(token) = token {
                entry["headers"] = json!({"Authorization": format!("Bearer {token}")});
            }
            match client {
                Client::VsCode | Client::ClaudeCode => with_type("http", entry),
                _ => entry,
            }
        }
    }
}

/// `type` comes first, as these clients write it themselves.
fn with_type(kind: &str, entry: Value) -> Value {
    let mut typed = json!({"type": kind});
    if let (Some(typed), Value::Object(entry)) = (typed.as_object_mut(), entry) {
        typed.extend(entry);
    }
    typed
}

/// Claude Desktop only starts programs, so a bridge from npm connects it to an address. Some systems lose spaces in
/// arguments, hence the variable.
fn bridge(url: &str, token: Option<&str>) -> Value {
    let mut args = vec![json!("-y"), json!("mcp-remote"), json!(format!("{url}/mcp"))];
    let is_here = ["http://127.", "http://localhost", "http://[::1]"].iter().any(|here| url.starts_with(here));
    if url.starts_with("http://") && !is_here {
        args.push(json!("--allow-http"));
    }
    let Some(token) = token else { return json!({"command": "npx", "args": args}) };
    args.extend([json!("--header"), json!("Authorization:${AUTHORIZATION}")]);
    json!({"command": "npx", "args": args, "env": {"AUTHORIZATION": format!("Bearer {token}")}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_gets_an_entry_in_its_own_format() {
        let plain = ClientTransport::Http { url: "http://127.0.0.1:1", token: None };
        let guarded = ClientTransport::Http { url: "http://mcp.example.com", token: Some("t") };
        assert_eq!(entry(Client::Cursor, &plain), json!({"url": "http://127.0.0.1:1/mcp"}));
        assert_eq!(
            entry(Client::VsCode, &guarded).to_string(),
            r#"{"type":"http","url":"http://mcp.example.com/mcp","headers":{"Authorization":"Bearer t"}}"#
        );
        assert_eq!(
            entry(Client::ClaudeDesktop, &plain),
            json!({"command": "npx", "args": ["-y", "mcp-remote", "http://127.0.0.1:1/mcp"]})
        );
        let desktop = entry(Client::ClaudeDesktop, &guarded);
        assert_eq!(desktop["env"]["AUTHORIZATION"], "Bearer t");
        assert_eq!(desktop["args"][3], "--allow-http");
        let program = ClientTransport::Stdio { program: Path::new("/bin/x"), config: Path::new("/c") };
        assert_eq!(
            entry(Client::ClaudeCode, &program),
            json!({"type": "stdio", "command": "/bin/x", "args": ["stdio", "--config", "/c"]})
        );
        assert_eq!(reference(Client::ClaudeCode, "T"), "${T}");
        assert_eq!(
            (reference(Client::Cursor, "T"), reference(Client::VsCode, "T")),
            ("${env:T}".into(), "${env:T}".into())
        );
        assert_eq!((group(Client::VsCode), group(Client::Cursor)), ("servers", "mcpServers"));
    }
}
