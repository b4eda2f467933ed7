//! A modern client's call at a legacy server: when the server sends a request, the call is parked and the client
//! receives an `input_required`. If the client retries with the answers and the request state, the call continues; if
//! it does not, the call is cancelled.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use catalog::Scope;
use protocol::bridge::input::{self, Retry};
use protocol::bridge::{elicitation, error, label, meta, result};
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{Span, text};
use tokio::time::Instant;
use upstream::{
    CallError, Connection, Notification, Request, Requester, ResponseHandler, ServerRequest, ServerResponse,
};

use super::parked_calls::ParkedCalls;
use super::request_state::{Binding, digest};
use super::{BridgedRequest, scanned, scanned_request, scanned_response_id};
use crate::client::next_number;
use crate::level::Level;
use crate::logs::{self, LevelRequest};
use crate::responder::{Responder, failure};

/// A parked call keeps its turn at a server that serves one client at a time for this fraction of the answer timeout.
/// A client whose user closes a form cannot report that, and other clients wait.
const EXCLUSIVE_TIMEOUT_DIVISOR: u32 = 10;
/// Server requests that arrive within this time are sent to the client together.
const COALESCE_DELAY: Duration = Duration::from_millis(5);

/// The id of the call at its connection; the client's own request ids change with every retry.
const PARKED_CALL_ID: &[u8] = b"0";

/// A call at a legacy server, and the client's request that waits for it, if there is one.
pub(super) struct ModernClientCall {
    /// Represents the client at the server: the client's requests come and go, the call remains.
    number: u64,
    parked_calls: Arc<ParkedCalls>,
    connection: Arc<Connection>,
    method: String,
    binding: Binding,
    scope: Scope,
    /// No other client exists.
    is_alone: bool,
    /// The request in the form the server understands.
    request: Bytes,
    /// How long a client may take to retry.
    answer_timeout: Duration,
    /// Our id of the call at the server, once it is sent.
    sent_as: AtomicU64,
    /// The log level the call requests, in effect until it ends.
    _level_request: Option<LevelRequest>,
    state: Mutex<State>,
    myself: std::sync::Weak<Self>,
}

#[derive(Default)]
struct State {
    /// The client's request that waits for the outcome.
    waiting: Option<WaitingRequest>,
    /// Server requests that were sent to the client, under the keys it received.
    sent_requests: Vec<(String, PendingInput)>,
    /// Server requests that were not sent to the client yet.
    unsent_requests: VecDeque<(String, PendingInput)>,
    /// The outcome of the call, if it ended while no request waited.
    outcome: Option<Outcome>,
    round: u64,
    /// Since when no request has been waiting.
    parked_at: Option<Instant>,
    last_key: u64,
    is_over: bool,
    /// The capabilities a client would have needed for a server request that was refused, as JSON.
    missing_capabilities: Option<Vec<u8>>,
}

/// A request of the client.
struct WaitingRequest {
    to: Arc<Responder>,
    id: Box<[u8]>,
    capabilities: Bytes,
    level: Option<Level>,
    progress: Option<Box<[u8]>>,
}

enum PendingInput {
    FromServer(Box<ServerRequest>),
    /// The server requires a URL to be visited before it is called again.
    UrlElicitation(Bytes),
}

enum Outcome {
    Answer(Bytes),
    Failure(CallError),
}

