//! Servers that speak both eras: the modern handshake beside the legacy one, and one list for both.
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
use upstream::connection::Surroundings;
use upstream::failure::Cause;
use upstream::{Connection, Manners, Upstream, Watcher};

use crate::approach::{Contact, meet_modern};
use crate::http::Http;

/// How long a server may take for its modern handshake. Most that have none refuse it at once.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);
/// How long the lists of both handshakes may differ after a change before the modern one is no longer used.
const AGREEMENT_PATIENCE: Duration = Duration::from_secs(2);

/// The modern handshake of a server that was also met in the legacy way.
pub(crate) struct ModernSide {
    contact: Contact,
    attending: JoinHandle<Cause>,
    /// What it offered when it was met.
    offer: Offer,
    /// It was reported that the lists differ; once is enough.
    has_reported: AtomicBool,
}

impl ModernSide {
    /// Tries the modern handshake; nothing if the server has none.
    pub(crate) async fn meet(
        upstream: &Upstream,
        http: Http,
        watcher: &Arc<dyn Watcher>,
        legacy: &Arc<Connection>,
    ) -> Option<Self> {
        let manners =
            Manners { patience: upstream.manners.patience.min(HANDSHAKE_PATIENCE), ..upstream.manners.clone() };
        let surroundings = Surroundings { doubts: Arc::clone(&legacy.doubts), ..upstream.surroundings(watcher) };
        match meet_modern(upstream, &manners, http, surroundings).await {
            Ok((contact, attending, offer)) => {
                legacy.set_modern(Arc::clone(&contact.connection));
                Some(Self { contact, attending, offer, has_reported: AtomicBool::new(false) })
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
                drop(timeout(AGREEMENT_PATIENCE, agreement).await);
                let (offer, modern) = (Offer::clone(&legacy_offers.borrow()), Arc::clone(&modern_offers.borrow()));
                changed(self.joined(legacy, offer, &modern)).await;
            }
        };
        let legacy_changed = |offer| {
            of_legacy.send_replace(offer);
            // It need not say so in both ways.
            self.contact.connection.note_change(&Kind::ALL);
            std::future::ready(())
        };
        let modern_changed = |offer| {
            of_modern.send_replace(offer);
            std::future::ready(())
        };
        tokio::select! {
            () = upstream.manners.follow_changes(legacy, offer, legacy_changed) => {}
            () = upstream.manners.follow_changes(&self.contact.connection, self.offer.clone(), modern_changed) => {}
            () = joining => {}
        }
    }

    /// Ends what is under way. There is no session to end.
    pub(crate) async fn leave(&self) {
        self.attending.abort();
        self.contact.stop().await;
    }

    /// What the server offers in both ways, where they agree; else what it offers in the legacy one, which is used for all.
    fn joined(&self, legacy: &Connection, offer: Offer, modern: &Offer) -> Offer {
        let modern = self.contact.screened(modern.clone());
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
        self.attending.abort();
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
