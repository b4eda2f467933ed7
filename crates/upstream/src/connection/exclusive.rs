//! Turns at a server whose requests do not name the call they belong to: it serves one client at a time.

use std::sync::Arc;
use std::time::Duration;

use protocol::Lifecycle;
use tokio::time::Instant;

use super::Connection;
use crate::failure::CallError;
use crate::pending::{ABANDONED_REQUEST_LIFETIME, Held};

/// How long a request waits for its turn at a server that serves one client at a time.
const EXCLUSIVE_TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a waiting request checks whether its turn has come by time alone.
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

    /// Waits until a held request gets its turn, or ends it.
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

    /// Ends requests of disconnected clients when others wait for their turn. Nothing else would end them: a legacy
    /// client that drops its connection has cancelled nothing.
    fn end_deserted_requests(self: &Arc<Self>) {
        let deserted = self.lock().deserted();
        for number in deserted {
            let error = CallError::Deserted { server: self.server() };
            self.end_request(number, "its client disconnected", &error);
        }
    }

    /// Waits until the server has processed a cancellation. It reads in order, so its response to a later `ping` of
    /// ours proves it; requests it sent before have been read by then.
    pub(super) async fn forget_abandoned(self: Arc<Self>, number: u64) {
        // A modern server sends no requests.
        if self.lifecycle() == Lifecycle::Session {
            // A server that does not respond is assumed to have processed it by then.
            drop(tokio::time::timeout(ABANDONED_REQUEST_LIFETIME, self.request("ping", None)).await);
        }
        self.lock().forget_abandoned(number);
        self.next_turn();
    }
}
