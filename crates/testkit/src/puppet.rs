//! A server whose every move the test directs.
//!
//! A [`Spec`] says what it offers; introductions, lists, pings and subscriptions are answered by that, unless the test
//! wants them for itself. Everything else waits until the test asks for it with [`Puppet::expect`] and answers it, or
//! not. It can be reached over stdio (the program `puppet`, strings attached) or over HTTP.
//!
//! - `spec`: what it offers; `script`: what is answered without the test; `received`: a message for the test
//! - `stage`: what has happened, shared by all threads; `strings`: over stdio; `web`: over HTTP
//!
//! ```no_run
//! use testkit::puppet::{Puppet, Spec};
//! use testkit::{Config, Driver};
//!
//! let puppet = Puppet::new(Spec::legacy().tool("t"));
//! let mut client = Driver::start(&Config::new().server("s", puppet.entry()));
//! client.initialize();
//! let id = client.start_call("s:t", serde_json::json!({}));
//! puppet.expect("tools/call").answer(r#"{"content":[]}"#);
//! client.response(id);
//! ```

mod received;
mod script;
mod spec;
mod stage;
mod strings;
mod web;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::config::ServerEntry;
use crate::raw;
pub use received::Received;
pub use spec::Spec;
use stage::Stage;

/// A directed server. It ends when this is dropped.
#[derive(Debug)]
pub struct Puppet {
    stage: Arc<Stage>,
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Stdio(strings::Strings),
    Http(web::Web),
}

/// One run of the process, or of the HTTP server.
#[derive(Clone, Debug, Default)]
pub struct Instance {
    /// The process id; 0 over HTTP.
    pub pid: u32,
    /// The arguments after those that make it a puppet.
    pub args: Vec<String>,
    /// The environment.
    pub env: BTreeMap<String, String>,
}

impl Puppet {
    /// A server over stdio; each start of [`Puppet::entry`] is another run of it.
    #[track_caller]
    pub fn new(spec: Spec) -> Self {
        let stage = Arc::new(Stage::new(spec));
        let strings = strings::Strings::attach(&stage);
        Self { stage, transport: Transport::Stdio(strings) }
    }

    /// A server over Streamable HTTP, on a free port of the loopback interface.
    #[track_caller]
    pub fn over_http(spec: Spec) -> Self {
        let stage = Arc::new(Stage::new(spec));
        let web = web::Web::open(&stage);
        Self { stage, transport: Transport::Http(web) }
    }

    /// The entry for a config.
    #[track_caller]
    pub fn entry(&self) -> ServerEntry {
        match &self.transport {
            Transport::Stdio(strings) => strings.entry(),
            Transport::Http(web) => ServerEntry::remote(&web.url()),
        }
    }

