//! Why a sign-in or a refresh failed: the step, the address, what came back, and what to do. Nothing secret.

use std::fmt;

use protocol::escape;

use crate::fetch::{FetchError, HttpResponse};
use crate::store::StoreError;

/// Characters of a response that are shown.
const EXCERPT: usize = 200;

/// A step of a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Asking the server what it requires.
    Challenge,
    /// Reading the metadata of the protected resource.
    ResourceMetadata,
    /// Reading the metadata of the authorization server.
    ServerMetadata,
    /// Finding out who we are there: the dynamic registration, or the choice of another identity.
    Registration,
    /// Sending the user to the authorization page.
    Authorization,
    /// The redirect back from there.
    Callback,
    /// Exchanging the code, or the credentials of the client, for tokens.
    TokenRequest,
    /// Refreshing the access token.
    Refresh,
    /// Revoking the tokens.
    Revocation,
    /// Reading or writing the stored sign-in.
    Store,
}

impl Step {
    fn as_str(self) -> &'static str {
        match self {
            Self::Challenge => "asking the server what it requires",
            Self::ResourceMetadata => "reading the resource metadata",
            Self::ServerMetadata => "reading the metadata of the authorization server",
            Self::Registration => "registering as a client",
            Self::Authorization => "starting the authorization",
            Self::Callback => "returning from the authorization page",
            Self::TokenRequest => "requesting tokens",
            Self::Refresh => "refreshing the access token",
            Self::Revocation => "revoking the tokens",
            Self::Store => "storing the sign-in",
        }
    }
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowError {
    /// The step.
    pub step: Step,
    /// The address it was about, without its query.
    pub address: Option<String>,
    /// What came back or is wrong.
    pub problem: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// What that means for a retry.
    pub kind: FlowErrorKind,
}

/// What an error means for a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowErrorKind {
    /// Nothing was sent, or the other side was not able to answer, or it was not the authorization server that answered:
    /// the same may succeed later.
    Temporary,
    /// A request was sent and its response is lost, or is a success without what it should contain: it may have been
    /// carried out.
    Lost,
    /// The authorization server does not accept the grant (`invalid_grant` and the like).
    InvalidGrant,
    /// The authorization server does not accept the client (`invalid_client`, `unauthorized_client`).
    InvalidClient,
    /// It will fail again until something is changed.
    Final,
}

impl std::error::Error for FlowError {}

impl fmt::Display for FlowError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} failed", self.step.as_str())?;
        if let Some(address) = &self.address {
            write!(out, " at {address}")?;
        }
        write!(out, ": {}", self.problem)?;
        match &self.hint {
            Some(hint) => write!(out, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl FlowError {
    /// One that needs a change.
    pub(crate) fn new(step: Step, problem: impl Into<String>) -> Self {
        Self { step, address: None, problem: problem.into(), hint: None, kind: FlowErrorKind::Final }
    }

    pub(crate) fn at(self, address: &str) -> Self {
        Self { address: Some(shown_address(address)), ..self }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn kind(self, kind: FlowErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// There was no response.
    pub(crate) fn fetch(step: Step, address: &str, error: &FetchError) -> Self {
        let kind = match error {
            FetchError::Unsent(_) => FlowErrorKind::Temporary,
            FetchError::Refused(_) => FlowErrorKind::Final,
            FetchError::Lost(_) => FlowErrorKind::Lost,
        };
        Self::new(step, error.to_string()).at(address).kind(kind)
    }

    /// The response is an error, or not what it should be.
    pub(crate) fn response(step: Step, address: &str, response: &HttpResponse) -> Self {
        let excerpt = excerpt(&response.body);
        let excerpt = if excerpt.is_empty() { excerpt } else { format!(": {excerpt}") };
        let kind = match response.status {
            408 | 429 | 500.. => FlowErrorKind::Temporary,
            _ => FlowErrorKind::Final,
        };
        Self::new(step, format!("HTTP {}{excerpt}", response.status)).at(address).kind(kind)
    }
}

impl From<StoreError> for FlowError {
    fn from(error: StoreError) -> Self {
        Self::new(Step::Store, error.0).kind(FlowErrorKind::Temporary)
    }
}

/// Why a redirect to us was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// It belongs to no sign-in that is pending: `state` is unknown, was used, or is absent.
    #[error("this redirect belongs to no sign-in that is pending; start the sign-in again")]
    Unknown,
    /// Its sign-in was started too long ago.
    #[error("the sign-in to `{server}` took longer than 10 minutes; start it again")]
    Expired {
        /// The server.
        server: String,
    },
    /// It comes from another authorization server than the one the user was sent to. What it says is not shown.
    #[error("the redirect of the sign-in to `{server}` was rejected: {problem}")]
    ForeignIssuer {
        /// The server.
        server: String,
        /// What is wrong with its `iss`.
        problem: String,
    },
    /// The authorization server, or the person, refused.
    #[error("the authorization server refused the sign-in to `{server}`: {error}")]
    Denied {
        /// The server.
        server: String,
        /// Its error code and description.
        error: String,
    },
    /// The sign-in could not be completed.
    #[error("the sign-in to `{server}` failed: {error}")]
    Failed {
        /// The server.
        server: String,
        /// Why.
        error: Box<FlowError>,
    },
}

/// Why there is no token for a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// A person has to sign in.
    #[error("{why}")]
    SignInRequired {
        /// Why, as a sentence without the command that does it.
        why: String,
    },
    /// A token could not be obtained now; a later attempt may succeed.
    #[error("{0}")]
    Unavailable(Box<FlowError>),
    /// A token cannot be obtained until the configuration is changed.
    #[error("{0}")]
    Failed(Box<FlowError>),
    /// The server does not ask for a sign-in: it publishes no way to sign in.
    #[error("the server does not offer a sign-in")]
    NotOffered,
}

/// An address without its query and credentials.
pub(crate) fn shown_address(address: &str) -> String {
    catalog::mask::address(address)
}

/// The beginning of a text from elsewhere, on one line and escaped; of a web page only its text.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(16 * EXCERPT)]);
    let begin: String = text.trim_start().chars().take(9).collect::<String>().to_ascii_lowercase();
    let is_web_page = begin.starts_with("<!doctype") || begin.starts_with("<html");
    let words = if is_web_page { words_of(&text) } else { text.into_owned() };
    let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect();
    escape::one_line(&line).into()
}

/// The text of a web page, without its markup.
fn words_of(page: &str) -> String {
    let mut words = String::new();
    let mut is_markup = false;
    for letter in page.chars() {
        match letter {
            '<' => is_markup = true,
            '>' => {
                is_markup = false;
                words.push(' ');
            }
            _ if !is_markup => words.push(letter),
            _ => {}
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_step_the_address_the_response_and_the_way_out() {
        let response = HttpResponse {
            status: 403,
            content_type: "text/html".into(),
            www_authenticate: Vec::new(),
            body: "<!DOCTYPE html><h1>Not\nallowed</h1>".into(),
        };
        let error = FlowError::response(Step::Registration, "https://me:pw@as.example/register?k=v", &response);
        let message = error.hint("set `oauth.client_id`").to_string();
        assert_eq!(
            message,
            "registering as a client failed at https://me@as.example/register: HTTP 403: Not allowed; set `oauth.client_id`"
        );
    }
}
