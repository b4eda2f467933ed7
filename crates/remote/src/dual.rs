//! Servers that speak both lifecycles: the modern handshake beside the legacy one, and one list for both.
//!
//! Requests of a modern client go to the modern handshake, those of a legacy client to the legacy one, so nothing has to be
//! translated. What is offered must not depend on who asks: the modern handshake is used only while it lists the same items.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use catalog::{Kind, Offer};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use upstream::connection::ConnectionContext;
use upstream::failure::Cause;
use upstream::{Connection, Handshake, Upstream, UpstreamObserver};

use crate::http::Http;
use crate::transport_probe::{ServerSession, connect_modern};

/// How long a server may take for its modern handshake. Most that have none refuse it at once.
const MODERN_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the lists of both handshakes may differ after a change before the modern one is no longer used.
const LIST_AGREEMENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The modern handshake of a server that was also met in the legacy way.
pub(crate) struct ModernSide {
    server_session: ServerSession,
    listener: JoinHandle<Cause>,
    /// What it offered when it was met.
    offer: Offer,
    /// It was reported that the lists differ; once is enough.
    has_reported: AtomicBool,
}

impl ModernSide {
    /// Tries the modern handshake; nothing if the server has none.
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
                tracing::debug!(server = %upstream.spec.name, %cause, "it has no modern handshake");
                None
            }
        }
    }

    /// What the server offers in both ways, as it was met.
    pub(crate) fn joined_at_first(&self, legacy: &Connection, offer: Offer) -> Offer {
        self.joined(legacy, offer, &self.offer)
    }

    /// Follows the changes of both handshakes; `changed` hears what the server offers in both ways.
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
            // It need not say so in both ways.
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

    /// Ends what is under way. There is no session to end.
    pub(crate) async fn leave(&self) {
        self.listener.abort();
        self.server_session.stop().await;
    }

    /// What the server offers in both ways, where they agree; else what it offers in the legacy one, which is used for all.
    fn joined(&self, legacy: &Connection, offer: Offer, modern: &Offer) -> Offer {
        let modern = self.server_session.screened(modern.clone());
        let joined = offer.clone().with_modern(&modern);
        legacy.use_modern(joined.is_ok());
        joined.unwrap_or_else(|kind| {
            if !self.has_reported.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    server = %legacy.server(),
                    list = kind.list_method(),
                    "it lists other items in 2026-07-28 than in older revisions; requests of all clients are sent in an older one"
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
    // Neither sender ends before who waits here does.
    tokio::select! {
        _ = one.changed() => {}
        _ = other.changed() => {}
    }
}
