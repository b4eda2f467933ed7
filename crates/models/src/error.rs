//! What can go wrong with a model, in words that help.

use std::time::Duration;

use serde_json::Value;

use crate::Provider;

/// How much of an unwelcome answer is shown.
const EXCERPT: usize = 300;

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the model {model} did not answer: {kind}")]
pub struct ModelError {
    /// Which one, and where.
    pub model: String,
    /// What went wrong.
    pub kind: ModelErrorKind,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelErrorKind {
    /// The address is none.
    #[error("{0}")]
    BadAddress(String),
    /// Nobody is there.
    #[error("{0}")]
    Unreachable(String),
    /// The provider said no.
    #[error("HTTP {status}{}", after(": ", words))]
    Refused {
        /// How.
        status: u16,
        /// In its own words.
        words: String,
    },
    /// The provider has too much to do, or wants us to ask less often.
    #[error("it is busy (HTTP {status}){}", after(": ", words))]
    Busy {
        /// How.
        status: u16,
        /// In its own words.
        words: String,
        /// When to ask again, if it says so.
        retry_after: Option<Duration>,
    },
    /// It took too long.
    #[error("{what} took longer than {} s", limit.as_secs_f32())]
    TimedOut {
        /// What did.
        what: &'static str,
        /// Longer than this.
        limit: Duration,
    },
    /// The answer ended before its end.
    #[error("its answer broke off: {0}")]
    BrokeOff(String),
    /// The answer began well, and then told of an error.
    #[error("its answer ended with an error: {0}")]
    InStream(String),
    /// The answer is none of a model.
    #[error("it answered with something that is no answer of a model: {0}")]
    Foreign(String),
    /// JSON was wanted, and there is none in the answer.
    #[error("its answer has no JSON in it: {0}")]
    NoJson(String),
    /// We have asked as much as we may.
    #[error("the budget is spent ({0})")]
    BudgetSpent(String),
}

impl ModelError {
    pub(crate) fn new(provider: &Provider, kind: ModelErrorKind) -> Self {
        Self { model: provider.shown(), kind }
    }

    /// What the user could do about it, where that can be told.
    pub fn hint(&self) -> Option<&'static str> {
        match &self.kind {
            ModelErrorKind::BadAddress(_) => Some("the base URL looks like http://localhost:11434/v1"),
            ModelErrorKind::Unreachable(_) => Some("is the base URL right, and is the model's server running?"),
            ModelErrorKind::Refused { status: 401 | 403, .. } => Some("check the API key"),
            ModelErrorKind::Refused { status: 404, .. } => Some("check the name of the model and the base URL"),
            ModelErrorKind::Refused { words, .. } | ModelErrorKind::Busy { words, .. } if is_about_money(words) => {
                Some("the provider wants to be paid: look at the account's quota")
            }
            ModelErrorKind::Refused { words, .. } if words.to_ascii_lowercase().contains("model") => {
                Some("check the name of the model")
            }
            ModelErrorKind::TimedOut { .. } => Some("a local model may need a while to load; try again"),
            ModelErrorKind::Foreign(_) => Some("is the base URL that of an API?"),
            ModelErrorKind::BudgetSpent(_) => Some("raise the budget, or wait until it is renewed"),
            _ => None,
        }
    }

    /// The same may succeed later.
    pub fn may_pass(&self) -> bool {
        match &self.kind {
            ModelErrorKind::Refused { status, .. } => *status >= 500,
            ModelErrorKind::BadAddress(_) | ModelErrorKind::BudgetSpent(_) => false,
            _ => true,
        }
    }

    /// When to ask again, if the provider says so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            ModelErrorKind::Busy { retry_after, .. } => retry_after,
            _ => None,
        }
    }
}

impl ModelErrorKind {
    /// An answer that is no success.
    pub(crate) fn of_status(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let words = error_text(body);
        match status {
            408 | 409 | 425 | 429 | 500 | 502..=504 | 529 => Self::Busy { status, words, retry_after },
            _ => Self::Refused { status, words },
        }
    }

    /// Whether asking again within moments may help.
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

/// What the provider says, without its braces: `error.message` of most, `error` of Ollama, `message` of others.
pub(crate) fn error_text(body: &[u8]) -> String {
    let told = serde_json::from_slice::<Value>(body).ok().and_then(|body| error_text_of(&body));
    told.unwrap_or_else(|| excerpt(&String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT)])))
}

pub(crate) fn error_text_of(body: &Value) -> Option<String> {
    // Gemini puts its error into a list.
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
        let told = |body: &str| error_text(body.as_bytes());
        assert_eq!(
            told(r#"{"error": {"message": "No such model.", "code": "model_not_found"}}"#),
            "No such model. (model_not_found)"
        );
        assert_eq!(
            told(r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#),
            "Overloaded (overloaded_error)"
        );
        assert_eq!(told(r#"{"error": "model 'x' not found"}"#), "model 'x' not found");
        assert_eq!(told(r#"[{"error": {"code": 400, "message": "Bad"}}]"#), "Bad");
        assert_eq!(told("<html>\n  <b>Bad gateway</b>"), "<html> <b>Bad gateway</b>");
        assert_eq!(told(""), "");
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
