//! Where the answers to a client's requests go, and what servers say about them before.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use catalog::Scope;
use protocol::era::change::Change;
use protocol::era::{input, label};
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{Envelope, Kind, Span, text};
use upstream::{Answered, CallError, Caller, Connection, Notice, Party, Question};

use crate::call::id_of;
use crate::client::Client;
use crate::crossing::scanned;
use crate::ledger::{Account, End};
use crate::logs;
use crate::way::{Message, Way, What};

/// A client, and the way its answers take: one for all its requests (stdio), or one for each (HTTP).
pub struct Answering {
    client: Arc<Client>,
    way: Arc<dyn Way>,
    /// The one request this is for is entered there.
    account: Option<Arc<dyn Account>>,
}

impl Answering {
    /// Answers to `client` go this `way`.
    pub fn to(client: &Arc<Client>, way: Arc<dyn Way>) -> Arc<Self> {
        Arc::new(Self { client: Arc::clone(client), way, account: None })
    }

    /// The same for one request, which is entered in `account`.
    pub(crate) fn accounted(&self, account: Arc<dyn Account>) -> Arc<Self> {
        Arc::new(Self { client: Arc::clone(&self.client), way: Arc::clone(&self.way), account: Some(account) })
    }

    /// Where the one request this is for is entered.
    pub(crate) fn account(&self) -> Option<&Arc<dyn Account>> {
        self.account.as_ref()
    }

    /// Who asked.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The way.
    pub fn way(&self) -> &Arc<dyn Way> {
        &self.way
    }

    /// Answers a request that was not counted as open.
    pub fn say(&self, answer: &[u8]) {
        if let Some(account) = &self.account {
            account.ended(End::Ours(answer));
        }
        self.put(answer);
    }

    fn put(&self, answer: &[u8]) {
        self.way.send(What::Answer, Message::Own(answer));
    }

    /// The same, in stretches.
    pub fn say_parts(&self, parts: &[Bytes]) {
        self.way.send(What::Answer, Message::Parts(parts));
    }

    /// Answers a request that was counted as open.
    pub fn close_with(&self, answer: &[u8]) {
        self.say(answer);
        self.client.request_closed();
    }

    /// The answer of a server, with the client's own id put back.
    pub fn pass_answer(&self, id: &[u8], line: &Bytes, id_at: Span) {
        if let Some(account) = &self.account
            && let Ok(Envelope { kind: Kind::Response { outcome, .. }, .. }) = Envelope::scan(line)
        {
            account.ended(End::Answered(line, outcome));
        }
        self.put_back(id, line, id_at);
    }

    fn put_back(&self, id: &[u8], line: &Bytes, id_at: Span) {
        self.way.send(What::Answer, Message::Spliced { line, edits: &[Edit { span: id_at, with: id }] });
        self.client.request_closed();
    }

    /// Something before the answer. A client that does not keep up, or cannot be told, misses it.
    pub fn pass_aside(&self, line: &Bytes, edits: &[Edit<'_>]) {
        if self.way.carries_asides() && !self.way.is_full() {
            self.way.send(What::Aside, Message::Spliced { line, edits });
        }
    }

    /// A request that was not counted as open is given up. If that was not the client's wish, it waits for an answer.
    pub(crate) fn give_up(&self, id: &[u8]) {
        if let Some(account) = &self.account {
            account.ended(End::Cancelled);
            if let Some(verdict) = account.verdict() {
                self.put(&verdict.answer(id));
                return self.flush();
            }
        }
        self.way.give_up();
    }

    /// Lets out what was said.
    pub fn flush(&self) {
        self.way.flush();
    }

    /// An error that wants addresses visited first puts a question to a person: it is remembered who was asked, for the word
    /// that it is done, and the person must see who asks.
    fn asking_for_visits(&self, server: &Connection, line: &Bytes, error: Span) -> Option<Bytes> {
        let mut change = Change::new(line);
        for visit in input::visits(line, error) {
            if self.client.questions.note_elicitation(server, line, visit) && self.client.scope() == Scope::All {
                let labelled = label::elicitation_params(&line.slice(visit.start..visit.end), server.server().as_str());
                change.replace(visit, labelled);
            }
        }
        (!change.is_empty()).then(|| change.apply())
    }

    /// The way a question about one of these requests takes, if there is one.
    pub(crate) fn way_for_questions(&self) -> Option<&Arc<dyn Way>> {
        let is_fit = |way: &&Arc<dyn Way>| way.carries_asides() && !way.is_gone() && !way.is_full();
        [&self.way, self.client.way()].into_iter().find(is_fit)
    }
}

impl Caller for Answering {
    fn party(&self) -> Party {
        self.client.party()
    }

    fn held(&self) {
        if let Some(account) = &self.account {
            account.held();
        }
    }

    fn released(&self) {
        if let Some(account) = &self.account {
            account.released();
        }
    }

    fn answered(&self, id: &[u8], answer: Answered<'_>) {
        let Answered { server, line, id_at, outcome } = answer;
        if let Some(account) = &self.account {
            account.ended(End::Answered(line, outcome));
        }
        match outcome.err().and_then(|error| self.asking_for_visits(server, line, error)) {
            Some(line) => self.put_back(id, &line, id_of(&scanned(&line))),
            None => self.put_back(id, line, id_at),
        }
    }

    fn failed(&self, id: &[u8], error: &CallError) {
        if let Some(account) = &self.account {
            account.ended(End::Failed(error));
        }
        self.put(&failure(id, error));
        self.client.request_closed();
    }

    fn cancelled(&self, id: &[u8]) {
        self.give_up(id);
        self.client.request_closed();
    }

    fn noticed(&self, notice: Notice<'_>) {
        let Notice { server, line, envelope, progress } = notice;
        if let Some((token, token_at)) = progress {
            return self.pass_aside(line, &[Edit { span: token_at, with: token }]);
        }
        if logs::is_message(line, envelope) {
            if let Some(line) = logs::for_client(&self.client, server, line, envelope) {
                self.pass_aside(&line, &[]);
            }
            return;
        }
        self.pass_aside(line, &[]);
    }

    fn asked(&self, question: Question) {
        match self.way_for_questions() {
            Some(way) => self.client.questions.put(&self.client, way, question),
            None => question.refuse(code::INTERNAL_ERROR, "The client cannot be asked now"),
        }
    }

    fn withdrawn(&self, server: &Connection, id: &[u8], line: &Bytes, id_at: Span) {
        self.client.questions.withdraw(server, id, line, id_at);
    }

    fn flush(&self) {
        self.way.flush();
    }

    fn is_away(&self) -> bool {
        self.way.is_away()
    }

    fn catching_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        // Where several share a server, one that reads slowly must not hold up the others: its way is bounded instead.
        if self.client.is_alone() { self.way.catching_up() } else { None }
    }
}

/// A call that got no answer, as the JSON-RPC error its client sees.
pub fn failure(id: &[u8], error: &CallError) -> Vec<u8> {
    let retry: &[u8] = if error.is_safe_to_retry() { b"true" } else { b"false" };
    let data = reply::object([
        ("server", reply::string(error.server().as_ref())),
        ("reason", reply::string(error.reason())),
        ("safeToRetry", retry.to_vec()),
    ]);
    reply::error(id, code::INTERNAL_ERROR, &error.to_string(), Some(&data))
}

/// The text of the method of a message.
pub(crate) fn method_of(line: &[u8], method: Span) -> String {
    text::decode(method.of(line)).unwrap_or_default().into_owned()
}
