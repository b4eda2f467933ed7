//! Where the responses to a client's requests go, with the notifications that precede them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use catalog::Scope;
use protocol::bridge::change::Change;
use protocol::bridge::{input, label};
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{Envelope, Kind, Span};
use upstream::{CallError, Connection, Notification, Requester, ResponseHandler, ServerRequest, ServerResponse};

use crate::bridge::scanned_response_id;
use crate::client::Client;
use crate::client_sink::{ClientSink, Message, Outbound};
use crate::interceptor::{CallEnd, CallTracker};
use crate::logs;

/// A client and the sink for its responses: one for all its requests (stdio), or one for each (HTTP).
pub struct Responder {
    client: Arc<Client>,
    sink: Arc<dyn ClientSink>,
    /// Tracks the one request this is for.
    tracker: Option<Arc<dyn CallTracker>>,
}

impl Responder {
    /// Sends responses to `client` through `sink`.
    pub fn to(client: &Arc<Client>, sink: Arc<dyn ClientSink>) -> Arc<Self> {
        Arc::new(Self { client: Arc::clone(client), sink, tracker: None })
    }

    /// The same for one request, tracked by `tracker`.
    pub(crate) fn tracked(&self, tracker: Arc<dyn CallTracker>) -> Arc<Self> {
        Arc::new(Self { client: Arc::clone(&self.client), sink: Arc::clone(&self.sink), tracker: Some(tracker) })
    }

    /// The tracker of the one request this is for.
    pub(crate) fn tracker(&self) -> Option<&Arc<dyn CallTracker>> {
        self.tracker.as_ref()
    }

    /// The client that made the request.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The sink for responses.
    pub fn sink(&self) -> &Arc<dyn ClientSink> {
        &self.sink
    }

    /// Answers a request that was not counted as open.
    pub fn respond(&self, answer: &[u8]) {
        if let Some(tracker) = &self.tracker {
            tracker.on_end(CallEnd::Ours(answer));
        }
        self.put(answer);
    }

    fn put(&self, answer: &[u8]) {
        self.sink.send(Outbound::Response, Message::Own(answer));
    }

    /// The same, in slices.
    pub(crate) fn respond_parts(&self, parts: &[Bytes]) {
        self.sink.send(Outbound::Response, Message::Parts(parts));
    }

    /// Answers a request that was counted as open.
    pub(crate) fn close_with(&self, answer: &[u8]) {
        self.respond(answer);
        self.client.request_closed();
    }

    /// Forwards a server's response with the client's own id.
    pub(crate) fn pass_response(&self, id: &[u8], line: &Bytes, id_at: Span) {
        if let Some(tracker) = &self.tracker
            && let Ok(Envelope { kind: Kind::Response { outcome, .. }, .. }) = Envelope::scan(line)
        {
            tracker.on_end(CallEnd::Response(line, outcome));
        }
        self.restore_id(id, line, id_at);
    }

    fn restore_id(&self, id: &[u8], line: &Bytes, id_at: Span) {
        self.sink.send(Outbound::Response, Message::Spliced { line, edits: &[Edit { span: id_at, with: id }] });
        self.client.request_closed();
    }

    /// Forwards a notification that precedes the response. A client that reads too slowly, or accepts none, misses it.
    pub(crate) fn pass_notification(&self, line: &Bytes, edits: &[Edit<'_>]) {
        if self.sink.carries_notifications() && !self.sink.is_full() {
            self.sink.send(Outbound::Notification, Message::Spliced { line, edits });
        }
    }

    /// Ends a request that was not counted as open and is cancelled. If the client did not cancel it, it gets a
    /// response.
    pub(crate) fn give_up(&self, id: &[u8]) {
        if let Some(tracker) = &self.tracker {
            tracker.on_end(CallEnd::Cancelled);
            if let Some(cancel_reason) = tracker.cancel_reason() {
                self.put(&cancel_reason.answer(id));
                return self.flush();
            }
        }
        self.sink.give_up();
    }

    /// Flushes what was sent.
    pub fn flush(&self) {
        self.sink.flush();
    }

    /// An error that requires URLs to be visited contains elicitations: they are recorded so that their completion can
    /// be forwarded, and labelled so that the person sees which server asks.
    fn url_elicitation(&self, server: &Connection, line: &Bytes, error: Span) -> Option<Bytes> {
        let mut change = Change::new(line);
        for visit in input::visits(line, error) {
            if self.client.server_requests.note_elicitation(server, line, visit) && self.client.scope() == Scope::All {
                let labelled = label::elicitation_params(&line.slice(visit.start..visit.end), server.server().as_str());
                change.replace(visit, labelled);
            }
        }
        (!change.is_empty()).then(|| change.apply())
    }

    /// The sink for a server request about one of these requests, if there is one.
    pub(crate) fn sink_for_server_requests(&self) -> Option<&Arc<dyn ClientSink>> {
        let is_fit = |sink: &&Arc<dyn ClientSink>| sink.carries_notifications() && !sink.is_gone() && !sink.is_full();
        [&self.sink, self.client.sink()].into_iter().find(is_fit)
    }
}

impl ResponseHandler for Responder {
    fn requester(&self) -> Requester {
        self.client.requester()
    }

