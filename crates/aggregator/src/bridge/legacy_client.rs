//! A legacy client's call at a modern server: the server's `input_required` result becomes server requests to the
//! client, and the call is sent again with the answers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use catalog::Scope;
use protocol::Span;
use protocol::bridge::input::{self, InputRequest, InputRequired};
use protocol::bridge::result::ResultType;
use protocol::bridge::{elicitation, error, label, meta, result};
use protocol::reply::{self, code};
use tokio::time::{Instant, timeout_at};
use upstream::{CallError, Connection, Request, ResponseFilter, ResponseHandler, ServerRequest, ServerResponse};

use super::{BridgedRequest, scanned_request, scanned_response_id};
use crate::client::next_number;
use crate::client_sink::ClientSink;
use crate::responder::{Responder, failure};
use crate::server_requests::ServerRequests;

/// How many `input_required` rounds a server may use before its call is cancelled.
const MAX_INPUT_ROUNDS: usize = 10;

/// Why the server does not receive the input it requested.
enum InputError {
    /// The client responds with this error.
    Declined(Bytes),
    /// The call has reached its time limit.
    TooLate(Duration),
    /// The client has disconnected.
    Gone,
}

/// The client's side of such a call.
struct LegacyClientCall {
    to: Arc<Responder>,
    connection: Arc<Connection>,
    method: String,
    /// The request in the form the server understands.
    request: Bytes,
    rounds: AtomicUsize,
    since: Instant,
    /// A reference to itself, passed on when the request is sent again.
    myself: std::sync::Weak<Self>,
}

/// Sends the request with the `_meta` that a modern server expects.
pub(super) fn send(bridged: &BridgedRequest<'_>) {
    let client_meta = bridged.to.client().client_meta();
    let request = meta::to_modern(&bridged.renamed, &bridged.renamed_envelope().params, &client_meta);
    let handler = Arc::new_cyclic(|myself| LegacyClientCall {
        to: Arc::clone(bridged.to),
        connection: Arc::clone(bridged.connection),
        method: bridged.method.clone(),
        request: request.clone(),
        rounds: AtomicUsize::new(0),
        since: Instant::now(),
        myself: myself.clone(),
    });
    handler.forward(bridged.id(), &request);
}

impl LegacyClientCall {
    fn forward(self: Arc<Self>, known_as: &[u8], line: &Bytes) {
        let envelope = scanned_request(line);
        let progress = envelope.params.wanted_progress;
        let request = Request { line, id: envelope.id, known_as, renamed: None, progress };
        let handler = Arc::clone(&self) as Arc<dyn ResponseHandler>;
        if let Err(error) = self.connection.forward(request, &handler) {
            self.to.on_failure(known_as, &error);
        }
        self.connection.flush();
    }

    /// Sends the requested input to the client as server requests, then sends the call again.
    fn request_input(&self, id: &[u8], wanted: InputRequired) {
        let refuse = |why: &str| self.refuse(id, why);
        if self.rounds.fetch_add(1, Ordering::Relaxed) >= MAX_INPUT_ROUNDS {
            return refuse("keeps requesting more input");
        }
        let capabilities = self.to.client().client_meta().capabilities;
        let lacking = wanted.requests.iter().find(|wanted| !is_answerable(&capabilities, wanted));
        if let Some(lacking) = lacking {
            return refuse(&format!("needs `{}`, which the client does not support", lacking.method));
        }
        let Some(sink) = self.to.sink_for_server_requests().cloned() else {
            return refuse("needs to ask something, and the client cannot be asked now");
        };
        let Some(myself) = self.myself.upgrade() else { return };
        let (client, id) = (Arc::clone(self.to.client()), Bytes::copy_from_slice(id));
        // Counted as deferred while it waits for the client, and as open again afterwards.
        client.request_closed();
        let owner = Arc::clone(&client);
        client.defer(id.clone(), &self.to, async move {
            match myself.within_limit(myself.answers(&sink, &wanted)).await {
                Ok(responses) => {
                    let params = scanned_request(&myself.request).params;
                    let again = input::retry(&myself.request, &params, &responses, wanted.state.as_deref());
                    owner.request_opened();
                    myself.forward(&id, &again);
                }
                Err(InputError::Declined(error)) => {
                    myself.to.respond(&with_error(&id, &error));
                    myself.to.flush();
                }
                Err(InputError::TooLate(limit)) => {
                    let error = CallError::TooSlow { server: myself.connection.server(), limit };
                    myself.to.respond(&failure(&id, &error));
                    myself.to.flush();
                }
                Err(InputError::Gone) => {
                    myself.to.respond(&myself.refusal(&id, "needs more input, and the client declined"));
                    myself.to.flush();
                }
            }
        });
    }

