//! Clients of 2026-07-28: every request identifies the client; over HTTP each is a POST with headers that mirror it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::Driver;
use crate::background_post::{BackgroundPost, PostErrors};
use crate::client::CLIENT_NAME;
use crate::client_session::{ClientSession, Inbox};
use crate::http_client::{Closer, HttpRequest};
use crate::http_session::all_capabilities;
use crate::raw;

/// The revision they speak.
pub const MODERN: &str = "2026-07-28";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const INFO: &str = "io.modelcontextprotocol/clientInfo";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// The metadata that a modern client sends with every request.
#[derive(Clone, Debug)]
pub struct Myself {
    /// Its capabilities.
    pub capabilities: Value,
    /// Its log level.
    pub log_level: Option<String>,
}

impl Default for Myself {
    fn default() -> Self {
        Self { capabilities: json!({}), log_level: None }
    }
}

impl Myself {
    /// A client that supports every kind of server request.
    pub fn interactive() -> Self {
        let mut capabilities = all_capabilities();
        // A modern client cannot announce a change of roots.
        capabilities["roots"] = json!({});
        Self { capabilities, ..Self::default() }
    }

    /// These params with all required metadata. Existing members stay.
    pub fn dress(&self, mut params: Value) -> Value {
        let meta = &mut params["_meta"];
        let mut set = |key: &str, value: Value| {
            if meta.get(key).is_none() {
                meta[key] = value;
            }
        };
        set(VERSION, MODERN.into());
        set(CAPABILITIES, self.capabilities.clone());
        set(INFO, json!({"name": CLIENT_NAME, "version": "1.0.0"}));
        if let Some(level) = &self.log_level {
            set(LOG_LEVEL, level.as_str().into());
        }
        params
    }
}

/// A modern client over HTTP. Dropping it closes all its streams, which cancels its requests.
#[derive(Debug)]
pub struct ModernHttp {
    address: SocketAddr,
    path: String,
    token: Option<String>,
    /// Its metadata, from the next request on.
    pub myself: Myself,
    inbox: Inbox,
    post_errors: PostErrors,
    next_id: u64,
    streams: BTreeMap<String, Closer>,
}

impl ModernHttp {
    /// A client of the endpoint at this path. Nothing is sent yet, because there is no handshake.
    pub fn new(address: SocketAddr, path: &str) -> Self {
        Self {
            address,
            path: path.to_owned(),
            token: None,
            myself: Myself::default(),
            inbox: Inbox::new(),
            post_errors: PostErrors::default(),
            next_id: 1,
            streams: BTreeMap::new(),
        }
    }

    /// The same, with support for every kind of server request.
    pub fn interactive(mut self) -> Self {
        self.myself = Myself::interactive();
        self
    }

    /// The same with this bearer token.
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// A POST of this message with the headers that mirror it, to be changed or sent by hand.
    pub fn post(&self, message: &str) -> HttpRequest {
        let at = |path: &[&str]| raw::at(message.as_bytes(), path).and_then(raw::text);
        let mut ask = HttpRequest::post(&self.path, message);
        ask = ask.header("MCP-Protocol-Version", &at(&["params", "_meta", VERSION]).unwrap_or_else(|| MODERN.into()));
        let method = at(&["method"]).unwrap_or_default();
        if !method.is_empty() {
            ask = ask.header("Mcp-Method", &method);
        }
        let name = match method.as_str() {
            "tools/call" | "prompts/get" => at(&["params", "name"]),
            "resources/read" => at(&["params", "uri"]),
            "tasks/get" | "tasks/update" | "tasks/cancel" => at(&["params", "taskId"]),
            _ => None,
        };
        if let Some(name) = name {
            ask = ask.header("Mcp-Name", &name);
        }
        if let Some(token) = &self.token {
            ask = ask.header("Authorization", &format!("Bearer {token}"));
        }
        ask
    }

    /// Closes the stream of a request, which cancels it.
    #[track_caller]
    pub fn abandon(&mut self, id: u64) {
        self.streams.remove(&id.to_string()).expect("the request was sent").close();
    }
}

impl ClientSession for ModernHttp {
    fn send_line(&mut self, line: &str) {
        let ask = self.post(line);
        let posting =
            BackgroundPost { address: self.address, inbox: self.inbox.sender(), post_errors: &self.post_errors };
        let members = raw::members(line.as_bytes()).unwrap_or_default();
        match members.get("id").filter(|_| members.contains_key("method")) {
            Some(id) => {
                let stream = posting.in_background(&ask);
                self.streams.insert((*id).to_owned(), stream);
            }
            None => {
                posting.at_once(&ask);
            }
        }
    }

    fn find(&mut self, what: &str, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Vec<u8> {
        let found = self.inbox.find(what, wanted);
        found.unwrap_or_else(|why| panic!("{why}\n--- troubles ---\n{}", self.post_errors.text()))
    }

    fn take_all(&mut self) -> Vec<Vec<u8>> {
        self.inbox.take_all()
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn dress(&self, params: Value) -> Value {
        self.myself.dress(params)
    }
}

impl Drop for ModernHttp {
    fn drop(&mut self) {
        self.streams.values().for_each(Closer::close);
    }
}

/// A modern client over stdio.
#[derive(Debug)]
pub struct ModernStdio {
    /// The program it talks to.
    pub driver: Driver,
    /// Its metadata, from the next request on.
    pub myself: Myself,
}

impl ModernStdio {
    /// A client of this program, which must not have been initialized.
    pub fn new(driver: Driver) -> Self {
        Self { driver, myself: Myself::default() }
    }

    /// The same, with support for every kind of server request.
    pub fn interactive(mut self) -> Self {
        self.myself = Myself::interactive();
        self
    }
}

impl ClientSession for ModernStdio {
    fn send_line(&mut self, line: &str) {
        self.driver.send_line(line);
    }

    fn find(&mut self, what: &str, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Vec<u8> {
        self.driver.find(what, wanted)
    }

    fn take_all(&mut self) -> Vec<Vec<u8>> {
        self.driver.take_all()
    }

    fn fresh_id(&mut self) -> u64 {
        self.driver.fresh_id()
    }

    fn dress(&self, params: Value) -> Value {
        self.myself.dress(params)
    }
}
