//! Connections: accepted, watched, and drained at shutdown. `connection` serves each of them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use protocol::reply::{self, code};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::connection::{self, Accepted, Ends};
use crate::guard::GuardedConnection;
use crate::server::{HttpServer, Shared};
use crate::socket::{ClientSocket, ListeningSocket};
use crate::tls::Tls;
use crate::watch::Watch;

/// How often slow connections are searched for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The delay after the system has refused another connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// How long it may take to send the final error to pending requests.
const SHUTDOWN_RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Where clients connect.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: ListeningSocket,
    /// How clients encrypt; `None` if they do not.
    pub tls: Option<Arc<Tls>>,
}

/// Serves clients that connect to `listeners` until `shutdown` is ready. Then no connection is accepted, listen streams
/// end, and requests may continue for a while. If the future is dropped before that, everything ends at once.
pub async fn serve(server: HttpServer, listeners: Vec<Listener>, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let shared = Arc::new(Shared::new(server).map_err(invalid)?);
    let _ending = EndSessionsGuard(Arc::clone(&shared));
    let mut connections = Connections {
        connections: JoinSet::new(),
        entries: HashMap::new(),
        is_closing: watch::Sender::new(false),
        is_over: watch::Sender::new(false),
    };
    let mut rounds = interval(SWEEP_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shutdown = pin!(shutdown);
    let mut replaced = shared.tokens.as_ref().map(|tokens| tokens.replacements());
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.connections.join_next_with_id() => connections.forget(&ended),
            _ = rounds.tick() => {
                connections.close_overdue(&shared);
                shared.sweep();
            }
            () = next_replacement(replaced.as_mut()) => shared.end_revoked(),
            arrived = accept(&listeners) => match arrived {
                Ok((stream, tls)) => connections.accept(&shared, stream, tls),
                // No descriptors left, or the client disconnected before it was accepted. Either passes.
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(listeners);
    connections.drain(&shared).await;
    Ok(())
}

/// The next connection of any listener. Tokio limits how long a task may go on, so no listener starves another for long.
async fn accept(listeners: &[Listener]) -> io::Result<(ClientSocket, Option<Arc<Tls>>)> {
    poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(arrived) = listener.socket.poll_accept(context) {
                return Poll::Ready(arrived.map(|stream| (stream, listener.tls.clone())));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits until the tokens are replaced; without tokens, forever.
async fn next_replacement(replaced: Option<&mut watch::Receiver<()>>) {
    match replaced {
        // The sender lives as long as the tokens, which we hold.
        Some(replaced) => drop(replaced.changed().await),
        None => std::future::pending().await,
    }
}

/// Ends every session, also if the HTTP server is dropped while it runs.
struct EndSessionsGuard(Arc<Shared>);

impl Drop for EndSessionsGuard {
    fn drop(&mut self) {
        self.0.end_all();
    }
}

/// The open connections.
struct Connections {
    connections: JoinSet<()>,
    entries: HashMap<Id, ConnectionEntry>,
    is_closing: watch::Sender<bool>,
    /// Pending requests get no response any more.
    is_over: watch::Sender<bool>,
}

struct ConnectionEntry {
    watch: Arc<Watch>,
    guarded: Arc<GuardedConnection>,
    task: AbortHandle,
}

impl Connections {
    fn accept(&mut self, shared: &Arc<Shared>, stream: ClientSocket, tls: Option<Arc<Tls>>) {
        if self.entries.len() >= shared.limits.connections && !self.make_room() {
            tracing::warn!(most = shared.limits.connections, "too many connections; refused one (limit `connections`)");
            // Who expects TLS does not understand anything else, and a handshake would be work.
            if tls.is_none() {
                reject(stream, shared.limits.connections);
            }
            return;
        }
        let watch = Arc::new(Watch::new());
        let guarded = Arc::new(GuardedConnection::new(stream.local_ip()));
        let ends = Ends { is_closing: self.is_closing.subscribe(), is_over: self.is_over.subscribe() };
        let accepted = Accepted { stream, tls, watch: Arc::clone(&watch), guarded: Arc::clone(&guarded) };
        let task = self.connections.spawn(connection::serve(Arc::clone(shared), accepted, ends));
        self.entries.insert(task.id(), ConnectionEntry { watch, guarded, task });
    }

    /// Makes room for one more connection: the owner with the most loses its longest idle one. Returns whether there
    /// was one.
    fn make_room(&mut self) -> bool {
        let mut counts = HashMap::<_, usize>::new();
        let idle: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(&id, entry)| {
                let owner = entry.guarded.owner_of();
                *counts.entry(owner.clone()).or_default() += 1;
                Some((id, owner, entry.watch.idle_for()?))
            })
            .collect();
        let needed_least = idle.iter().max_by_key(|(_, owner, idle_for)| (counts.get(owner), *idle_for));
        let Some(entry) = needed_least.and_then(|(id, ..)| self.entries.remove(id)) else { return false };
        tracing::debug!("too many connections; closed an idle one");
        entry.task.abort();
        true
    }

    fn forget(&mut self, ended: &Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => *id,
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "the task of a connection panicked");
                }
                error.id()
            }
        };
        self.entries.remove(&id);
    }

    fn close_overdue(&self, shared: &Shared) {
        for entry in self.entries.values().filter(|entry| entry.watch.is_overdue(&shared.limits)) {
            tracing::debug!("closed a connection that took too long");
            entry.task.abort();
        }
    }

    /// Lets requests finish, within a grace period.
    async fn drain(mut self, shared: &Arc<Shared>) {
        let latest = Instant::now() + shared.limits.grace;
        self.is_closing.send_replace(true);
        if timeout_at(latest, shared.begin_shutdown()).await.is_err() {
            tracing::debug!("some clients did not disconnect in time");
        }
        while let Ok(Some(ended)) = timeout_at(latest, self.connections.join_next_with_id()).await {
            self.forget(&ended);
        }
        if self.connections.is_empty() {
            return;
        }
        tracing::warn!(
            connections = self.connections.len(),
            "aborted requests that were not answered within the grace period"
        );
        self.is_over.send_replace(true);
        let latest = Instant::now() + SHUTDOWN_RESPONSE_TIMEOUT;
        while let Ok(Some(ended)) = timeout_at(latest, self.connections.join_next_with_id()).await {
            self.forget(&ended);
        }
        self.connections.shutdown().await;
    }
}

/// Responds that there are too many connections. If that cannot be written at once, the connection just closes.
fn reject(stream: ClientSocket, most: usize) {
    let why = format!("Too many connections: the limit is {most} (limit `connections`)");
    let body = reply::error(b"null", code::INTERNAL_ERROR, &why, None);
    let mut response = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    response.extend(body);
    if let Err(error) = stream.write_at_once(&response) {
        tracing::debug!(%error, "failed to report to a connection that there are too many");
    }
}
