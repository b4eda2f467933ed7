//! A puppet over Streamable HTTP: each POST waits for the test, or is answered by the script.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, ErrorKind};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::received::{Received, Reply, RequestOutcome, ResponseRoute};
use super::stage::Stage;
use crate::http_server::wire::{self, Head, Request};

/// How often a request without messages checks whether its client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Web {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stage: Arc<Stage>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// Copies of all sockets, to break them at the end.
    sockets: Vec<TcpStream>,
    /// The stream for messages about no request: the latest GET.
    stream: Option<Sender<Reply>>,
    /// Messages pushed while there was no stream.
    unsent: Vec<String>,
    /// The current sessions.
    sessions: BTreeSet<String>,
    last_session: u64,
    /// It knows no session, not even the latest.
    is_forgetful: bool,
}

impl Web {
    #[track_caller]
    pub(super) fn open(stage: &Arc<Stage>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a test may listen on the loopback");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared { stage: Arc::clone(stage), state: Mutex::default() });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let shared = Arc::clone(&accepting);
                if !shared.admit(&socket) {
                    return;
                }
                std::thread::spawn(move || {
                    // A disconnected client is not an error: the test will tell.
                    serve(&shared, &socket).ok();
                    socket.shutdown(Shutdown::Both).ok();
                });
            }
        });
        Self { address, shared }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Sends a line on the stream for messages about no request, or on the next that opens.
    pub(super) fn push(&self, line: &str) {
        let mut state = self.shared.state();
        let sent = state.stream.as_ref().is_some_and(|stream| stream.send(Reply::Message(line.to_owned())).is_ok());
        if !sent {
            state.unsent.push(line.to_owned());
        }
    }

    /// Forgets every session, like a restarted server; open streams break.
    pub(super) fn forget_sessions(&self) {
        let mut state = self.shared.state();
        state.sessions.clear();
        if let Some(stream) = state.stream.take() {
            // It fails if the client was faster.
            stream.send(Reply::Break).ok();
        }
    }

    /// From now on it forgets each session immediately.
    pub(super) fn turn_forgetful(&self) {
        self.shared.state().is_forgetful = true;
        self.forget_sessions();
    }

    /// Stops listening and breaks every connection.
    pub(super) fn close(&self) {
        let mut state = self.shared.state();
        state.closed = true;
        for socket in state.sockets.drain(..) {
            // It fails if the client was faster.
            socket.shutdown(Shutdown::Both).ok();
        }
        drop(state);
        // `accept` has no time-out. If this fails, the listener is gone and so is the thread.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a connection; `false` if the server has stopped.
    fn admit(&self, socket: &TcpStream) -> bool {
        let mut state = self.state();
        if state.closed {
            return false;
        }
        state.sockets.push(socket.try_clone().expect("a test has file descriptors to spare"));
        true
    }

    fn begin_session(&self) -> String {
        let mut state = self.state();
        state.last_session += 1;
        let id = format!("session-{}", state.last_session);
        if !state.is_forgetful {
            state.sessions.insert(id.clone());
        }
        id
    }

    /// Whether the request names a session that does not exist.
    fn is_forgotten(&self, request: &Request) -> bool {
        request.header("mcp-session-id").is_some_and(|id| !self.state().sessions.contains(id))
    }
}

fn serve(shared: &Shared, socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(1 << 16, socket.try_clone()?);
    let mut writer = socket;
    while let Some(request) = Request::read(&mut reader, &mut writer, 0)? {
        match request.method.as_str() {
            "POST" | "GET" if shared.is_forgotten(&request) => wire::write_whole(&mut writer, Head::new(404), b"")?,
            "POST" => post(shared, socket, request)?,
            "GET" => get(shared, socket)?,
            "DELETE" => wire::write_whole(&mut writer, Head::new(200), b"")?,
            _ => wire::write_whole(&mut writer, Head::new(405), b"")?,
        }
    }
    Ok(())
}

fn post(shared: &Shared, mut socket: &TcpStream, request: Request) -> io::Result<()> {
    let (to, replies) = channel();
    let request_outcome = Arc::new(RequestOutcome::default());
    let headers: BTreeMap<String, String> = request.headers;
    let route = ResponseRoute::Answer { to, headers: Arc::new(headers), request_outcome: Arc::clone(&request_outcome) };
    let message = Received::new(request.body, route);
    let head = if message.is("initialize") {
        Head::new(200).with("Mcp-Session-Id", shared.begin_session())
    } else {
        Head::new(200)
    };
    let is_request = message.is_request();
    shared.stage.take(&message);
    // Without a copy anywhere, nobody can respond any more.
    drop(message);
    if !is_request {
        return wire::write_whole(&mut socket, Head::new(202), b"");
    }
    let outcome = answer(socket, head, &replies);
    if outcome.is_err() {
        request_outcome.abandoned.store(true, Ordering::SeqCst);
        shared.stage.notify();
    }
    outcome
}

/// Responds with JSON if there is only the response, otherwise with a stream. An error if the client disconnected.
fn answer(mut socket: &TcpStream, head: Head, replies: &Receiver<Reply>) -> io::Result<()> {
    match next(socket, replies)? {
        Reply::Answer(line) => wire::write_whole(&mut socket, head.json(), line.as_bytes()),
        Reply::Status(status, body) => wire::write_whole(&mut socket, Head::new(status).json(), body.as_bytes()),
        Reply::Break => Err(ErrorKind::ConnectionAborted.into()),
        Reply::Message(line) => {
            wire::begin_chunks(&mut socket, head.events())?;
            write_event(socket, &line)?;
            stream(socket, replies)
        }
    }
}

fn stream(mut socket: &TcpStream, replies: &Receiver<Reply>) -> io::Result<()> {
    loop {
        match next(socket, replies)? {
            Reply::Message(line) => write_event(socket, &line)?,
            Reply::Answer(line) => {
                write_event(socket, &line)?;
                return wire::end_chunks(&mut socket);
            }
            Reply::Break | Reply::Status(..) => return Err(ErrorKind::ConnectionAborted.into()),
        }
    }
}

fn get(shared: &Shared, mut socket: &TcpStream) -> io::Result<()> {
    let (to, replies) = channel();
    {
        let mut state = shared.state();
        for line in state.unsent.drain(..) {
            to.send(Reply::Message(line)).expect("we hold the receiver");
        }
        state.stream = Some(to);
    }
    wire::begin_chunks(&mut socket, Head::new(200).events())?;
    stream(socket, &replies)
}

/// The next instruction of the test. An error if the client disconnects before.
fn next(socket: &TcpStream, replies: &Receiver<Reply>) -> io::Result<Reply> {
    loop {
        match replies.recv_timeout(POLL_INTERVAL) {
            Ok(reply) => return Ok(reply),
            // Nobody can respond any more: the test has dropped the message.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if is_gone(socket)? {
            return Err(ErrorKind::ConnectionAborted.into());
        }
    }
}

fn is_gone(socket: &TcpStream) -> io::Result<bool> {
    socket.set_read_timeout(Some(Duration::from_millis(1)))?;
    let seen = socket.peek(&mut [0]);
    socket.set_read_timeout(None)?;
    match seen {
        Ok(bytes) => Ok(bytes == 0),
        Err(error) => Ok(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
    }
}

fn write_event(mut socket: &TcpStream, line: &str) -> io::Result<()> {
    wire::write_chunk(&mut socket, format!("event: message\ndata: {line}\n\n").as_bytes())
}
