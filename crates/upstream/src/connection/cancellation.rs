//! Requests that are given up: by who made them, by their time, or because nobody is there any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::splice::Edit;
use protocol::{Span, reply};
use tokio::time::Instant;

use super::{Connection, spliced};
use crate::failure::CallError;
use crate::pending::Call;
use crate::request_id::Digits;
use crate::response_handler::ResponseHandler;

impl Connection {
    /// Gives up the request that `client` made under `id`: the server is told in the client's own words, with `id_at` in
    /// `line` replaced by the id it knows, and what it still says about it is dropped.
    pub fn cancel(self: &Arc<Self>, client: u64, id: &[u8], line: &Bytes, id_at: Span) -> bool {
        let Some(number) = self.lock().find(client, id) else { return false };
        let notice = |digits: &[u8]| spliced(line, &[Edit { span: id_at, with: digits }]);
        self.withdraw(number, notice, |call| call.handler.on_cancelled(&call.id))
    }

    /// Gives up the request under `number`, and tells the server why; whether there was one.
    pub fn abandon(self: &Arc<Self>, number: u64, why: &str) -> bool {
        self.withdraw(number, |digits| cancellation(digits, why), |call| call.handler.on_cancelled(&call.id))
    }

    /// Gives up the request that `client` made under `id`, and tells the server why; whether there was one.
    pub fn abandon_call(self: &Arc<Self>, client: u64, id: &[u8], why: &str) -> bool {
        let number = self.lock().find(client, id);
        number.is_some_and(|number| self.abandon(number, why))
    }

    /// Gives up everything `client` still waits for.
    pub fn abandon_all(self: &Arc<Self>, client: u64, why: &str) {
        let numbers = self.lock().of_client(client);
        for number in numbers {
            self.abandon(number, why);
        }
    }

    /// Takes back the request under `number`: tells the server by `notice`, and the caller as `inform` does.
    fn withdraw(
        self: &Arc<Self>,
        number: u64,
        notice: impl FnOnce(&[u8]) -> Bytes,
        inform: impl FnOnce(&Call),
    ) -> bool {
        let Some(call) = self.lock().give_up(number) else { return false };
        // A server that reads nothing would not hear it either.
        if !call.is_held && !self.transport.is_full() {
            self.transport.send_spliced(None, &notice(Digits::new(number).as_bytes()), &[]);
            self.transport.flush();
        }
        inform(&call);
        if call.may_still_ask() {
            tokio::spawn(Arc::clone(self).forget_abandoned(number));
        }
        self.next_turn();
        true
    }

    /// Fails requests that take longer than they may; for ever, or returns never if there is no limit.
    pub async fn enforce_call_timeout(self: &Arc<Self>) {
        let Some(limit) = self.limit else { return std::future::pending().await };
        loop {
            tokio::time::sleep((limit / 8).clamp(Duration::from_millis(10), Duration::from_secs(1))).await;
            let Some(moment) = Instant::now().checked_sub(limit) else { continue };
            let late = self.lock().older_than(moment);
            for number in late {
                let error = CallError::TooSlow { server: self.server(), limit };
                self.end_request(number, "it took too long", &error);
            }
        }
    }

    /// Ends a request by our own decision: the server is told why, the caller gets `error`.
    pub(super) fn end_request(self: &Arc<Self>, number: u64, why: &str, error: &CallError) {
        self.withdraw(
            number,
            |digits| cancellation(digits, why),
            |call| {
                if !self.lock().waits_for(&call.handler) {
                    self.withdraw_server_requests_to(&call.handler, why);
                }
                call.handler.on_failure(&call.id, error);
                call.handler.flush();
            },
        );
    }

    /// Ends everything that a caller waits for who does not come back.
    pub(super) fn end_calls_of(self: &Arc<Self>, handler: &Arc<dyn ResponseHandler>) {
        let numbers = self.lock().of_handler(handler);
        for number in numbers {
            self.end_request(number, "its client is gone", &CallError::Deserted { server: self.server() });
        }
    }
}

/// Tells the other side that the request it knows under that id is given up.
pub(super) fn cancellation(id: &[u8], why: &str) -> Bytes {
    let params = reply::object([("requestId", id.to_vec()), ("reason", reply::string(why))]);
    let mut notice = reply::notification("notifications/cancelled", Some(&params));
    notice.pop();
    notice.into()
}
