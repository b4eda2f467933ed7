//! Clients that disconnect with an open server request, and clients that wait meanwhile.

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use catalog::{Offer, Secrets, ServerName};
use protocol::bridge::meta::ClientMeta;
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::connection::{ConnectionContext, Request};
use crate::failure::{CallError, Ending, Report};
use crate::response_handler::{Notification, Requester, ServerResponse};
use crate::server::UpstreamObserver;
use crate::transport::{HttpQueue, HttpSender, OutgoingMessage, UpstreamTransport};

/// One of several clients, which records what it receives.
#[derive(Default)]
struct Client {
    number: u64,
    is_idle: AtomicBool,
    /// A modern client may retry with the answer.
    may_return: bool,
    noted: Mutex<Vec<String>>,
    request: Mutex<Option<ServerRequest>>,
}

impl Client {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, ..Self::default() })
    }

    fn noted(&self) -> Vec<String> {
        self.noted.lock().unwrap().clone()
    }

    fn note(&self, what: &str) {
        self.noted.lock().unwrap().push(what.to_owned());
    }
}

impl ResponseHandler for Client {
    fn requester(&self) -> Requester {
        Requester { client: self.number, respondent: self.number, is_alone: false }
    }
    fn on_held(&self) {
        self.note("held");
    }
    fn on_released(&self) {
        self.note("released");
    }
    fn on_response(&self, _: &[u8], _: ServerResponse<'_>) {
        self.note("answered");
    }
    fn on_failure(&self, _: &[u8], error: &CallError) {
        self.note(error.reason());
    }
    fn on_cancelled(&self, _: &[u8]) {}
    fn on_notification(&self, _: Notification<'_>) {}
    fn on_server_request(&self, request: ServerRequest) {
        *self.request.lock().unwrap() = Some(request);
    }
    fn on_server_request_cancelled(&self, _: &Connection, _: &[u8], _: &Bytes, _: Span) {
        if let Some(request) = self.request.lock().unwrap().take() {
            request.forget();
        }
    }
    fn flush(&self) {}
    fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }
    fn is_unreachable(&self) -> bool {
        self.is_idle() && !self.may_return
    }
    fn catch_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        None
    }
}

/// A transport that discards what is sent.
#[derive(Debug)]
struct Listener;

impl HttpSender for Listener {
    fn post(self: Arc<Self>, _: OutgoingMessage) {}
}

#[derive(Debug)]
struct Nobody;

impl UpstreamObserver for Nobody {
    fn on_running(&self, _: usize, _: &Arc<Connection>, _: Offer) {}
    fn on_offer_changed(&self, _: &Arc<Connection>, _: Arc<Offer>) {}
    fn on_reinitialized(self: Arc<Self>, _: &Arc<Connection>) {}
    fn on_notification(&self, _: &Arc<Connection>, _: &str, _: &Bytes, _: &Envelope) {}
    fn on_server_request(&self, _: usize, _: ServerRequest) {}
    fn on_ended(&self, _: usize, _: &Arc<Ending>) {}
    fn on_report(&self, _: usize, _: Report) {}
}

fn connection() -> Arc<Connection> {
    let connection_context = ConnectionContext {
        audience: crate::audience::Audience::Everybody,
        server: ServerName::new("s").unwrap(),
        index: 0,
        observer: Weak::<Nobody>::new(),
        client_meta: ClientMeta { capabilities: Bytes::from_static(b"{}"), info: None, log_level: None },
        limit: None,
        limits: crate::limits::ServerLimits::from_settings(),
        secrets: Secrets::default(),
        liveness: Arc::default(),
    };
    Arc::new(Connection::new(connection_context, UpstreamTransport::Http(HttpQueue::new(Arc::new(Listener)))))
}

/// Sends a call and returns its number.
fn call(connection: &Arc<Connection>, client: &Arc<Client>) -> u64 {
    let line = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    let id = Span { start: 22, end: 23 };
    assert_eq!(id.of(&line), b"1");
    let request = Request { line: &line, id, known_as: b"1", renamed: None, progress: None };
    connection.forward(request, &(Arc::clone(client) as Arc<dyn ResponseHandler>)).unwrap()
}

