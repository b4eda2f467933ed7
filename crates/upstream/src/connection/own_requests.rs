//! Requests and notifications of our own to the server.

use std::sync::Arc;

use bytes::Bytes;
use protocol::bridge::meta;
use protocol::{Envelope, Lifecycle, reply};
use tokio::sync::oneshot;

use super::{Connection, Response};
use crate::limits::OverLimit;
use crate::pending::Pending;

impl Connection {
    /// Sends a request of our own and waits for the response; `None` if the server ended before it responded.
    pub async fn request(&self, method: &str, params: Option<&[u8]>) -> Option<Response> {
        let (_, answer) = self.begin_request(method, params)?;
        answer.await
    }

    /// The same, but reports a response that exceeds its limit.
    pub(crate) async fn request_within_limits(
        &self,
        method: &str,
        params: Option<&[u8]>,
    ) -> Result<Response, NoResponse> {
        let (_, answer) = self.begin_request_within_limits(method, params).ok_or(NoResponse::Ended)?;
        answer.await
    }

    /// Sends a request at once, and returns a future for the response.
    pub fn start_request(
        self: &Arc<Self>,
        method: &str,
        params: Option<&[u8]>,
    ) -> Option<impl Future<Output = Option<Response>> + Send + 'static + use<>> {
        let (_, receiver) = self.send_request(method, params)?;
        Some(async move { receiver.await.ok()?.ok() })
    }

    /// Sends a request, and returns its number and a future for the response, to be dropped when it is no longer
    /// wanted.
    pub(crate) fn begin_request<'c>(
        &'c self,
        method: &str,
        params: Option<&[u8]>,
    ) -> Option<(u64, impl Future<Output = Option<Response>> + use<'c>)> {
        let (number, answer) = self.begin_request_within_limits(method, params)?;
        Some((number, async move { answer.await.ok() }))
    }

    fn begin_request_within_limits<'c>(
        &'c self,
        method: &str,
        params: Option<&[u8]>,
    ) -> Option<(u64, impl Future<Output = Result<Response, NoResponse>> + use<'c>)> {
        let (number, receiver) = self.send_request(method, params)?;
        let abandoned = Abandon { connection: self, number };
        Some((number, async move {
            let _abandoned = abandoned;
            receiver.await.map_err(|_| NoResponse::Ended)?.map_err(NoResponse::TooLong)
        }))
    }

    /// Sends a request of our own; returns its number and the receiver of the response. `None` if the server has
    /// ended.
    fn send_request(
        &self,
        method: &str,
        params: Option<&[u8]>,
    ) -> Option<(u64, oneshot::Receiver<Result<Response, OverLimit>>)> {
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
        Some((number, receiver))
    }

    /// Sends a notification of our own.
    pub fn notify(&self, method: &str, params: Option<&[u8]>) {
        self.transport.send(None, &reply::notification(method, params));
        self.transport.flush();
    }

    /// Forwards a client's notification unchanged.
    pub fn pass(&self, line: &Bytes) {
        if !self.transport.is_full() {
            self.transport.send_spliced(None, line, &[]);
            self.transport.flush();
        }
    }

    /// Adds the client meta that a modern server expects in every request.
    fn with_client_meta(&self, mut request: Vec<u8>) -> Vec<u8> {
        if self.lifecycle() == Lifecycle::Session {
            return request;
        }
        request.pop();
        let line = Bytes::from(request);
        let envelope = Envelope::scan(&line).expect("what we write ourselves is a message");
        let mut request = meta::to_modern(&line, &envelope.params, &self.client_meta).to_vec();
        request.push(b'\n');
        request
    }
}

/// Why a request of ours got no response.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NoResponse {
    /// The connection was ended.
    Ended,
    /// The response exceeds its limit.
    TooLong(OverLimit),
}

/// Removes a request of ours when its response is no longer awaited.
struct Abandon<'c> {
    connection: &'c Connection,
    number: u64,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.connection.lock().close(self.number);
    }
}
