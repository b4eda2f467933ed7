//! The state of the server, shared by its threads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::script::{Refusal, Script};
use super::wire::Request;

#[derive(Debug)]
pub(super) struct Shared {
    script: Mutex<Script>,
    state: Mutex<State>,
    /// Signalled with every change of `state`.
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) requests: Vec<Request>,
    pub(super) connections: usize,
    /// The open connections, to break them at stop.
    pub(super) sockets: BTreeMap<usize, TcpStream>,
    pub(super) sessions: BTreeSet<String>,
    /// The open streams, oldest first. A stream without an entry here ends.
    pub(super) streams: Vec<Stream>,
    /// What was pushed while no stream was open.
    unsent: VecDeque<String>,
    /// The answers of dropped streams by event id; `None` while the call still runs.
    parked: BTreeMap<String, Option<String>>,
    pub(super) extra_tools: Vec<String>,
    /// The last number used for a session, a stream or an event.
    last_number: u64,
    stopping: bool,
}

/// A stream that stays open: messages sent to `outbox` are written on it.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: String,
    pub(super) outbox: Sender<String>,
}

impl Shared {
    pub(super) fn new(script: Script) -> Self {
        Self { script: Mutex::new(script), state: Mutex::default(), changed: Condvar::new(), threads: Mutex::default() }
    }

    /// The script as it is now.
    pub(super) fn script(&self) -> Script {
        self.script_mut().clone()
    }

    pub(super) fn script_mut(&self) -> MutexGuard<'_, Script> {
        lock(&self.script)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn wait_for_change<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn record(&self, request: Request) {
        self.state().requests.push(request);
        self.changed.notify_all();
    }

    /// A number that was not given out before.
    pub(super) fn next_number(&self) -> u64 {
        let mut state = self.state();
        state.last_number += 1;
        state.last_number
    }

    pub(super) fn issue_session(&self) -> String {
        let id = format!("session-{}", self.next_number());
        self.state().sessions.insert(id.clone());
        id
    }

    /// The status that the script wants for this `tools/call`, if any.
    pub(super) fn take_status(&self) -> Option<Refusal> {
        self.script_mut().statuses.pop_front()
    }

    /// Opens a stream, which gets what was pushed before it.
    pub(super) fn open_stream(&self, id: &str) -> Receiver<String> {
        let (outbox, messages) = channel();
        let mut state = self.state();
        for message in state.unsent.drain(..) {
            outbox.send(message).expect("we hold the receiver");
        }
        state.streams.push(Stream { id: id.to_owned(), outbox });
        messages
    }

    pub(super) fn close_stream(&self, id: &str) {
        self.state().streams.retain(|stream| stream.id != id);
    }

    /// Sends on the newest stream: an older one may have lost its client without being noticed yet.
    pub(super) fn push(&self, message: String) {
        let mut state = self.state();
        let unsent = match state.streams.last() {
            Some(stream) => stream.outbox.send(message).err().map(|error| error.0),
            None => Some(message),
        };
        state.unsent.extend(unsent);
    }

    /// Announces that the answer to a call will be asked for by this event id.
    pub(super) fn park(&self, event_id: &str) {
        self.state().parked.insert(event_id.to_owned(), None);
    }

    pub(super) fn deliver_parked(&self, event_id: &str, answer: String) {
        self.state().parked.insert(event_id.to_owned(), Some(answer));
        self.changed.notify_all();
    }

    pub(super) fn is_parked(&self, event_id: &str) -> bool {
        self.state().parked.contains_key(event_id)
    }

    /// Waits for the answer to a parked call. It stays, as a client may lose it again. `None` at stop.
    pub(super) fn parked_answer(&self, event_id: &str) -> Option<String> {
        let mut state = self.state();
        while !state.stopping {
            if let Some(Some(answer)) = state.parked.get(event_id) {
                return Some(answer.clone());
            }
            state = self.wait_for_change(state, Duration::from_secs(1));
        }
        None
    }

    /// Sleeps, unless the server stops.
    pub(super) fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut state = self.state();
        while !state.stopping && Instant::now() < end {
            state = self.wait_for_change(state, end.saturating_duration_since(Instant::now()));
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// Notes a new connection and gives it a number. `None` if the server stops.
    pub(super) fn register(&self, socket: &TcpStream) -> Option<usize> {
        // Small writes must not wait for an acknowledgement: tests measure time. It fails if the client is gone already.
        socket.set_nodelay(true).ok();
        let copy = socket.try_clone().expect("a test has file descriptors to spare");
        let mut state = self.state();
        if state.stopping {
            return None;
        }
        state.connections += 1;
        let number = state.connections;
        state.sockets.insert(number, copy);
        Some(number)
    }

    /// Closes a connection for good: the copy that `register` made would keep it open.
    pub(super) fn unregister(&self, connection: usize) {
        self.state().sockets.remove(&connection);
    }

    /// Runs `work` in a thread that is awaited at stop.
    pub(super) fn spawn(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let shared = Arc::clone(self);
        lock(&self.threads).push(std::thread::spawn(move || work(&shared)));
    }

    /// Lets every thread come to its end.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        state.streams.clear();
        for socket in state.sockets.values() {
            // A socket that its client broke already needs no more of this.
            socket.shutdown(Shutdown::Both).ok();
        }
        self.changed.notify_all();
    }

    /// Waits for all threads; `false` if one panicked. More may start meanwhile, so it looks until none is left.
    pub(super) fn join_threads(&self) -> bool {
        let mut all_went_well = true;
        loop {
            let Some(thread) = lock(&self.threads).pop() else { return all_went_well };
            all_went_well &= thread.join().is_ok();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
