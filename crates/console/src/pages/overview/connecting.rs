//! What to paste into which client.

use serde_json::{Value, json};

use crate::html::{Html, html};

/// What stands where the token must be.
const TOKEN: &str = "<token>";

/// The section that tells how to connect clients to the service at `origin`.
pub(super) fn section(origin: &str, has_tokens: bool) -> Html {
    let url = format!("{origin}/mcp");
    let clients: Html = snippets(&url, has_tokens)
        .into_iter()
        .enumerate()
        .map(|(at, (client, place, text))| {
            html!(
                r#"<details name="client" {open}><summary>{client}</summary><p>{place}</p>{text}</details>"#,
                open = (at == 0).then(|| html!("open")),
                client = client,
                place = place,
                text = copyable(&text),
            )
        })
        .collect();
    let note = has_tokens.then(|| {
        html!(r#"<p class="muted">Put the token in place of <code>{}</code>: the one you signed in with, or one of the client’s own.</p>"#, TOKEN)
    });
    html!(
        r#"<section aria-labelledby="connect-title"><h2 id="connect-title">Connect a client</h2><p>All servers are at <code>{url}</code>, one alone at <code>{url}/&lt;server&gt;</code>.</p>{note}
<div class="clients">{clients}</div></section>"#,
        url = url,
        note = note,
        clients = clients,
    )
}

/// A text to be copied.
pub(crate) fn copyable(text: &str) -> Html {
    html!(
        r#"<div class="copyable"><pre tabindex="0">{text}</pre><button type="button" class="quiet small" data-copy hidden>Copy</button></div>"#,
        text = text
    )
}

fn snippets(url: &str, has_tokens: bool) -> [(&'static str, &'static str, String); 4] {
    let bearer = format!("Bearer {TOKEN}");
    let reached = |mut entry: Value| {
        if has_tokens {
            entry["headers"] = json!({"Authorization": bearer});
        }
        entry
    };
    let shell = if has_tokens { format!(" --header \"Authorization: {bearer}\"") } else { String::new() };
    let mut bridge = json!({"command": "npx", "args": ["-y", "mcp-remote", url]});
    if has_tokens {
        bridge["args"] = json!(["-y", "mcp-remote", url, "--header", "Authorization:${AUTH}"]);
        bridge["env"] = json!({"AUTH": bearer});
    }
    let shown = |value: Value| serde_json::to_string_pretty(&value).expect("JSON can be written");
    [
        ("Claude Code", "Run in a terminal:", format!("claude mcp add --transport http all {url}{shell}")),
        (
            "Claude Desktop",
            "In claude_desktop_config.json. It starts programs only, so a bridge takes it here:",
            shown(json!({"mcpServers": {"all": bridge}})),
        ),
        (
            "Cursor",
            "In ~/.cursor/mcp.json or .cursor/mcp.json:",
            shown(json!({"mcpServers": {"all": reached(json!({"url": url}))}})),
        ),
        (
            "VS Code",
            "In .vscode/mcp.json:",
            shown(json!({"servers": {"all": reached(json!({"type": "http", "url": url}))}})),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_gets_the_address_and_a_place_for_the_token() {
        for (client, _, text) in snippets("http://h:1/mcp", true) {
            assert!(text.contains("http://h:1/mcp") && text.contains(TOKEN), "{client}: {text}");
        }
        assert!(snippets("http://h:1/mcp", false).iter().all(|(_, _, text)| !text.contains("Bearer")));
    }
}
