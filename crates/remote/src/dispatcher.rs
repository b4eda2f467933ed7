//! Messages to one server, on their way: each is posted on its own, side by side with all others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use protocol::{Envelope, Kind, Lifecycle, text};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use upstream::failure::Unreadable;
use upstream::transport::{HttpSender, OutgoingMessage};
use upstream::{CallError, Connection};

use crate::error::RequestError;
use crate::session::Session;
use crate::sse::Endpoint;

/// How long the server may take to hear that we are ready, before what follows is sent anyway.
const INITIALIZED_TIMEOUT: Duration = Duration::from_secs(5);
/// How long any other notification, or an answer to a question of the server, may take to be delivered.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(60);
/// So many requests are under way at once, each on a connection of its own; more wait. What is no request never waits:
/// it may be what a request under way is waiting for.
const MAX_CONCURRENT_REQUESTS: usize = 512;

/// Where messages go.
pub(crate) enum Route {
    Streamable(Box<Session>),
    Older(Box<Endpoint>),
}

/// Takes messages to one server. A server that cannot be reached fails the call, not the connection: it may be back for
/// the next.
pub(crate) struct RequestDispatcher {
    pub(crate) route: Route,
    connection: OnceLock<Weak<Connection>>,
    runtime: Handle,
    in_flight: Mutex<InFlight>,
    /// Shut while the server is told that we are ready: nothing may overtake that.
    is_open: watch::Sender<bool>,
    request_slots: Semaphore,
}

/// The messages that are not answered for.
#[derive(Default)]
struct InFlight {
    tasks: HashMap<Key, Task>,
    last_notification: u64,
    /// We are leaving; nothing more is posted.
    is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Request(u64),
    Notification(u64),
}

struct Task {
    handle: JoinHandle<()>,
    /// Nobody waited for it any more when we last looked.
    is_abandoned: bool,
}

/// What a message says that is of interest on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// We are ready: what follows must not come before it.
    Ready,
    /// The request with this number is given up.
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
                self.tell(&connection, &message, INITIALIZED_TIMEOUT).await;
                self.is_open.send_replace(true);
            }
            (None, _) => {
                self.wait_until_open().await;
                self.tell(&connection, &message, NOTIFICATION_TIMEOUT).await;
            }
        }
    }

    /// Delivers what needs no answer.
    async fn tell(&self, connection: &Arc<Connection>, message: &OutgoingMessage, limit: Duration) {
        let delivered = timeout(limit, self.deliver(connection, message)).await;
        if let Err(request_error) = delivered.unwrap_or(Err(RequestError::NoAnswer)) {
            tracing::debug!(server = %connection.server(), request_error = connection.hide(&request_error.to_string()), "a notification did not get through");
        }
    }

    async fn deliver(&self, connection: &Arc<Connection>, message: &OutgoingMessage) -> Result<(), RequestError> {
        match &self.route {
            Route::Streamable(session) => session.post(connection, message).await,
            Route::Older(endpoint) => {
                let url = endpoint.address().await?;
                // Given up while there was no stream.
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
                // To a modern server the end of the connection says it all.
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

/// Takes a message off the table, however its task ended.
struct InFlightGuard<'e> {
    dispatcher: &'e RequestDispatcher,
    connection: &'e Connection,
    key: Key,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.dispatcher.lock().tasks.remove(&self.key);
        if let (Key::Request(number), true) = (self.key, std::thread::panicking()) {
            fail(self.connection, number, &RequestError::BrokeOff("the task that carried it broke".to_owned()));
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
