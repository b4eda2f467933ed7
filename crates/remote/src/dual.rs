//! Servers that speak both lifecycles: the modern handshake beside the legacy one, and one list for both.
//!
//! Requests of a modern client use the modern handshake, those of a legacy client the legacy one, so nothing has to be
//! translated. The lists must not depend on the client: the modern handshake is used only while it lists the same
//! items.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use catalog::{Kind, Offer};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use upstream::{
    Cause, Connection, ConnectionContext, Handshake, Upstream, UpstreamObserver, compute_beside_calls, is_large,
};

use crate::http::Http;
use crate::transport_probe::{ServerSession, connect_modern};

/// How long a server may take for its modern handshake. Most that have none refuse it at once.
const MODERN_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the lists of both handshakes may differ after a change before the modern one is no longer used.
const LIST_AGREEMENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The modern handshake of a server that also has a legacy one.
pub(crate) struct ModernSide {
    server_session: ServerSession,
    listener: JoinHandle<Cause>,
    /// Its offer at the handshake.
    offer: Offer,
    /// A difference of the lists was reported; once is enough.
    has_reported: AtomicBool,
}

impl ModernSide {
    /// Tries the modern handshake; `None` if the server has none.
    pub(crate) async fn connect(
        upstream: &Upstream,
        http: Http,
        observer: &Arc<dyn UpstreamObserver>,
        legacy: &Arc<Connection>,
    ) -> Option<Self> {
        let handshake = Handshake {
            start_timeout: upstream.handshake.start_timeout.min(MODERN_HANDSHAKE_TIMEOUT),
            ..upstream.handshake.clone()
        };
        let connection_context =
            ConnectionContext { liveness: Arc::clone(&legacy.liveness), ..upstream.connection_context(observer) };
        match connect_modern(upstream, &handshake, http, connection_context).await {
            Ok((server_session, listener, offer)) => {
                legacy.set_modern(Arc::clone(&server_session.connection));
                Some(Self { server_session, listener, offer, has_reported: AtomicBool::new(false) })
            }
            Err(cause) => {
                tracing::debug!(server = %upstream.spec.name, %cause, "the modern handshake failed; only legacy clients use this server directly");
                None
            }
        }
    }

    /// The combined offer of both handshakes, at the start.
    pub(crate) async fn joined_at_first(&self, legacy: &Connection, offer: Offer) -> Offer {
        self.joined(legacy, offer, &self.offer).await
    }

    /// Follows the changes of both handshakes; `changed` is called with the combined offer.
    pub(crate) async fn follow<T: Future<Output = ()>>(
        &self,
        upstream: &Upstream,
        legacy: &Arc<Connection>,
        offer: Offer,
        changed: impl Fn(Offer) -> T,
    ) {
        let of_legacy = watch::Sender::new(Arc::new(offer.clone()));
        let of_modern = watch::Sender::new(Arc::new(self.offer.clone()));
        let joining = async {
            let (mut legacy_offers, mut modern_offers) = (of_legacy.subscribe(), of_modern.subscribe());
            loop {
                either_changed(&mut legacy_offers, &mut modern_offers).await;
                let agreement = async {
                    loop {
                        let (legacy, modern) =
                            (Arc::clone(&legacy_offers.borrow()), Arc::clone(&modern_offers.borrow()));
                        if agree(legacy, modern).await {
                            break;
                        }
                        either_changed(&mut legacy_offers, &mut modern_offers).await;
                    }
                };
                drop(timeout(LIST_AGREEMENT_TIMEOUT, agreement).await);
                let (offer, modern) = (Offer::clone(&legacy_offers.borrow()), Arc::clone(&modern_offers.borrow()));
                changed(self.joined(legacy, offer, &modern).await).await;
            }
        };
        let legacy_changed = |offer| {
            of_legacy.send_replace(offer);
            // The server need not report it in both lifecycles.
            self.server_session.connection.note_change(&Kind::ALL);
            std::future::ready(())
        };
        let modern_changed = |offer| {
            of_modern.send_replace(offer);
            std::future::ready(())
        };
        tokio::select! {
            () = upstream.handshake.follow_changes(legacy, offer, legacy_changed) => {}
            () = upstream.handshake.follow_changes(&self.server_session.connection, self.offer.clone(), modern_changed) => {}
            () = joining => {}
        }
    }

    /// Cancels what is in flight. There is no session to end.
    pub(crate) async fn leave(&self) {
        self.listener.abort();
        self.server_session.stop().await;
    }

    /// The combined offer of both handshakes, where they agree; else the legacy one, which is used for all.
    async fn joined(&self, legacy: &Connection, offer: Offer, modern: &Offer) -> Offer {
        let modern = self.server_session.screened(modern.clone()).await;
        let is_large = is_large(&offer) || is_large(&modern);
        let both = offer.clone();
        let joined = compute_beside_calls(is_large, move || both.with_modern(&modern)).await;
        // Without a result the program is stopping.
        let Some(joined) = joined else { return offer };
        legacy.use_modern(joined.is_ok());
        joined.unwrap_or_else(|kind| {
            if !self.has_reported.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    server = %legacy.server(),
                    list = kind.list_method(),
                    "the server lists other items in 2026-07-28 than in older revisions; requests of all clients are \
                     sent in an older one"
                );
            }
            offer
        })
    }
}

impl Drop for ModernSide {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn agree(legacy: Arc<Offer>, modern: Arc<Offer>) -> bool {
    let is_large = is_large(&legacy) || is_large(&modern);
    compute_beside_calls(is_large, move || legacy.has_same_items(&modern)).await.unwrap_or_default()
}

async fn either_changed(one: &mut watch::Receiver<Arc<Offer>>, other: &mut watch::Receiver<Arc<Offer>>) {
    // Neither sender is dropped before this task ends.
    tokio::select! {
        _ = one.changed() => {}
        _ = other.changed() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use bytes::Bytes;
    use catalog::{Hints, Item};
    use protocol::Lifecycle;

    use super::*;

    fn offer(lifecycle: Lifecycle, tools: usize) -> Arc<Offer> {
        let tool = |number| Item::read(Kind::Tool, Bytes::from(format!(r#"{{"name":"t{number}"}}"#))).unwrap();
        let mut offer = Offer::new(lifecycle);
        offer.set_items(Kind::Tool, (0..tools).map(tool).collect(), Hints::NONE);
        Arc::new(offer)
    }

    #[test]
    fn large_lists_of_two_handshakes_are_compared_beside_calls() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            for (legacy, modern, is_large) in [(3, 3, false), (3, 2_000, true), (2_000, 2_000, true)] {
                let (go_on, wait) = std::sync::mpsc::channel::<()>();
                let occupied = tokio::task::spawn_blocking(move || wait.recv());
                let offers = (offer(Lifecycle::Session, legacy), offer(Lifecycle::SelfContained, modern));
                let mut agreeing = std::pin::pin!(agree(offers.0, offers.1));
                let first = std::future::poll_fn(|context| Poll::Ready(agreeing.as_mut().poll(context))).await;
                assert_eq!(first.is_pending(), is_large, "{legacy} and {modern} tools");
                go_on.send(()).unwrap();
                let do_agree = match first {
                    Poll::Ready(do_agree) => do_agree,
                    Poll::Pending => agreeing.await,
                };
                assert_eq!(do_agree, legacy == modern);
                occupied.await.unwrap().unwrap();
            }
        });
    }
}
