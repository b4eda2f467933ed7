//! A modern client at a legacy server: when the server asks something, its call is parked and the client is given an
//! `input_required`. It comes back with the answers and a slip, and the call goes on; or it does not, and the call is
//! cancelled.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use catalog::Scope;
use protocol::era::input::{self, Retry};
use protocol::era::{elicitation, error, label, meta, result};
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{Span, text};
use tokio::time::Instant;
use upstream::{Answered, CallError, Caller, Connection, Notice, Party, Question, Request};

use super::parking::Crossings;
use super::seal::{Binding, digest};
use super::{Crossing, scanned};
use crate::answering::{Answering, failure};
use crate::call::id_of;
use crate::client::next_number;
use crate::level::Level;
use crate::logs::{self, Wish};

/// A parked call keeps its turn at a server that serves one client at a time for this part of the time a client may take
/// to come back. Whoever closes a form has no way to say so, and others wait.
const SHARE_OF_PATIENCE: u32 = 10;
/// What a server asks within this time is asked together.
const ONE_BREATH: Duration = Duration::from_millis(5);

/// What the call is known as at its connection; the ids of the client's requests for it come and go.
const KNOWN_AS: &[u8] = b"0";

/// A call at a legacy server, and the client's request that waits for it, if one does.
pub(super) struct NewerClient {
    /// Stands for the client at the server: its requests come and go, the call stays.
    number: u64,
    crossings: Arc<Crossings>,
    connection: Arc<Connection>,
    method: String,
    binding: Binding,
    scope: Scope,
    /// There is no other client.
    is_alone: bool,
    /// The request as the server understands it.
    request: Bytes,
    /// How long a client may take to come back.
    patience: Duration,
    /// Our number for the call at the server, once it is sent.
    sent_as: AtomicU64,
    /// The log messages it wants, as long as it lives.
    _wish: Option<Wish>,
    state: Mutex<State>,
    myself: std::sync::Weak<Self>,
}

#[derive(Default)]
struct State {
    /// The request that waits.
    waiting: Option<Waiting>,
    /// What the server wants to know and the client has been told, under the keys it was told.
    told: Vec<(String, Asked)>,
    /// What the server wants to know and the client has not been told.
    untold: VecDeque<(String, Asked)>,
    /// What became of the call while nobody waited.
    outcome: Option<Outcome>,
    round: u64,
    /// Since when nobody waits for it here.
    parked_at: Option<Instant>,
    last_key: u64,
    is_over: bool,
    /// What the client would have had to offer for a question that was refused: the JSON of capabilities.
    lacking: Option<Vec<u8>>,
}

/// A request of the client.
struct Waiting {
    to: Arc<Answering>,
    id: Box<[u8]>,
    capabilities: Bytes,
    level: Option<Level>,
    progress: Option<Box<[u8]>>,
}

enum Asked {
    Question(Box<Question>),
    /// The server wants an address to be visited before it is called again.
    Visit(Bytes),
}

enum Outcome {
    Answer(Bytes),
    Failure(CallError),
}

/// Sends a request, or comes back to one.
pub(super) fn send(crossing: &Crossing<'_>) {
    let (client, params) = (crossing.to.client(), &crossing.envelope.params);
    let binding = Binding {
        principal: client.principal().to_string(),
        server: crossing.connection.index(),
        digest: digest(&crossing.method, &crossing.renamed, &crossing.renamed_envelope().params),
    };
    let waiting = Waiting::of(crossing);
    let Retry { responses, state } = input::of_request(crossing.line, params);
    if let Some(slip) = state {
        let found = crossing.aggregator.crossings.find(&slip, &binding);
        let Some((call, round)) = found else { return crossing.to.close_with(&unknown_slip(crossing.id())) };
        return call.resume(waiting, round, crossing.line, responses);
    }
    let renamed = crossing.renamed_envelope();
    let plain = input::without_retry(&crossing.renamed, &renamed);
    let request = meta::to_legacy(&plain, &scanned(&plain));
    let wish = waiting.level.map(|level| Wish::new(&crossing.aggregator.fleet, crossing.connection, level));
    let call = Arc::new_cyclic(|myself| NewerClient {
        number: next_number(),
        crossings: Arc::clone(&crossing.aggregator.crossings),
        connection: Arc::clone(crossing.connection),
        method: crossing.method.clone(),
        binding,
        scope: client.scope(),
        is_alone: client.is_alone(),
        request,
        patience: crossing.aggregator.options.answer_timeout,
        sent_as: AtomicU64::new(0),
        _wish: wish,
        state: Mutex::new(State { waiting: Some(waiting), ..State::default() }),
        myself: myself.clone(),
    });
    if !call.crossings.enter(&call) {
        let text = "Too many calls are under way";
        return crossing.to.close_with(&reply::error(crossing.id(), code::INTERNAL_ERROR, text, None));
    }
    call.forward();
}

