//! Streamable HTTP as 2026-07-28 has it: no sessions, no stream of its own, and headers that must repeat the body.

use std::io;

use super::answers::{self, Message};
use super::connection::{Connection, Next};
use super::wire::{Head, Request};
use crate::raw;

const VERSION: &str = "2026-07-28";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// Tools besides the usual ones: one that wants an argument repeated, and one that may not want that.
pub(super) const REGION: &str = "region";
pub(super) const WRONG: &str = "wrong";

pub(super) fn answer(connection: &mut Connection, request: &Request) -> io::Result<Next> {
    if request.method != "POST" {
        return connection.refuse(Head::new(405).with("Allow", "POST"), "Method Not Allowed");
    }
    let Some(message) = Message::read(&request.body) else { return connection.refuse(Head::new(400), "Parse error") };
    if message.is("initialize")
        && let Some(status) = connection.script.refuse_initialize
    {
        return connection.refuse(Head::new(status), "This server does not initialize");
    }
    let id = raw::at(&request.body, &["id"]).unwrap_or("null").to_owned();
    if let Some((code, why)) = fault(connection, request, &message) {
        return refuse(connection, 400, &id, code, &why);
    }
    if !message.is_request() {
        connection.shared.rest(connection.script.slow_notices);
        return connection.empty(202);
    }
    match message.method.as_deref().unwrap_or_default() {
        "server/discover" => {
            let result = format!(
                r#"{{"resultType":"complete","supportedVersions":["{VERSION}"],"capabilities":{{"tools":{{"listChanged":true}}}},"ttlMs":0,"cacheScope":"private"}}"#
            );
            respond(connection, &id, &result)
        }
        "tools/list" => {
            let result = list(connection);
            respond(connection, &id, &result)
        }
        "tools/call" => call(connection, &message),
        "subscriptions/listen" => listen(connection, &id),
        _ => refuse(connection, 404, &id, -32601, "Method not found"),
    }
}

/// What is wrong with a request, apart from its method.
fn fault(connection: &Connection, request: &Request, message: &Message) -> Option<(i32, String)> {
    let text = |path: &[&str]| raw::at(&request.body, path).and_then(raw::text);
    let Some(version) = text(&["params", "_meta", VERSION_KEY]) else {
        return message.is_request().then(|| (-32602, "no protocol version".to_owned()));
    };
    let mut wanted = vec![("mcp-protocol-version", Some(version)), ("mcp-method", message.method.clone())];
    let region = format!("mcp-param-{}", connection.script.region_header.to_ascii_lowercase());
    if message.is("tools/call") {
        wanted.push(("mcp-name", text(&["params", "name"])));
        if message.calls(REGION) {
            wanted.push((&region, text(&["params", "arguments", "region"])));
        }
    }
    for (name, value) in wanted {
        if request.header(name) != value.as_deref() {
            return Some((-32020, format!("{name} is {:?}, not {value:?}", request.header(name))));
        }
    }
    for forbidden in ["mcp-session-id", "last-event-id"] {
        if request.header(forbidden).is_some() {
            return Some((-32600, format!("{forbidden} is of an older revision")));
        }
    }
    None
}

fn call(connection: &mut Connection, message: &Message) -> io::Result<Next> {
    if let Some(refusal) = connection.shared.take_status() {
        return connection.refuse_as_scripted(refusal);
    }
    super::streamable::answer_as_scripted(connection, Head::new(200), message)
}

fn list(connection: &Connection) -> String {
    let annotated = |name: &str, kind: &str, header: &str| {
        let property = format!(r#"{{"type":"{kind}","x-mcp-header":"{header}"}}"#);
        format!(r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"region":{property}}}}}}}"#)
    };
    let tools = answers::tools(&connection.shared);
    let region = annotated(REGION, "string", &connection.script.region_header);
    let wrong = annotated(WRONG, "number", "Wrong");
    format!(r#"{{"resultType":"complete","tools":[{tools},{region},{wrong}],"ttlMs":0,"cacheScope":"private"}}"#)
}

/// A stream of notifications, tagged with the subscription.
fn listen(connection: &mut Connection, id: &str) -> io::Result<Next> {
    connection.begin(Head::new(200).events())?;
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
    let granted = r#""notifications":{"toolsListChanged":true}"#;
    let method = "notifications/subscriptions/acknowledged";
    connection.message_event(format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{granted},{meta}}}}}"#))?;
    let stream = format!("stream-{}", connection.shared.next_number());
    let messages = connection.shared.open_stream(&stream);
    let next = connection
        .pump_with(&messages, |message| message.replace(r#""params":{}"#, &format!(r#""params":{{{meta}}}"#)));
    connection.shared.close_stream(&stream);
    next
}

fn respond(connection: &mut Connection, id: &str, result: &str) -> io::Result<Next> {
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    connection.whole(Head::new(200).json(), answer.as_bytes())
}

fn refuse(connection: &mut Connection, status: u16, id: &str, code: i32, why: &str) -> io::Result<Next> {
    let message = raw::quote(why);
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#);
    connection.whole(Head::new(status).json(), answer.as_bytes())
}
