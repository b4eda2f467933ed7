//! A small HTTP server for tests: a function answers each request.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A running server.
pub(crate) struct TestServer {
    /// Its address without a path.
    pub(crate) origin: String,
    seen: watch::Sender<Vec<Seen>>,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Response {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// Begins an event stream that never ends.
    Stream,
    /// Never answers.
    Silence,
    /// Closes the connection.
    Close,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The method and path.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Reply {
    pub(crate) fn json(body: impl Into<String>) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self::Response { status: 200, headers, body: body.into() }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::Response { status, headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn redirect(status: u16, to: &str) -> Self {
        Self::status(status).with("location", to)
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Response { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }

    pub(crate) fn saying(self, text: &str) -> Self {
        match self {
            Self::Response { status, headers, .. } => Self::Response { status, headers, body: text.to_owned() },
            other => other,
        }
    }
}

impl TestServer {
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (seen, answer) = (watch::Sender::default(), Arc::new(answer));
        let server = Self { origin, seen: seen.clone() };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, seen.clone(), Arc::clone(&answer)));
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// Waits for a request like that.
    pub(crate) async fn wait_for(&self, is_wanted: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.subscribe();
        let seen = seen.wait_for(|seen| seen.iter().any(&is_wanted)).await.unwrap();
        seen.iter().find(|seen| is_wanted(seen)).unwrap().clone()
    }

    /// How often that was requested.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.seen().iter().filter(|seen| seen.line() == line).count()
    }
}

async fn serve(
    socket: TcpStream,
    all: watch::Sender<Vec<Seen>>,
    answer: Arc<impl Fn(&Seen) -> Reply + Send + Sync + 'static>,
) {
    let mut socket = BufReader::new(socket);
    while let Some(seen) = read(&mut socket).await {
        all.send_modify(|all| all.push(seen.clone()));
        let text = match answer(&seen) {
            Reply::Close => return,
            Reply::Silence => return std::future::pending().await,
            Reply::Stream => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                let endpoint = "event: endpoint\ndata: /message\n\n";
                let body = if seen.path == "/sse" { endpoint } else { "" };
                drop(socket.write_all(format!("{head}{body}").as_bytes()).await);
                return std::future::pending().await;
            }
            Reply::Response { status, headers, body } => {
                let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
            }
        };
        if socket.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(socket: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if socket.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut first = lines.first()?.split(' ').map(str::to_owned);
    let (method, path) = (first.next()?, first.next()?);
    let header = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let mut seen =
        Seen { method, path, headers: lines.iter().skip(1).filter_map(header).collect(), body: String::new() };
    let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.ok()?;
    seen.body = String::from_utf8(body).unwrap();
    Some(seen)
}
