//! Whose turn it is at a server that may ask, and does not say whom: it serves one client at a time.

use std::sync::Arc;
use std::time::Duration;

use protocol::Lifecycle;
use tokio::time::Instant;

use super::Connection;
use crate::failure::CallError;
use crate::pending::{ABANDONED_REQUEST_LIFETIME, Held};

/// How long a request waits for its turn at a server that serves one client at a time.
const EXCLUSIVE_TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is looked whether its turn has come by time alone.
const EXCLUSIVE_TURN_POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Connection {
    /// Sends the requests whose turn has come.
    pub(super) fn next_turn(&self) {
        let released: Vec<_> = {
            let mut open = self.lock();
            let released = open.release();
            let handler = |held: &Held| open.get(held.number).map(|call| Arc::clone(&call.handler));
            released.into_iter().map(|held| (handler(&held), held)).collect()
        };
        for (handler, Held { number, line, .. }) in &released {
            if let Some(handler) = handler {
                handler.on_released();
            }
            self.transport.send_spliced(Some(*number), line, &[]);
        }
        if !released.is_empty() {
            self.transport.flush();
        }
    }

    /// Sees to it that a request that waits for its turn gets it, or an end.
    pub(super) async fn await_turn(self: Arc<Self>, number: u64) {
        let deadline = Instant::now() + EXCLUSIVE_TURN_TIMEOUT;
        let is_held = || self.lock().get(number).is_some_and(|call| call.is_held);
        while is_held() && Instant::now() < deadline {
            tokio::time::sleep(EXCLUSIVE_TURN_POLL_INTERVAL).await;
            self.end_deserted_requests();
            self.next_turn();
        }
        if is_held() {
            self.fail(number, &CallError::OthersTurn { server: self.server() });
        }
    }

    /// Requests whose clients are gone end when others wait for their turn. Nobody else would end them: a legacy client
    /// that drops its connection has cancelled nothing.
    fn end_deserted_requests(self: &Arc<Self>) {
        let deserted = self.lock().deserted();
        for number in deserted {
            let error = CallError::Deserted { server: self.server() };
            self.end_request(number, "its client is gone", &error);
        }
    }

    /// Waits until the server has heard that a request is given up. It reads in order, so the answer to a question of
    /// ours that follows says so; what it asked before has been read by then.
    pub(super) async fn forget_abandoned(self: Arc<Self>, number: u64) {
        // A modern server asks nothing by itself.
        if self.lifecycle() == Lifecycle::Session {
            // One that does not answer is taken to have heard it by then.
            drop(tokio::time::timeout(ABANDONED_REQUEST_LIFETIME, self.ask("ping", None)).await);
        }
        self.lock().forget_abandoned(number);
        self.next_turn();
    }
}
