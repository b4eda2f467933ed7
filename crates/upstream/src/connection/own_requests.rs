//! Questions of our own to the server, and what we tell it.

use std::sync::Arc;

use bytes::Bytes;
use protocol::bridge::meta;
use protocol::{Envelope, Lifecycle, reply};
use tokio::sync::oneshot;

use super::{Connection, Response};
use crate::limits::OverLimit;
use crate::pending::Pending;

impl Connection {
    /// Asks the server something ourselves; `None` if it ended before it answered.
    pub async fn ask(&self, method: &str, params: Option<&[u8]>) -> Option<Response> {
        let (_, answer) = self.begin(method, params)?;
        answer.await
    }

    /// Asks the server something ourselves, and tells when its answer is longer than it may be.
    pub(crate) async fn ask_within_limits(&self, method: &str, params: Option<&[u8]>) -> Result<Response, NoResponse> {
        let (_, answer) = self.start(method, params).ok_or(NoResponse::Ended)?;
        answer.await
    }

    /// Asks at once, and returns what waits for the answer.
    pub fn ask_now(
        self: &Arc<Self>,
        method: &str,
        params: Option<&[u8]>,
    ) -> Option<impl Future<Output = Option<Response>> + Send + 'static + use<>> {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut open = self.lock();
            if open.ended.is_some() {
                return None;
            }
            open.enter(Pending::OwnRequest(sender))
        };
        self.transport.send(Some(number), &self.with_client_meta(reply::request(number, method, params)));
        self.transport.flush();
        Some(async move { receiver.await.ok()?.ok() })
    }

    /// Asks, and returns the number under which the server knows the question, and what waits for the answer: to be
    /// dropped when it is no longer wanted.
    pub(crate) fn begin<'c>(
        &'c self,
        method: &str,
        params: Option<&[u8]>,
    ) -> Option<(u64, impl Future<Output = Option<Response>> + use<'c>)> {
        let (number, answer) = self.start(method, params)?;
        Some((number, async move { answer.await.ok() }))
    }

    fn start<'c>(
        &'c self,
        method: &str,
        params: Option<&[u8]>,
    ) -> Option<(u64, impl Future<Output = Result<Response, NoResponse>> + use<'c>)> {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut open = self.lock();
            if open.ended.is_some() {
                return None;
            }
            open.enter(Pending::OwnRequest(sender))
        };
        let abandoned = Abandon { connection: self, number };
        self.transport.send(Some(number), &self.with_client_meta(reply::request(number, method, params)));
        self.transport.flush();
        Some((number, async move {
            let _abandoned = abandoned;
            receiver.await.map_err(|_| NoResponse::Ended)?.map_err(NoResponse::TooLong)
        }))
    }

    /// Tells the server something.
    pub fn tell(&self, method: &str, params: Option<&[u8]>) {
        self.transport.send(None, &reply::notification(method, params));
        self.transport.flush();
    }

    /// Passes on somebody's notification as it is.
    pub fn pass(&self, line: &Bytes) {
        if !self.transport.is_full() {
            self.transport.send_spliced(None, line, &[]);
            self.transport.flush();
        }
    }

    /// A request as a server of its lifecycle expects it: a modern one is told with every request who asks.
    fn with_client_meta(&self, mut request: Vec<u8>) -> Vec<u8> {
        if self.lifecycle() == Lifecycle::Session {
            return request;
        }
        request.pop();
        let line = Bytes::from(request);
        let envelope = Envelope::scan(&line).expect("what we write ourselves is a message");
        let mut request = meta::to_modern(&line, &envelope, &self.client_meta).to_vec();
        request.push(b'\n');
        request
    }
}

/// Why a question of ours got no answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NoResponse {
    /// The connection was ended.
    Ended,
    /// The answer is longer than it may be.
    TooLong(OverLimit),
}

/// Forgets a question of ours when nobody waits for its answer any more.
struct Abandon<'c> {
    connection: &'c Connection,
    number: u64,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.connection.lock().close(self.number);
    }
}
