//! Cancelled requests: by their client, by their timeout, or because the client has disconnected.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::splice::{Edit, spliced};
use protocol::{Span, reply};
use tokio::time::Instant;

use super::Connection;
use crate::failure::CallError;
use crate::pending::Call;
use crate::request_id::Digits;
use crate::response_handler::ResponseHandler;

impl Connection {
    /// Cancels the request that `client` made under `id`: the server receives the client's own notification, with
    /// `id_at` in `line` replaced by the id it knows, and its later messages about the request are dropped.
    pub fn cancel(self: &Arc<Self>, client: u64, id: &[u8], line: &Bytes, id_at: Span) -> bool {
        let Some(number) = self.lock().find(client, id) else { return false };
        let notice = |digits: &[u8]| Bytes::from(spliced(line, &[Edit { span: id_at, with: digits }]));
        self.withdraw(number, notice, |call| call.handler.on_cancelled(&call.id))
    }

    /// Cancels the request `number`, with a reason for the server. Returns whether there was one.
    pub fn abandon(self: &Arc<Self>, number: u64, why: &str) -> bool {
        self.withdraw(number, |digits| cancellation(digits, why), |call| call.handler.on_cancelled(&call.id))
    }

    /// Cancels the request that `client` made under `id`, with a reason for the server. Returns whether there was one.
    pub fn abandon_call(self: &Arc<Self>, client: u64, id: &[u8], why: &str) -> bool {
        let number = self.lock().find(client, id);
        number.is_some_and(|number| self.abandon(number, why))
    }

    /// Cancels all pending requests of `client`.
    pub fn abandon_all(self: &Arc<Self>, client: u64, why: &str) {
        let numbers = self.lock().of_client(client);
        for number in numbers {
            self.abandon(number, why);
        }
    }

    /// Cancels the request `number`: notifies the server with `notice`, and the requester with `inform`.
    fn withdraw(
        self: &Arc<Self>,
        number: u64,
        notice: impl FnOnce(&[u8]) -> Bytes,
        inform: impl FnOnce(&Call),
    ) -> bool {
        let Some(call) = self.lock().give_up(number) else { return false };
        // A server that does not read would not receive it either.
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

    /// Fails requests that exceed their time limit; never returns.
    pub async fn enforce_call_timeout(self: &Arc<Self>) {
        let Some(limit) = self.limit else { return std::future::pending().await };
        loop {
            tokio::time::sleep((limit / 8).clamp(Duration::from_millis(10), Duration::from_secs(1))).await;
            let Some(moment) = Instant::now().checked_sub(limit) else { continue };
            let late = self.lock().older_than(moment);
            for number in late {
                let error = CallError::TooSlow { server: self.server(), limit };
                self.end_request(number, "it timed out", &error);
            }
        }
    }

    /// Ends a request by our own decision: the server receives the reason, the requester gets `error`.
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

    /// Ends all requests of a requester that does not come back.
    pub(super) fn end_calls_of(self: &Arc<Self>, handler: &Arc<dyn ResponseHandler>) {
        let numbers = self.lock().of_handler(handler);
        for number in numbers {
            self.end_request(number, "its client disconnected", &CallError::Deserted { server: self.server() });
        }
    }
}

/// The cancellation notification for the request with that id.
pub(super) fn cancellation(id: &[u8], why: &str) -> Bytes {
    let params = reply::object([("requestId", id.to_vec()), ("reason", reply::string(why))]);
    let mut notice = reply::notification("notifications/cancelled", Some(&params));
    notice.pop();
    notice.into()
}
