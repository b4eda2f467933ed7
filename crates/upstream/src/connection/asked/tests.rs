//! Clients that are asked something and go, and those who wait meanwhile.

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use catalog::{Offer, Secrets, ServerName};
use protocol::era::meta::Introduction;
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::caller::{Answered, Notice, Party};
use crate::connection::{Request, Surroundings};
use crate::failure::{CallError, Ending, Report};
use crate::lifecycle::Watcher;
use crate::wire::{Letter, Post, Postbox, Wire};

/// A client of several, who writes down what is heard.
#[derive(Default)]
struct Client {
    number: u64,
    is_away: AtomicBool,
    /// A modern client may come back with the answer.
    may_return: bool,
    heard: Mutex<Vec<String>>,
    question: Mutex<Option<Question>>,
}

impl Client {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, ..Self::default() })
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    fn hear(&self, what: &str) {
        self.heard.lock().unwrap().push(what.to_owned());
    }
}

impl Caller for Client {
    fn party(&self) -> Party {
        Party { client: self.number, asker: self.number, is_alone: false }
    }
    fn held(&self) {
        self.hear("held");
    }
    fn released(&self) {
        self.hear("released");
    }
    fn answered(&self, _: &[u8], _: Answered<'_>) {
        self.hear("answered");
    }
    fn failed(&self, _: &[u8], error: &CallError) {
        self.hear(error.reason());
    }
    fn cancelled(&self, _: &[u8]) {}
    fn noticed(&self, _: Notice<'_>) {}
    fn asked(&self, question: Question) {
        *self.question.lock().unwrap() = Some(question);
    }
    fn withdrawn(&self, _: &Connection, _: &[u8], _: &Bytes, _: Span) {
        if let Some(question) = self.question.lock().unwrap().take() {
            question.forget();
        }
    }
    fn flush(&self) {}
    fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }
    fn is_deserted(&self) -> bool {
        self.is_away() && !self.may_return
    }
    fn catching_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        None
    }
}

/// A server that only listens.
#[derive(Debug)]
struct Listener;

impl Post for Listener {
    fn post(self: Arc<Self>, _: Letter) {}
}

#[derive(Debug)]
struct Nobody;

impl Watcher for Nobody {
    fn running(&self, _: usize, _: &Arc<Connection>, _: Offer) {}
    fn changed(&self, _: &Arc<Connection>, _: Arc<Offer>) {}
    fn introduced_anew(self: Arc<Self>, _: &Arc<Connection>) {}
    fn heard(&self, _: &Arc<Connection>, _: &str, _: &Bytes, _: &Envelope) {}
    fn asked(&self, _: usize, _: Question) {}
    fn ended(&self, _: usize, _: &Arc<Ending>) {}
    fn reported(&self, _: usize, _: Report) {}
}

fn connection() -> Arc<Connection> {
    let surroundings = Surroundings {
        server: ServerName::new("s").unwrap(),
        index: 0,
        watcher: Weak::<Nobody>::new(),
        introduction: Introduction { capabilities: Bytes::from_static(b"{}"), info: None, log_level: None },
        limit: None,
        limits: crate::limits::ServerLimits::from_settings(),
        secrets: Secrets::default(),
        doubts: Arc::default(),
    };
    Arc::new(Connection::new(surroundings, Wire::Post(Postbox::new(Arc::new(Listener)))))
}

/// Sends a call; its number.
fn call(connection: &Arc<Connection>, client: &Arc<Client>) -> u64 {
    let line = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    let id = Span { start: 22, end: 23 };
    assert_eq!(id.of(&line), b"1");
    let request = Request { line: &line, id, known_as: b"1", renamed: None, progress: None };
    connection.forward(request, &(Arc::clone(client) as Arc<dyn Caller>)).unwrap()
}

async fn ask(connection: &Arc<Connection>) {
    let question = br#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#;
    connection.take(Bytes::from_static(question), None).await;
}

async fn answer(connection: &Arc<Connection>, number: u64) {
    connection.take(format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#).into(), None).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_about_which_somebody_is_asked_who_never_comes_back_ends() {
    let (connection, client) = (connection(), Client::new(1));
    call(&connection, &client);
    ask(&connection).await;
    sleep(DESERTED_AFTER * 10).await;
    assert!(client.heard().is_empty(), "who is there has all the time in the world");
    client.is_away.store(true, Ordering::Relaxed);
    sleep(DESERTED_AFTER / 2).await;
    client.is_away.store(false, Ordering::Relaxed);
    sleep(LOOK * 2).await;
    client.is_away.store(true, Ordering::Relaxed);
    let gone = Instant::now();
    while client.heard().is_empty() {
        advance(LOOK).await;
        tokio::task::yield_now().await;
        assert!(gone.elapsed() < DESERTED_AFTER * 2, "it is never ended");
    }
    assert_eq!(client.heard(), ["client_gone"]);
    assert!(gone.elapsed() >= DESERTED_AFTER - LOOK, "who came back in between was not counted as gone");
    assert_eq!(connection.open_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_result_only_or_may_come_back_with_the_answer_is_waited_for() {
    let (connection, client) = (connection(), Client::new(1));
    client.is_away.store(true, Ordering::Relaxed);
    let number = call(&connection, &client);
    sleep(DESERTED_AFTER * 10).await;
    assert!(client.heard().is_empty());
    answer(&connection, number).await;
    let modern = Arc::new(Client { number: 2, may_return: true, is_away: true.into(), ..Client::default() });
    call(&connection, &modern);
    ask(&connection).await;
    sleep(DESERTED_AFTER * 10).await;
    assert!(modern.heard().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_somebody_elses_turn_hears_when_that_begins_and_ends() {
    let (connection, one, other) = (connection(), Client::new(1), Client::new(2));
    let first = call(&connection, &one);
    ask(&connection).await;
    let second = call(&connection, &other);
    assert_eq!(other.heard(), ["held"]);
    answer(&connection, first).await;
    assert_eq!(other.heard(), ["held", "released"]);
    answer(&connection, second).await;
    assert_eq!(other.heard(), ["held", "released", "answered"]);
    assert_eq!(one.heard(), ["answered"], "who never waited hears nothing of it");
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
        client.question.lock().unwrap().take()
    };
    let first = ask(1).await;
    assert!(first.is_some());
    assert!(ask(2).await.is_none(), "with the first it would be more than 1 kB");
    drop(first);
    assert!(ask(3).await.is_some());
    connection.take(format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(2000)).into(), None).await;
    assert_eq!(connection.open_request_bytes.load(Ordering::Relaxed), 0);
}