fn unknown_slip(id: &[u8]) -> Vec<u8> {
    let text =
        "Invalid params: `requestState` is unknown, expired, or for another request; send the request without it";
    reply::error(id, code::INVALID_PARAMS, text, None)
}

impl Waiting {
    fn of(crossing: &Crossing<'_>) -> Self {
        let said = meta::read(crossing.line, &crossing.envelope.params);
        let line = crossing.line;
        let level =
            said.log_level.and_then(|level| text::decode(level.of(line))).and_then(|level| Level::named(&level));
        Self {
            to: Arc::clone(crossing.to),
            id: Box::from(crossing.id()),
            capabilities: said.capabilities.map_or(Bytes::from_static(b"{}"), |span| line.slice(span.start..span.end)),
            level,
            progress: crossing.envelope.params.wanted_progress.map(|token| Box::from(token.of(line))),
        }
    }
}

impl NewerClient {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// On whose behalf it was made.
    pub(super) fn principal(&self) -> &str {
        &self.binding.principal
    }

    /// Whether a request of `client`, under `id` if given, waits for this call.
    pub(super) fn is_for(&self, client: u64, id: Option<&[u8]>) -> bool {
        let state = self.lock();
        let waiting = state.waiting.as_ref();
        waiting.is_some_and(|waiting| waiting.to.client().number() == client && id.is_none_or(|id| *id == *waiting.id))
    }

    /// Gives the call up because the client says so: the server hears it in the client's own words.
    pub(super) fn cancel(&self, notice: &Bytes, id_at: Span) {
        let translated = meta::to_legacy(notice, &scanned(notice));
        let id_at = scanned(&translated).params.request_id.unwrap_or(id_at);
        if !self.connection.cancel(self.number, KNOWN_AS, &translated, id_at) {
            self.over(None);
        }
    }

    /// Gives the call up.
    pub(super) fn give_up(&self, why: &str) {
        if !self.connection.abandon(self.sent_as.load(Ordering::Relaxed), why) {
            self.over(None);
        }
    }

    fn forward(self: Arc<Self>) {
        let envelope = scanned(&self.request);
        let progress = envelope.params.wanted_progress;
        let request =
            Request { line: &self.request, id: id_of(&envelope), known_as: KNOWN_AS, renamed: None, progress };
        let caller = Arc::clone(&self) as Arc<dyn Caller>;
        match self.connection.forward(request, &caller) {
            Ok(number) => self.sent_as.store(number, Ordering::Relaxed),
            Err(error) => self.failed(KNOWN_AS, &error),
        }
        self.connection.flush();
    }

    /// A client has come back, with what it was asked.
    fn resume(&self, waiting: Waiting, round: u64, line: &Bytes, responses: Option<Span>) {
        let mut state = self.lock();
        if state.is_over || state.waiting.is_some() || state.round != round {
            drop(state);
            return waiting.to.close_with(&unknown_slip(&waiting.id));
        }
        let told = std::mem::take(&mut state.told);
        let (mut answered, mut must_call_again) = (Vec::new(), false);
        for (key, asked) in told {
            let response = responses.and_then(|responses| input::response(line, responses, &key));
            match (asked, response) {
                (Asked::Question(question), Some(response)) => answered.push((question, response)),
                (Asked::Visit(_), Some(_)) => must_call_again = true,
                // Still open: it is told again.
                (asked, None) => state.untold.push_back((key, asked)),
            }
        }
        state.waiting = Some(waiting);
        drop(state);
        for (question, response) in answered {
            question.answer_with(response.of(line));
        }
        if must_call_again {
            if let Some(myself) = self.myself.upgrade() {
                myself.forward();
            }
            return;
        }
        self.tell();
    }

    /// Tells the client what there is to tell: what became of the call, or what the server wants to know.
    fn tell(&self) {
        let mut state = self.lock();
        if state.waiting.is_none() {
            return;
        }
        if let Some(outcome) = state.outcome.take() {
            drop(state);
            return self.over(Some(outcome));
        }
        if state.untold.is_empty() {
            return;
        }
        let Some(Waiting { to, id, .. }) = state.waiting.take() else { return };
        let untold = std::mem::take(&mut state.untold);
        state.told.extend(untold);
        state.round += 1;
        state.parked_at = Some(Instant::now());
        let round = state.round;
        let requests: Vec<_> = state.told.iter().map(|(key, asked)| self.put(key, asked)).collect();
        drop(state);
        let slip = self.crossings.seal(self.number, round, self.patience, &self.binding);
        let requests: Vec<(String, &str, Bytes)> =
            requests.iter().map(|(key, method, params)| (key.clone(), method.as_str(), params.clone())).collect();
        to.close_with(&reply::result(&id, &input::required(&requests, &slip)));
        to.flush();
        self.expire_after_patience(round);
    }

