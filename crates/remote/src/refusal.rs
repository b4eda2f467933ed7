//! Answers that are no success: what they mean, and what of them is an answer all the same.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use protocol::reply::code;
use protocol::scan::member;
use protocol::{Envelope, Kind};
use upstream::Connection;

use crate::body::Body;
use crate::error::RequestError;
use crate::event_stream::one_line;
use crate::http::Media;

/// Bytes of one that is only shown.
const MAX_SHOWN_BYTES: usize = 1 << 20;

/// An answer that is no success.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    is_json: bool,
    body: Bytes,
}

impl Refusal {
    /// One that is shown, and answers no request.
    pub(crate) async fn read(response: Response<Body>) -> Result<Self, RequestError> {
        let (status, is_json) = (response.status(), Media::of(response.headers()) == Media::Json);
        Ok(Self { status, is_json, body: response.into_body().within(MAX_SHOWN_BYTES).await? })
    }

    /// One that may hold the answer to the request of that number.
    pub(crate) async fn read_for(
        connection: &Arc<Connection>,
        number: Option<u64>,
        response: Response<Body>,
    ) -> Result<Self, RequestError> {
        let (status, is_json) = (response.status(), Media::of(response.headers()) == Media::Json);
        let body = response.into_body().message(&mut connection.incoming(number)).await?;
        Ok(Self { status, is_json, body })
    }

    /// Whether a request in a session was refused because the server does not know the session. It should say 404, but
    /// many say 400 and tell the rest in words. One that answers the very request that it has no such method, knows us.
    pub(crate) fn means_forgotten(&self, number: Option<u64>) -> bool {
        match self.status {
            StatusCode::NOT_FOUND => !(self.answers(number) && self.error_code() == Some(code::METHOD_NOT_FOUND)),
            StatusCode::BAD_REQUEST => self.speaks_of_session(),
            _ => false,
        }
    }

    /// Whether it is still that, now that we have introduced ourselves anew. An error of its own that does not speak of
    /// sessions is about something else.
    pub(crate) fn insists(&self, number: Option<u64>) -> bool {
        self.means_forgotten(number) && (self.speaks_of_session() || !self.answers(number))
    }

    fn speaks_of_session(&self) -> bool {
        self.body.windows(7).take(1000).any(|word| word.eq_ignore_ascii_case(b"session"))
    }

    /// How it was refused.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the headers of a request did not fit its body, in the server's opinion.
    pub(crate) fn is_header_mismatch(&self) -> bool {
        self.is_json && self.error_code() == Some(code::HEADER_MISMATCH)
    }

    /// A refusal may still carry an answer in JSON-RPC, which is then the answer.
    pub(crate) async fn hand_over(self, connection: &Arc<Connection>, number: Option<u64>) -> Result<(), RequestError> {
        if self.answers(number) {
            connection.take(one_line(self.body), number).await;
            return Ok(());
        }
        Err(self.into_error())
    }

    pub(crate) fn into_error(self) -> RequestError {
        RequestError::status(self.status, &self.body)
    }

    /// Whether it is the answer to the request of that number.
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
        Refusal { status, is_json: true, body: Bytes::from_static(body.as_bytes()) }
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
