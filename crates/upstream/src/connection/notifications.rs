//! Notifications of the server: to the request they belong to, or to the observer of the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use catalog::Kind;
use protocol::envelope::Envelope;
use protocol::{Lifecycle, Span, text};

use super::{Connection, remember};
use crate::limits::{Limit, OverLimit};
use crate::pending::RequestOwner;
use crate::request_id::parse_request_id;
use crate::response_handler::{Notification, ResponseHandler};

/// Characters of a method in a log message; a method may be of any length.
const MAX_SHOWN_METHOD_CHARS: usize = 100;

impl Connection {
    pub(super) fn notice(
        self: &Arc<Self>,
        line: &Bytes,
        method: Span,
        envelope: &Envelope,
        about: Option<u64>,
        handlers: &mut Vec<Arc<dyn ResponseHandler>>,
    ) {
        if let Err(over) = self.limits.check(Limit::Notification, "it is", line.len()) {
            return self.drop_notification(line, method, over);
        }
        match text::decode(method.of(line)).as_deref() {
            Some("notifications/progress") => self.progress(line, envelope, handlers),
            Some("notifications/tools/list_changed") => self.changes.note(&[Kind::Tool]),
            Some("notifications/prompts/list_changed") => self.changes.note(&[Kind::Prompt]),
            Some("notifications/resources/list_changed") => self.changes.note(&[Kind::Resource, Kind::Template]),
            Some("notifications/subscriptions/acknowledged") => {
                self.listen_stream.acknowledged(envelope.params.subscription, line);
            }
            Some("notifications/cancelled") => self.cancelled_by_server(line, envelope),
            // They belong to a client's subscription, not to a request that happens to be open.
            Some(
                method @ ("notifications/resources/updated"
                | "notifications/tasks/status"
                | "notifications/elicitation/complete"),
            ) => self.report(line, method, envelope),
            Some(method) => self.about_a_request(line, method, envelope, about, handlers),
            None => tracing::debug!(server = %self.server(), "notification without a name"),
        }
    }

    /// Drops a notification that is too large, because many sessions may keep it. The user is warned of the first.
    fn drop_notification(&self, line: &[u8], method: Span, over: OverLimit) {
        let method: String = String::from_utf8_lossy(method.of(line)).chars().take(MAX_SHOWN_METHOD_CHARS).collect();
        let (server, length) = (self.server(), line.len());
        if self.note_too_large() {
            tracing::warn!(%server, method, length, %over, "dropped a notification, and will drop further ones of that size");
        } else {
            tracing::debug!(%server, method, length, %over, "dropped a notification");
        }
    }

    /// Records that something is too large. Returns whether it is the first, of which the user is warned.
    pub(super) fn note_too_large(&self) -> bool {
        !self.warned_of_size.swap(true, Ordering::Relaxed)
    }

    fn progress(self: &Arc<Self>, line: &Bytes, envelope: &Envelope, handlers: &mut Vec<Arc<dyn ResponseHandler>>) {
        let Some(token_at) = envelope.params.progress_token else { return };
        let wanted = parse_request_id(token_at.of(line)).and_then(|number| {
            let open = self.lock();
            let call = open.get(number)?;
            Some((Arc::clone(&call.handler), call.progress.clone()?))
        });
        if let Some((handler, token)) = wanted {
            self.activity.fetch_add(1, Ordering::Relaxed);
            handler.on_notification(Notification { server: self, line, envelope, progress: Some((&token, token_at)) });
            remember(handlers, handler);
        }
    }

    /// Log messages and other notifications that a server sends during a request.
    fn about_a_request(
        self: &Arc<Self>,
        line: &Bytes,
        method: &str,
        envelope: &Envelope,
        about: Option<u64>,
        handlers: &mut Vec<Arc<dyn ResponseHandler>>,
    ) {
        let owner = match about {
            Some(_) => self.lock().owner(about),
            // A legacy server sends them to all clients; a modern one only for requests.
            None if self.lifecycle() == Lifecycle::Session => RequestOwner::Nobody,
            None => self.lock().only_handler(),
        };
        match owner {
            RequestOwner::Handler(handler) => {
                handler.on_notification(Notification { server: self, line, envelope, progress: None });
                remember(handlers, handler);
            }
            RequestOwner::Nobody => self.report(line, method, envelope),
            RequestOwner::Ambiguous => {
                tracing::debug!(server = %self.server(), method, "notification that could belong to several clients");
            }
        }
    }

    fn cancelled_by_server(self: &Arc<Self>, line: &Bytes, envelope: &Envelope) {
        let Some(id_at) = envelope.params.request_id else { return };
        let id = id_at.of(line);
        if self.withdraw_server_request(id, line, id_at) {
            return;
        }
        // A modern server ends a listen stream like this.
        if let Some(number) = parse_request_id(id) {
            self.lock().close(number);
        }
    }

    fn report(self: &Arc<Self>, line: &Bytes, method: &str, envelope: &Envelope) {
        if let Some(observer) = self.observer.upgrade() {
            observer.on_notification(self, method, line, envelope);
        }
    }
}
