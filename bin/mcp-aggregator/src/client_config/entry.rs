//! What we are in the words of each client.

use std::path::Path;

use serde_json::{Value, json};

use crate::import::clients::Client;

/// How a client is to reach us.
pub(crate) enum ClientTransport<'a> {
    /// At the address of a running service, with its token if it wants one.
    Http { url: &'a str, token: Option<&'a str> },
    /// As a program of its own, with a config.
    Stdio { program: &'a Path, config: &'a Path },
}

/// Under which key a client has its servers.
pub(crate) const fn group(client: Client) -> &'static str {
    match client {
        Client::VsCode => "servers",
        Client::ClaudeDesktop | Client::ClaudeCode | Client::Cursor | Client::Windsurf => "mcpServers",
    }
}

/// What stands for the token in a file that is made to be shared, if the client fills variables in.
pub(crate) fn reference(client: Client, variable: &str) -> String {
    match client {
        Client::ClaudeCode => format!("${{{variable}}}"),
        _ => format!("${{env:{variable}}}"),
    }
}

/// The entry that leads to us.
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

/// The type stands first, as these clients write it themselves.
fn with_type(kind: &str, entry: Value) -> Value {
    let mut typed = json!({"type": kind});
    if let (Some(typed), Value::Object(entry)) = (typed.as_object_mut(), entry) {
        typed.extend(entry);
    }
    typed
}

/// Claude Desktop starts programs only: a bridge from npm takes it to an address. A blank in an argument is lost on
/// some systems, hence the variable.
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
    fn each_client_is_told_in_its_own_words() {
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
