//! A collector of traces: takes what is sent to it over OTLP, and tells the spans in it.
//!
//! - here: HTTP, and how it treats whoever sends something; `spans`: what was sent, taken apart
//!
//! ```no_run
//! use testkit::Collector;
//!
//! let collector = Collector::start();
//! // ... let a program run with `OTEL_EXPORTER_OTLP_ENDPOINT` set to `collector.url()` ...
//! assert_eq!(collector.wait_for_spans(2)[0].name, "tools/call echo");
//! ```

mod spans;

use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

pub use spans::{Span, spans};

use crate::http_server::Request;
use crate::http_server::wire::{Head, write_whole};
use crate::wait_until;

/// A running collector. Its threads end with the test.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// The response status; `None` for no response at all.
    status: Option<u16>,
    requests: Vec<Request>,
}

impl Collector {
    /// Listens on a free port of the loopback interface, and accepts everything.
    #[track_caller]
    pub fn start() -> Self {
        Self::answering(Some(200))
    }

    /// The same, but it never responds.
    #[track_caller]
    pub fn silent() -> Self {
        Self::answering(None)
    }

    #[track_caller]
    fn answering(status: Option<u16>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a test may listen on the loopback");
        let address = listener.local_addr().expect("a bound listener has an address");
        let state = Arc::new(Mutex::new(State { status, requests: Vec::new() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, number + 1, &state));
            }
        });
        Self { address, state }
    }

    /// The value for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on every request gets this status.
    pub fn answer_with(&self, status: u16) {
        self.lock().status = Some(status);
    }

    /// All requests so far, whatever their response was.
    pub fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    /// Waits until something was sent that satisfies the test.
    #[track_caller]
    pub fn wait_for_requests(&self, count: usize) -> Vec<Request> {
        wait_until(&format!("{count} requests to the collector"), || {
            let requests = self.requests();
            (requests.len() >= count).then_some(requests)
        })
    }

    /// Waits until this many spans were sent; returns all of them, in the order of their starts.
    #[track_caller]
    pub fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        wait_until(&format!("{count} spans at the collector"), || {
            let mut all: Vec<Span> = self.requests().iter().flat_map(|request| spans(&request.body)).collect();
            all.sort_by_key(|span| span.from);
            (all.len() >= count).then_some(all)
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }
}

/// Handles the requests of one connection.
fn serve(stream: &TcpStream, number: usize, state: &Mutex<State>) {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Ok(Some(request)) = Request::read(&mut reader, &mut writer, number) {
        let status = {
            let mut state = state.lock().expect("nobody panics with it");
            state.requests.push(request);
            state.status
        };
        let Some(status) = status else { continue };
        if write_whole(&mut writer, Head::new(status), b"").is_err() {
            return;
        }
    }
}
