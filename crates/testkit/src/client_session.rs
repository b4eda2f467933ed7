//! The common interface of all clients, whatever their transport.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

use serde_json::{Value, json};

use crate::DEADLINE;
use crate::driver::{Driver, shown};
use crate::raw;

/// An MCP client. Messages that nobody waits for yet are kept in order.
pub trait ClientSession {
    /// Sends one message.
    #[track_caller]
    fn send_line(&mut self, line: &str);

    /// The next message that `wanted` accepts; the others are kept.
    #[track_caller]
    fn find(&mut self, what: &str, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Vec<u8>;

    /// Returns every kept or received message.
    fn take_all(&mut self) -> Vec<Vec<u8>>;

    /// An id that was not used yet.
    fn fresh_id(&mut self) -> u64;

    /// The params of a request as this client sends them: modern clients identify themselves in `_meta`.
    fn dress(&self, params: Value) -> Value {
        params
    }

    /// Sends a request with a new id and returns the id.
    #[track_caller]
    fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.fresh_id();
        let params = self.dress(params);
        self.send_line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    /// Sends a request and returns the answer, whole, be it a result or an error.
    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer_to(id)
    }

    /// Sends a request and returns the answer as it was written.
    #[track_caller]
    fn ask_raw(&mut self, method: &str, params: Value) -> Vec<u8> {
        let id = self.begin(method, params);
        self.line_to(&id.to_string())
    }

    /// Starts a call.
    #[track_caller]
    fn begin_call(&mut self, name: &str, arguments: Value) -> u64 {
        self.begin("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// Sends a notification.
    #[track_caller]
    fn tell(&mut self, method: &str, params: Value) {
        self.send_line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Cancels a request.
    #[track_caller]
    fn cancel(&mut self, id: u64) {
        self.tell("notifications/cancelled", json!({"requestId": id}));
    }

    /// The answer to a request, whole.
    #[track_caller]
    fn answer_to(&mut self, id: u64) -> Value {
        parsed(&self.line_to(&id.to_string()))
    }

    /// The answer whose id was written exactly so, as it was written.
    #[track_caller]
    fn line_to(&mut self, id: &str) -> Vec<u8> {
        self.find(&format!("the answer to request {id}"), &mut |line| {
            raw::members(line).is_some_and(|message| message.get("id") == Some(&id) && !message.contains_key("method"))
        })
    }

    /// The next notification of this method, whole.
    #[track_caller]
    fn notice(&mut self, method: &str) -> Value {
        parsed(&self.notice_line(method))
    }

    /// The next notification of this method, as it was written.
    #[track_caller]
    fn notice_line(&mut self, method: &str) -> Vec<u8> {
        let quoted = raw::quote(method);
        self.find(&format!("a notification `{method}`"), &mut |line| is_message(line, &quoted, false))
    }

    /// The next request of this method that the other side sends, whole.
    #[track_caller]
    fn question(&mut self, method: &str) -> Value {
        parsed(&self.question_line(method))
    }

    /// The next request of this method that the other side sends, as it was written.
    #[track_caller]
    fn question_line(&mut self, method: &str) -> Vec<u8> {
        let quoted = raw::quote(method);
        self.find(&format!("a question `{method}`"), &mut |line| is_message(line, &quoted, true))
    }

    /// Answers a server request.
    #[track_caller]
    fn reply(&mut self, question: &Value, result: Value) {
        self.send_line(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}).to_string());
    }

    /// Refuses a server request.
    #[track_caller]
    fn refuse(&mut self, question: &Value, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.send_line(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}).to_string());
    }

    /// Everything of one kind, all pages: `tools/list` and `tools`, say.
    #[track_caller]
    fn list(&mut self, method: &str, key: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut params = json!({});
        loop {
            let page = self.ask(method, params);
            let Some(found) = page["result"][key].as_array() else {
                panic!("expected a page of {key}, but got {page}");
            };
            items.extend(found.iter().cloned());
            match &page["result"]["nextCursor"] {
                Value::Null => return items,
                cursor => params = json!({"cursor": cursor}),
            }
        }
    }

    /// The names, URIs or templates of one kind, in their order.
    #[track_caller]
    fn ids(&mut self, method: &str) -> Vec<String> {
        let (key, id) = match method {
            "tools/list" => ("tools", "name"),
            "prompts/list" => ("prompts", "name"),
            "resources/list" => ("resources", "uri"),
            "resources/templates/list" => ("resourceTemplates", "uriTemplate"),
            _ => panic!("`{method}` lists nothing known"),
        };
        let items = self.list(method, key);
        items.iter().map(|item| item[id].as_str().expect("an item has its id").to_owned()).collect()
    }

    /// Waits until a list contains this item (or no longer does), by listing again after each notification.
    #[track_caller]
    fn wait_for_item(&mut self, method: &str, id: &str, present: bool) {
        let changed = match method {
            "tools/list" => "notifications/tools/list_changed",
            "prompts/list" => "notifications/prompts/list_changed",
            _ => "notifications/resources/list_changed",
        };
        while self.ids(method).iter().any(|found| found == id) != present {
            self.notice(changed);
        }
    }
}

fn is_message(line: &[u8], quoted_method: &str, is_request: bool) -> bool {
    raw::members(line).is_some_and(|message| {
        message.get("method") == Some(&quoted_method) && message.contains_key("id") == is_request
    })
}

#[track_caller]
fn parsed(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error} in {}", shown(line)))
}

impl ClientSession for Driver {
    fn send_line(&mut self, line: &str) {
        self.send_raw(format!("{line}\n").as_bytes());
    }

    fn find(&mut self, what: &str, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Vec<u8> {
        self.line_where(what, wanted)
    }

    fn take_all(&mut self) -> Vec<Vec<u8>> {
        self.drain()
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }
}

/// The inbox of the threads that read for a client.
#[derive(Debug)]
pub(crate) struct Inbox {
    sender: Sender<Vec<u8>>,
    receiver: Receiver<Vec<u8>>,
    aside: VecDeque<Vec<u8>>,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver, aside: VecDeque::new() }
    }

    /// For a reading thread.
    pub(crate) fn sender(&self) -> Sender<Vec<u8>> {
        self.sender.clone()
    }

    /// The next message that `wanted` accepts. An explanation if [`DEADLINE`] passes before.
    pub(crate) fn find(&mut self, what: &str, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Result<Vec<u8>, String> {
        if let Some(position) = self.aside.iter().position(|line| wanted(line)) {
            return Ok(self.aside.remove(position).expect("the position was just found"));
        }
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if wanted(&line) => return Ok(line),
                Ok(line) => self.aside.push_back(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let aside: Vec<String> = self.aside.iter().map(|line| shown(line)).collect();
                    let aside = aside.join("\n");
                    return Err(format!("waited {DEADLINE:?} in vain for {what}\n--- kept aside ---\n{aside}"));
                }
            }
        }
    }

    pub(crate) fn take_all(&mut self) -> Vec<Vec<u8>> {
        self.aside.drain(..).chain(self.receiver.try_iter()).collect()
    }
}