    /// Where it listens, over HTTP.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        match &self.transport {
            Transport::Stdio(_) => panic!("a server over stdio has no address"),
            Transport::Http(web) => web.address,
        }
    }

    /// The next message with this method that the script leaves to the test. Others stay for later.
    #[track_caller]
    pub fn expect(&self, method: &str) -> Received {
        self.stage.expect(&format!("a message `{method}`"), |message| message.is(method))
    }

    /// The next message that satisfies `wanted`.
    #[track_caller]
    pub fn expect_where(&self, what: &str, wished: impl Fn(&Received) -> bool) -> Received {
        self.stage.expect(what, wished)
    }

    /// The answer to a request of ours, whole.
    #[track_caller]
    pub fn response(&self, id: impl Into<Value>) -> Value {
        let id = id.into().to_string();
        let is_answer = |message: &Received| message.method().is_none() && message.id() == Some(&id);
        self.stage.expect(&format!("the answer to our request {id}"), is_answer).value()
    }

    /// Writes a line: on stdout, or on the stream for messages about no request.
    #[track_caller]
    pub fn say(&self, line: &str) {
        match &self.transport {
            Transport::Stdio(_) => self.stage.write(&format!("{line}\n")),
            Transport::Http(web) => web.push(line),
        }
    }

    /// Writes these bytes on stdout, a line or not.
    #[track_caller]
    pub fn say_raw(&self, bytes: &str) {
        self.stage.write(bytes);
    }

    /// Sends a notification.
    #[track_caller]
    pub fn notify(&self, method: &str, params: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Sends a request of ours.
    #[track_caller]
    pub fn ask(&self, id: impl Into<Value>, method: &str, params: &Value) {
        let id = id.into();
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
    }

    /// Sends a notification on every open `subscriptions/listen`, tagged with its id.
    #[track_caller]
    pub fn news(&self, method: &str, params: &Value) {
        let listens = self.stage.listens();
        assert!(!listens.is_empty(), "nobody listens for `{method}`");
        for listen in listens {
            let mut params = params.clone();
            let id: Value = serde_json::from_str(listen.id().expect("a listen has an id")).expect("an id is JSON");
            params["_meta"]["io.modelcontextprotocol/subscriptionId"] = id;
            listen.aside(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
        }
    }

    /// The open `subscriptions/listen` requests, oldest first.
    pub fn listens(&self) -> Vec<Received> {
        self.stage.listens()
    }

    /// Waits until the open `subscriptions/listen` requests satisfy `wanted`, and returns them.
    #[track_caller]
    pub fn wait_for_listens(&self, what: &str, wished: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        self.stage.wait(what, |seen| {
            let listens = seen.open_listens();
            wished(&listens).then_some(listens)
        })
    }

    /// Every line received so far, byte for byte, in order.
    pub fn journal(&self) -> Vec<Vec<u8>> {
        self.stage.journal()
    }

    /// The lines of this method received so far.
    pub fn lines_of(&self, method: &str) -> Vec<Vec<u8>> {
        let quoted = raw::quote(method);
        self.journal().into_iter().filter(|line| raw::at(line, &["method"]) == Some(&quoted)).collect()
    }

    /// How many messages of this method were received so far.
    pub fn count(&self, method: &str) -> usize {
        self.lines_of(method).len()
    }

    /// Waits until so many messages of this method were received.
    #[track_caller]
    pub fn wait_for_count(&self, method: &str, count: usize) {
        let quoted = raw::quote(method);
        let are_there = |seen: &mut stage::Seen| (seen.count(&quoted) >= count).then_some(());
        self.stage.wait(&format!("{count} messages `{method}`"), are_there);
    }

    /// All runs so far.
    pub fn runs(&self) -> Vec<Instance> {
        self.stage.runs()
    }

    /// Waits for the run with this number, counted from 1.
    #[track_caller]
    pub fn wait_for_instance(&self, number: usize) -> Instance {
        self.stage.wait(&format!("run {number}"), |seen| seen.runs.get(number - 1).map(|actor| actor.instance.clone()))
    }

    /// Changes what it offers. The test must announce the change.
    pub fn change(&self, change: impl FnOnce(Spec) -> Spec) {
        self.stage.change(change);
    }

    /// Over HTTP: forgets every session, like a restarted server.
    #[track_caller]
    pub fn forget_sessions(&self) {
        match &self.transport {
            Transport::Stdio(_) => panic!("a server over stdio has no sessions"),
            Transport::Http(web) => web.forget_sessions(),
        }
    }

    /// Over HTTP: knows no session from now on, like one of several machines behind one address.
    #[track_caller]
    pub fn turn_forgetful(&self) {
        match &self.transport {
            Transport::Stdio(_) => panic!("a server over stdio has no sessions"),
            Transport::Http(web) => web.turn_forgetful(),
        }
    }

    /// Ends the process immediately, as a crash would. Over HTTP, every connection breaks and nothing listens any more.
    pub fn die(&self) {
        match &self.transport {
            Transport::Stdio(_) => self.stage.cut(),
            Transport::Http(web) => web.close(),
        }
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.stage.stop();
        match &mut self.transport {
            Transport::Stdio(strings) => strings.detach(),
            Transport::Http(web) => web.close(),
        }
    }
}
