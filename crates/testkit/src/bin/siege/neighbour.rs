//! A well-behaved client of a well-behaved server, and the same server without us for comparison.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::http_client::{Connection, HttpRequest};
use testkit::{Driver, Launch, Serve, program};

/// The pause between two calls.
const CALL_INTERVAL: Duration = Duration::from_millis(20);

/// Makes the same call through the service and directly, one after the other.
pub(crate) struct Neighbour {
    address: std::net::SocketAddr,
    connection: Connection,
    session: String,
    direct: Driver,
    calls: u64,
    through: Vec<Duration>,
    without: Vec<Duration>,
    failures: Vec<String>,
}

/// The durations of calls, through the service and directly, and failures.
pub(crate) struct Latency {
    pub(crate) through: Vec<Duration>,
    pub(crate) without: Vec<Duration>,
    pub(crate) failures: Vec<String>,
}

impl Neighbour {
    pub(crate) fn start(service: &Serve) -> Self {
        let mut direct = Launch::program(program("fake-server")).start();
        direct.initialize();
        let (connection, session) = open(service.address());
        Self {
            address: service.address(),
            connection,
            session,
            direct,
            calls: 0,
            through: Vec::new(),
            without: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Calls until `until`; `each` is called before each call, and ends the measurement with `false`.
    pub(crate) fn measure_until(&mut self, end: Instant, mut each: impl FnMut() -> bool) {
        while Instant::now() < end && each() {
            std::thread::sleep(CALL_INTERVAL);
            self.calls += 1;
            let text = format!("call {}", self.calls);
            let begun = Instant::now();
            let answer = self.direct.call("echo", json!({"text": text}));
            self.without.push(begun.elapsed());
            assert_eq!(answer["result"]["content"][0]["text"], *text, "the server itself is well");

            let begun = Instant::now();
            let answer = self.call(&text);
            self.through.push(begun.elapsed());
            if let Err(failure) = answer {
                self.failures.push(failure);
                (self.connection, self.session) = open(self.address);
            }
        }
    }

    fn call(&mut self, text: &str) -> Result<(), String> {
        let request = json!({
            "jsonrpc": "2.0", "id": self.calls, "method": "tools/call",
            "params": {"name": "good.echo", "arguments": {"text": text}},
        });
        let (status, body) = self
            .connection
            .try_fetch(&ask(&request).header("Mcp-Session-Id", &self.session))
            .ok_or("the connection was closed")?;
        // The response is an event if another message came before it.
        let received = String::from_utf8_lossy(&body);
        let event = received.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        let answer: Value = serde_json::from_str(event.unwrap_or(&received)).unwrap_or_default();
        if status == 200 && answer["id"] == self.calls && answer["result"]["content"][0]["text"] == *text {
            Ok(())
        } else {
            Err(format!("{status}: {received}"))
        }
    }

    /// The measurements since the last time.
    pub(crate) fn take(&mut self) -> Latency {
        let sorted = |durations: &mut Vec<Duration>| {
            let mut sorted = std::mem::take(durations);
            sorted.sort_unstable();
            sorted
        };
        Latency {
            through: sorted(&mut self.through),
            without: sorted(&mut self.without),
            failures: std::mem::take(&mut self.failures),
        }
    }
}

fn ask(request: &Value) -> HttpRequest {
    HttpRequest::post("/mcp", request.to_string())
        .header("Authorization", &format!("Bearer {}", crate::NEIGHBOUR_TOKEN))
        .header("MCP-Protocol-Version", "2025-11-25")
}

/// Opens a session.
fn open(address: std::net::SocketAddr) -> (Connection, String) {
    let mut connection = Connection::open(address);
    let request = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "neighbour", "version": "1"},
        },
    });
    let mut answer = connection.ask(&ask(&request));
    let session = answer.header("mcp-session-id").expect("the service opens a session").to_owned();
    answer.bytes();
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    connection.ask(&ask(&initialized).header("Mcp-Session-Id", &session)).bytes();
    (connection, session)
}

/// The given permille of sorted values.
pub(crate) fn quantile(sorted: &[Duration], thousandths: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * thousandths / 1000).copied().unwrap_or_default()
}

impl fmt::Display for Latency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |sorted: &[Duration]| {
            format!(
                "p50 {:.1?}, p99 {:.1?}, slowest {:.1?}",
                quantile(sorted, 500),
                quantile(sorted, 990),
                quantile(sorted, 1000)
            )
        };
        write!(
            formatter,
            "{} calls through the service: {}; without it: {}; {} failed",
            self.through.len(),
            values(&self.through),
            values(&self.without),
            self.failures.len()
        )
    }
}
