//! Whose turn it is at a server that may ask, and does not say whom: it serves one client at a time.

use std::sync::Arc;
use std::time::Duration;

use protocol::Era;
use tokio::time::Instant;

use super::Connection;
use crate::failure::CallError;
use crate::open::{HAUNTING, Held};

/// How long a request waits for its turn at a server that serves one client at a time.
const TURN_PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether its turn has come by time alone.
const TURN_CHECK: Duration = Duration::from_millis(500);

impl Connection {
    /// Sends the requests whose turn has come.
    pub(super) fn next_turn(&self) {
        let released: Vec<_> = {
            let mut open = self.lock();
            let released = open.release();
            let caller = |held: &Held| open.get(held.number).map(|call| Arc::clone(&call.caller));
            released.into_iter().map(|held| (caller(&held), held)).collect()
        };
        for (caller, Held { number, line, .. }) in &released {
            if let Some(caller) = caller {
                caller.released();
            }
            self.wire.send_spliced(Some(*number), line, &[]);
        }
        if !released.is_empty() {
            self.wire.flush();
        }
    }

    /// Sees to it that a request that waits for its turn gets it, or an end.
    pub(super) async fn await_turn(self: Arc<Self>, number: u64) {
        let deadline = Instant::now() + TURN_PATIENCE;
        let is_held = || self.lock().get(number).is_some_and(|call| call.is_held);
        while is_held() && Instant::now() < deadline {
            tokio::time::sleep(TURN_CHECK).await;
            self.dismiss_deserted();
            self.next_turn();
        }
        if is_held() {
            self.fail(number, &CallError::OthersTurn { server: self.server() });
        }
    }

    /// Requests whose clients are gone end when others wait for their turn. Nobody else would end them: a legacy client
    /// that drops its connection has cancelled nothing.
    fn dismiss_deserted(self: &Arc<Self>) {
        let deserted = self.lock().deserted();
        for number in deserted {
            let error = CallError::Deserted { server: self.server() };
            self.cut_short(number, "its client is gone", &error);
        }
    }

    /// Waits until the server has heard that a request is given up. It reads in order, so the answer to a question of
    /// ours that follows says so; what it asked before has been read by then.
    pub(super) async fn lay_ghost(self: Arc<Self>, number: u64) {
        // A modern server asks nothing by itself.
        if self.era() == Era::Legacy {
            // One that does not answer is taken to have heard it by then.
            drop(tokio::time::timeout(HAUNTING, self.ask("ping", None)).await);
        }
        self.lock().lay_ghost(number);
        self.next_turn();
    }
}