async fn ask(connection: &Arc<Connection>) {
    let request = br#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#;
    connection.take(Bytes::from_static(request), None).await;
}

async fn answer(connection: &Arc<Connection>, number: u64) {
    connection.take(format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#).into(), None).await;
}

#[tokio::test(start_paused = true)]
async fn a_parked_call_whose_client_never_returns_ends() {
    let (connection, client) = (connection(), Client::new(1));
    call(&connection, &client);
    ask(&connection).await;
    sleep(DESERTED_AFTER * 10).await;
    assert!(client.noted().is_empty(), "who is there has all the time in the world");
    client.is_idle.store(true, Ordering::Relaxed);
    sleep(DESERTED_AFTER / 2).await;
    client.is_idle.store(false, Ordering::Relaxed);
    sleep(DESERTED_POLL_INTERVAL * 2).await;
    client.is_idle.store(true, Ordering::Relaxed);
    let gone = Instant::now();
    while client.noted().is_empty() {
        advance(DESERTED_POLL_INTERVAL).await;
        tokio::task::yield_now().await;
        assert!(gone.elapsed() < DESERTED_AFTER * 2, "it is never ended");
    }
    assert_eq!(client.noted(), ["client_gone"]);
    assert!(
        gone.elapsed() >= DESERTED_AFTER - DESERTED_POLL_INTERVAL,
        "who came back in between was not counted as gone"
    );
    assert_eq!(connection.open_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_a_result_or_may_return_is_not_given_up() {
    let (connection, client) = (connection(), Client::new(1));
    client.is_idle.store(true, Ordering::Relaxed);
    let number = call(&connection, &client);
    sleep(DESERTED_AFTER * 10).await;
    assert!(client.noted().is_empty());
    answer(&connection, number).await;
    let modern = Arc::new(Client { number: 2, may_return: true, is_idle: true.into(), ..Client::default() });
    call(&connection, &modern);
    ask(&connection).await;
    sleep(DESERTED_AFTER * 10).await;
    assert!(modern.noted().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_is_notified_when_it_is_held_and_released() {
    let (connection, one, other) = (connection(), Client::new(1), Client::new(2));
    let first = call(&connection, &one);
    ask(&connection).await;
    let second = call(&connection, &other);
    assert_eq!(other.noted(), ["held"]);
    answer(&connection, first).await;
    assert_eq!(other.noted(), ["held", "released"]);
    answer(&connection, second).await;
    assert_eq!(other.noted(), ["held", "released", "answered"]);
    assert_eq!(one.noted(), ["answered"], "who never waited hears nothing of it");
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_very_long_id_is_ignored() {
    let (connection, client) = (connection(), Client::new(1));
    call(&connection, &client);
    for (bytes, is_heard) in [(MAX_REQUEST_ID_BYTES, true), (MAX_REQUEST_ID_BYTES + 1, false)] {
        // The quotes count.
        let id = "x".repeat(bytes - 2);
        let request = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"elicitation/create","params":{{}}}}"#);
        connection.take(request.into(), None).await;
        assert_eq!(client.request.lock().unwrap().take().is_some(), is_heard, "{bytes} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_requests_of_a_server_are_open_and_no_more() {
    let (connection, client) = (connection(), Client::new(1));
    call(&connection, &client);
    let mut open = Vec::new();
    for id in 0..=MAX_SERVER_REQUESTS {
        let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{{}}}}"#);
        connection.take(request.into(), None).await;
        open.extend(client.request.lock().unwrap().take());
    }
    assert_eq!(open.len(), MAX_SERVER_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn requests_count_until_they_are_answered() {
    let (connection, client) = (connection(), Client::new(1));
    connection.limits.set(Limit::Requests, 1);
    call(&connection, &client);
    let ask = async |id: u32| {
        let text = "x".repeat(600);
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{{"message":"{text}"}}}}"#);
        connection.take(request.into(), None).await;
        client.request.lock().unwrap().take()
    };
    let first = ask(1).await;
    assert!(first.is_some());
    assert!(ask(2).await.is_none(), "with the first it would be more than 1 kB");
    drop(first);
    assert!(ask(3).await.is_some());
    connection.take(format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(2000)).into(), None).await;
    assert_eq!(connection.open_request_bytes.load(Ordering::Relaxed), 0);
}