/// Sends a request, or resumes the parked call it belongs to.
pub(super) fn send(bridged: &BridgedRequest<'_>) {
    let (client, params) = (bridged.to.client(), &bridged.envelope.params);
    let binding = Binding {
        principal: client.principal().id().to_string(),
        server: bridged.connection.index(),
        digest: digest(&bridged.method, &bridged.renamed, &bridged.renamed_envelope().params),
    };
    let waiting = WaitingRequest::of(bridged);
    let Retry { responses, state } = input::of_request(bridged.line, params);
    if let Some(request_state) = state {
        let found = bridged.aggregator.parked_calls.find(&request_state, &binding);
        let Some((call, round)) = found else { return bridged.to.close_with(&unknown_request_state(bridged.id())) };
        return call.resume(waiting, round, bridged.line, responses);
    }
    let renamed = bridged.renamed_envelope();
    let plain = input::without_retry(&bridged.renamed, &renamed.params);
    let request = meta::to_legacy(&plain, &scanned(&plain).params);
    let level_request =
        waiting.level.map(|level| LevelRequest::new(&bridged.aggregator.fleet, bridged.connection, level));
    let call = Arc::new_cyclic(|myself| ModernClientCall {
        number: next_number(),
        parked_calls: Arc::clone(&bridged.aggregator.parked_calls),
        connection: Arc::clone(bridged.connection),
        method: bridged.method.clone(),
        binding,
        scope: client.scope(),
        is_alone: client.is_alone(),
        request,
        answer_timeout: bridged.aggregator.options.answer_timeout,
        sent_as: AtomicU64::new(0),
        _level_request: level_request,
        state: Mutex::new(State { waiting: Some(waiting), ..State::default() }),
        myself: myself.clone(),
    });
    if !call.parked_calls.enter(&call) {
        let text = "Too many calls are in progress";
        return bridged.to.close_with(&reply::error(bridged.id(), code::INTERNAL_ERROR, text, None));
    }
    call.forward();
}

fn unknown_request_state(id: &[u8]) -> Vec<u8> {
    let text =
        "Invalid params: `requestState` is unknown, expired, or for another request; send the request without it";
    reply::error(id, code::INVALID_PARAMS, text, None)
}

impl WaitingRequest {
    fn of(bridged: &BridgedRequest<'_>) -> Self {
        let request_meta = meta::read(bridged.line, &bridged.envelope.params);
        let line = bridged.line;
        let level = request_meta
            .log_level
            .and_then(|level| text::decode(level.of(line)))
            .and_then(|level| Level::named(&level));
        Self {
            to: Arc::clone(bridged.to),
            id: Box::from(bridged.id()),
            capabilities: request_meta
                .capabilities
                .map_or(Bytes::from_static(b"{}"), |span| line.slice(span.start..span.end)),
            level,
            progress: bridged.envelope.params.wanted_progress.map(|token| Box::from(token.of(line))),
        }
    }
}

impl ModernClientCall {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The principal that made the call.
    pub(super) fn principal(&self) -> &str {
        &self.binding.principal
    }

    /// Whether a request of `client`, under `id` if given, waits for this call.
    pub(super) fn is_for(&self, client: u64, id: Option<&[u8]>) -> bool {
        let state = self.lock();
        let waiting = state.waiting.as_ref();
        waiting.is_some_and(|waiting| waiting.to.client().number() == client && id.is_none_or(|id| *id == *waiting.id))
    }

    /// Cancels the call because the client does: the server receives the client's own reason.
    pub(super) fn cancel(&self, notice: &Bytes, id_at: Span) {
        let translated = meta::to_legacy(notice, &scanned(notice).params);
        let id_at = scanned(&translated).params.request_id.unwrap_or(id_at);
        if !self.connection.cancel(self.number, PARKED_CALL_ID, &translated, id_at) {
            self.over(None);
        }
    }

    /// Cancels the call.
    pub(super) fn give_up(&self, why: &str) {
        if !self.connection.abandon(self.sent_as.load(Ordering::Relaxed), why) {
            self.over(None);
        }
    }

    fn forward(self: Arc<Self>) {
        let envelope = scanned_request(&self.request);
        let progress = envelope.params.wanted_progress;
        let request =
            Request { line: &self.request, id: envelope.id, known_as: PARKED_CALL_ID, renamed: None, progress };
        let handler = Arc::clone(&self) as Arc<dyn ResponseHandler>;
        match self.connection.forward(request, &handler) {
            Ok(number) => self.sent_as.store(number, Ordering::Relaxed),
            Err(error) => self.on_failure(PARKED_CALL_ID, &error),
        }
        self.connection.flush();
    }

