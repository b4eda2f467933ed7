//! Clients that read the longest lists of REST and of single servers, several of them at once.

use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;

use crate::hostile_client::{Attacker, authorized, fetch};
use crate::hostile_server::Kind;

/// How many read at once: more than the service describes at once.
const READERS: usize = 8;

/// A body that is longer than what the service describes where it is requested.
const LONG: usize = 256 << 10;

pub(crate) fn rest_tools(attacker: &mut Attacker) -> Option<String> {
    read_at_once(attacker.address, &["/tools", "/tools?limit=1000", "/servers?include_tools=true"])
}

pub(crate) fn rest_items(attacker: &mut Attacker) -> Option<String> {
    read_at_once(attacker.address, &["/resources", "/resources?limit=1", "/resources/templates", "/prompts"])
}

pub(crate) fn document_context(attacker: &mut Attacker) -> Option<String> {
    read_at_once(attacker.address, &["/documents/context?path=siege.md&line=1"])
}

pub(crate) fn assistant_tools_at_once(attacker: &mut Attacker) -> Option<String> {
    read_at_once(attacker.address, &["/assistant/tools", "/assistant/tools?format=gemini"])
}

/// Reads the list of the server with the longest list, at its own address, page by page.
pub(crate) fn list_of_one_server(attacker: &mut Attacker) -> Option<String> {
    let path = format!("/mcp/{}", Kind::LargeList.name());
    let mut cursor = Value::Null;
    for page in 1..=3 {
        let mut params = json!({"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "siege", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }});
        if !cursor.is_null() {
            params["cursor"] = cursor;
        }
        let message = json!({"jsonrpc": "2.0", "id": page, "method": "tools/list", "params": params});
        let ask = authorized(HttpRequest::post(&path, message.to_string()))
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", "tools/list");
        let (status, body) = fetch(attacker.address, &ask)?;
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        cursor = answer["result"]["nextCursor"].clone();
        if status != 200 || cursor.is_null() {
            return Some(format!("{status} after {page} pages"));
        }
    }
    Some("200, several pages".to_owned())
}

/// Requests lists on several connections at once. The outcome is that of the longest answer.
fn read_at_once(address: SocketAddr, paths: &[&str]) -> Option<String> {
    let answers: Vec<Option<(u16, usize)>> = thread::scope(|scope| {
        let read = |path: &str| {
            let ask = authorized(HttpRequest::new("GET", &format!("/api/v1/aggregator{path}")));
            scope.spawn(move || fetch(address, &ask).map(|(status, body)| (status, body.len())))
        };
        let readers: Vec<_> = paths.iter().cycle().take(READERS).map(|path| read(path)).collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect()
    });
    let (status, length) = answers.into_iter().flatten().max_by_key(|(_, length)| *length)?;
    Some(if length > LONG { format!("{status}, long") } else { status.to_string() })
}
