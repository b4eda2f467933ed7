//! Remote servers, reached over HTTP.
//!
//! # Layout
//! - [`connect`]: runs the connection to such a server from the handshake to its end; [`connector`]: the same with
//!   sign-ins
//! - `transport_probe`: finds the transport and lifecycle that the server supports
//! - `dual`: servers that speak both lifecycles, each client in its own
//! - `dispatcher`: sends messages to a server
//! - `session`: Streamable HTTP: every message is a request, answered as JSON or as a stream
//! - `annotations`: the headers of modern requests
//! - `sse`: the older HTTP+SSE: requests to one address, all responses on one stream
//! - `authorization`: the token of a sign-in on requests, and what follows when the server refuses it
//! - [`HttpFetch`]: the requests that a sign-in makes; `network`: limits on where connections may go
//! - `http`: requests and retries; `refusal`: error responses; `error`: why a request failed
//! - [`probe`]: health checks of an address; [`request`]: one request to a program that is no MCP server;
//!   [`BodySender`]: bodies for an address that accepts or refuses them; [`StreamingRequest`]: requests whose
//!   responses arrive in pieces
//! - `pool`: connections kept for the next request; `body`: responses read from them; `event_stream`: event streams in
//!   those

mod annotations;
mod authorization;
mod body;
mod body_sender;
mod dispatcher;
mod dual;
mod error;
mod event_stream;
mod fetch;
mod http;
mod network;
mod pool;
mod probe;
mod refusal;
mod request;
mod session;
mod sse;
mod streaming_request;
#[cfg(test)]
mod test_server;
mod transport_probe;
mod unix;

use std::sync::Arc;
use std::time::Duration;

use catalog::{Kind, Offer, ServerSpec, Transport};
use oauth::{OAuth, Protected, TokenSource};
use tokio::sync::watch;
use tokio::time::timeout;
use upstream::{
    Cause, Connector, ConnectorTask, Ending, Phase, Stop, Upstream, UpstreamObserver, report_ended,
    report_offer_changed, report_running,
};

use crate::authorization::Authorization;
use crate::transport_probe::open_session;

pub use body_sender::{BodySender, SendError};
pub use fetch::HttpFetch;
pub use probe::probe;
pub use request::{NoResponse, Request, Response, request};
pub use streaming_request::{Reply, StreamingRequest};
pub use unix::unix_url;

/// How long ending the session may take.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the connection to a remote server, for [`Upstream::run`]. Servers that require a sign-in are refused.
pub fn connect(upstream: Upstream, observer: Arc<dyn UpstreamObserver>, stop: watch::Receiver<Stop>) -> ConnectorTask {
    Box::pin(run(upstream, observer, stop, None))
}

/// The same with the sign-ins of `oauth`. `protected` says what a sign-in to a server needs; `None` if it has none.
pub fn connector(
    oauth: Arc<OAuth>,
    protected: impl Fn(&ServerSpec) -> Option<Protected> + Send + Sync + 'static,
) -> Connector {
    Arc::new(move |upstream: Upstream, observer, stop| {
        let tokens = protected(&upstream.spec).map(|protected| oauth.source(protected));
        Box::pin(run(upstream, observer, stop, tokens))
    })
}

async fn run(
    upstream: Upstream,
    observer: Arc<dyn UpstreamObserver>,
    mut stop: watch::Receiver<Stop>,
    tokens: Option<Arc<TokenSource>>,
) {
    let Transport::Remote(remote) = &upstream.spec.transport else { return };
    let secrets = upstream.spec.secrets.clone();
    let failed = |phase, cause: Cause| Arc::new(Ending::Failed { phase, cause: cause.hiding(&secrets) });
    let meeting = async {
        if let Some(tokens) = &tokens {
            tokens.prepare().await;
        }
        open_session(&upstream, remote, tokens.clone().map(Authorization::new), &observer).await
    };
    let met = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Err(Arc::new(Ending::Stopped)),
        met = meeting => met.map_err(|cause| failed(Phase::Initialization, cause)),
    };
    let (server_session, mut lost, offer) = match met {
        Ok(met) => met,
        Err(ending) => return upstream.ended(&observer, &ending).await,
    };
    tracing::debug!(server = %upstream.spec.name, tools = offer.items(Kind::Tool).len(), "server is running");
    let shown = match &server_session.modern {
        Some(modern) => modern.joined_at_first(&server_session.connection, offer.clone()).await,
        None => server_session.screened(offer.clone()).await,
    };
    report_running(&observer, upstream.index, &server_session.connection, shown).await;

    let following = async {
        let changed = |offer: Offer| report_offer_changed(&observer, &server_session.connection, Arc::new(offer));
        match &server_session.modern {
            Some(modern) => modern.follow(&upstream, &server_session.connection, offer, changed).await,
            None => {
                let changed = async |offer: Arc<Offer>| {
                    changed(server_session.screened(Arc::unwrap_or_clone(offer)).await).await;
                };
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
    report_ended(&observer, upstream.index, &ending).await;
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
    Cause::Remote(format!("the task of the connection panicked: {error}"))
}
