//! What can go wrong with a request to a server.

use std::io;

use hyper::StatusCode;
use upstream::failure::RemoteFailure;
use upstream::{Connection, OverLimit};

/// How much of an unwelcome answer is shown.
const EXCERPT: usize = 200;

/// What can go wrong with a request.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("`{0}` is no address that can be reached over HTTP")]
    BadAddress(String),
    #[error("its header `{0}` cannot be sent")]
    BadHeader(String),
    #[error("no certificates to check it with: {0}")]
    NoCertificates(String),
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it wants other credentials (HTTP {status}{challenge})")]
    Unauthorized { status: StatusCode, challenge: String },
    #[error("{0}")]
    Loop(&'static str),
    #[error("it answered HTTP {status}{excerpt}")]
    Status { status: StatusCode, excerpt: String },
    #[error("it redirects to another place ({0}), which is not followed")]
    RedirectedAway(String),
    #[error("it is busy (HTTP {0})")]
    Busy(String),
    #[error("it answered with {0} instead of JSON or an event stream")]
    ForeignAnswer(String),
    #[error("its answer broke off: {0}")]
    BrokeOff(String),
    #[error("its answer cannot be read: {0}")]
    TooLarge(OverLimit),
    #[error("it did not answer the request")]
    NoAnswer,
    #[error("it had forgotten us, and could not be met again: {0}")]
    NotRenewed(String),
    #[error("it forgets us again and again (HTTP {0})")]
    Forgetful(StatusCode),
}

impl RequestError {
    /// An answer that is no success, with the beginning of what the server said.
    pub(crate) fn status(status: StatusCode, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT)]);
        let text = if is_web_page(&text) { words_of(&text) } else { text.into_owned() };
        let excerpt: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect();
        Self::Status { status, excerpt: if excerpt.is_empty() { excerpt } else { format!(": {excerpt}") } }
    }

    /// The connection broke while an answer was awaited or read: the server may have done what it was asked.
    pub(crate) fn broke_off(error: &dyn std::error::Error) -> Self {
        Self::BrokeOff(root_cause(error))
    }

    /// There is no connection, so the server has seen nothing.
    pub(crate) fn unreachable(error: &dyn std::error::Error) -> Self {
        Self::Unreachable(root_cause(error))
    }

    /// The same, met when we introduced ourselves anew.
    pub(crate) fn at_renewal(self) -> Self {
        if self.left_untouched() { self } else { Self::NotRenewed(self.to_string()) }
    }

    /// Whether this is how a server answers that speaks another dialect.
    pub(crate) fn is_foreign(&self) -> bool {
        match self {
            Self::Status { status, .. } => status.is_client_error(),
            Self::ForeignAnswer(_) => true,
            _ => false,
        }
    }

    /// Whether this is how a server answers that does not know our session any more.
    pub(crate) fn means_forgotten(&self) -> bool {
        match self {
            Self::Status { status: StatusCode::NOT_FOUND, .. } => true,
            Self::Status { status: StatusCode::BAD_REQUEST, excerpt } => {
                excerpt.to_ascii_lowercase().contains("session")
            }
            _ => false,
        }
    }

    /// Whether the server certainly did not do what it was asked.
    pub(crate) fn left_untouched(&self) -> bool {
        !matches!(
            self,
            Self::BrokeOff(_) | Self::TooLarge(_) | Self::NoAnswer | Self::Status { .. } | Self::ForeignAnswer(_)
        )
    }

    /// Whether nobody may be there any more.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::BrokeOff(_) | Self::NoAnswer | Self::NotRenewed(_))
    }

    /// Lets whoever watches the server know that it may be gone.
    pub(crate) fn report_liveness(&self, connection: &Connection) {
        let why = || connection.hide(&self.to_string());
        match self {
            Self::Unreachable(_) => connection.liveness.note_unreachable(&why()),
            _ if self.is_silence() => connection.liveness.note_disconnected(&why()),
            _ => {}
        }
    }

    /// What has become of a call that met it.
    pub(crate) fn failure(&self) -> RemoteFailure {
        match self {
            Self::Unauthorized { .. }
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
        // "Deadline has elapsed" says neither whose nor of what.
        if source.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return "its machine does not answer".to_owned();
        }
        cause = source;
    }
    cause.to_string()
}

/// Whether what came instead of an answer is a page for people.
fn is_web_page(text: &str) -> bool {
    let begin: String = text.trim_start().chars().take(9).collect::<String>().to_ascii_lowercase();
    begin.starts_with("<!doctype") || begin.starts_with("<html")
}

/// The words of a web page, without its markup.
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
        let told = RequestError::status(StatusCode::NOT_FOUND, page).to_string();
        assert_eq!(told, "it answered HTTP 404 Not Found: Cannot POST /mcp");
        let told = RequestError::status(StatusCode::BAD_REQUEST, b"{\"a\": \"<b>\"}").to_string();
        assert_eq!(told, "it answered HTTP 400 Bad Request: {\"a\": \"<b>\"}");
    }
}
