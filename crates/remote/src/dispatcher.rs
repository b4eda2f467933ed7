//! Sends messages to one server: each is posted on its own, concurrently with all others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use protocol::{Envelope, Kind, Lifecycle, text};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use upstream::transport::{HttpSender, OutgoingMessage};
use upstream::{CallError, Connection, Unreadable};

use crate::error::RequestError;
use crate::session::Session;
use crate::sse::Endpoint;

/// How long the server may take to accept `initialized`, before what follows is sent anyway.
const INITIALIZED_TIMEOUT: Duration = Duration::from_secs(5);
/// How long any other notification, or a response to a server request, may take to be delivered.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(60);
/// How many requests are in flight at once, each on its own connection; more wait. Other messages never wait: a
/// request in flight may be waiting for them.
const MAX_CONCURRENT_REQUESTS: usize = 512;

/// Where messages go.
pub(crate) enum Route {
    Streamable(Box<Session>),
    HttpSse(Box<Endpoint>),
}

/// Sends messages to one server. An unreachable server fails the call, not the connection: it may be reachable for the
/// next.
pub(crate) struct RequestDispatcher {
    pub(crate) route: Route,
    connection: OnceLock<Weak<Connection>>,
    runtime: Handle,
    in_flight: Mutex<InFlight>,
    /// False while `initialized` is sent: nothing may overtake it.
    is_open: watch::Sender<bool>,
    request_slots: Semaphore,
}

/// The messages in flight.
#[derive(Default)]
struct InFlight {
    tasks: HashMap<Key, Task>,
    last_notification: u64,
    /// The connection is closing; nothing more is posted.
    is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Request(u64),
    Notification(u64),
}

struct Task {
    handle: JoinHandle<()>,
    /// Its response was no longer wanted at the last check.
    is_abandoned: bool,
}

/// The content of a message that matters for its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// `initialized`: later messages must not overtake it.
    Ready,
    /// The request with this number is cancelled.
    Cancelled(u64),
    Other,
}

impl RequestDispatcher {
    pub(crate) fn new(route: Route) -> Arc<Self> {
        Arc::new(Self {
            route,
            connection: OnceLock::new(),
            runtime: Handle::current(),
            in_flight: Mutex::default(),
            is_open: watch::Sender::new(true),
            request_slots: Semaphore::new(MAX_CONCURRENT_REQUESTS),
        })
    }

    /// Passes what comes back to `connection`.
    pub(crate) fn serve(&self, connection: &Arc<Connection>) {
        self.connection.get_or_init(|| Arc::downgrade(connection));
    }

