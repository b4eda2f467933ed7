//! Messages of an MCP client: requests, responses, notifications, and the methods that most tests use.

use serde_json::{Value, json};

use crate::driver::{Driver, shown};
use crate::raw;

/// The revision that [`Driver::initialize`] asks for.
pub const REVISION: &str = "2025-11-25";

/// What our clients call themselves: a client to which `mcp-aggregator` lists canonical names.
pub const CLIENT_NAME: &str = "mcp-inspector";

impl Driver {
    /// Sends a message as one line.
    #[track_caller]
    pub fn send(&mut self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        self.send_raw(line.as_bytes());
    }

    /// Sends a request with a new id and returns the id.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        message["params"] = params;
        self.send(&message);
        id
    }

    /// Sends a notification.
    #[track_caller]
    pub fn notify(&mut self, method: &str, params: Value) {
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        message["params"] = params;
        self.send(&message);
    }

    /// The response to a request. Other lines are kept.
    #[track_caller]
    pub fn response(&mut self, id: impl Into<Value>) -> Value {
        let line = self.response_line(id);
        self.parse(&line)
    }

    /// The response to a request, as it was written.
    #[track_caller]
    pub fn response_line(&mut self, id: impl Into<Value>) -> Vec<u8> {
        self.response_to_raw_id(&id.into().to_string())
    }

    /// The response whose id was written exactly so, such as `1e2` or `"\u0041"`.
    #[track_caller]
    pub fn response_to_raw_id(&mut self, id: &str) -> Vec<u8> {
        self.line_where(&format!("the answer to request {id}"), |line| {
            raw::members(line).is_some_and(|message| message.get("id") == Some(&id) && !message.contains_key("method"))
        })
    }

    /// The next notification with this method. Other lines are kept.
    #[track_caller]
    pub fn notification(&mut self, method: &str) -> Value {
        let line = self.message_line(method, |has_id| !has_id);
        self.parse(&line)
    }

    /// The next request with this method from the program. Other lines are kept.
    #[track_caller]
    pub fn request_from_server(&mut self, method: &str) -> Value {
        let line = self.message_line(method, |has_id| has_id);
        self.parse(&line)
    }

    #[track_caller]
    fn message_line(&mut self, method: &str, wanted: impl Fn(bool) -> bool) -> Vec<u8> {
        let quoted = raw::quote(method);
        self.line_where(&format!("a message `{method}`"), |line| {
            raw::members(line).is_some_and(|message| {
                message.get("method") == Some(&quoted.as_str()) && wanted(message.contains_key("id"))
            })
        })
    }

    /// Initializes the connection and returns the answer, whole.
    #[track_caller]
    pub fn initialize(&mut self) -> Value {
        self.initialize_as(CLIENT_NAME, REVISION)
    }

    /// Initializes the connection as a client of this name and revision, and returns the answer, whole.
    #[track_caller]
    pub fn initialize_as(&mut self, client_name: &str, revision: &str) -> Value {
        let params = json!({
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": {"name": client_name, "version": "1.0.0"},
        });
        let id = self.request("initialize", params);
        let answer = self.response(id);
        self.notify("notifications/initialized", json!({}));
        answer
    }

    /// Every tool definition, all pages.
    #[track_caller]
    pub fn list_tools(&mut self) -> Vec<Value> {
        let raw = self.list_raw_tools();
        raw.iter().map(|tool| self.parse(tool.as_bytes())).collect()
    }

    /// Every tool definition as it was written, all pages.
    #[track_caller]
    pub fn list_raw_tools(&mut self) -> Vec<String> {
        let mut tools = Vec::new();
        let mut params = json!({});
        loop {
            let id = self.request("tools/list", params);
            let line = self.response_line(id);
            let Some(page) = raw::at(&line, &["result", "tools"]).and_then(|page| raw::elements(page.as_bytes()))
            else {
                self.fail(&format!("expected a page of tools, but got {}", shown(&line)));
            };
            tools.extend(page.into_iter().map(str::to_owned));
            match raw::at(&line, &["result", "nextCursor"]).and_then(raw::text) {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => return tools,
            }
        }
    }

    /// The names of all tools, in their order.
    #[track_caller]
    pub fn tool_names(&mut self) -> Vec<String> {
        let tools = self.list_tools();
        tools.iter().map(|tool| tool["name"].as_str().expect("a tool has a name").to_owned()).collect()
    }

    /// Calls a tool and returns the answer, whole, be it a result or an error.
    #[track_caller]
    pub fn call(&mut self, name: &str, arguments: Value) -> Value {
        let id = self.start_call(name, arguments);
        self.response(id)
    }

    /// Sends a call without waiting for its answer, and returns its id.
    #[track_caller]
    pub fn start_call(&mut self, name: &str, arguments: Value) -> u64 {
        let mut params = json!({"name": name});
        params["arguments"] = arguments;
        self.request("tools/call", params)
    }

    #[track_caller]
    fn parse(&self, line: &[u8]) -> Value {
        serde_json::from_slice(line).unwrap_or_else(|error| self.fail(&format!("{error} in {}", shown(line))))
    }
}
