//! A legacy client over Streamable HTTP: one session, from `initialize` to DELETE.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::background_post::{BackgroundPost, PostErrors};
use crate::client::{CLIENT_NAME, REVISION};
use crate::client_session::{ClientSession, Inbox};
use crate::http_client::{Closer, Connection, HttpRequest};
use crate::raw;

/// The `initialize` parameters of a legacy client.
#[derive(Clone, Debug)]
pub struct Hello {
    /// The revision it asks for.
    pub revision: String,
    /// Its capabilities.
    pub capabilities: Value,
    /// Its bearer token.
    pub token: Option<String>,
    /// Its name.
    pub name: String,
}

/// A client with a session.
#[derive(Debug)]
pub struct HttpSession {
    address: SocketAddr,
    path: String,
    token: Option<String>,
    session: Option<String>,
    revision: String,
    /// The answer to `initialize`, whole.
    pub welcome: Value,
    inbox: Inbox,
    post_errors: PostErrors,
    next_id: u64,
    streams: Vec<Closer>,
}

impl Default for Hello {
    fn default() -> Self {
        Self { revision: REVISION.to_owned(), capabilities: json!({}), token: None, name: CLIENT_NAME.to_owned() }
    }
}

impl Hello {
    /// A client that supports every kind of server request.
    pub fn interactive() -> Self {
        Self { capabilities: all_capabilities(), ..Self::default() }
    }

    /// The same with this bearer token.
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// The params of `initialize`.
    pub fn params(&self) -> Value {
        json!({
            "protocolVersion": self.revision,
            "capabilities": self.capabilities,
            "clientInfo": {"name": self.name, "version": "1.0.0"},
        })
    }
}

/// The capabilities of a client that supports every kind of server request.
pub fn all_capabilities() -> Value {
    json!({"roots": {"listChanged": true}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}})
}

impl HttpSession {
    /// Opens a session with default parameters.
    #[track_caller]
    pub fn open(address: SocketAddr, path: &str) -> Self {
        Self::introduce(address, path, &Hello::default())
    }

    /// Opens a session.
    #[track_caller]
    pub fn introduce(address: SocketAddr, path: &str, hello: &Hello) -> Self {
        let mut session = Self {
            address,
            path: path.to_owned(),
            token: hello.token.clone(),
            session: None,
            revision: hello.revision.clone(),
            welcome: Value::Null,
            inbox: Inbox::new(),
            post_errors: PostErrors::default(),
            next_id: 1,
            streams: Vec::new(),
        };
        session.initialize(hello);
        session
    }

    #[track_caller]
    fn initialize(&mut self, hello: &Hello) {
        let request = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello.params()});
        let mut connection = Connection::open(self.address);
        // The revision is not agreed on yet, so it is not in a header either.
        let mut answer = connection.ask(&self.post(&request.to_string()).without("MCP-Protocol-Version"));
        let status = answer.status;
        assert!(status == 200, "{status} to initialize: {}", String::from_utf8_lossy(&answer.bytes()));
        self.session = answer.header("mcp-session-id").map(str::to_owned);
        self.welcome = if answer.is_stream() { answer.message(None) } else { answer.json() };
        if let Some(agreed) = self.welcome["result"]["protocolVersion"].as_str() {
            self.revision = agreed.to_owned();
        }
        self.tell("notifications/initialized", json!({}));
    }

    /// The session id.
    #[track_caller]
    pub fn id(&self) -> &str {
        self.session.as_deref().expect("the server issued a session id")
    }

    /// A POST of this message with all headers of this session, to be changed or sent by hand.
    pub fn post(&self, message: &str) -> HttpRequest {
        self.dressed(HttpRequest::post(&self.path, message))
    }

    /// Any request with the headers of this session.
    pub fn dressed(&self, mut ask: HttpRequest) -> HttpRequest {
        ask = ask.header("MCP-Protocol-Version", &self.revision);
        if let Some(session) = &self.session {
            ask = ask.header("Mcp-Session-Id", session);
        }
        if let Some(token) = &self.token {
            ask = ask.header("Authorization", &format!("Bearer {token}"));
        }
        ask
    }

    /// A GET for the stream of this session, to be changed or sent by hand.
    pub fn get(&self) -> HttpRequest {
        self.dressed(HttpRequest::stream(&self.path))
    }

    /// Opens the stream for messages about no request; its messages are found like all others.
    #[track_caller]
    pub fn listen(&mut self) {
        let opened = self.posting().stream(&self.get());
        self.streams.push(opened.unwrap_or_else(|status| panic!("the stream was refused with {status}")));
    }

    /// Closes the streams that [`HttpSession::listen`] opened, and those of requests under way.
    pub fn close_streams(&mut self) {
        self.streams.drain(..).for_each(|stream| stream.close());
    }

    /// Ends the session; the status of the answer.
    #[track_caller]
    pub fn delete(&self) -> u16 {
        Connection::open(self.address).ask(&self.dressed(HttpRequest::new("DELETE", &self.path))).status
    }

    fn posting(&self) -> BackgroundPost<'_> {
        BackgroundPost { address: self.address, inbox: self.inbox.sender(), post_errors: &self.post_errors }
    }
}

impl ClientSession for HttpSession {
    fn send_line(&mut self, line: &str) {
        let ask = self.post(line);
        let is_request = raw::members(line.as_bytes())
            .is_some_and(|message| message.contains_key("id") && message.contains_key("method"));
        if is_request {
            let stream = self.posting().in_background(&ask);
            self.streams.push(stream);
        } else {
            self.posting().at_once(&ask);
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
}

impl Drop for HttpSession {
    fn drop(&mut self) {
        // The threads that read end with their streams.
        self.close_streams();
    }
}