    /// Servers may ask several things in one breath: the client is told of all of them at once.
    fn tell_soon(&self) {
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ONE_BREATH).await;
            if let Some(call) = myself.upgrade() {
                call.tell();
            }
        });
    }

    fn put(&self, key: &str, asked: &Asked) -> (String, String, Bytes) {
        let (method, params) = match asked {
            Asked::Question(question) => {
                let params = question.envelope.params.span;
                let params = params.map_or(Bytes::from_static(b"{}"), |span| question.line.slice(span.start..span.end));
                (question.method(), without_token(&params))
            }
            Asked::Visit(params) => ("elicitation/create".to_owned(), params.clone()),
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

    /// A client that does not come back has given the call up.
    fn expire_after_patience(&self, round: u64) {
        let (myself, patience) = (self.myself.clone(), self.patience);
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            let Some(call) = myself.upgrade() else { return };
            let is_forgotten = {
                let state = call.lock();
                !state.is_over && state.round == round && state.waiting.is_none()
            };
            if is_forgotten {
                tracing::debug!(server = %call.connection.server(), "a parked call was not come back to; it is cancelled");
                call.give_up("nobody came back with the answer");
            }
        });
    }

    /// The call is over; whoever waits is told how.
    fn over(&self, outcome: Option<Outcome>) {
        let (waiting, asked) = {
            let mut state = self.lock();
            state.is_over = true;
            let asked = (std::mem::take(&mut state.told), std::mem::take(&mut state.untold));
            (state.waiting.take(), asked)
        };
        self.crossings.leave(self.number);
        // Dropped without the lock: each question tells its server that nobody answers.
        drop(asked);
        let Some(Waiting { to, id, .. }) = waiting else { return };
        match outcome {
            Some(Outcome::Answer(line)) => to.pass_answer(&id, &line, id_of(&scanned(&line))),
            Some(Outcome::Failure(error)) => to.close_with(&failure(&id, &error)),
            None => to.cancelled(&id),
        }
        to.flush();
    }

    fn finish(&self, outcome: Outcome) {
        let mut state = self.lock();
        if state.waiting.is_none() && !state.is_over {
            // Kept for when the client comes back, if it does.
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

impl Caller for NewerClient {
    fn party(&self) -> Party {
        Party { client: self.number, asker: self.number, is_alone: self.is_alone }
    }

    fn held(&self) {
        if let Some(to) = self.who_waits() {
            to.held();
        }
    }

    fn released(&self) {
        if let Some(to) = self.who_waits() {
            to.released();
        }
    }

    fn answered(&self, _id: &[u8], answer: Answered<'_>) {
        let Answered { line, outcome, .. } = answer;
        let translated = match outcome {
            Ok(found) => result::to_modern(line, found, &self.method),
            Err(found) => {
                if let Some(visits) = input::from_url_error(line, found) {
                    return self.ask_for_visits(visits);
                }
                if let Some(answer) = self.lacked(line, found) {
                    return self.finish(Outcome::Answer(answer));
                }
                error::to_modern(line, found, &self.method)
            }
        };
        self.finish(Outcome::Answer(translated.unwrap_or_else(|| line.clone())));
    }

    fn failed(&self, _id: &[u8], error: &CallError) {
        self.finish(Outcome::Failure(error.clone()));
    }

    fn cancelled(&self, _id: &[u8]) {
        self.over(None);
    }

    fn noticed(&self, notice: Notice<'_>) {
        let Notice { server, line, envelope, progress } = notice;
        let (to, level, own_token) = {
            let state = self.lock();
            let Some(waiting) = &state.waiting else { return };
            (Arc::clone(&waiting.to), waiting.level, waiting.progress.clone())
        };
        if let Some((_, token_at)) = progress {
            if let Some(token) = own_token {
                to.pass_aside(line, &[Edit { span: token_at, with: &token }]);
            }
            return;
        }
        if logs::is_message(line, envelope) {
            // A modern client hears nothing it did not ask for.
            let is_wanted = level.is_some_and(|least| logs::level_of(line, &envelope.params) >= Some(least));
            if is_wanted {
                to.pass_aside(&logs::labelled(self.scope, server, line, envelope), &[]);
            }
            return;
        }
        to.pass_aside(line, &[]);
    }

    fn asked(&self, question: Question) {
        let method = question.method();
        let params = question.envelope.params.span.map_or(&b"{}"[..], |span| span.of(&question.line));
        let known = ["elicitation/create", "sampling/createMessage", "roots/list"];
        let mut state = self.lock();
        if state.waiting.as_ref().is_some_and(|waiting| waiting.to.client().questions.is_closed()) {
            drop(state);
            return question.refuse(code::METHOD_NOT_FOUND, &format!("Method not found: {method}"));
        }
        let is_offered = match &state.waiting {
            Some(waiting) => elicitation::is_offered(&waiting.capabilities, &method, params),
            // Whoever comes back says anew what it offers; it has offered to answer something before.
            None => true,
        };
        if !known.contains(&method.as_str()) || !is_offered {
            state.lacking = Some(elicitation::required_capabilities(&method, params));
            drop(state);
            let why = format!("The client does not offer what `{method}` needs");
            return question.refuse(code::METHOD_NOT_FOUND, &why);
        }
        state.last_key += 1;
        let key = format!("{}-{}", method.split('/').next().unwrap_or_default(), state.last_key);
        state.untold.push_back((key, Asked::Question(Box::new(question))));
        let is_first = state.untold.len() == 1;
        drop(state);
        if is_first {
            self.tell_soon();
        }
    }

    fn withdrawn(&self, server: &Connection, id: &[u8], _line: &Bytes, _id_at: Span) {
        let is_meant = |asked: &Asked| match asked {
            Asked::Question(question) => {
                std::ptr::eq(&*question.server, server) && question.id().of(&question.line) == id
            }
            Asked::Visit(_) => false,
        };
        let withdrawn: Vec<_> = {
            let mut state = self.lock();
            let told = state.told.extract_if(.., |(_, asked)| is_meant(asked)).collect::<Vec<_>>();
            let at = state.untold.iter().position(|(_, asked)| is_meant(asked));
            told.into_iter().chain(at.and_then(|at| state.untold.remove(at))).collect()
        };
        for (_, asked) in withdrawn {
            if let Asked::Question(question) = asked {
                question.forget();
            }
        }
    }

    fn flush(&self) {
        let to = self.lock().waiting.as_ref().map(|waiting| Arc::clone(&waiting.to));
        if let Some(to) = to {
            to.flush();
        }
    }

    fn is_away(&self) -> bool {
        let state = self.lock();
        let turn = self.patience / SHARE_OF_PATIENCE;
        state.waiting.is_none() && state.parked_at.is_some_and(|since| since.elapsed() > turn)
    }

    fn is_deserted(&self) -> bool {
        false
    }

    fn catching_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        None
    }
}

impl NewerClient {
    /// The one who waits for the answer now, if anybody does.
    fn who_waits(&self) -> Option<Arc<Answering>> {
        self.lock().waiting.as_ref().map(|waiting| Arc::clone(&waiting.to))
    }

    /// The error of a call that failed because the client does not offer enough: it should know that.
    fn lacked(&self, line: &Bytes, found: Span) -> Option<Bytes> {
        let lacking = self.lock().lacking.take()?;
        let said = protocol::scan::member(line, found, "message").and_then(|said| text::decode(said.of(line)));
        let said = said.unwrap_or_default();
        let data = reply::object([("requiredCapabilities", lacking)]);
        let mut error = reply::error(b"0", code::MISSING_CAPABILITY, &said, Some(&data));
        error.pop();
        Some(Bytes::from(error))
    }

    /// The server wants addresses visited first: the client is asked, and the call is made again when it comes back.
    fn ask_for_visits(&self, visits: Vec<(String, &'static str, Bytes)>) {
        let mut state = self.lock();
        let is_offered = state.waiting.as_ref().is_some_and(|waiting| {
            visits.iter().all(|(_, method, params)| elicitation::is_offered(&waiting.capabilities, method, params))
        });
        if !is_offered {
            let waiting = state.waiting.take();
            state.is_over = true;
            drop(state);
            self.crossings.leave(self.number);
            let Some(Waiting { to, id, .. }) = waiting else { return };
            let needed = visits.first().map(|(_, method, params)| elicitation::required_capabilities(method, params));
            let data = reply::object([("requiredCapabilities", needed.unwrap_or_else(|| b"{}".to_vec()))]);
            let text = "The server needs the client to visit an address, which the client does not offer";
            to.close_with(&reply::error(&id, code::MISSING_CAPABILITY, text, Some(&data)));
            return to.flush();
        }
        for (_, _, params) in visits {
            state.last_key += 1;
            let key = format!("elicitation-{}", state.last_key);
            state.untold.push_back((key, Asked::Visit(params)));
        }
        drop(state);
        self.tell();
    }
}

/// A question's parameters without the token for progress: there is no way back for that.
fn without_token(params: &Bytes) -> Bytes {
    let whole = protocol::era::change::whole(params);
    let Some(meta) = protocol::scan::member(params, whole, "_meta") else { return params.clone() };
    let mut change = protocol::era::change::Change::new(params);
    if !change.remove_member(meta, "progressToken") {
        return params.clone();
    }
    change.apply()
}
