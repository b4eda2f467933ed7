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
use upstream::{Cause, Connection, ConnectionContext, Handshake, Upstream, UpstreamObserver};

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
    pub(crate) fn joined_at_first(&self, legacy: &Connection, offer: Offer) -> Offer {
        self.joined(legacy, offer, &self.offer)
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
                    while !agree(&legacy_offers.borrow(), &modern_offers.borrow()) {
                        either_changed(&mut legacy_offers, &mut modern_offers).await;
                    }
                };
                drop(timeout(LIST_AGREEMENT_TIMEOUT, agreement).await);
                let (offer, modern) = (Offer::clone(&legacy_offers.borrow()), Arc::clone(&modern_offers.borrow()));
                changed(self.joined(legacy, offer, &modern)).await;
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
    fn joined(&self, legacy: &Connection, offer: Offer, modern: &Offer) -> Offer {
        let modern = self.server_session.screened(modern.clone());
        let joined = offer.clone().with_modern(&modern);
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

fn agree(legacy: &Offer, modern: &Offer) -> bool {
    legacy.clone().with_modern(modern).is_ok()
}

async fn either_changed(one: &mut watch::Receiver<Arc<Offer>>, other: &mut watch::Receiver<Arc<Offer>>) {
    // Neither sender is dropped before this task ends.
    tokio::select! {
        _ = one.changed() => {}
        _ = other.changed() => {}
    }
}
