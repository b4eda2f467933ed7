//! What servers want to know of a client: put to it under an id of ours, answered under the server's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use catalog::Scope;
use protocol::era::{elicitation, label};
use protocol::reply::{self, code};
use protocol::splice::{Edit, in_order};
use protocol::{Envelope, Params, Span};
use tokio::sync::oneshot;
use upstream::{Connection, Question};

use crate::client::Client;
use crate::way::{Message, Way, What};

/// So many questions may wait for one client.
const MOST_OPEN: usize = 1000;
/// So many finished elicitations are remembered, for the word that they are.
const MOST_REMEMBERED: usize = 100;
/// Bytes of the id of an elicitation that is remembered.
const LONGEST_ELICITATION_ID: usize = 1 << 10;

/// The questions one client has been asked.
#[derive(Default)]
pub(crate) struct Questions(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    open: HashMap<u64, Asked>,
    /// Questions that came before the client was ready.
    early: Vec<Question>,
    /// Nothing is put to this client.
    is_closed: bool,
    /// Nothing is put to this client that is about none of its requests.
    is_closed_to_strangers: bool,
    /// Elicitations out of band that this client was asked for, with the server that did.
    elicitations: Vec<(usize, String)>,
}

struct Asked {
    by: By,
    /// The server's progress token, if it wants progress.
    progress: Option<Box<[u8]>>,
    way: Arc<dyn Way>,
}

enum By {
    Server(Box<Question>),
    /// We ask on behalf of a server that cannot.
    Ourselves(oneshot::Sender<Result<Bytes, Bytes>>),
}

impl Questions {
    /// Puts a server's question to the client, if it is one it can answer.
    pub(crate) fn put(&self, client: &Arc<Client>, way: &Arc<dyn Way>, question: Question) {
        let method = question.method();
        if self.lock().is_closed {
            return question.refuse(code::METHOD_NOT_FOUND, &format!("Method not found: {method}"));
        }
        let params = question.envelope.params;
        let whole = params.span.map_or(&b"{}"[..], |span| span.of(&question.line));
        if !elicitation::is_offered(&client.introduction().capabilities, &method, whole) {
            let why = format!("The client does not offer what `{method}` needs");
            return question.refuse(code::METHOD_NOT_FOUND, &why);
        }
        let line = labelled(client, &question, &method);
        let Ok(Envelope { kind: protocol::Kind::Request { id, .. }, params }) = Envelope::scan(&line) else {
            return question.refuse(code::INTERNAL_ERROR, "The question could not be passed on");
        };
        let mut state = self.lock();
        if state.open.len() >= MOST_OPEN {
            drop(state);
            return question.refuse(code::INTERNAL_ERROR, "The client has too many questions to answer already");
        }
        if method == "elicitation/create"
            && let Some(params) = question.envelope.params.span
        {
            state.remember_elicitation(question.server.index(), &question.line, params);
        }
        state.last += 1;
        let number = state.last;
        let progress = params.wanted_progress.map(|token| Box::from(token.of(&line)));
        state.open.insert(number, Asked { by: By::Server(Box::new(question)), progress, way: Arc::clone(way) });
        drop(state);
        let digits = number.to_string();
        let mut edits = [Edit { span: id, with: digits.as_bytes() }; 2];
        let mut count = 1;
        if let Some(span) = params.wanted_progress {
            edits[1] = Edit { span, with: digits.as_bytes() };
            count = 2;
        }
        way.send(What::Aside, Message::Spliced { line: &line, edits: in_order(&mut edits[..count]) });
        way.flush();
    }

    /// Puts a question that came before the client was ready, when it is.
    pub(crate) fn put_when_ready(&self, client: &Arc<Client>, question: Question) {
        {
            let mut state = self.lock();
            if state.is_closed_to_strangers {
                drop(state);
                return question.refuse(code::METHOD_NOT_FOUND, "The client can be asked only about its own requests");
            }
            if !client.is_initialized() && !state.is_closed && state.early.len() < MOST_OPEN {
                return state.early.push(question);
            }
        }
        self.put(client, client.way(), question);
    }

    /// The client is ready.
    pub(crate) fn put_waiting(&self, client: &Arc<Client>) {
        let early = std::mem::take(&mut self.lock().early);
        for question in early {
            self.put(client, client.way(), question);
        }
    }

    /// Asks the client something on behalf of a server that cannot ask itself.
    pub(crate) fn ask(client: &Arc<Client>, way: &Arc<dyn Way>, method: &str, params: &[u8]) -> Inquiry {
        let (sender, answer) = oneshot::channel();
        let number = {
            let mut state = client.questions.lock();
            state.last += 1;
            let asked = Asked { by: By::Ourselves(sender), progress: None, way: Arc::clone(way) };
            let number = state.last;
            if state.is_closed {
                return Inquiry { client: Arc::clone(client), number, answer };
            }
            state.open.insert(number, asked);
            number
        };
        way.send(What::Aside, Message::Own(&reply::request(number, method, Some(params))));
        way.flush();
        Inquiry { client: Arc::clone(client), number, answer }
    }

    /// The client answers, under an id that stands at `id_at`.
    pub(crate) fn answered(&self, line: &Bytes, id_at: Span, outcome: Result<Span, Span>) {
        let Some(asked) = number(id_at.of(line)).and_then(|number| self.lock().open.remove(&number)) else {
            return tracing::debug!("dropped an answer of the client to nothing that was asked");
        };
        match asked.by {
            By::Server(question) => question.answer(line, id_at),
            By::Ourselves(asker) => {
                let taken = |span: Span| line.slice(span.start..span.end);
                // Nobody waits any more for the answer to a question of a request that was given up.
                drop(asker.send(outcome.map(taken).map_err(taken)));
            }
        }
    }

