//! Hearing what changes at a modern server: one stream of news, kept open, for all who want to know.
//!
//! A modern server tells nothing unless it is asked to with `subscriptions/listen`, and what it is asked for cannot be
//! changed later. So a changed wish opens a new stream before the old one is given up.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind, Offer};
use protocol::era::listen::{self, Filter};
use protocol::{Span, reply};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Answer, Connection};
use crate::numbers::our_number;

/// How long a server may take to say that it will tell us.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before a stream that ended is opened again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A stream that was open for this long was not ended at once.
const LONG_ENOUGH: Duration = Duration::from_secs(10);
/// So often in a row no stream can be opened before it is given up.
const MOST_FAILURES: usize = 10;

/// What is to be heard, and how far that has come.
#[derive(Debug)]
pub(crate) struct Ears {
    uris: Mutex<BTreeSet<String>>,
    changed: Notify,
    /// The number of the stream that was last acknowledged.
    acknowledged: watch::Sender<u64>,
    /// What the server tells us about now; nothing, if it never will.
    told: watch::Sender<Option<BTreeSet<String>>>,
}

impl Default for Ears {
    fn default() -> Self {
        Self {
            uris: Mutex::default(),
            changed: Notify::new(),
            acknowledged: watch::Sender::new(0),
            told: watch::Sender::new(Some(BTreeSet::new())),
        }
    }
}

impl Ears {
    /// The server will tell us.
    pub(crate) fn acknowledged(&self, tag: Option<Span>, line: &Bytes) {
        if let Some(number) = tag.and_then(|tag| our_number(tag.of(line))) {
            self.acknowledged.send_replace(number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.uris.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Hears of changes of the resource at `uri`, at a modern server, from the moment this returns.
    ///
    /// Within reason: a server that does not say that it will tell us is not waited for long.
    pub async fn listen_for(&self, uri: &str) {
        if self.ears.lock().insert(uri.to_owned()) {
            self.ears.changed.notify_one();
        }
        let mut told = self.ears.told.subscribe();
        let is_told = told.wait_for(|told| told.as_ref().is_none_or(|uris| uris.contains(uri)));
        if timeout(PATIENCE, is_told).await.is_err() {
            tracing::warn!(server = %self.server(), uri, "server does not say whether it will tell of changes");
        }
    }

    /// No longer.
    pub fn stop_listening_for(&self, uri: &str) {
        if self.ears.lock().remove(uri) {
            self.ears.changed.notify_one();
        }
    }

    /// Keeps a stream of news open for as long as there is something to hear. Ends if the server has no such streams.
    pub(crate) async fn keep_listening(&self, offer: &Offer) {
        self.listen_while_it_lasts(offer).await;
        self.ears.told.send_replace(None);
    }

    async fn listen_while_it_lasts(&self, offer: &Offer) {
        let changes = |what: &str| offer.has_within(what, "listChanged");
        let (tools, prompts, resources) = (changes("tools"), changes("prompts"), changes("resources"));
        let wanted = || Filter { tools, prompts, resources, uris: self.ears.lock().iter().cloned().collect() };
        let (mut pause, mut failures) = (FIRST_PAUSE, 0);
        let mut current: Option<Stream<'_>> = None;
        loop {
            let filter = wanted();
            if !(tools || prompts || resources) && filter.uris.is_empty() {
                current = None;
                self.ears.changed.notified().await;
                continue;
            }
            match self.open_stream(&filter).await {
                Opened::Stream(next) => {
                    failures = 0;
                    let opened_at = Instant::now();
                    self.ears.told.send_replace(Some(filter.uris.into_iter().collect()));
                    // Only now is the one before given up: what changes in between is told on either.
                    let stream = current.insert(next);
                    tokio::select! {
                        _ = &mut stream.answer => {
                            current = None;
                            self.ears.told.send_replace(Some(BTreeSet::new()));
                        }
                        () = self.ears.changed.notified() => continue,
                    }
                    // One that ends its streams at once is not asked for the next one at once.
                    pause =
                        if opened_at.elapsed() > LONG_ENOUGH { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
                    sleep(pause).await;
                    // Nobody told us what changed while no stream was open.
                    self.note_change(&Kind::ALL);
                }
                Opened::Never => return,
                // One that refuses for its own reasons, such as our credentials, is left in peace.
                Opened::NotNow if failures == MOST_FAILURES => return,
                Opened::NotNow => {
                    failures += 1;
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn open_stream(&self, filter: &Filter) -> Opened<'_> {
        let Some((number, answer)) = self.begin("subscriptions/listen", Some(&listen::request(filter))) else {
            return Opened::Never;
        };
        let mut stream = Stream { connection: self, number, answer: Box::pin(answer) };
        let mut acknowledged = self.ears.acknowledged.subscribe();
        tokio::select! {
            answer = &mut stream.answer => match answer {
                // It does not know the method, or will not.
                Some(answer) if answer.outcome.is_err() => Opened::Never,
                Some(_) | None => Opened::NotNow,
            },
            heard = timeout(PATIENCE, acknowledged.wait_for(|&heard| heard == number)) => match heard {
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

/// An open stream of news. The server is told when it is no longer wanted.
struct Stream<'c> {
    connection: &'c Connection,
    number: u64,
    answer: Pin<Box<dyn Future<Output = Option<Answer>> + Send + 'c>>,
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if self.connection.is_open(self.number) {
            let params = reply::object([("requestId", self.number.to_string().into_bytes())]);
            self.connection.tell("notifications/cancelled", Some(&params));
        }
    }
}
