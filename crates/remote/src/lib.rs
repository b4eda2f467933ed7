//! A server that runs elsewhere, reached over HTTP.
//!
//! # Layout
//! - [`life`]: such a server from first contact to farewell
//! - `carrier`: letters to a server, on their way
//! - `session`: Streamable HTTP: every message a request of its own, answered as JSON or as a stream
//! - `sse`: the older HTTP+SSE: requests to one address, all answers on one stream
//! - `http`: requests, retries and what can go wrong with them

mod carrier;
mod http;
mod session;
mod sse;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Dialect, Remote, Tool, Transport};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use upstream::failure::Cause;
use upstream::wire::{Postbox, Wire};
use upstream::{Connection, Ending, Phase, Stop, Upstream, Watcher};

use crate::http::{Http, Trouble};
use crate::session::Session;

/// How long saying goodbye may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// The life of a server that runs elsewhere, for [`Upstream::run`].
pub fn life(
    upstream: Upstream,
    watcher: Arc<dyn Watcher>,
    stop: watch::Receiver<Stop>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(live(upstream, watcher, stop))
}

async fn live(upstream: Upstream, watcher: Arc<dyn Watcher>, mut stop: watch::Receiver<Stop>) {
    let Transport::Remote(remote) = &upstream.spec.transport else { return };
    let failed = |phase, cause| Arc::new(Ending::Failed { phase, cause });
    let met = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => return upstream.ended(&*watcher, &Arc::new(Ending::Stopped)),
        met = meet(&upstream, remote) => met,
    };
    let (mut contact, tools) = match met {
        Ok(met) => met,
        Err(cause) => return upstream.ended(&*watcher, &failed(Phase::Initialization, cause)),
    };
    tracing::debug!(server = %upstream.spec.name, tools = tools.len(), "server is running");
    watcher.running(upstream.index, &contact.connection, tools);

    let changed = |tools| watcher.tools_changed(upstream.index, tools);
    let ending = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Arc::new(Ending::Stopped),
        cause = &mut contact.lost => failed(Phase::Runtime, cause.unwrap_or_else(broken)),
        () = upstream.manners.follow_changes(&contact.connection, changed) => Arc::new(Ending::Stopped),
    };
    watcher.ended(upstream.index, &ending);
    contact.connection.end(&ending);
    if !contact.lost.is_finished() {
        contact.lost.abort();
        drop((&mut contact.lost).await);
    }
    drop(timeout(FAREWELL, contact.session.leave()).await);
    upstream.report(&*watcher, &ending, Vec::new());
}

/// A server we are talking to.
struct Contact {
    connection: Arc<Connection>,
    session: Arc<Session>,
    /// Carries messages; ends only when the server is lost.
    lost: JoinHandle<Cause>,
}

/// Gets in touch: in the dialect the server is said to speak, else in the newer and then in the older.
async fn meet(upstream: &Upstream, remote: &Remote) -> Result<(Contact, Vec<Tool>), Cause> {
    let cause = |trouble: Trouble| Cause::Remote(trouble.to_string());
    let http = Http::new(remote).map_err(cause)?;
    if remote.dialect == Dialect::Sse {
        return meet_in(upstream, http, true).await.map_err(|(cause, _)| cause);
    }
    let (newer, is_foreign) = match meet_in(upstream, http.clone(), false).await {
        Ok(met) => return Ok(met),
        Err(failure) => failure,
    };
    if remote.dialect == Dialect::Streamable || !is_foreign {
        return Err(newer);
    }
    tracing::debug!(server = %upstream.spec.name, %newer, "no Streamable HTTP; trying HTTP+SSE");
    meet_in(upstream, http, true).await.map_err(|(older, _)| {
        Cause::Remote(format!("it speaks neither Streamable HTTP ({newer}) nor HTTP+SSE ({older})"))
    })
}

/// Gets in touch in one dialect. A failure says whether it looks as if the server does not speak it.
async fn meet_in(upstream: &Upstream, http: Http, older: bool) -> Result<(Contact, Vec<Tool>), (Cause, bool)> {
    let (postbox, letters) = Postbox::new();
    let connection = Arc::new(Connection::new(upstream.spec.name.clone(), Wire::Post(postbox)));
    let session = Arc::new(Session::new(http, upstream.manners.introduction()));
    let lost = if older {
        let opening = timeout(upstream.manners.patience, sse::open(&session, &connection));
        let stream = match opening.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(trouble)) => return Err((Cause::Remote(trouble.to_string()), trouble.is_foreign())),
            Err(_) => return Err((Cause::Remote("it did not open its event stream in time".to_owned()), false)),
        };
        tokio::spawn(sse::carry(Arc::clone(&session), Arc::clone(&connection), letters, stream))
    } else {
        tokio::spawn(carrier::carry(Arc::clone(&session), Arc::clone(&connection), letters))
    };
    let lost = AbortOnDrop(Some(lost));
    let met = upstream.manners.meet(&connection, |revision| session.greeted(revision)).await;
    match met {
        Ok(tools) => {
            session.start_listening();
            Ok((Contact { connection, session, lost: lost.keep() }, tools))
        }
        // A question without an answer has a better explanation in what happened to its request.
        Err(Cause::ClosedOutput) => Err(session.explain()),
        Err(cause) => Err((cause, false)),
    }
}

/// A task that ends with whoever holds it.
struct AbortOnDrop(Option<JoinHandle<Cause>>);

impl AbortOnDrop {
    fn keep(mut self) -> JoinHandle<Cause> {
        self.0.take().expect("kept once")
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape `unwrap_or_else` asks for")]
fn broken(error: tokio::task::JoinError) -> Cause {
    Cause::Remote(format!("the task that talks to it broke: {error}"))
}
