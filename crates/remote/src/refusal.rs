//! Error responses: what they mean, and which of them contain a JSON-RPC response.

use std::sync::Arc;

use bytes::Bytes;
use hyper::http::response::Parts;
use hyper::{Response, StatusCode};
use protocol::reply::code;
use protocol::scan::member;
use protocol::{Envelope, Kind};
use upstream::Connection;

use crate::authorization::RequestToken;
use crate::body::Body;
use crate::error::RequestError;
use crate::event_stream::one_line;
use crate::http::Media;

/// Bytes of one that is only shown.
const MAX_SHOWN_BYTES: usize = 1 << 20;

/// An error response.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    is_json: bool,
    body: Bytes,
    /// The token of the request.
    token: Option<RequestToken>,
}

impl Refusal {
    /// One that is shown, and answers no request.
    pub(crate) async fn read(response: Response<Body>) -> Result<Self, RequestError> {
        let (head, body) = response.into_parts();
        Ok(Self::new(head, body.within(MAX_SHOWN_BYTES).await?))
    }

    /// One that may contain the response to the request of that number.
    pub(crate) async fn read_for(
        connection: &Arc<Connection>,
        number: Option<u64>,
        response: Response<Body>,
    ) -> Result<Self, RequestError> {
        let (head, body) = response.into_parts();
        Ok(Self::new(head, body.message(&mut connection.incoming(number)).await?))
    }

    fn new(mut head: Parts, body: Bytes) -> Self {
        let is_json = Media::of(&head.headers) == Media::Json;
        Self { status: head.status, is_json, body, token: head.extensions.remove() }
    }

    /// Whether a request in a session was refused because the server does not know the session. The status should be
    /// 404, but many servers use 400 and explain it in the text. One that responds to this very request that the
    /// method does not exist, knows our session.
    pub(crate) fn means_forgotten(&self, number: Option<u64>) -> bool {
        match self.status {
            StatusCode::NOT_FOUND => !(self.answers(number) && self.error_code() == Some(code::METHOD_NOT_FOUND)),
            StatusCode::BAD_REQUEST => self.speaks_of_session(),
            _ => false,
        }
    }

    /// Whether it still means that after a new handshake. An error object that does not mention sessions is about
    /// something else.
    pub(crate) fn insists(&self, number: Option<u64>) -> bool {
        self.means_forgotten(number) && (self.speaks_of_session() || !self.answers(number))
    }

    fn speaks_of_session(&self) -> bool {
        self.body.windows(7).take(1000).any(|word| word.eq_ignore_ascii_case(b"session"))
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the server reports that the headers of a request did not match its body.
    pub(crate) fn is_header_mismatch(&self) -> bool {
        self.is_json && self.error_code() == Some(code::HEADER_MISMATCH)
    }

    /// Delivers a JSON-RPC response that an error response may contain.
    pub(crate) async fn hand_over(self, connection: &Arc<Connection>, number: Option<u64>) -> Result<(), RequestError> {
        if self.answers(number) {
            connection.take(one_line(self.body), number).await;
            return Ok(());
        }
        Err(self.into_error())
    }

    pub(crate) fn into_error(self) -> RequestError {
        match self.token {
            Some(token) => {
                let text = token.hide(&String::from_utf8_lossy(&self.body));
                RequestError::status(self.status, text.as_bytes())
            }
            None => RequestError::status(self.status, &self.body),
        }
    }

    /// Whether it is the response to the request of that number.
    fn answers(&self, number: Option<u64>) -> bool {
        let Some(number) = number.filter(|_| self.is_json) else { return false };
        match Envelope::scan(&self.body) {
            Ok(Envelope { kind: Kind::Response { id, .. }, .. }) => id.of(&self.body) == number.to_string().as_bytes(),
            _ => false,
        }
    }

    fn error_code(&self) -> Option<i32> {
        let Ok(Envelope { kind: Kind::Response { outcome: Err(error), .. }, .. }) = Envelope::scan(&self.body) else {
            return None;
        };
        let code = member(&self.body, error, "code")?;
        std::str::from_utf8(code.of(&self.body)).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &'static str) -> Refusal {
        let status = StatusCode::from_u16(status).unwrap();
        Refusal { status, is_json: true, body: Bytes::from_static(body.as_bytes()), token: None }
    }

    #[test]
    fn a_lost_session_is_distinguished_from_other_refusals() {
        let forgotten = |status, body| refusal(status, body).means_forgotten(Some(7));
        assert!(forgotten(404, ""));
        assert!(forgotten(404, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Session not found"}}"#));
        assert!(forgotten(404, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}"#));
        assert!(forgotten(400, r#"{"error":{"message":"Bad Request: No valid Session ID provided"}}"#));
        assert!(!forgotten(404, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method not found"}}"#));
        assert!(!forgotten(400, r#"{"error":{"message":"Bad Request"}}"#));
        assert!(!forgotten(400, ""));
        assert!(!forgotten(500, "session lost"));
        let insists = |status, body| refusal(status, body).insists(Some(7));
        assert!(insists(404, ""));
        assert!(insists(404, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}"#));
        assert!(!insists(404, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such city"}}"#));
    }

    #[test]
    fn a_header_mismatch_is_distinguished_from_other_refusals() {
        for id in ["7", "null"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32020,"message":"x"}}}}"#);
            assert!(refusal(400, body.leak()).is_header_mismatch());
        }
        assert!(
            !refusal(400, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"-32020"}}"#)
                .is_header_mismatch()
        );
        assert!(!refusal(400, "-32020").is_header_mismatch());
    }
}
