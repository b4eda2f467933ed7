//! Errors of models, with hints.

use std::time::Duration;

use serde_json::Value;

use crate::Provider;

/// How many characters of an unexpected response are shown.
const EXCERPT: usize = 300;

/// Why a model did not answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the model {model} did not answer: {kind}")]
pub struct ModelError {
    /// The model and its address.
    pub model: String,
    /// The kind of error.
    pub kind: ModelErrorKind,
}

/// The kind of an error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelErrorKind {
    /// The address is invalid.
    #[error("{0}")]
    BadAddress(String),
    /// The server is unreachable.
    #[error("{0}")]
    Unreachable(String),
    /// The provider refused the request.
    #[error("HTTP {status}{}", after(": ", words))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The provider's message.
        words: String,
    },
    /// The provider is overloaded, or limits the request rate.
    #[error("it is overloaded (HTTP {status}){}", after(": ", words))]
    Busy {
        /// The HTTP status.
        status: u16,
        /// The provider's message.
        words: String,
        /// When to retry, if the provider says so.
        retry_after: Option<Duration>,
    },
    /// The request timed out.
    #[error("{what} took longer than {} s", limit.as_secs_f32())]
    TimedOut {
        /// What timed out.
        what: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// The response ended early.
    #[error("its response ended early: {0}")]
    BrokeOff(String),
    /// The response started, and then reported an error.
    #[error("its response ended with an error: {0}")]
    InStream(String),
    /// The response is not one of a model.
    #[error("its response is not one of a model: {0}")]
    Foreign(String),
    /// The response contains no JSON, although JSON was requested.
    #[error("its response contains no JSON: {0}")]
    NoJson(String),
    /// The budget is spent.
    #[error("the budget is spent ({0})")]
    BudgetSpent(String),
}

impl ModelError {
    pub(crate) fn new(provider: &Provider, kind: ModelErrorKind) -> Self {
        Self { model: provider.shown(), kind }
    }

    /// What the user can do about it, if known.
    pub fn hint(&self) -> Option<&'static str> {
        match &self.kind {
            ModelErrorKind::BadAddress(_) => Some("a base URL looks like http://localhost:11434/v1"),
            ModelErrorKind::Unreachable(_) => Some("check the base URL, and whether the model's server is running"),
            ModelErrorKind::Refused { status: 401 | 403, .. } => Some("check the API key"),
            ModelErrorKind::Refused { status: 404, .. } => Some("check the name of the model and the base URL"),
            ModelErrorKind::Refused { words, .. } | ModelErrorKind::Busy { words, .. } if is_about_money(words) => {
                Some("the provider requires payment: check the quota of the account")
            }
            ModelErrorKind::Refused { words, .. } if words.to_ascii_lowercase().contains("model") => {
                Some("check the name of the model")
            }
            ModelErrorKind::TimedOut { .. } => Some("a local model may need some time to load; try again"),
            ModelErrorKind::Foreign(_) => Some("check whether the base URL is that of an API"),
            ModelErrorKind::BudgetSpent(_) => Some("raise the budget, or wait until it is reset"),
            _ => None,
        }
    }

    /// Whether the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        match &self.kind {
            ModelErrorKind::Refused { status, .. } => *status >= 500,
            ModelErrorKind::BadAddress(_) | ModelErrorKind::BudgetSpent(_) => false,
            _ => true,
        }
    }

    /// When to retry, if the provider says so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            ModelErrorKind::Busy { retry_after, .. } => retry_after,
            _ => None,
        }
    }
}

impl ModelErrorKind {
    /// The error for an unsuccessful response.
    pub(crate) fn of_status(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let words = error_text(body);
        match status {
            408 | 409 | 425 | 429 | 500 | 502..=504 | 529 => Self::Busy { status, words, retry_after },
            _ => Self::Refused { status, words },
        }
    }

    /// Whether an immediate retry may help.
    pub(crate) fn may_be_repeated(&self) -> bool {
        match self {
            Self::Busy { words, .. } => !is_about_money(words),
            Self::Unreachable(_) | Self::BrokeOff(_) | Self::InStream(_) => true,
            _ => false,
        }
    }
}

fn is_about_money(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ["insufficient_quota", "exceeded your current quota", "billing", "credit balance"]
        .iter()
        .any(|sign| words.contains(sign))
}

/// The provider's message: `error.message` for most, `error` for Ollama, `message` for others.
pub(crate) fn error_text(body: &[u8]) -> String {
    let text = serde_json::from_slice::<Value>(body).ok().and_then(|body| error_text_of(&body));
    text.unwrap_or_else(|| excerpt(&String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT)])))
}

pub(crate) fn error_text_of(body: &Value) -> Option<String> {
    // Gemini wraps its error in a list.
    let body = body.get(0).unwrap_or(body);
    let error = body.get("error").unwrap_or(body);
    let message = error.get("message").or(Some(error)).and_then(Value::as_str)?;
    let code = ["code", "type"].iter().find_map(|member| error.get(member)?.as_str());
    Some(excerpt(&code.map_or_else(|| message.to_owned(), |code| format!("{message} ({code})"))))
}

pub(crate) fn excerpt(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect()
}

fn after(mark: &str, words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("{mark}{words}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_own_words_are_reported_without_their_wrapping() {
        let text = |body: &str| error_text(body.as_bytes());
        assert_eq!(
            text(r#"{"error": {"message": "No such model.", "code": "model_not_found"}}"#),
            "No such model. (model_not_found)"
        );
        assert_eq!(
            text(r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#),
            "Overloaded (overloaded_error)"
        );
        assert_eq!(text(r#"{"error": "model 'x' not found"}"#), "model 'x' not found");
        assert_eq!(text(r#"[{"error": {"code": 400, "message": "Bad"}}]"#), "Bad");
        assert_eq!(text("<html>\n  <b>Bad gateway</b>"), "<html> <b>Bad gateway</b>");
        assert_eq!(text(""), "");
    }

    #[test]
    fn a_hint_says_what_to_look_at() {
        let hint = |status, body: &str| {
            let provider = Provider::openai("http://host/v1", None, "m");
            ModelError::new(&provider, ModelErrorKind::of_status(status, body.as_bytes(), None))
                .hint()
                .unwrap_or_default()
        };
        assert!(hint(401, "").contains("key"));
        assert!(hint(404, "").contains("name of the model"));
        assert!(hint(429, r#"{"error": {"message": "x", "code": "insufficient_quota"}}"#).contains("quota"));
    }
}
