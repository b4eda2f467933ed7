//! The responses to each method and tool, for any transport.

use std::time::Duration;

use super::modern;
use super::state::Shared;
use crate::raw;

const TOOLS: [&str; 6] = ["echo", "raw", "sleep", "progress", "hang", "change_tools"];

/// A request as it arrived, in the client's own bytes.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// `None` for a notification.
    id: Option<String>,
    /// `None` for an answer to one of our own requests.
    pub(super) method: Option<String>,
    params: String,
}

impl Message {
    /// `None` if this is not a JSON object.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let members = raw::members(body)?;
        Some(Self {
            id: members.get("id").map(|id| (*id).to_owned()),
            method: members.get("method").and_then(|method| raw::text(method)),
            params: members.get("params").copied().unwrap_or("{}").to_owned(),
        })
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    pub(super) fn is_request(&self) -> bool {
        self.id.is_some() && self.method.is_some()
    }

    pub(super) fn calls(&self, tool: &str) -> bool {
        self.is("tools/call") && self.tool().as_deref() == Some(tool)
    }

    fn tool(&self) -> Option<String> {
        self.param(&["name"]).and_then(raw::text)
    }

    fn param(&self, path: &[&str]) -> Option<&str> {
        raw::at(self.params.as_bytes(), path)
    }

    fn argument(&self, name: &str) -> Option<&str> {
        self.param(&["arguments", name])
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.argument(name)?.parse().ok()
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(self.number("ms").unwrap_or(0))
    }

    fn respond(&self, key: &str, value: &str) -> String {
        let id = self.id.as_deref().unwrap_or("null");
        [r#"{"jsonrpc":"2.0","id":"#, id, ",\"", key, "\":", value, "}"].concat()
    }
}

/// The answer to a request, and before it whatever goes to `notify`. `None` if there will never be one.
pub(super) fn answer(shared: &Shared, request: &Message, notify: &mut dyn FnMut(String)) -> Option<String> {
    let result = match request.method.as_deref() {
        Some("initialize") => initialize(request),
        Some("ping") => "{}".to_owned(),
        Some("tools/list") => list(shared),
        Some("tools/call") => return call(shared, request, notify),
        _ => return Some(request.respond("error", r#"{"code":-32601,"message":"Method not found"}"#)),
    };
    Some(request.respond("result", &result))
}

fn initialize(request: &Message) -> String {
    let version = request.param(&["protocolVersion"]).unwrap_or("\"2025-11-25\"");
    format!(
        r#"{{"protocolVersion":{version},"capabilities":{{"tools":{{"listChanged":true}}}},"serverInfo":{{"name":"fake-http-server","version":"1.0.0"}}}}"#
    )
}

fn list(shared: &Shared) -> String {
    format!(r#"{{"tools":[{}]}}"#, tools(shared))
}

/// The definitions of all tools, between commas.
pub(super) fn tools(shared: &Shared) -> String {
    let state = shared.state();
    let extra = state.extra_tools.iter().map(String::as_str);
    let definition = |name| format!(r#"{{"name":{},"inputSchema":{{"type":"object"}}}}"#, raw::quote(name));
    let tools: Vec<String> = TOOLS.into_iter().chain(extra).map(definition).collect();
    tools.join(",")
}

fn call(shared: &Shared, call: &Message, notify: &mut dyn FnMut(String)) -> Option<String> {
    let name = call.tool().unwrap_or_default();
    let result = match name.as_str() {
        "echo" | modern::REGION | modern::WRONG => echo(call),
        "raw" => call.argument("result").and_then(raw::text).unwrap_or_default(),
        "sleep" => {
            shared.rest(call.pause());
            text_result("slept")
        }
        "progress" => {
            progress(shared, call, notify);
            text_result("progressed")
        }
        "hang" => return None,
        "change_tools" => {
            let names = call.argument("names").and_then(|names| serde_json::from_str(names).ok());
            shared.state().extra_tools = names.unwrap_or_default();
            shared.push(notification("notifications/tools/list_changed", "{}"));
            text_result("done")
        }
        _ if shared.state().extra_tools.contains(&name) => echo(call),
        _ => {
            let message = raw::quote(&format!("Unknown tool: {name}"));
            return Some(call.respond("error", &format!(r#"{{"code":-32602,"message":{message}}}"#)));
        }
    };
    Some(call.respond("result", &result))
}

/// The arguments and `_meta` in the client's own bytes; what was not sent is left out.
fn echo(call: &Message) -> String {
    let text = call.argument("text").filter(|text| text.starts_with('"')).unwrap_or("\"echo\"");
    let mut parts = vec![r#"{"content":[{"type":"text","text":"#, text, "}]"];
    if let Some(arguments) = call.param(&["arguments"]) {
        parts.extend([r#","structuredContent":"#, arguments]);
    }
    if let Some(meta) = call.param(&["_meta"]) {
        parts.extend([r#","_meta":"#, meta]);
    }
    parts.push("}");
    parts.concat()
}

fn progress(shared: &Shared, call: &Message, notify: &mut dyn FnMut(String)) {
    let Some(token) = call.param(&["_meta", "progressToken"]) else { return };
    let steps = call.number("steps").unwrap_or(1);
    for step in 1..=steps {
        let params = format!(r#"{{"progressToken":{token},"progress":{step},"total":{steps}}}"#);
        notify(notification("notifications/progress", &params));
        shared.rest(call.pause());
    }
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

fn text_result(text: &str) -> String {
    [r#"{"content":[{"type":"text","text":"#, &raw::quote(text), "}]}"].concat()
}
