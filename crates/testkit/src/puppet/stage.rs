//! The state of a puppet, shared by the test and the threads that serve it.

use std::collections::VecDeque;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Instance;
use super::received::Received;
use super::script::{self, Reaction};
use super::spec::Spec;
use crate::DEADLINE;
use crate::driver::shown;

/// How long the journal waits for messages that are being answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Stage {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct Seen {
    spec: Spec,
    pub(super) runs: Vec<Actor>,
    journal: Vec<Vec<u8>>,
    /// How many messages are being answered and not yet in the journal.
    answering: usize,
    waiting: VecDeque<Received>,
    listens: Vec<Received>,
    pub(super) stopped: bool,
}

/// One run over stdio.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) instance: Instance,
    strings: UnixStream,
    /// Held during a write, so that lines stay whole.
    voice: Arc<Mutex<()>>,
}

impl Stage {
    pub(super) fn new(spec: Spec) -> Self {
        let seen = Seen {
            spec,
            runs: Vec::new(),
            journal: Vec::new(),
            answering: 0,
            waiting: VecDeque::new(),
            listens: Vec::new(),
            stopped: false,
        };
        Self { seen: Mutex::new(seen), changed: Condvar::new() }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a new run, and returns its number, counted from 0.
    pub(super) fn enter(&self, instance: Instance, strings: UnixStream) -> usize {
        let mut seen = self.seen();
        seen.runs.push(Actor { instance, strings, voice: Arc::default() });
        self.changed.notify_all();
        seen.runs.len() - 1
    }

    /// Handles a message: the script answers it, or it waits for the test. It is in the journal after it was answered.
    pub(super) fn take(&self, message: &Received) {
        let mut seen = self.seen();
        if message.is("notifications/cancelled") {
            let ended = message.param(&["requestId"]).map(str::to_owned);
            seen.listens.retain(|listen| listen.id() != ended.as_deref());
        }
        let reaction = script::reaction(&seen.spec, message);
        match &reaction {
            Reaction::Wait => seen.waiting.push_back(message.clone()),
            Reaction::Listen => seen.listens.push(message.clone()),
            Reaction::Result(_) | Reaction::Error(_) => {}
        }
        if !matches!(reaction, Reaction::Wait) {
            seen.answering += 1;
            drop(seen);
            match reaction {
                Reaction::Result(result) => message.answer(&result),
                Reaction::Error(error) => message.fail(&error),
                Reaction::Listen | Reaction::Wait => message.aside(&script::acknowledgement(message)),
            }
            seen = self.seen();
            seen.answering -= 1;
        }
        seen.journal.push(message.line().to_vec());
        drop(seen);
        self.changed.notify_all();
    }

    /// The next waiting message that satisfies `wanted`.
    #[track_caller]
    pub(super) fn expect(&self, what: &str, wished: impl Fn(&Received) -> bool) -> Received {
        self.wait(what, |seen| {
            let position = seen.waiting.iter().position(&wished)?;
            seen.waiting.remove(position)
        })
    }

    /// Waits until `look` finds something; panics with all that was received after [`DEADLINE`].
    #[track_caller]
    pub(super) fn wait<T>(&self, what: &str, mut look: impl FnMut(&mut Seen) -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        let mut seen = self.seen();
        loop {
            if let Some(found) = look(&mut seen) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let lines: Vec<String> = seen.journal.iter().map(|line| shown(line)).collect();
                drop(seen);
                panic!("the server waited {DEADLINE:?} in vain for {what}; it received\n{}", lines.join("\n"));
            }
            seen = self.changed.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes on the stdout of the latest run, once there is one.
    #[track_caller]
    pub(super) fn write(&self, text: &str) {
        let run_index = self.wait("a first run", |seen| seen.runs.len().checked_sub(1));
        self.write_in(run_index, text);
    }

    /// Writes on the stdout of one run. If it has ended, nothing is written, which the test will notice.
    pub(super) fn write_in(&self, run_index: usize, text: &str) {
        let (strings, voice) = {
            let seen = self.seen();
            let actor = &seen.runs[run_index];
            (actor.strings.try_clone(), Arc::clone(&actor.voice))
        };
        // Without the lock of the stage: a reader that does not read must not block all of it.
        let _speaking = voice.lock().unwrap_or_else(PoisonError::into_inner);
        strings.and_then(|mut strings| strings.write_all(text.as_bytes())).ok();
    }

    /// Ends the latest run.
    pub(super) fn cut(&self) {
        if let Some(actor) = self.seen().runs.last() {
            // It fails if the process was faster.
            actor.strings.shutdown(Shutdown::Both).ok();
        }
    }

    /// Ends one run.
    pub(super) fn end(&self, run_index: usize) {
        self.seen().runs[run_index].strings.shutdown(Shutdown::Both).ok();
    }

    /// Ends all runs permanently.
    pub(super) fn stop(&self) {
        let mut seen = self.seen();
        seen.stopped = true;
        // They hold the stage, which would hold them.
        seen.waiting.clear();
        seen.listens.clear();
        for actor in &seen.runs {
            actor.strings.shutdown(Shutdown::Both).ok();
        }
        self.changed.notify_all();
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// All messages so far. After a response was received, its request is here: a message that is being answered is
    /// awaited, for a limited time because its reader may not read.
    pub(super) fn journal(&self) -> Vec<Vec<u8>> {
        let answered = |seen: &mut Seen| seen.answering > 0;
        let waiting = self.changed.wait_timeout_while(self.seen(), ANSWER_TIMEOUT, answered);
        waiting.unwrap_or_else(PoisonError::into_inner).0.journal.clone()
    }

    pub(super) fn runs(&self) -> Vec<Instance> {
        self.seen().runs.iter().map(|actor| actor.instance.clone()).collect()
    }

    pub(super) fn listens(&self) -> Vec<Received> {
        self.seen().open_listens()
    }

    pub(super) fn change(&self, change: impl FnOnce(Spec) -> Spec) {
        let mut seen = self.seen();
        seen.spec = change(seen.spec.clone());
    }
}

impl Seen {
    pub(super) fn open_listens(&self) -> Vec<Received> {
        self.listens.iter().filter(|listen| !listen.is_abandoned()).cloned().collect()
    }

    pub(super) fn count(&self, quoted_method: &str) -> usize {
        self.journal.iter().filter(|line| crate::raw::at(line, &["method"]) == Some(quoted_method)).count()
    }
}