    /// Our session, if the server has them.
    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.route {
            Route::Streamable(session) => Some(session),
            Route::HttpSse(_) => None,
        }
    }

    /// Cancels everything in flight, and waits until it has ended.
    pub(crate) async fn stop(&self) {
        for task in self.give_up_all() {
            drop(task.await);
        }
    }

    /// Cancels everything in flight, and all later messages.
    pub(crate) fn give_up_all(&self) -> Vec<JoinHandle<()>> {
        let tasks = {
            let mut in_flight = self.lock();
            in_flight.is_over = true;
            std::mem::take(&mut in_flight.tasks)
        };
        let given_up = |task: Task| {
            task.handle.abort();
            task.handle
        };
        tasks.into_values().map(given_up).collect()
    }

    /// Drops requests whose response is no longer wanted, so that a server that never ends its response does not hold
    /// them forever. One that was just answered has until the next check to end in order.
    pub(crate) fn tidy(&self) {
        match &self.route {
            Route::Streamable(session) => session.http.tidy(),
            Route::HttpSse(endpoint) => endpoint.http.tidy(),
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
        self.session().is_some_and(|session| session.lifecycle == Lifecycle::SelfContained)
    }

    fn give_up(&self, number: u64) {
        if let Some(task) = self.lock().tasks.remove(&Key::Request(number)) {
            task.handle.abort();
        }
    }

    async fn carry(self: Arc<Self>, connection: Arc<Connection>, message: OutgoingMessage, content: Content, key: Key) {
        let _ended = InFlightGuard { dispatcher: &self, connection: &connection, key };
        match (message.number, content) {
            (Some(number), _) => {
                self.wait_until_open().await;
                let _slot = self.request_slots.acquire().await.expect("the places are never closed");
                if let Err(request_error) = self.deliver(&connection, &message).await {
                    self.session().into_iter().for_each(|session| session.note(&request_error));
                    request_error.report_liveness(&connection);
                    if request_error.is_silence() {
                        connection.await_ending().await;
                    }
                    fail(&connection, number, &request_error);
                }
            }
            (None, Content::Ready) => {
                self.send_notification(&connection, &message, INITIALIZED_TIMEOUT).await;
                self.is_open.send_replace(true);
            }
            (None, _) => {
                self.wait_until_open().await;
                self.send_notification(&connection, &message, NOTIFICATION_TIMEOUT).await;
            }
        }
    }

    /// Delivers a message that needs no response.
    async fn send_notification(&self, connection: &Arc<Connection>, message: &OutgoingMessage, limit: Duration) {
        let delivered = timeout(limit, self.deliver(connection, message)).await;
        if let Err(request_error) = delivered.unwrap_or(Err(RequestError::NoAnswer)) {
            tracing::debug!(server = %connection.server(), request_error = connection.hide(&request_error.to_string()), "failed to send a notification");
        }
    }

    async fn deliver(&self, connection: &Arc<Connection>, message: &OutgoingMessage) -> Result<(), RequestError> {
        match &self.route {
            Route::Streamable(session) => session.post(connection, message).await,
            Route::HttpSse(endpoint) => {
                let url = endpoint.address().await?;
                // Cancelled while there was no stream.
                if message.number.is_some_and(|number| !connection.is_open(number)) {
                    return Ok(());
                }
                endpoint.post(&url, message.body.clone()).await
            }
        }
    }

    async fn wait_until_open(&self) {
        if !*self.is_open.borrow() {
            drop(self.is_open.subscribe().wait_for(|&is_open| is_open).await);
        }
    }

    fn lock(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpSender for RequestDispatcher {
    fn post(self: Arc<Self>, message: OutgoingMessage) {
        let Some(connection) = self.connection() else { return };
        let content = if message.number.is_some() { Content::Other } else { Content::of(&message.body) };
        match content {
            Content::Cancelled(number) => {
                self.give_up(number);
                // For a modern server, closing the connection is the cancellation.
                if self.is_modern() {
                    return;
                }
            }
            Content::Ready => drop(self.is_open.send_replace(false)),
            Content::Other => {}
        }
        // Locked until the task is in the table: it may end before we return.
        let mut in_flight = self.lock();
        if in_flight.is_over {
            return;
        }
        let key = in_flight.key(message.number);
        let handle = self.runtime.spawn(Arc::clone(&self).carry(connection, message, content, key));
        in_flight.tasks.insert(key, Task { handle, is_abandoned: false });
    }
}

impl std::fmt::Debug for RequestDispatcher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RequestDispatcher").finish_non_exhaustive()
    }
}

impl InFlight {
    fn key(&mut self, number: Option<u64>) -> Key {
        number.map_or_else(
            || {
                self.last_notification += 1;
                Key::Notification(self.last_notification)
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

/// Removes a message from the table, however its task ended.
struct InFlightGuard<'e> {
    dispatcher: &'e RequestDispatcher,
    connection: &'e Connection,
    key: Key,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.dispatcher.lock().tasks.remove(&self.key);
        if let (Key::Request(number), true) = (self.key, std::thread::panicking()) {
            fail(self.connection, number, &RequestError::BrokeOff("the task that sent it panicked".to_owned()));
        }
    }
}

fn fail(connection: &Connection, number: u64, request_error: &RequestError) {
    let server = connection.server();
    let error = match request_error {
        RequestError::TooLarge(over) => CallError::Unreadable { server, problem: Unreadable::TooLong(*over) },
        _ => CallError::Remote {
            server,
            problem: connection.hide(&request_error.to_string()),
            failure: request_error.failure(),
            command: request_error.login_command(),
        },
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
