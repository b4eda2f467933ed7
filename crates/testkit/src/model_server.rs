//! Scripted language models over real HTTP: one that speaks like OpenAI, and one that speaks like Anthropic.
//!
//! It answers as it is told, request by request, or by a function of the request; and it remembers what it was asked.
//! - here: HTTP, and what was asked; [`ModelReply`]: answers in both dialects, whole, in pieces, broken or refused
//!
//! ```no_run
//! use testkit::{ModelReply, ModelServer};
//!
//! let server = ModelServer::start();
//! server.say(ModelReply::openai_calls(&[("call_1", "git_log", r#"{"count": 3}"#)]));
//! server.say(ModelReply::openai_text("Three commits.").cut(1));
//! // ... let a program ask with `OPENAI_BASE_URL` set to `server.openai_url()` ...
//! assert_eq!(server.wait_for(2)[1].body["messages"][2]["role"], "tool");
//! ```

mod reply;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

pub use reply::ModelReply;

use crate::http_server::Request;
use crate::{free_port, wait_until};

/// A running model server. It stops on drop.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Mutex<State>>,
}

/// A request to a model.
#[derive(Debug, Clone)]
pub struct ModelRequestSeen {
    /// Such as `/v1/chat/completions`.
    pub path: String,
    /// The JSON body.
    pub body: Value,
    /// The raw body.
    pub request: Request,
}

type Answering = Arc<dyn Fn(&ModelRequestSeen) -> ModelReply + Send + Sync>;

#[derive(Default)]
struct State {
    closed: bool,
    sockets: Vec<TcpStream>,
    asked: Vec<ModelRequestSeen>,
    script: VecDeque<ModelReply>,
    otherwise: Option<Answering>,
}

impl ModelServer {
    /// Starts a server on a free port of the loopback interface. Without a script it answers with status 500.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_on(free_port())
    }

    /// Starts a server on this port, for instance the one of a server that was stopped.
    #[track_caller]
    pub fn start_on(port: u16) -> Self {
        // The previous listener may take a moment to close.
        let listener = wait_until("the port is free", || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Mutex::new(State::default()));
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let shared = Arc::clone(&accepting);
                {
                    let mut state = shared.lock().expect("nobody panics with it");
                    if state.closed {
                        return;
                    }
                    state.sockets.extend(stream.try_clone());
                }
                std::thread::spawn(move || {
                    // A disconnected client is not an error: the test will tell.
                    serve(&stream, number + 1, &shared).ok();
                    stream.shutdown(Shutdown::Both).ok();
                });
            }
        });
        Self { address, shared }
    }

    /// The value for `OPENAI_BASE_URL`.
    pub fn openai_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The value for `ANTHROPIC_BASE_URL`.
    pub fn anthropic_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its address.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The response to the next request without one.
    pub fn say(&self, reply: ModelReply) {
        self.state().script.push_back(reply);
    }

    /// The responses to all requests for which [`say`](Self::say) has none left.
    pub fn answer_by(&self, answering: impl Fn(&ModelRequestSeen) -> ModelReply + Send + Sync + 'static) {
        self.state().otherwise = Some(Arc::new(answering));
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<ModelRequestSeen> {
        self.state().asked.clone()
    }

    /// Waits until there were this many requests.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<ModelRequestSeen> {
        wait_until(&format!("{count} requests to the model"), || {
            let asked = self.asked();
            (asked.len() >= count).then_some(asked)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().expect("nobody panics with it")
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        {
            let mut state = self.state();
            state.closed = true;
            for socket in state.sockets.drain(..) {
                // It fails if the client was faster.
                socket.shutdown(Shutdown::Both).ok();
            }
        }
        // `accept` has no time-out. If this fails, the listener is gone and so is the thread.
        drop(TcpStream::connect(self.address));
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("asked", &self.asked).field("script", &self.script).finish_non_exhaustive()
    }
}

/// Answers request after request on one connection.
fn serve(stream: &TcpStream, number: usize, shared: &Mutex<State>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Some(request) = Request::read(&mut reader, &mut writer, number)? {
        let asked = ModelRequestSeen {
            path: request.bare_path().to_owned(),
            body: serde_json::from_slice(&request.body).unwrap_or(Value::Null),
            request,
        };
        let (next, otherwise) = {
            let mut state = shared.lock().expect("nobody panics with it");
            state.asked.push(asked.clone());
            (state.script.pop_front(), state.otherwise.clone())
        };
        let reply = next.or_else(|| Some(otherwise?(&asked)));
        let reply = reply.unwrap_or_else(|| ModelReply::refused(500, "the script is at its end"));
        if !reply.write(stream)? {
            return Ok(());
        }
    }
    Ok(())
}
