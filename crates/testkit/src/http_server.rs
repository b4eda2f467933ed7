//! A small scripted MCP server over HTTP, for tests of whoever reaches servers by HTTP.
//!
//! It speaks Streamable HTTP at `/mcp` or the HTTP+SSE transport of 2024-11-05 at `/sse`, and misbehaves as its
//! [`Script`] says. Blocking threads and plain sockets, so that nothing between a test and the wire is clever.
//!
//! - `script`: what the server is told to do; `state`: what was seen and what is under way
//! - `wire`: HTTP/1.1; `events`: server-sent events; `connection`: request after request, and the ways to answer
//! - `streamable` and `legacy`: the two transports; `modern`: the newer way of the first; `answers`: what each method
//!   and tool gets
//!
//! ```no_run
//! use testkit::{HttpServer, Script};
//!
//! let server = HttpServer::start(Script::default().with_session().answers_as_sse());
//! // ... let a client reach `server.url()` ...
//! server.wait_for(|requests| requests.iter().any(|request| request.is("tools/call")));
//! server.change(|script| script.status_once(429, Some(1)));
//! assert_eq!(server.connections(), 1);
//! ```

mod answers;
mod connection;
mod events;
mod legacy;
mod modern;
mod script;
mod state;
mod streamable;
pub(crate) mod wire;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

pub use script::{LineEnd, Script};
pub use wire::Request;

use crate::{DEADLINE, free_port, wait_until};
use state::Shared;

/// A running server. It stops when this is dropped.
#[derive(Debug)]
pub struct HttpServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts a server on a free port of the loopback interface.
    #[track_caller]
    pub fn start(script: Script) -> Self {
        Self::start_on(free_port(), script)
    }

    /// Starts a server on this port, for instance the one of a server that was stopped.
    #[track_caller]
    pub fn start_on(port: u16, script: Script) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, port).into(), script)
    }

    /// Starts a server at this address, for instance all that there are in a container.
    #[track_caller]
    pub fn start_at(address: SocketAddr, script: Script) -> Self {
        // Whoever listened there before may take a moment to let go of it.
        let listener = wait_until("the address is free", || TcpListener::bind(address).ok());
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared::new(script));
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, &shared))
        };
        Self { shared, address, acceptor: Some(acceptor) }
    }

    /// The URL of the endpoint: where clients post, or where legacy clients open their stream.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin(), self.shared.script().path())
    }

    /// The address without a path.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// All requests so far, in the order they arrived.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state().requests.clone()
    }

    /// Waits until the requests so far satisfy `wanted`, and returns them. Panics with their list after [`DEADLINE`].
    #[track_caller]
    pub fn wait_for(&self, mut wished: impl FnMut(&[Request]) -> bool) -> Vec<Request> {
        let deadline = Instant::now() + DEADLINE;
        let mut state = self.shared.state();
        while !wished(&state.requests) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited {DEADLINE:?} in vain for other requests than {:#?}", state.requests);
            state = self.shared.wait_for_change(state, left);
        }
        state.requests.clone()
    }

    /// How many TCP connections were accepted.
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// How many TCP connections are open. A connection whose answer hangs is seen to close at once.
    pub fn open_connections(&self) -> usize {
        self.shared.state().sockets.len()
    }

    /// Whether this connection is open, counted from 1 as [`Request::connection`] is.
    pub fn is_connected(&self, connection: usize) -> bool {
        self.shared.state().sockets.contains_key(&connection)
    }

    /// How many streams are open on which [`push`](Self::push) can send.
    pub fn open_streams(&self) -> usize {
        self.shared.state().streams.len()
    }

    /// The session ids that are valid now. Of legacy HTTP+SSE, the open streams are the sessions.
    pub fn sessions(&self) -> Vec<String> {
        self.shared.state().sessions.iter().cloned().collect()
    }

    /// Changes the script while the server runs; requests that arrive from now on see it.
    pub fn change(&self, change: impl FnOnce(Script) -> Script) {
        let mut script = self.shared.script_mut();
        *script = change(script.clone());
    }

    /// Sends one JSON-RPC message on one open stream, or on the next that opens.
    pub fn push(&self, message: impl Into<String>) {
        self.shared.push(message.into());
    }

    /// Invalidates every session: their next requests get 404. Of legacy HTTP+SSE, the streams end.
    pub fn forget_sessions(&self) {
        let mut state = self.shared.state();
        state.sessions.clear();
        if self.shared.script().is_legacy() {
            state.streams.clear();
        }
    }

    /// Ends every open stream normally, as a server does to save resources.
    pub fn close_streams(&self) {
        self.shared.state().streams.clear();
    }

    /// Stops listening, breaks every connection and waits for the threads. Dropping does the same.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.shared.stop();
        // `accept` has no time-out. If this fails, the listener is gone and so is the thread.
        drop(TcpStream::connect(self.address));
        let acceptor = self.acceptor.take().map(JoinHandle::join);
        let all_went_well = self.shared.join_threads() && acceptor.is_none_or(|outcome| outcome.is_ok());
        assert!(all_went_well || std::thread::panicking(), "a thread of the HTTP server panicked");
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept() {
        let Some(number) = shared.register(&socket) else { return };
        shared.spawn(move |shared| {
            // A disconnected client, or one that sends invalid HTTP, is not an error: its test will tell.
            connection::serve(socket, number, shared).ok();
            shared.unregister(number);
        });
    }
}