    /// The client retries, with answers to the requests it received.
    fn resume(&self, waiting: WaitingRequest, round: u64, line: &Bytes, responses: Option<Span>) {
        let mut state = self.lock();
        if state.is_over || state.waiting.is_some() || state.round != round {
            drop(state);
            return waiting.to.close_with(&unknown_request_state(&waiting.id));
        }
        let sent_requests = std::mem::take(&mut state.sent_requests);
        let (mut answered, mut must_call_again) = (Vec::new(), false);
        for (key, pending_input) in sent_requests {
            let response = responses.and_then(|responses| input::response(line, responses, &key));
            match (pending_input, response) {
                (PendingInput::FromServer(request), Some(response)) => answered.push((request, response)),
                (PendingInput::UrlElicitation(_), Some(_)) => must_call_again = true,
                // Still unanswered: sent to the client again.
                (pending_input, None) => state.unsent_requests.push_back((key, pending_input)),
            }
        }
        state.waiting = Some(waiting);
        drop(state);
        for (request, response) in answered {
            request.answer_with(response.of(line));
        }
        if must_call_again {
            if let Some(myself) = self.myself.upgrade() {
                myself.forward();
            }
            return;
        }
        self.respond_now();
    }

    /// Sends the client what is available: the outcome of the call, or the pending server requests.
    fn respond_now(&self) {
        let mut state = self.lock();
        if state.waiting.is_none() {
            return;
        }
        if let Some(outcome) = state.outcome.take() {
            drop(state);
            return self.over(Some(outcome));
        }
        if state.unsent_requests.is_empty() {
            return;
        }
        let Some(WaitingRequest { to, id, .. }) = state.waiting.take() else { return };
        let unsent_requests = std::mem::take(&mut state.unsent_requests);
        state.sent_requests.extend(unsent_requests);
        state.round += 1;
        state.parked_at = Some(Instant::now());
        let round = state.round;
        let requests: Vec<_> =
            state.sent_requests.iter().map(|(key, pending_input)| self.put(key, pending_input)).collect();
        drop(state);
        let request_state = self.parked_calls.seal(self.number, round, self.answer_timeout, &self.binding);
        let requests: Vec<(String, &str, Bytes)> =
            requests.iter().map(|(key, method, params)| (key.clone(), method.as_str(), params.clone())).collect();
        to.close_with(&reply::result(&id, &input::required(&requests, &request_state)));
        to.flush();
        self.expire_after_timeout(round);
    }