    /// The client tells how far it has come with a question.
    pub(crate) fn progressed(&self, line: &Bytes, params: &Params) {
        let Some(token_at) = params.progress_token else { return };
        let state = self.lock();
        let Some(asked) = number(token_at.of(line)).and_then(|number| state.open.get(&number)) else { return };
        let (By::Server(question), Some(token)) = (&asked.by, &asked.progress) else { return };
        let mut message = Vec::with_capacity(line.len());
        Message::Spliced { line, edits: &[Edit { span: token_at, with: token }] }.write_to(&mut message);
        question.server.pass(&Bytes::from(message));
    }

    /// A server takes back the question it asked under `id`.
    pub(crate) fn withdraw(&self, server: &Connection, id: &[u8], line: &Bytes, id_at: Span) {
        let is_meant =
            |question: &Question| std::ptr::eq(&*question.server, server) && question.id().of(&question.line) == id;
        let mut state = self.lock();
        let number = state.open.iter().find_map(|(&number, asked)| match &asked.by {
            By::Server(question) if is_meant(question) => Some(number),
            By::Server(_) | By::Ourselves(_) => None,
        });
        if let Some(at) = state.early.iter().position(is_meant) {
            return state.early.remove(at).forget();
        }
        let Some((number, asked)) = number.and_then(|number| Some((number, state.open.remove(&number)?))) else {
            return;
        };
        drop(state);
        let digits = number.to_string();
        asked.way.send(What::Aside, Message::Spliced { line, edits: &[Edit { span: id_at, with: digits.as_bytes() }] });
        asked.way.flush();
        if let By::Server(question) = asked.by {
            question.forget();
        }
    }

    /// The client is asked in an answer for the elicitation with these parameters; whether it can be asked at all.
    pub(crate) fn note_elicitation(&self, server: &Connection, line: &[u8], params: Span) -> bool {
        let mut state = self.lock();
        if !state.is_closed {
            state.remember_elicitation(server.index(), line, params);
        }
        !state.is_closed
    }

    /// Whether this client was asked for the elicitation `id` by that server; once.
    pub(crate) fn knows_elicitation(&self, server: usize, id: &str) -> bool {
        let mut state = self.lock();
        let known = state.elicitations.iter().position(|(by, known)| *by == server && known == id);
        known.map(|at| state.elicitations.remove(at)).is_some()
    }

    /// From now on nothing is put to the client, and nothing it was asked will be answered.
    pub(crate) fn close(&self) {
        let (open, early) = {
            let mut state = self.lock();
            state.is_closed = true;
            (std::mem::take(&mut state.open), std::mem::take(&mut state.early))
        };
        // Dropped without the lock: each tells its server.
        drop((open, early));
    }

    /// Whether nothing is put to the client.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// From now on nothing is put to the client that is about none of its requests.
    pub(crate) fn close_to_strangers(&self) {
        let early = {
            let mut state = self.lock();
            state.is_closed_to_strangers = true;
            std::mem::take(&mut state.early)
        };
        for question in early {
            question.refuse(code::METHOD_NOT_FOUND, "The client can be asked only about its own requests");
        }
    }

    /// The client is gone: nothing will be answered.
    pub(crate) fn give_up(&self) {
        let state = std::mem::take(&mut *self.lock());
        // Dropped without the lock: each tells its server.
        drop(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question of our own. If it is dropped before it is answered, it is taken back.
pub(crate) struct Inquiry {
    client: Arc<Client>,
    number: u64,
    answer: oneshot::Receiver<Result<Bytes, Bytes>>,
}

impl Inquiry {
    /// The `result`, or the `error`, that the client answers with; `None` if it is gone.
    pub(crate) async fn answer(mut self) -> Option<Result<Bytes, Bytes>> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        let Some(asked) = self.client.questions.lock().open.remove(&self.number) else { return };
        let why = reply::string("the request it was for is over");
        let params = reply::object([("requestId", self.number.to_string().into_bytes()), ("reason", why)]);
        let notice = reply::notification("notifications/cancelled", Some(&params));
        asked.way.send(What::Aside, Message::Own(&notice));
        asked.way.flush();
    }
}

impl State {
    /// For an elicitation out of band: the server will say when it is over.
    fn remember_elicitation(&mut self, server: usize, line: &[u8], params: Span) {
        let id = protocol::scan::member(line, params, "elicitationId");
        let id = id.filter(|id| id.end - id.start <= LONGEST_ELICITATION_ID);
        let Some(id) = id.and_then(|id| protocol::text::decode(id.of(line))) else { return };
        if self.elicitations.len() >= MOST_REMEMBERED {
            self.elicitations.remove(0);
        }
        self.elicitations.push((server, id.into_owned()));
    }
}

/// A person must see who asks, unless only one server can.
fn labelled(client: &Client, question: &Question, method: &str) -> Bytes {
    match client.scope() {
        Scope::All if method == "elicitation/create" => {
            label::elicitation(&question.line, &question.envelope.params, question.server.server().as_str())
        }
        Scope::All | Scope::One(_) => question.line.clone(),
    }
}

/// The number in an id of ours, as the client gives it back.
fn number(token: &[u8]) -> Option<u64> {
    std::str::from_utf8(token).ok()?.trim_matches('"').parse().ok()
}
