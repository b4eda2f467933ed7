//! The errors of a request to a server.

use std::io;

use hyper::StatusCode;
use upstream::{Connection, OverLimit, RemoteFailure};

use crate::network::PrivateNetwork;

/// Characters of an error response that are shown.
const EXCERPT: usize = 200;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("`{0}` is not an HTTP address")]
    BadAddress(String),
    #[error("its header `{0}` is not valid")]
    BadHeader(String),
    #[error("no root certificates are available: {0}")]
    NoCertificates(String),
    #[error("it is unreachable: {0}")]
    Unreachable(String),
    #[error(transparent)]
    PrivateNetwork(#[from] PrivateNetwork),
    #[error("it requires other credentials (HTTP {status}{challenge})")]
    Unauthorized { status: StatusCode, challenge: String },
    #[error("it requires a sign-in: {why}")]
    SignInRequired {
        /// Why, and the command that does it.
        why: String,
        /// That command alone.
        command: String,
    },
    #[error("there is no access token for it right now: {0}")]
    TokenUnavailable(String),
    #[error("there is no access token for it: {0}")]
    TokenFailed(String),
    #[error("{0}")]
    Loop(&'static str),
    #[error("it answered HTTP {status}{excerpt}")]
    Status { status: StatusCode, excerpt: String },
    #[error("it redirects to another server ({0}), which is not followed")]
    RedirectedAway(String),
    #[error("it is overloaded (HTTP {0})")]
    Busy(String),
    #[error("it answered with {0} instead of JSON or an event stream")]
    ForeignAnswer(String),
    #[error("its response ended early: {0}")]
    BrokeOff(String),
    #[error("its response is not valid: {0}")]
    TooLarge(OverLimit),
    #[error("it did not answer the request")]
    NoAnswer,
    #[error("it ended the session, and a new one could not be established: {0}")]
    NotRenewed(String),
    #[error("it keeps ending the session (HTTP {0})")]
    Forgetful(StatusCode),
}

impl RequestError {
    /// An error status, with the beginning of the response.
    pub(crate) fn status(status: StatusCode, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT)]);
        let text = if is_web_page(&text) { words_of(&text) } else { text.into_owned() };
        let excerpt: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect();
        Self::Status { status, excerpt: if excerpt.is_empty() { excerpt } else { format!(": {excerpt}") } }
    }

    /// The server does not accept our credentials, and asks for those of the challenge.
    pub(crate) fn unauthorized(status: StatusCode, challenge: &str) -> Self {
        let challenge = if challenge.is_empty() { String::new() } else { format!(", {challenge}") };
        Self::Unauthorized { status, challenge }
    }

    /// The connection broke while a response was awaited or read: the server may have carried out the request.
    pub(crate) fn broke_off(error: &dyn std::error::Error) -> Self {
        Self::BrokeOff(root_cause(error))
    }

    /// There is no connection, so the server has received nothing.
    pub(crate) fn unreachable(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        match causes.find_map(|cause| cause.downcast_ref::<PrivateNetwork>()) {
            Some(refused) => Self::PrivateNetwork(refused.clone()),
            None => Self::Unreachable(root_cause(error)),
        }
    }

    /// The same, during a new handshake.
    pub(crate) fn at_renewal(self) -> Self {
        if self.left_untouched() { self } else { Self::NotRenewed(self.to_string()) }
    }

    /// Whether this is the response of a server with another transport.
    pub(crate) fn is_foreign(&self) -> bool {
        match self {
            Self::Status { status, .. } => status.is_client_error(),
            Self::ForeignAnswer(_) => true,
            _ => false,
        }
    }

    /// Whether the server demands credentials, which it would demand with every transport.
    pub(crate) fn is_about_access(&self) -> bool {
        match self {
            Self::SignInRequired { .. } | Self::TokenUnavailable(_) | Self::TokenFailed(_) => true,
            Self::Unauthorized { status, .. } => *status == StatusCode::UNAUTHORIZED,
            _ => false,
        }
    }

    /// Whether this is the response of a server that has lost our session.
    pub(crate) fn means_forgotten(&self) -> bool {
        match self {
            Self::Status { status: StatusCode::NOT_FOUND, .. } => true,
            Self::Status { status: StatusCode::BAD_REQUEST, excerpt } => {
                excerpt.to_ascii_lowercase().contains("session")
            }
            _ => false,
        }
    }

    /// Whether the server certainly did not carry out the request.
    pub(crate) fn left_untouched(&self) -> bool {
        !matches!(
            self,
            Self::BrokeOff(_) | Self::TooLarge(_) | Self::NoAnswer | Self::Status { .. } | Self::ForeignAnswer(_)
        )
    }

    /// Whether the server may be unreachable.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::BrokeOff(_) | Self::NoAnswer | Self::NotRenewed(_))
    }

    /// Reports to the supervisor that the server may have disconnected.
    pub(crate) fn report_liveness(&self, connection: &Connection) {
        let why = || connection.hide(&self.to_string());
        match self {
            Self::Unreachable(_) => connection.liveness.note_unreachable(&why()),
            _ if self.is_silence() => connection.liveness.note_disconnected(&why()),
            _ => {}
        }
    }

    /// The command that signs in, if that is what has to be done.
    pub(crate) fn login_command(&self) -> Option<String> {
        match self {
            Self::SignInRequired { command, .. } => Some(command.clone()),
            _ => None,
        }
    }

    /// What a call with this error fails with.
    pub(crate) fn failure(&self) -> RemoteFailure {
        match self {
            Self::SignInRequired { .. } => RemoteFailure::SignInRequired,
            Self::Unauthorized { .. }
            | Self::TokenFailed(_)
            | Self::PrivateNetwork(_)
            | Self::Loop(_)
            | Self::Status { .. }
            | Self::RedirectedAway(_)
            | Self::ForeignAnswer(_) => RemoteFailure::Refused,
            Self::NotRenewed(_) | Self::Forgetful(_) => RemoteFailure::SessionLost,
            Self::Busy(_) => RemoteFailure::Busy,
            _ if self.left_untouched() => RemoteFailure::Unreachable,
            _ => RemoteFailure::ResponseLost,
        }
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        // "Deadline has elapsed" names neither the subject nor the operation.
        if source.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return "its host does not respond".to_owned();
        }
        cause = source;
    }
    cause.to_string()
}

/// Whether a response is a web page for people.
fn is_web_page(text: &str) -> bool {
    let begin: String = text.trim_start().chars().take(9).collect::<String>().to_ascii_lowercase();
    begin.starts_with("<!doctype") || begin.starts_with("<html")
}

/// The text of a web page, without its markup.
fn words_of(page: &str) -> String {
    let mut words = String::new();
    let mut is_markup = false;
    for message in page.chars() {
        match message {
            '<' => is_markup = true,
            '>' => {
                is_markup = false;
                words.push(' ');
            }
            _ if !is_markup => words.push(message),
            _ => {}
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_a_web_page_is_reported() {
        let page = b"<!DOCTYPE html>\n<html><body class=\"x\"><h1>Cannot POST</h1> /mcp</body></html>";
        let message = RequestError::status(StatusCode::NOT_FOUND, page).to_string();
        assert_eq!(message, "it answered HTTP 404 Not Found: Cannot POST /mcp");
        let message = RequestError::status(StatusCode::BAD_REQUEST, b"{\"a\": \"<b>\"}").to_string();
        assert_eq!(message, "it answered HTTP 400 Bad Request: {\"a\": \"<b>\"}");
    }
}
