//! Questions of the server: who is to answer them, and the way back.

use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use protocol::envelope::Envelope;
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{Span, text};

use super::withdrawal::cancellation;
use super::{Connection, remember};
use crate::caller::{Caller, Question};
use crate::limits::{Limit, OverLimit};
use crate::open::Whose;

/// So many questions may be open at once. A server that asks more does not wait for answers.
const MOST_QUESTIONS: usize = 1000;
/// Bytes of a server's id. It is kept, compared and sent back.
const LONGEST_ID: usize = 1 << 10;

/// How often it is looked whether somebody who was asked is still there, and for how long in a row they may not be.
const LOOK: Duration = Duration::from_secs(5);
const DESERTED_AFTER: Duration = Duration::from_secs(60);

/// Ends the calls that a question is about if whoever was asked has gone for good: a server that waits for an answer would
/// be at them for ever. One who only waits for a result may come back for it.
async fn watch_over(server: Weak<Connection>, id: Box<[u8]>, caller: Weak<dyn Caller>) {
    let mut missed = Duration::ZERO;
    loop {
        tokio::time::sleep(LOOK).await;
        let (Some(server), Some(caller)) = (server.upgrade(), caller.upgrade()) else { return };
        if !server.is_asking(&id, &caller) {
            return;
        }
        missed = if caller.is_deserted() { missed + LOOK } else { Duration::ZERO };
        if missed >= DESERTED_AFTER {
            return server.dismiss_calls_of(&caller);
        }
    }
}

impl Connection {
    /// A request of the server's: a sign of life is given at once, anything else is for whoever it is about.
    pub(super) fn asked(
        self: &Arc<Self>,
        line: Bytes,
        id: Span,
        method: Span,
        envelope: Envelope,
        about: Option<u64>,
        callers: &mut Vec<Arc<dyn Caller>>,
    ) {
        if id.end - id.start > LONGEST_ID {
            if self.note_too_large() {
                tracing::warn!(server = %self.server(), length = id.end - id.start, most = LONGEST_ID, "ignored a request whose id is too long, and ignores further ones");
            }
            return;
        }
        if text::token_is(method.of(&line), "ping") {
            return self.say(&reply::result(id.of(&line), b"{}"));
        }
        if let Err(over) = self.reserve_request(line.len()) {
            if self.note_too_large() {
                tracing::warn!(server = %self.server(), length = line.len(), %over, "refused a request of the server, and refuses further ones");
            }
            let text = format!("server `{}` asks too much at once: {over}", self.server());
            return self.say(&reply::error(id.of(&line), code::INTERNAL_ERROR, &text, None));
        }
        let question = Question::new(Arc::clone(self), line, envelope);
        let whose = self.lock().whose(about);
        match whose {
            Whose::Caller(caller) => {
                if !self.remember_question(&question, &caller) {
                    return question
                        .refuse(code::INVALID_REQUEST, "Too many questions, or one under that id, are open");
                }
                remember(callers, Arc::clone(&caller));
                let id = Box::from(question.id().of(&question.line));
                // Whoever is alone is there, or everything ends.
                if !caller.party().is_alone {
                    tokio::spawn(watch_over(Arc::downgrade(self), id, Arc::downgrade(&caller)));
                }
                caller.asked(question);
            }
            Whose::Unclear => {
                tracing::warn!(server = %self.server(), method = %question.method(), "refused a question that could be for several clients; it serves one at a time from now on");
                question.refuse(
                    code::INTERNAL_ERROR,
                    "Several clients have requests open, so it is unclear who is asked; try again",
                );
            }
            Whose::Nobodys => match self.watcher.upgrade() {
                Some(watcher) => watcher.asked(self.index, question),
                None => drop(question),
            },
        }
    }

    /// Room for one more request of the server, until somebody has answered it.
    fn reserve_request(&self, bytes: usize) -> Result<(), OverLimit> {
        let all = self.open_request_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let checked = self.limits.check(Limit::Requests, "with it, its requests that wait for answers are", all);
        checked.inspect_err(|_| self.release_request(bytes))
    }

    /// A request of the server is answered.
    pub(crate) fn release_request(&self, bytes: usize) {
        self.open_request_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Who alone has requests open here, if it is only one.
    pub fn only_caller(&self) -> Option<Arc<dyn Caller>> {
        match self.lock().only_caller() {
            Whose::Caller(caller) => Some(caller),
            Whose::Nobodys | Whose::Unclear => None,
        }
    }

    /// Whether what the server asked under `id` is still for that caller to answer.
    fn is_asking(&self, id: &[u8], caller: &Arc<dyn Caller>) -> bool {
        let questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        questions.get(id).is_some_and(|asked| std::ptr::addr_eq(Arc::as_ptr(asked), Arc::as_ptr(caller)))
    }

    /// Remembers whom a question was put to, so that it can be withdrawn.
    pub fn remember_question(&self, question: &Question, caller: &Arc<dyn Caller>) -> bool {
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        if questions.len() >= MOST_QUESTIONS {
            return false;
        }
        match questions.entry(Box::from(question.id().of(&question.line))) {
            Entry::Vacant(free) => {
                free.insert(Arc::clone(caller));
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// The server takes back the question it asked under `id`.
    pub(super) fn withdraw_question(&self, id: &[u8], line: &Bytes, id_at: Span) -> bool {
        let Some(caller) = self.questions.lock().unwrap_or_else(PoisonError::into_inner).remove(id) else {
            return false;
        };
        caller.withdrawn(self, id, line, id_at);
        caller.flush();
        true
    }

    /// The server is gone, so nobody waits for answers any more.
    pub(super) fn withdraw_questions(&self) {
        let questions = std::mem::take(&mut *self.questions.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, caller) in questions {
            self.tell_withdrawn(&*caller, &id, "the server that asked is gone");
        }
    }

    /// What was asked of a caller about a request that we have ended need not be answered any more.
    pub(super) fn withdraw_questions_to(&self, caller: &Arc<dyn Caller>, why: &str) {
        let is_asked = |asked: &Arc<dyn Caller>| std::ptr::addr_eq(Arc::as_ptr(asked), Arc::as_ptr(caller));
        let moot: Vec<_> = {
            let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
            questions.extract_if(|_, asked| is_asked(asked)).collect()
        };
        for (id, caller) in moot {
            self.tell_withdrawn(&*caller, &id, why);
            self.say(&reply::error(&id, code::INTERNAL_ERROR, why, None));
        }
    }

    fn tell_withdrawn(&self, caller: &dyn Caller, id: &[u8], why: &str) {
        let line = cancellation(id, why);
        if let Some(id_at) = Envelope::scan(&line).ok().and_then(|envelope| envelope.params.request_id) {
            caller.withdrawn(self, id, &line, id_at);
            caller.flush();
        }
    }

    /// Passes on a client's answer, in which another id stands at `id_at`.
    pub(crate) fn answer_question(&self, id: &[u8], line: &Bytes, id_at: Span) {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.wire.send_spliced(None, line, &[Edit { span: id_at, with: id }]);
        self.wire.flush();
    }

    /// Answers a question ourselves.
    pub(crate) fn close_question(&self, id: &[u8], answer: impl FnOnce(&[u8]) -> Vec<u8>) {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.say(&answer(id));
    }

    /// A server that floods us with questions and reads no answers must not fill our memory.
    fn say(&self, answer: &[u8]) {
        if !self.wire.is_full() {
            self.wire.send(None, answer);
            self.wire.flush();
        }
    }
}

#[cfg(test)]
mod tests;
