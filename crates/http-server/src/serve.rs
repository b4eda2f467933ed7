//! Connections: accepted, served, watched, and drained at shutdown.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use protocol::reply::{self, code};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::admission::Connection;
use crate::body::Body;
use crate::guard::GuardedConnection;
use crate::identity::{SMALL_ANSWER, Unread};
use crate::panics::caught;
use crate::routes;
use crate::self_wake::self_wake;
use crate::server::{HttpServer, Shared};
use crate::watch::{Watch, Watched};

/// How often slow connections are searched for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The delay after the system has refused another connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// How long it may take to send the final error to pending requests.
const SHUTDOWN_RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Serves clients that connect to `listener` until `shutdown` is ready. Then no connection is accepted, listen streams
/// end, and requests may continue for a while. If the future is dropped before that, everything ends at once.
pub async fn serve(server: HttpServer, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
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
            arrived = listener.accept() => match arrived {
                Ok((stream, _)) => connections.accept(&shared, stream),
                // No descriptors left, or the client disconnected before it was accepted. Either passes.
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(listener);
    connections.drain(&shared).await;
    Ok(())
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
    fn accept(&mut self, shared: &Arc<Shared>, stream: TcpStream) {
        if self.entries.len() >= shared.limits.connections && !self.make_room() {
            tracing::warn!(most = shared.limits.connections, "too many connections; refused one (limit `connections`)");
            reject(stream, shared.limits.connections);
            return;
        }
        let watch = Arc::new(Watch::new());
        let local = stream.local_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
        let guarded = Arc::new(GuardedConnection::new(local));
        let ends = Ends { is_closing: self.is_closing.subscribe(), is_over: self.is_over.subscribe() };
        let connection = connection(Arc::clone(shared), stream, Arc::clone(&watch), Arc::clone(&guarded), ends);
        let task = self.connections.spawn(connection);
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

/// When a connection is to end: after its current request, or at once.
struct Ends {
    is_closing: watch::Receiver<bool>,
    is_over: watch::Receiver<bool>,
}

/// Responds that there are too many connections. If that cannot be written at once, the connection just closes.
fn reject(stream: TcpStream, most: usize) {
    let why = format!("Too many connections: the limit is {most} (limit `connections`)");
    let body = reply::error(b"null", code::INTERNAL_ERROR, &why, None);
    let mut response = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    response.extend(body);
    if let Err(error) = stream.into_std().and_then(|mut stream| stream.write_all(&response)) {
        tracing::debug!(%error, "failed to report to a connection that there are too many");
    }
}

/// One connection from its first request to its last.
async fn connection(
    shared: Arc<Shared>,
    stream: TcpStream,
    watch: Arc<Watch>,
    guarded: Arc<GuardedConnection>,
    ends: Ends,
) {
    let Ends { mut is_closing, is_over } = ends;
    // Responses are small, and clients wait for them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let Some(entry) = Connection::of(&shared, &stream, guarded) else { return };
    let limit = shared.limits.head;
    let service = service_fn(|request| {
        let watch = Arc::clone(&watch);
        let (shared, entry, mut is_over) = (&shared, &entry, is_over.clone());
        async move {
            watch.note_request();
            let answered = AnsweredGuard(watch);
            let path = request.uri().clone();
            let response = tokio::select! {
                biased;
                response = caught(routes::answer(shared, entry, request)) => response.unwrap_or_else(|panicked| {
                    routes::panicked(shared, path.path(), &panicked)
                }),
                // This response distinguishes a shutdown from a crash.
                _ = is_over.wait_for(|&is_over| is_over) => routes::too_late(shared, path.path()),
            };
            Ok::<_, Infallible>(response.map(|body| Tracked::new(body, &entry.guarded, answered)))
        }
    });
    let stream = Watched { stream: TokioIo::new(stream), watch: Arc::clone(&watch) };
    let mut served = pin!(http1::Builder::new().max_header_size(limit).serve_connection(stream, service));
    let ended = tokio::select! {
        ended = self_wake(served.as_mut()) => ended,
        _ = is_closing.changed() => {
            served.as_mut().graceful_shutdown();
            self_wake(served).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Records, when dropped, that a request is answered.
struct AnsweredGuard(Arc<Watch>);

impl Drop for AnsweredGuard {
    fn drop(&mut self) {
        self.0.note_response();
    }
}

/// A body that records its end. Its large chunks count as unread until they are written.
struct Tracked {
    body: Body,
    guarded: Arc<GuardedConnection>,
    unread: Option<Unread>,
    _answered: AnsweredGuard,
}

impl Tracked {
    fn new(body: Body, guarded: &Arc<GuardedConnection>, answered: AnsweredGuard) -> Self {
        let length = hyper::body::Body::size_hint(&body).exact().and_then(|length| usize::try_from(length).ok());
        let large = length.filter(|&length| length > SMALL_ANSWER);
        let unread = large.and_then(|length| Some(guarded.identity()?.hold_unread(length)));
        Self { body, guarded: Arc::clone(guarded), unread, _answered: answered }
    }

    /// The same bytes, which count until the connection has written them.
    fn counted(&mut self, bytes: Bytes) -> Bytes {
        if self.unread.is_none() && bytes.len() > SMALL_ANSWER {
            self.unread = self.guarded.identity().map(|identity| identity.hold_unread(0));
        }
        match &mut self.unread {
            Some(unread) if bytes.len() > SMALL_ANSWER => unread.hand_out(bytes),
            _ => bytes,
        }
    }
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| self.counted(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
