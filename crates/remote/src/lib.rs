//! A server that runs elsewhere, reached over HTTP.
//!
//! # Layout
//! - [`life`]: such a server from first contact to farewell
//! - `approach`: getting in touch, in whichever dialect and era the server speaks
//! - `dual`: servers that speak both eras, each client in its own
//! - `courier`: letters to a server, on their way
//! - `session`: Streamable HTTP: every message a request of its own, answered as JSON or as a stream
//! - `annotations`: what modern requests repeat in their headers
//! - `sse`: the older HTTP+SSE: requests to one address, all answers on one stream
//! - `http`: requests and asking again; `refusal`: answers that are no success; `trouble`: what can go wrong
//! - [`probe`]: whether somebody is well at an address; [`request`]: one request to who is no MCP server; [`Posting`]:
//!   bodies for an address that takes them or not; [`Exchange`]: requests whose answers come piece by piece
//! - `pool`: connections kept for the next request; `body`: answers read from them; `news`: streams of events in those

mod annotations;
mod approach;
mod body;
mod courier;
mod dual;
mod exchange;
mod http;
mod news;
mod pool;
mod posting;
mod probe;
mod refusal;
mod request;
mod session;
mod sse;
mod trouble;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Kind, Offer, Transport};
use tokio::sync::watch;
use tokio::time::timeout;
use upstream::failure::Cause;
use upstream::{Ending, Phase, Stop, Upstream, Watcher, tell_changed, tell_running};

use crate::approach::meet;

pub use exchange::{Exchange, Reply};
pub use posting::{Posting, Untaken};
pub use probe::probe;
pub use request::{Request, Response, Unanswered, request};

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
    let secrets = upstream.spec.secrets.clone();
    let failed = |phase, cause: Cause| Arc::new(Ending::Failed { phase, cause: cause.hiding(&secrets) });
    let met = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => return upstream.ended(&*watcher, &Arc::new(Ending::Stopped)),
        met = meet(&upstream, remote, &watcher) => met,
    };
    let (contact, mut lost, offer) = match met {
        Ok(met) => met,
        Err(cause) => return upstream.ended(&*watcher, &failed(Phase::Initialization, cause)),
    };
    tracing::debug!(server = %upstream.spec.name, tools = offer.items(Kind::Tool).len(), "server is running");
    let shown = match &contact.modern {
        Some(modern) => modern.joined_at_first(&contact.connection, offer.clone()),
        None => contact.screened(offer.clone()),
    };
    tell_running(&watcher, upstream.index, &contact.connection, shown).await;

    let following = async {
        let changed = |offer: Offer| tell_changed(&watcher, &contact.connection, Arc::new(offer));
        match &contact.modern {
            Some(modern) => modern.follow(&upstream, &contact.connection, offer, changed).await,
            None => {
                let changed = |offer: Arc<Offer>| changed(contact.screened(Arc::unwrap_or_clone(offer)));
                upstream.manners.follow_changes(&contact.connection, offer, changed).await;
            }
        }
    };
    let ending = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Arc::new(Ending::Stopped),
        cause = &mut lost => failed(Phase::Runtime, cause.unwrap_or_else(broken)),
        () = following => Arc::new(Ending::Stopped),
    };
    watcher.ended(upstream.index, &ending);
    contact.connection.end(&ending);
    if !lost.is_finished() {
        lost.abort();
        drop(lost.await);
    }
    drop(timeout(FAREWELL, contact.leave()).await);
    upstream.report(&*watcher, &ending, Vec::new());
}

#[expect(clippy::needless_pass_by_value, reason = "the shape `unwrap_or_else` asks for")]
fn broken(error: tokio::task::JoinError) -> Cause {
    Cause::Remote(format!("the task that talks to it broke: {error}"))
}