    fn on_held(&self) {
        if let Some(tracker) = &self.tracker {
            tracker.on_held();
        }
    }

    fn on_released(&self) {
        if let Some(tracker) = &self.tracker {
            tracker.on_released();
        }
    }

    fn on_response(&self, id: &[u8], response: ServerResponse<'_>) {
        let ServerResponse { server, line, id_at, outcome } = response;
        if let Some(tracker) = &self.tracker {
            tracker.on_end(CallEnd::Response(line, outcome));
        }
        match outcome.err().and_then(|error| self.url_elicitation(server, line, error)) {
            Some(line) => self.restore_id(id, &line, scanned_response_id(&line)),
            None => self.restore_id(id, line, id_at),
        }
    }

    fn on_failure(&self, id: &[u8], error: &CallError) {
        if let Some(tracker) = &self.tracker {
            tracker.on_end(CallEnd::Failed(error));
        }
        self.put(&failure(id, error));
        self.client.request_closed();
    }

    fn on_cancelled(&self, id: &[u8]) {
        self.give_up(id);
        self.client.request_closed();
    }

    fn on_notification(&self, notification: Notification<'_>) {
        let Notification { server, line, envelope, progress } = notification;
        if let Some((token, token_at)) = progress {
            return self.pass_notification(line, &[Edit { span: token_at, with: token }]);
        }
        if logs::is_message(line, envelope) {
            if let Some(line) = logs::for_client(&self.client, server, line, envelope) {
                self.pass_notification(&line, &[]);
            }
            return;
        }
        self.pass_notification(line, &[]);
    }

    fn on_server_request(&self, request: ServerRequest) {
        match self.sink_for_server_requests() {
            Some(sink) => self.client.server_requests.put(&self.client, sink, request),
            None => request.refuse(code::INTERNAL_ERROR, "The client cannot be asked now"),
        }
    }

    fn on_server_request_cancelled(&self, server: &Connection, id: &[u8], line: &Bytes, id_at: Span) {
        self.client.server_requests.withdraw(server, id, line, id_at);
    }

    fn flush(&self) {
        self.sink.flush();
    }

    fn is_idle(&self) -> bool {
        self.sink.is_idle()
    }

    fn catch_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        // Where clients share a server, a slow reader must not delay the others: its sink is bounded instead.
        if self.client.is_alone() { self.sink.catch_up() } else { None }
    }
}

/// The JSON-RPC error of a call that got no response.
pub(crate) fn failure(id: &[u8], error: &CallError) -> Vec<u8> {
    let retry: &[u8] = if error.is_safe_to_retry() { b"true" } else { b"false" };
    let server: &str = error.server().as_ref();
    let mut data = vec![
        ("server", reply::string(server)),
        ("reason", reply::string(error.reason())),
        ("safeToRetry", retry.to_vec()),
    ];
    if let CallError::Remote { command: Some(command), .. } = error {
        data.push(("command", reply::string(command)));
    }
    let data = reply::object(data);
    reply::error(id, code::INTERNAL_ERROR, &error.to_string(), Some(&data))
}

#[cfg(test)]
mod tests {
    use catalog::ServerName;
    use upstream::RemoteFailure;

    use super::*;

    #[test]
    fn a_call_that_needs_a_sign_in_fails_with_the_command_that_signs_in() {
        let failed = |failure, command: Option<&str>| {
            let (server, command) = (ServerName::new("notes").unwrap(), command.map(str::to_owned));
            let answer = super::failure(b"1", &CallError::Remote { server, problem: "no".into(), failure, command });
            String::from_utf8(answer).unwrap()
        };
        let whole = "mcp-aggregator login notes --config mcp.json";
        let answer = failed(RemoteFailure::SignInRequired, Some(whole));
        assert!(answer.contains(r#""reason":"sign_in_required""#), "{answer}");
        assert!(answer.contains(&format!(r#""command":"{whole}""#)), "{answer}");
        assert!(!failed(RemoteFailure::Refused, None).contains("command"));
    }
}
