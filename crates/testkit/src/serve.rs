//! A running `mcp-aggregator serve`, and its clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitStatus;

use rustix::process::Signal;

use crate::config::{Config, ConfigFile};
use crate::http_client::{Connection, HttpRequest};
use crate::http_session::{Hello, HttpSession};
use crate::launch::Launch;
use crate::modern::ModernHttp;
use crate::program::program;
use crate::sse_client::SseClient;
use crate::{Driver, wait_until};

/// Printed on stderr, followed by the address, once the program listens.
const LISTENING: &str = "listening on http";

/// A program that serves HTTP. It is killed and reaped when this is dropped.
#[derive(Debug)]
pub struct Serve {
    driver: Driver,
    address: SocketAddr,
    config: Option<ConfigFile>,
}

impl Serve {
    /// Starts it on a free port of the loopback interface.
    #[track_caller]
    pub fn start(config: &Config) -> Self {
        Self::start_as(config, |launch| launch)
    }

    /// Starts it with a changed launch.
    #[track_caller]
    pub fn start_as(config: &Config, adjust: impl FnOnce(Launch) -> Launch) -> Self {
        let config = config.write();
        let launch = Launch::program(program("mcp-aggregator"))
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(config.path())
            .arg("--data-dir")
            .arg(config.folder().join("data"));
        Self::run(adjust(launch), Some(config))
    }

    /// Starts it without a config: its servers are those of its registry, in `folder`.
    #[track_caller]
    pub fn in_folder(folder: &Path, adjust: impl FnOnce(Launch) -> Launch) -> Self {
        let launch = Launch::program(program("mcp-aggregator")).args(["serve", "--listen", "127.0.0.1:0"]);
        Self::run(adjust(launch.arg("--data-dir").arg(folder)), None)
    }

    /// Starts this launch, which must run `serve`.
    #[track_caller]
    pub fn of(launch: Launch) -> Self {
        Self::run(launch, None)
    }

    #[track_caller]
    fn run(launch: Launch, config: Option<ConfigFile>) -> Self {
        let driver = launch.start();
        driver.wait_for_stderr(LISTENING);
        let address = wait_until("the whole line with the address", || address_in(&driver.stderr_text()));
        Self { driver, address, config }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The folder of its config.
    #[track_caller]
    pub fn folder(&self) -> &Path {
        self.config.as_ref().expect("it was started with a config").folder()
    }

    /// The pid of the program.
    pub fn pid(&self) -> u32 {
        self.driver.pid()
    }

    /// Everything it wrote to stderr so far.
    pub fn stderr_text(&self) -> String {
        self.driver.stderr_text()
    }

    /// Waits until it has written this to stderr.
    #[track_caller]
    pub fn wait_for_stderr(&self, needle: &str) {
        self.driver.wait_for_stderr(needle);
    }

    /// Sends it a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.driver.signal(signal);
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        self.driver.wait_exit()
    }

    /// A connection to it.
    #[track_caller]
    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Sends one request on a connection of its own; the status, and the body read whole.
    #[track_caller]
    pub fn fetch(&self, ask: &HttpRequest) -> Fetched {
        let mut connection = self.connect();
        let mut answer = connection.ask(ask);
        let body = answer.bytes();
        Fetched {
            status: answer.status,
            headers: answer.headers().clone(),
            body: String::from_utf8_lossy(&body).into(),
        }
    }

    /// A legacy client with a session at this path.
    #[track_caller]
    pub fn session(&self, path: &str) -> HttpSession {
        HttpSession::open(self.address, path)
    }

    /// A legacy client that supports every kind of server request.
    #[track_caller]
    pub fn interactive_session(&self, path: &str) -> HttpSession {
        HttpSession::introduce(self.address, path, &Hello::interactive())
    }

    /// A modern client at this path.
    pub fn modern(&self, path: &str) -> ModernHttp {
        ModernHttp::new(self.address, path)
    }

    /// A client of 2024-11-05 at this path.
    #[track_caller]
    pub fn sse(&self, path: &str) -> SseClient {
        SseClient::open(self.address, path)
    }
}

/// An answer read whole.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The status code.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

impl Fetched {
    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The JSON-RPC error code in the body.
    #[track_caller]
    pub fn error_code(&self) -> Option<i64> {
        self.json()["error"]["code"].as_i64()
    }
}

/// The address in the line that contains it, once the line is complete.
fn address_in(stderr: &str) -> Option<SocketAddr> {
    let (_, rest) = stderr.split_once(LISTENING)?;
    let (line, _) = rest.split_once('\n')?;
    let (_, line) = line.split_once("://")?;
    line.trim_end_matches('/').trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_once_its_line_is_complete() {
        assert_eq!(address_in("x\nlistening on http://127.0.0.1:80"), None);
        let expected = Some(SocketAddr::from(([127, 0, 0, 1], 8080)));
        assert_eq!(address_in("x\nlistening on http://127.0.0.1:8080\nmore"), expected);
    }
}