    /// The client's answers to every input request. Requests that are no longer awaited are cancelled.
    async fn answers(
        &self,
        sink: &Arc<dyn ClientSink>,
        wanted: &InputRequired,
    ) -> Result<Vec<(Bytes, Bytes)>, InputError> {
        let ask = |request: &InputRequest| {
            ServerRequests::ask(self.to.client(), sink, &request.method, &self.input_params(request))
        };
        // All at once: the client may show them side by side.
        let asked: Vec<_> = wanted.requests.iter().map(|request| (request, ask(request))).collect();
        let mut responses = Vec::with_capacity(asked.len());
        for (request, inquiry) in asked {
            let response = inquiry.answer().await.ok_or(InputError::Gone)?.map_err(InputError::Declined)?;
            responses.push((request.key.clone(), response));
        }
        Ok(responses)
    }

    /// The limit of a call includes the time a person takes to answer. At the server, each round has its own limit.
    async fn within_limit<T>(&self, answers: impl Future<Output = Result<T, InputError>>) -> Result<T, InputError> {
        let Some(limit) = self.connection.limit() else { return answers.await };
        timeout_at(self.since + limit, answers).await.unwrap_or(Err(InputError::TooLate(limit)))
    }

    /// The parameters in the form a legacy client understands, labelled so that the person sees which server asks.
    fn input_params(&self, request: &InputRequest) -> Bytes {
        if request.method != "elicitation/create" {
            return request.params.clone();
        }
        let number = format!("elicitation-{}", next_number());
        let params = elicitation::to_legacy(&request.params, Some(&number));
        match self.to.client().scope() {
            Scope::All => label::elicitation_params(&params, self.connection.server().as_str()),
            Scope::One(_) => params,
        }
    }

    /// Ends the call with an error; `why` is what the server did.
    fn refuse(&self, id: &[u8], why: &str) {
        self.to.close_with(&self.refusal(id, why));
    }

    fn refusal(&self, id: &[u8], why: &str) -> Vec<u8> {
        let server = self.connection.server();
        let data = reply::object([("server", reply::string(server.as_ref()))]);
        reply::error(id, code::INTERNAL_ERROR, &format!("server `{server}` {why}"), Some(&data))
    }

    fn pass(&self, id: &[u8], line: &Bytes, translated: Option<Bytes>, id_at: Span) {
        match translated {
            Some(line) => self.to.pass_response(id, &line, scanned_response_id(&line)),
            None => self.to.pass_response(id, line, id_at),
        }
    }
}

impl ResponseFilter for LegacyClientCall {
    type Inner = Responder;

    fn inner(&self) -> &Responder {
        &self.to
    }

    fn on_response(&self, id: &[u8], response: ServerResponse<'_>) {
        let ServerResponse { line, id_at, outcome, .. } = response;
        match outcome {
            Ok(found) if result::kind(line, found) == ResultType::InputRequired => match input::read(line, found) {
                Some(wanted) => self.request_input(id, wanted),
                None => self.refuse(id, "sent a request for input that is not valid"),
            },
            Ok(found) if matches!(result::kind(line, found), ResultType::Other(_)) => {
                self.refuse(id, "returned a type of result that the client does not support");
            }
            Ok(found) => self.pass(id, line, result::to_legacy(line, found, &self.method), id_at),
            Err(found) => self.pass(id, line, error::to_legacy(line, found, &self.method), id_at),
        }
    }

    fn on_server_request(&self, request: ServerRequest) {
        request.refuse(code::METHOD_NOT_FOUND, "Servers send no requests in this revision");
    }
}

fn is_answerable(capabilities: &[u8], wanted: &InputRequest) -> bool {
    let known = ["elicitation/create", "sampling/createMessage", "roots/list"];
    known.contains(&wanted.method.as_str()) && elicitation::is_offered(capabilities, &wanted.method, &wanted.params)
}

/// The client declined to answer: its own error becomes the response to its call.
fn with_error(id: &[u8], error: &[u8]) -> Vec<u8> {
    let mut line = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    line.extend_from_slice(id);
    line.extend_from_slice(b",\"error\":");
    line.extend_from_slice(error);
    line.extend_from_slice(b"}\n");
    line
}
