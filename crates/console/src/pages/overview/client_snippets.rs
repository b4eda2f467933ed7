//! Configs to paste into clients.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::html::{Html, html};
use crate::request::PageRequest;

/// The placeholder for the token.
const PLACE: &str = "<token>";

/// The token in the configs.
pub(super) enum Token {
    /// None: the connection suffices.
    NotNeeded,
    /// A placeholder for a token.
    Known,
    /// This one, because the user requested it.
    Shown(Arc<str>),
}

impl Token {
    /// Decides which token is shown.
    pub(super) fn of(request: &PageRequest<'_>, shown: Option<Arc<str>>) -> Self {
        match (request.needs_no_token, shown) {
            (true, _) => Self::NotNeeded,
            (false, Some(token)) => Self::Shown(token),
            (false, None) => Self::Known,
        }
    }

    fn bearer(&self) -> Option<String> {
        match self {
            Self::NotNeeded => None,
            Self::Known => Some(format!("Bearer {PLACE}")),
            Self::Shown(token) => Some(format!("Bearer {token}")),
        }
    }
}

/// The section about connecting clients.
pub(super) fn section(request: &PageRequest<'_>, token: &Token) -> Html {
    let url = format!("{}/mcp", request.origin());
    let clients: Html = snippets(&url, token.bearer().as_deref())
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
    let note = match token {
        Token::NotNeeded => None,
        Token::Known => Some(html!(
            r#"<form method="post" action="/connect#connect-title">{csrf}<p class="muted">Replace <code>{place}</code> with a token: a separate one for the client, or <button class="quiet small">the one you signed in with</button></p></form>"#,
            csrf = request.csrf(),
            place = PLACE,
        )),
        Token::Shown(_) => Some(html!(
            r#"<p class="muted">With the token you signed in with. Anyone who has it can do everything you can: <a href="/">hide it</a> when you are done.</p>"#
        )),
    };
    html!(
        r#"<section aria-labelledby="connect-title"><h2 id="connect-title">Connect a client</h2><p>All servers are at <code>{url}</code>, a single server at <code>{url}/&lt;server&gt;</code>.</p>{note}
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

fn snippets(url: &str, bearer: Option<&str>) -> [(&'static str, &'static str, String); 4] {
    let reached = |mut entry: Value| {
        if let Some(bearer) = bearer {
            entry["headers"] = json!({"Authorization": bearer});
        }
        entry
    };
    let shell = bearer.map(|bearer| format!(" --header 'Authorization: {}'", bearer.replace('\'', r"'\''")));
    let shell = shell.unwrap_or_default();
    let mut bridge = json!({"command": "npx", "args": ["-y", "mcp-remote", url]});
    if let Some(bearer) = bearer {
        bridge["args"] = json!(["-y", "mcp-remote", url, "--header", "Authorization:${AUTH}"]);
        bridge["env"] = json!({"AUTH": bearer});
    }
    let shown = |value: Value| serde_json::to_string_pretty(&value).expect("JSON can be written");
    [
        ("Claude Code", "Run in a terminal:", format!("claude mcp add --transport http all {url}{shell}")),
        (
            "Claude Desktop",
            "In claude_desktop_config.json. Claude Desktop can only start programs, so it uses a bridge:",
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
    fn every_client_gets_the_address_and_the_token() {
        for (client, _, text) in snippets("http://h:1/mcp", Some("Bearer it-is-me")) {
            assert!(text.contains("http://h:1/mcp") && text.contains("Bearer it-is-me"), "{client}: {text}");
        }
        assert!(snippets("http://h:1/mcp", None).iter().all(|(_, _, text)| !text.contains("Bearer")));
        let [(_, _, shell), ..] = snippets("http://h:1/mcp", Some("Bearer it's"));
        assert!(shell.ends_with(r"'Authorization: Bearer it'\''s'"), "{shell}");
    }
}