    /// Servers may send several requests in quick succession: the client receives all of them at once.
    fn respond_soon(&self) {
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(COALESCE_DELAY).await;
            if let Some(call) = myself.upgrade() {
                call.respond_now();
            }
        });
    }

    fn put(&self, key: &str, pending_input: &PendingInput) -> (String, String, Bytes) {
        let (method, params) = match pending_input {
            PendingInput::FromServer(request) => {
                let params = request.envelope.params.span;
                let params = params.map_or(Bytes::from_static(b"{}"), |span| request.line.slice(span.start..span.end));
                (request.method(), without_token(&params))
            }
            PendingInput::UrlElicitation(params) => ("elicitation/create".to_owned(), params.clone()),
        };
        let params = match (method.as_str(), self.scope) {
            ("elicitation/create", Scope::All) => {
                label::elicitation_params(&elicitation::to_modern(&params), self.connection.server().as_str())
            }
            ("elicitation/create", Scope::One(_)) => elicitation::to_modern(&params),
            _ => params,
        };
        (key.to_owned(), method, params)
    }

    /// Cancels the call if the client does not retry in time.
    fn expire_after_timeout(&self, round: u64) {
        let (myself, answer_timeout) = (self.myself.clone(), self.answer_timeout);
        tokio::spawn(async move {
            tokio::time::sleep(answer_timeout).await;
            let Some(call) = myself.upgrade() else { return };
            let is_forgotten = {
                let state = call.lock();
                !state.is_over && state.round == round && state.waiting.is_none()
            };
            if is_forgotten {
                tracing::debug!(server = %call.connection.server(), "cancelled a parked call: the client did not continue it");
                call.give_up("the client did not continue the call");
            }
        });
    }

    /// Ends the call; a waiting request receives the outcome.
    fn over(&self, outcome: Option<Outcome>) {
        let (waiting, pending_input) = {
            let mut state = self.lock();
            state.is_over = true;
            let pending_input = (std::mem::take(&mut state.sent_requests), std::mem::take(&mut state.unsent_requests));
            (state.waiting.take(), pending_input)
        };
        self.parked_calls.leave(self.number);
        // Dropped without the lock: each dropped request reports to its server that it stays unanswered.
        drop(pending_input);
        let Some(WaitingRequest { to, id, .. }) = waiting else { return };
        match outcome {
            Some(Outcome::Answer(line)) => to.pass_response(&id, &line, scanned_response_id(&line)),
            Some(Outcome::Failure(error)) => to.close_with(&failure(&id, &error)),
            None => to.on_cancelled(&id),
        }
        to.flush();
    }

    fn finish(&self, outcome: Outcome) {
        let mut state = self.lock();
        if state.waiting.is_none() && !state.is_over {
            // Kept until the client retries, if it does.
            state.outcome = Some(outcome);
            return;
        }
        drop(state);
        self.over(Some(outcome));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseHandler for ModernClientCall {
    fn requester(&self) -> Requester {
        Requester { client: self.number, respondent: self.number, is_alone: self.is_alone }
    }

    fn on_held(&self) {
        if let Some(to) = self.current_responder() {
            to.on_held();
        }
    }

    fn on_released(&self) {
        if let Some(to) = self.current_responder() {
            to.on_released();
        }
    }

    fn on_response(&self, _id: &[u8], response: ServerResponse<'_>) {
        let ServerResponse { line, outcome, .. } = response;
        let translated = match outcome {
            Ok(found) => result::to_modern(line, found, &self.method),
            Err(found) => {
                if let Some(visits) = input::from_url_error(line, found) {
                    return self.ask_for_url_elicitations(visits);
                }
                if let Some(answer) = self.missing_capabilities_error(line, found) {
                    return self.finish(Outcome::Answer(answer));
                }
                error::to_modern(line, found, &self.method)
            }
        };
        self.finish(Outcome::Answer(translated.unwrap_or_else(|| line.clone())));
    }

    fn on_failure(&self, _id: &[u8], error: &CallError) {
        self.finish(Outcome::Failure(error.clone()));
    }

    fn on_cancelled(&self, _id: &[u8]) {
        self.over(None);
    }

    fn on_notification(&self, notification: Notification<'_>) {
        let Notification { server, line, envelope, progress } = notification;
        let (to, level, own_token) = {
            let state = self.lock();
            let Some(waiting) = &state.waiting else { return };
            (Arc::clone(&waiting.to), waiting.level, waiting.progress.clone())
        };
        if let Some((_, token_at)) = progress {
            if let Some(token) = own_token {
                to.pass_notification(line, &[Edit { span: token_at, with: &token }]);
            }
            return;
        }
        if logs::is_message(line, envelope) {
            // A modern client receives no log messages it did not request.
            let is_wanted = level.is_some_and(|least| logs::level_of(line, &envelope.params) >= Some(least));
            if is_wanted {
                to.pass_notification(&logs::labelled(self.scope, server, line, envelope), &[]);
            }
            return;
        }
        to.pass_notification(line, &[]);
    }

    fn on_server_request(&self, request: ServerRequest) {
        let method = request.method();
        let params = request.envelope.params.span.map_or(&b"{}"[..], |span| span.of(&request.line));
        let known = ["elicitation/create", "sampling/createMessage", "roots/list"];
        let mut state = self.lock();
        if state.waiting.as_ref().is_some_and(|waiting| waiting.to.client().server_requests.is_closed()) {
            drop(state);
            return request.refuse(code::METHOD_NOT_FOUND, &format!("Method not found: {method}"));
        }
        let is_offered = match &state.waiting {
            Some(waiting) => elicitation::is_offered(&waiting.capabilities, &method, params),
            // The next retry declares its capabilities again; this client has declared some before.
            None => true,
        };
        if !known.contains(&method.as_str()) || !is_offered {
            state.missing_capabilities = Some(elicitation::required_capabilities(&method, params));
            drop(state);
            let why = format!("The client does not support what `{method}` needs");
            return request.refuse(code::METHOD_NOT_FOUND, &why);
        }
        state.last_key += 1;
        let key = format!("{}-{}", method.split('/').next().unwrap_or_default(), state.last_key);
        state.unsent_requests.push_back((key, PendingInput::FromServer(Box::new(request))));
        let is_first = state.unsent_requests.len() == 1;
        drop(state);
        if is_first {
            self.respond_soon();
        }
    }

    fn on_server_request_cancelled(&self, server: &Connection, id: &[u8], _line: &Bytes, _id_at: Span) {
        let is_meant = |pending_input: &PendingInput| match pending_input {
            PendingInput::FromServer(request) => {
                std::ptr::eq(&*request.server, server) && request.id().of(&request.line) == id
            }
            PendingInput::UrlElicitation(_) => false,
        };
        let withdrawn: Vec<_> = {
            let mut state = self.lock();
            let sent_requests =
                state.sent_requests.extract_if(.., |(_, pending_input)| is_meant(pending_input)).collect::<Vec<_>>();
            let at = state.unsent_requests.iter().position(|(_, pending_input)| is_meant(pending_input));
            sent_requests.into_iter().chain(at.and_then(|at| state.unsent_requests.remove(at))).collect()
        };
        for (_, pending_input) in withdrawn {
            if let PendingInput::FromServer(request) = pending_input {
                request.forget();
            }
        }
    }

    fn flush(&self) {
        let to = self.lock().waiting.as_ref().map(|waiting| Arc::clone(&waiting.to));
        if let Some(to) = to {
            to.flush();
        }
    }

    fn is_idle(&self) -> bool {
        let state = self.lock();
        let exclusive_timeout = self.answer_timeout / EXCLUSIVE_TIMEOUT_DIVISOR;
        state.waiting.is_none() && state.parked_at.is_some_and(|since| since.elapsed() > exclusive_timeout)
    }

    fn is_unreachable(&self) -> bool {
        false
    }

    fn catch_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        None
    }
}

