//! What has happened to a puppet, shared by the test and the threads that serve it.

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
const ANSWERING: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Stage {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct Seen {
    spec: Spec,
    pub(super) lives: Vec<Actor>,
    journal: Vec<Vec<u8>>,
    /// How many messages are being answered and not yet in the journal.
    answering: usize,
    waiting: VecDeque<Received>,
    listens: Vec<Received>,
    pub(super) stopped: bool,
}

/// One life over stdio.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) life: Instance,
    strings: UnixStream,
    /// Held by whoever writes, so that lines stay whole.
    voice: Arc<Mutex<()>>,
}

impl Stage {
    pub(super) fn new(spec: Spec) -> Self {
        let seen = Seen {
            spec,
            lives: Vec::new(),
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

    /// Notes a new life and gives its number, counted from 0.
    pub(super) fn enter(&self, life: Instance, strings: UnixStream) -> usize {
        let mut seen = self.seen();
        seen.lives.push(Actor { life, strings, voice: Arc::default() });
        self.changed.notify_all();
        seen.lives.len() - 1
    }

    /// Takes a message: the script answers it, or it waits for the test. In the journal it stands once it was answered.
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

    /// The next waiting message that is as wished.
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

    /// Writes on the stdout of the latest life, once there is one.
    #[track_caller]
    pub(super) fn write(&self, text: &str) {
        let life = self.wait("a first life", |seen| seen.lives.len().checked_sub(1));
        self.write_in(life, text);
    }

    /// Writes on the stdout of one life. A life that is over hears nothing, and the test will see that.
    pub(super) fn write_in(&self, life: usize, text: &str) {
        let (strings, voice) = {
            let seen = self.seen();
            let actor = &seen.lives[life];
            (actor.strings.try_clone(), Arc::clone(&actor.voice))
        };
        // Not under the lock of the stage: a reader that does not read must not stop all of it.
        let _speaking = voice.lock().unwrap_or_else(PoisonError::into_inner);
        strings.and_then(|mut strings| strings.write_all(text.as_bytes())).ok();
    }

    /// Ends the latest life.
    pub(super) fn cut(&self) {
        if let Some(actor) = self.seen().lives.last() {
            // It fails if the process was faster.
            actor.strings.shutdown(Shutdown::Both).ok();
        }
    }

    /// Ends one life.
    pub(super) fn end(&self, life: usize) {
        self.seen().lives[life].strings.shutdown(Shutdown::Both).ok();
    }

    /// Ends every life, for good.
    pub(super) fn stop(&self) {
        let mut seen = self.seen();
        seen.stopped = true;
        // They hold the stage, which would hold them.
        seen.waiting.clear();
        seen.listens.clear();
        for actor in &seen.lives {
            actor.strings.shutdown(Shutdown::Both).ok();
        }
        self.changed.notify_all();
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// What was received so far. Whoever has an answer in hand finds its question here: a message that is being
    /// answered is waited for, though not for ever, since its reader may not read.
    pub(super) fn journal(&self) -> Vec<Vec<u8>> {
        let answered = |seen: &mut Seen| seen.answering > 0;
        let waiting = self.changed.wait_timeout_while(self.seen(), ANSWERING, answered);
        waiting.unwrap_or_else(PoisonError::into_inner).0.journal.clone()
    }

    pub(super) fn lives(&self) -> Vec<Instance> {
        self.seen().lives.iter().map(|actor| actor.life.clone()).collect()
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
