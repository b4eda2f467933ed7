//! Letters to one server, on their way: each is posted on its own, side by side with all others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use protocol::{Envelope, Era, Kind, text};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use upstream::failure::Unreadable;
use upstream::wire::{Letter, Post};
use upstream::{CallError, Connection};

use crate::session::Session;
use crate::sse::Endpoint;
use crate::trouble::Trouble;

/// How long the server may take to hear that we are ready, before what follows is sent anyway.
const READY_PATIENCE: Duration = Duration::from_secs(5);
/// How long any other notification, or an answer to a question of the server, may take to be delivered.
const NOTICE_PATIENCE: Duration = Duration::from_secs(60);
/// So many requests are under way at once, each on a connection of its own; more wait. What is no request never waits:
/// it may be what a request under way is waiting for.
const MOST_REQUESTS: usize = 512;

/// Where letters go.
pub(crate) enum Route {
    Streamable(Box<Session>),
    Older(Box<Endpoint>),
}

/// Takes letters to one server. A server that cannot be reached fails the call, not the connection: it may be back for
/// the next.
pub(crate) struct Courier {
    pub(crate) route: Route,
    connection: OnceLock<Weak<Connection>>,
    runtime: Handle,
    under_way: Mutex<UnderWay>,
    /// Shut while the server is told that we are ready: nothing may overtake that.
    is_open: watch::Sender<bool>,
    places: Semaphore,
}

/// The letters that are not answered for.
#[derive(Default)]
struct UnderWay {
    tasks: HashMap<Key, Task>,
    last_notice: u64,
    /// We are leaving; nothing more is posted.
    is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Request(u64),
    Notice(u64),
}

struct Task {
    handle: JoinHandle<()>,
    /// Nobody waited for it any more when we last looked.
    is_abandoned: bool,
}

/// What a letter says that is of interest on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// We are ready: what follows must not come before it.
    Ready,
    /// The request with this number is given up.
    Cancelled(u64),
    Other,
}

impl Courier {
    pub(crate) fn new(route: Route) -> Arc<Self> {
        Arc::new(Self {
            route,
            connection: OnceLock::new(),
            runtime: Handle::current(),
            under_way: Mutex::default(),
            is_open: watch::Sender::new(true),
            places: Semaphore::new(MOST_REQUESTS),
        })
    }

    /// What comes back goes to `connection`.
    pub(crate) fn serve(&self, connection: &Arc<Connection>) {
        self.connection.get_or_init(|| Arc::downgrade(connection));
    }

