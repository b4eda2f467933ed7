//! A server that runs elsewhere, reached over HTTP.
//!
//! # Layout
//! - [`connect`]: such a server from first contact to farewell
//! - `transport_probe`: getting in touch, in whichever dialect and lifecycle the server speaks
//! - `dual`: servers that speak both lifecycles, each client in its own
//! - `dispatcher`: messages to a server, on their way
//! - `session`: Streamable HTTP: every message a request of its own, answered as JSON or as a stream
//! - `annotations`: what modern requests repeat in their headers
//! - `sse`: the older HTTP+SSE: requests to one address, all answers on one stream
//! - `http`: requests and asking again; `refusal`: answers that are no success; `error`: what can go wrong
//! - [`probe`]: whether somebody is well at an address; [`request`]: one request to who is no MCP server; [`BodySender`]:
//!   bodies for an address that takes them or not; [`StreamingRequest`]: requests whose answers come piece by piece
//! - `pool`: connections kept for the next request; `body`: answers read from them; `event_stream`: streams of events in those

mod annotations;
mod body;
mod body_sender;
mod dispatcher;
mod dual;
mod error;
mod event_stream;
mod http;
mod pool;
mod probe;
mod refusal;
mod request;
mod session;
mod sse;
mod streaming_request;
mod transport_probe;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Kind, Offer, Transport};
use tokio::sync::watch;
use tokio::time::timeout;
use upstream::failure::Cause;
use upstream::{Ending, Phase, Stop, Upstream, UpstreamObserver, tell_changed, tell_running};

use crate::transport_probe::open_session;

pub use body_sender::{BodySender, SendError};
pub use probe::probe;
pub use request::{NoResponse, Request, Response, request};
pub use streaming_request::{Reply, StreamingRequest};

/// How long saying goodbye may take.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(1);

/// The life of a server that runs elsewhere, for [`Upstream::run`].
pub fn connect(
    upstream: Upstream,
    observer: Arc<dyn UpstreamObserver>,
    stop: watch::Receiver<Stop>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(run(upstream, observer, stop))
}

async fn run(upstream: Upstream, observer: Arc<dyn UpstreamObserver>, mut stop: watch::Receiver<Stop>) {
    let Transport::Remote(remote) = &upstream.spec.transport else { return };
    let secrets = upstream.spec.secrets.clone();
    let failed = |phase, cause: Cause| Arc::new(Ending::Failed { phase, cause: cause.hiding(&secrets) });
    let met = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => return upstream.ended(&*observer, &Arc::new(Ending::Stopped)),
        met = open_session(&upstream, remote, &observer) => met,
    };
    let (server_session, mut lost, offer) = match met {
        Ok(met) => met,
        Err(cause) => return upstream.ended(&*observer, &failed(Phase::Initialization, cause)),
    };
    tracing::debug!(server = %upstream.spec.name, tools = offer.items(Kind::Tool).len(), "server is running");
    let shown = match &server_session.modern {
        Some(modern) => modern.joined_at_first(&server_session.connection, offer.clone()),
        None => server_session.screened(offer.clone()),
    };
    tell_running(&observer, upstream.index, &server_session.connection, shown).await;

    let following = async {
        let changed = |offer: Offer| tell_changed(&observer, &server_session.connection, Arc::new(offer));
        match &server_session.modern {
            Some(modern) => modern.follow(&upstream, &server_session.connection, offer, changed).await,
            None => {
                let changed = |offer: Arc<Offer>| changed(server_session.screened(Arc::unwrap_or_clone(offer)));
                upstream.handshake.follow_changes(&server_session.connection, offer, changed).await;
            }
        }
    };
    let ending = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Arc::new(Ending::Stopped),
        cause = &mut lost => failed(Phase::Runtime, cause.unwrap_or_else(broken)),
        () = following => Arc::new(Ending::Stopped),
    };
    observer.on_ended(upstream.index, &ending);
    server_session.connection.end(&ending);
    if !lost.is_finished() {
        lost.abort();
        drop(lost.await);
    }
    drop(timeout(SESSION_END_TIMEOUT, server_session.leave()).await);
    upstream.report(&*observer, &ending, Vec::new());
}

#[expect(clippy::needless_pass_by_value, reason = "the shape `unwrap_or_else` asks for")]
fn broken(error: tokio::task::JoinError) -> Cause {
    Cause::Remote(format!("the task that talks to it broke: {error}"))
}