impl ModernClientCall {
    /// The responder of the request that waits now, if there is one.
    fn current_responder(&self) -> Option<Arc<Responder>> {
        self.lock().waiting.as_ref().map(|waiting| Arc::clone(&waiting.to))
    }

    /// The error of a call that failed because the client lacks capabilities; it names them.
    fn missing_capabilities_error(&self, line: &Bytes, found: Span) -> Option<Bytes> {
        let missing_capabilities = self.lock().missing_capabilities.take()?;
        let message = protocol::scan::member(line, found, "message").and_then(|message| text::decode(message.of(line)));
        let message = message.unwrap_or_default();
        let data = reply::object([("requiredCapabilities", missing_capabilities)]);
        let mut error = reply::error(b"0", code::MISSING_CAPABILITY, &message, Some(&data));
        error.pop();
        Some(Bytes::from(error))
    }

    /// The server requires URLs to be visited first: the client receives them as input requests, and the call is made
    /// again when it retries.
    fn ask_for_url_elicitations(&self, visits: Vec<(String, &'static str, Bytes)>) {
        let mut state = self.lock();
        let is_offered = state.waiting.as_ref().is_some_and(|waiting| {
            visits.iter().all(|(_, method, params)| elicitation::is_offered(&waiting.capabilities, method, params))
        });
        if !is_offered {
            let waiting = state.waiting.take();
            state.is_over = true;
            drop(state);
            self.parked_calls.leave(self.number);
            let Some(WaitingRequest { to, id, .. }) = waiting else { return };
            let needed = visits.first().map(|(_, method, params)| elicitation::required_capabilities(method, params));
            let data = reply::object([("requiredCapabilities", needed.unwrap_or_else(|| b"{}".to_vec()))]);
            let text = "The server needs the client to open an address, which the client does not support";
            to.close_with(&reply::error(&id, code::MISSING_CAPABILITY, text, Some(&data)));
            return to.flush();
        }
        for (_, _, params) in visits {
            state.last_key += 1;
            let key = format!("elicitation-{}", state.last_key);
            state.unsent_requests.push_back((key, PendingInput::UrlElicitation(params)));
        }
        drop(state);
        self.respond_now();
    }
}

/// The parameters of a server request without its progress token: progress cannot be returned to the server.
fn without_token(params: &Bytes) -> Bytes {
    let whole = protocol::bridge::change::whole(params);
    let Some(meta) = protocol::scan::member(params, whole, "_meta") else { return params.clone() };
    let mut change = protocol::bridge::change::Change::new(params);
    if !change.remove_member(meta, "progressToken") {
        return params.clone();
    }
    change.apply()
}