    /// Our session, if the server has them.
    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.route {
            Route::Streamable(session) => Some(session),
            Route::Older(_) => None,
        }
    }

    /// Gives up everything under way, and waits until nothing of it is left.
    pub(crate) async fn stop(&self) {
        for task in self.give_up_all() {
            drop(task.await);
        }
    }

    /// Gives up everything under way, and whatever else is to be posted.
    pub(crate) fn give_up_all(&self) -> Vec<JoinHandle<()>> {
        let tasks = {
            let mut under_way = self.lock();
            under_way.is_over = true;
            std::mem::take(&mut under_way.tasks)
        };
        let given_up = |task: Task| {
            task.handle.abort();
            task.handle
        };
        tasks.into_values().map(given_up).collect()
    }

    /// Lets go of requests whose answer nobody wants any more, lest a server that never ends its answer holds them for
    /// ever. One that was just answered gets until the next look to end in good order.
    pub(crate) fn tidy(&self) {
        match &self.route {
            Route::Streamable(session) => session.http.tidy(),
            Route::Older(endpoint) => endpoint.http.tidy(),
        }
        let Some(connection) = self.connection() else { return };
        self.lock().tasks.retain(|key, task| {
            let was_abandoned = task.is_abandoned;
            task.is_abandoned = matches!(key, Key::Request(number) if !connection.is_open(*number));
            let is_overdue = was_abandoned && task.is_abandoned;
            if is_overdue {
                task.handle.abort();
            }
            !is_overdue
        });
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.get()?.upgrade()
    }

    fn is_modern(&self) -> bool {
        self.session().is_some_and(|session| session.era == Era::Modern)
    }

    fn give_up(&self, number: u64) {
        if let Some(task) = self.lock().tasks.remove(&Key::Request(number)) {
            task.handle.abort();
        }
    }

    async fn carry(self: Arc<Self>, connection: Arc<Connection>, letter: Letter, content: Content, key: Key) {
        let _ended = Ended { courier: &self, connection: &connection, key };
        match (letter.number, content) {
            (Some(number), _) => {
                self.is_opened().await;
                let _place = self.places.acquire().await.expect("the places are never closed");
                if let Err(trouble) = self.deliver(&connection, &letter).await {
                    self.session().into_iter().for_each(|session| session.note(&trouble));
                    trouble.tell_doubts(&connection);
                    if trouble.is_silence() {
                        connection.await_verdict().await;
                    }
                    fail(&connection, number, &trouble);
                }
            }
            (None, Content::Ready) => {
                self.tell(&connection, &letter, READY_PATIENCE).await;
                self.is_open.send_replace(true);
            }
            (None, _) => {
                self.is_opened().await;
                self.tell(&connection, &letter, NOTICE_PATIENCE).await;
            }
        }
    }

    /// Delivers what needs no answer.
    async fn tell(&self, connection: &Arc<Connection>, letter: &Letter, patience: Duration) {
        let delivered = timeout(patience, self.deliver(connection, letter)).await;
        if let Err(trouble) = delivered.unwrap_or(Err(Trouble::NoAnswer)) {
            tracing::debug!(server = %connection.server(), trouble = connection.hide(&trouble.to_string()), "a notification did not get through");
        }
    }

    async fn deliver(&self, connection: &Arc<Connection>, letter: &Letter) -> Result<(), Trouble> {
        match &self.route {
            Route::Streamable(session) => session.post(connection, letter).await,
            Route::Older(endpoint) => {
                let url = endpoint.address().await?;
                // Given up while there was no stream.
                if letter.number.is_some_and(|number| !connection.is_open(number)) {
                    return Ok(());
                }
                endpoint.post(&url, letter.body.clone()).await
            }
        }
    }

    async fn is_opened(&self) {
        if !*self.is_open.borrow() {
            drop(self.is_open.subscribe().wait_for(|&is_open| is_open).await);
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Post for Courier {
    fn post(self: Arc<Self>, letter: Letter) {
        let Some(connection) = self.connection() else { return };
        let content = if letter.number.is_some() { Content::Other } else { Content::of(&letter.body) };
        match content {
            Content::Cancelled(number) => {
                self.give_up(number);
                // To a modern server the end of the connection says it all.
                if self.is_modern() {
                    return;
                }
            }
            Content::Ready => drop(self.is_open.send_replace(false)),
            Content::Other => {}
        }
        // Locked until the task is in the table: it may end before we return.
        let mut under_way = self.lock();
        if under_way.is_over {
            return;
        }
        let key = under_way.key(letter.number);
        let handle = self.runtime.spawn(Arc::clone(&self).carry(connection, letter, content, key));
        under_way.tasks.insert(key, Task { handle, is_abandoned: false });
    }
}

impl std::fmt::Debug for Courier {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Courier").finish_non_exhaustive()
    }
}

impl UnderWay {
    fn key(&mut self, number: Option<u64>) -> Key {
        number.map_or_else(
            || {
                self.last_notice += 1;
                Key::Notice(self.last_notice)
            },
            Key::Request,
        )
    }
}

impl Content {
    fn of(body: &Bytes) -> Self {
        let Ok(Envelope { kind: Kind::Notification { method }, params }) = Envelope::scan(body) else {
            return Self::Other;
        };
        match text::decode(method.of(body)).as_deref() {
            Some("notifications/initialized") => Self::Ready,
            Some("notifications/cancelled") => {
                let number = params.request_id.and_then(|id| std::str::from_utf8(id.of(body)).ok()?.parse().ok());
                number.map_or(Self::Other, Self::Cancelled)
            }
            _ => Self::Other,
        }
    }
}

/// Takes a letter off the table, however its task ended.
struct Ended<'e> {
    courier: &'e Courier,
    connection: &'e Connection,
    key: Key,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.courier.lock().tasks.remove(&self.key);
        if let (Key::Request(number), true) = (self.key, std::thread::panicking()) {
            fail(self.connection, number, &Trouble::BrokeOff("the task that carried it broke".to_owned()));
        }
    }
}

fn fail(connection: &Connection, number: u64, trouble: &Trouble) {
    let server = connection.server();
    let error = match trouble {
        Trouble::TooLarge(over) => CallError::Unreadable { server, problem: Unreadable::TooLong(*over) },
        _ => CallError::Remote { server, problem: connection.hide(&trouble.to_string()), mishap: trouble.mishap() },
    };
    connection.fail(number, &error);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_not_wait_or_be_overtaken_is_recognised() {
        let content = |text: &'static str| Content::of(&Bytes::from_static(text.as_bytes()));
        let notice = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(content(notice), Content::Ready);
        let notice = r#"{"jsonrpc":"2.0","method":"notifications\/cancelled","params":{"requestId":7,"reason":"x"}}"#;
        assert_eq!(content(notice), Content::Cancelled(7));
        for other in [
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"mine"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"method":"notifications/initialized"}}"#,
        ] {
            assert_eq!(content(other), Content::Other, "{other}");
        }
    }
}
