//! The automatic responses of a puppet.

use super::received::Received;
use super::spec::Spec;
use crate::raw;

/// What the script does with a message.
#[derive(Debug)]
pub(super) enum Reaction {
    Result(String),
    Error(String),
    /// A `subscriptions/listen`: it is acknowledged and stays open.
    Listen,
    /// Left to the test.
    Wait,
}

pub(super) fn reaction(spec: &Spec, message: &Received) -> Reaction {
    let Some(method) = message.method().filter(|_| message.is_request()) else { return Reaction::Wait };
    if spec.left_to_test.contains(method) {
        return Reaction::Wait;
    }
    if let Some(result) = spec.results.get(method) {
        return Reaction::Result(result.clone());
    }
    let is_modern = message.param(&["_meta", "io.modelcontextprotocol/protocolVersion"]).is_some();
    match method {
        "initialize" if spec.legacy => Reaction::Result(initialize(spec, message)),
        "initialize" => unsupported(message),
        "server/discover" if spec.modern => Reaction::Result(discover(spec)),
        "server/discover" => Reaction::Error(r#"{"code":-32601,"message":"Method not found"}"#.to_owned()),
        "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => Reaction::Result("{}".into()),
        "tools/list" => list(spec, &spec.tools, "tools", message, is_modern),
        "prompts/list" => list(spec, &spec.prompts, "prompts", message, is_modern),
        "resources/list" => list(spec, &spec.resources, "resources", message, is_modern),
        "resources/templates/list" => list(spec, &spec.templates, "resourceTemplates", message, is_modern),
        "subscriptions/listen" if spec.modern => Reaction::Listen,
        "tools/call" if spec.echoes => Reaction::Result(echo(message, is_modern)),
        _ => Reaction::Wait,
    }
}

/// The acknowledgement of a subscription: the whole filter is accepted.
pub(super) fn acknowledgement(listen: &Received) -> String {
    let id = listen.id().unwrap_or("null");
    let filter = listen.param(&["notifications"]).unwrap_or("{}");
    let meta = format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{meta},"notifications":{filter}}}}}"#
    )
}

fn initialize(spec: &Spec, request: &Received) -> String {
    let asked = request.text_param(&["protocolVersion"]).unwrap_or_default();
    let known = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    let version = if known.contains(&asked.as_str()) { asked.as_str() } else { "2025-11-25" };
    let (capabilities, instructions) = (spec.capabilities_text(), spec.instructions_member());
    format!(
        r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{{"name":"puppet","version":"1.0.0"}}{instructions}}}"#
    )
}

fn unsupported(request: &Received) -> Reaction {
    let requested = request.param(&["protocolVersion"]).unwrap_or("\"\"");
    let data = format!(r#"{{"supported":["2026-07-28"],"requested":{requested}}}"#);
    Reaction::Error(format!(r#"{{"code":-32022,"message":"Unsupported protocol version","data":{data}}}"#))
}

fn discover(spec: &Spec) -> String {
    let versions = if spec.legacy { r#"["2026-07-28","2025-11-25"]"# } else { r#"["2026-07-28"]"# };
    let (capabilities, instructions) = (spec.capabilities_text(), spec.instructions_member());
    let (ttl, scope) = &spec.hints;
    let info = r#"{"io.modelcontextprotocol/serverInfo":{"name":"puppet","version":"1.0.0"}}"#;
    format!(
        r#"{{"resultType":"complete","supportedVersions":{versions},"capabilities":{capabilities}{instructions},"ttlMs":{ttl},"cacheScope":"{scope}","_meta":{info}}}"#
    )
}

fn list(spec: &Spec, items: &[String], key: &str, request: &Received, is_modern: bool) -> Reaction {
    let start: usize = match request.text_param(&["cursor"]) {
        None => 0,
        Some(cursor) => match cursor.strip_prefix("puppet ").and_then(|number| number.parse().ok()) {
            Some(start) => start,
            None => return Reaction::Error(r#"{"code":-32602,"message":"Invalid cursor"}"#.to_owned()),
        },
    };
    let end = items.len().min(start.saturating_add(spec.page_size));
    let page = items.get(start..end).unwrap_or_default().join(",");
    let next = if end < items.len() { format!(r#","nextCursor":"puppet {end}""#) } else { String::new() };
    let (ttl, scope) = &spec.hints;
    let rest = if is_modern {
        format!(r#","resultType":"complete","ttlMs":{ttl},"cacheScope":"{scope}""#)
    } else {
        String::new()
    };
    Reaction::Result(format!(r#"{{"{key}":[{page}]{next}{rest}}}"#))
}

/// The arguments in the caller's own bytes, and their `text` as content.
fn echo(call: &Received, is_modern: bool) -> String {
    let text = call.param(&["arguments", "text"]).filter(|text| raw::text(text).is_some()).unwrap_or("\"echo\"");
    let arguments = call.param(&["arguments"]).unwrap_or("{}");
    let result_type = if is_modern { r#""resultType":"complete","# } else { "" };
    format!(r#"{{{result_type}"content":[{{"type":"text","text":{text}}}],"structuredContent":{arguments}}}"#)
}
