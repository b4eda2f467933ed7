//! Receives the changes of a modern server: one listen stream, kept open, for all subscribers.
//!
//! A modern server sends no changes unless it receives `subscriptions/listen`, whose filter cannot be changed later.
//! So a changed filter opens a new stream before the old one is cancelled.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind, Offer};
use protocol::bridge::listen::{self, Filter};
use protocol::{Span, reply};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Connection, Response};
use crate::request_id::parse_request_id;

/// How long a server may take to acknowledge a stream.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay before a stream that ended is opened again, at first and at most.
const MIN_REOPEN_DELAY: Duration = Duration::from_millis(200);
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(30);
/// A stream that was open for this long did not end at once.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// After this many failed attempts in a row no stream is opened any more.
const MAX_OPEN_FAILURES: usize = 10;

/// The wanted filter, and the state of the stream.
#[derive(Debug)]
pub(crate) struct ListenStream {
    uris: Mutex<BTreeSet<String>>,
    changed: Notify,
    /// The number of the stream that was last acknowledged.
    acknowledged: watch::Sender<u64>,
    /// The URIs that the server acknowledged; `None` if it never will.
    acknowledged_uris: watch::Sender<Option<BTreeSet<String>>>,
}

impl Default for ListenStream {
    fn default() -> Self {
        Self {
            uris: Mutex::default(),
            changed: Notify::new(),
            acknowledged: watch::Sender::new(0),
            acknowledged_uris: watch::Sender::new(Some(BTreeSet::new())),
        }
    }
}

impl ListenStream {
    /// Records the server's acknowledgement.
    pub(crate) fn acknowledged(&self, tag: Option<Span>, line: &Bytes) {
        if let Some(number) = tag.and_then(|tag| parse_request_id(tag.of(line))) {
            self.acknowledged.send_replace(number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.uris.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Subscribes to the resource at `uri` of a modern server; its changes are received from the moment this returns.
    ///
    /// The wait is limited: a server that does not acknowledge is not waited for long.
    pub async fn listen_for(&self, uri: &str) {
        if self.listen_stream.lock().insert(uri.to_owned()) {
            self.listen_stream.changed.notify_one();
        }
        let mut acknowledged_uris = self.listen_stream.acknowledged_uris.subscribe();
        let is_told = acknowledged_uris
            .wait_for(|acknowledged_uris| acknowledged_uris.as_ref().is_none_or(|uris| uris.contains(uri)));
        if timeout(ACKNOWLEDGE_TIMEOUT, is_told).await.is_err() {
            tracing::warn!(server = %self.server(), uri, "the server does not confirm the subscription to changes");
        }
    }

    /// Unsubscribes from the resource at `uri`.
    pub fn stop_listening_for(&self, uri: &str) {
        if self.listen_stream.lock().remove(uri) {
            self.listen_stream.changed.notify_one();
        }
    }

    /// Keeps a listen stream open as long as there is something to subscribe to. Ends if the server supports no such
    /// streams.
    pub(crate) async fn keep_listening(&self, offer: &Offer) {
        self.listen_while_it_lasts(offer).await;
        self.listen_stream.acknowledged_uris.send_replace(None);
    }

    async fn listen_while_it_lasts(&self, offer: &Offer) {
        let changes = |what: &str| offer.has_within(what, "listChanged");
        let (tools, prompts, resources) = (changes("tools"), changes("prompts"), changes("resources"));
        let wanted = || Filter { tools, prompts, resources, uris: self.listen_stream.lock().iter().cloned().collect() };
        let (mut pause, mut failures) = (MIN_REOPEN_DELAY, 0);
        let mut current: Option<Stream<'_>> = None;
        loop {
            let filter = wanted();
            if !(tools || prompts || resources) && filter.uris.is_empty() {
                current = None;
                self.listen_stream.changed.notified().await;
                continue;
            }
            match self.open_stream(&filter).await {
                Opened::Stream(next) => {
                    failures = 0;
                    let opened_at = Instant::now();
                    self.listen_stream.acknowledged_uris.send_replace(Some(filter.uris.into_iter().collect()));
                    // Only now is the previous stream cancelled: changes in between arrive on either.
                    let stream = current.insert(next);
                    tokio::select! {
                        _ = &mut stream.answer => {
                            current = None;
                            self.listen_stream.acknowledged_uris.send_replace(Some(BTreeSet::new()));
                        }
                        () = self.listen_stream.changed.notified() => continue,
                    }
                    // A server that ends its streams at once gets the next request only after a pause.
                    pause = if opened_at.elapsed() > STABLE_AFTER {
                        MIN_REOPEN_DELAY
                    } else {
                        (pause * 2).min(MAX_REOPEN_DELAY)
                    };
                    sleep(pause).await;
                    // Changes while no stream was open were not reported.
                    self.note_change(&Kind::ALL);
                }
                Opened::Never => return,
                // A server that keeps refusing, for example because of our credentials, is not tried again.
                Opened::NotNow if failures == MAX_OPEN_FAILURES => return,
                Opened::NotNow => {
                    failures += 1;
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_REOPEN_DELAY);
                }
            }
        }
    }

    async fn open_stream(&self, filter: &Filter) -> Opened<'_> {
        let Some((number, answer)) = self.begin_request("subscriptions/listen", Some(&listen::request(filter))) else {
            return Opened::Never;
        };
        let mut stream = Stream { connection: self, number, answer: Box::pin(answer) };
        let mut acknowledged = self.listen_stream.acknowledged.subscribe();
        tokio::select! {
            answer = &mut stream.answer => match answer {
                // It does not know the method, or refuses it.
                Some(answer) if answer.outcome.is_err() => Opened::Never,
                Some(_) | None => Opened::NotNow,
            },
            heard = timeout(ACKNOWLEDGE_TIMEOUT, acknowledged.wait_for(|&heard| heard == number)) => match heard {
                Ok(_) => Opened::Stream(stream),
                Err(_) => Opened::NotNow,
            },
        }
    }
}

enum Opened<'c> {
    Stream(Stream<'c>),
    NotNow,
    Never,
}

/// An open listen stream. The server is notified when it is no longer wanted.
struct Stream<'c> {
    connection: &'c Connection,
    number: u64,
    answer: Pin<Box<dyn Future<Output = Option<Response>> + Send + 'c>>,
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if self.connection.is_open(self.number) {
            let params = reply::object([("requestId", self.number.to_string().into_bytes())]);
            self.connection.notify("notifications/cancelled", Some(&params));
        }
    }
}
