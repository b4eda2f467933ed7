//! Why a command failed, for the user.

use std::fmt;

use executions::with_local_times;
use serde_json::{Value, json};

use crate::{command_hint, exit};

/// The message for stderr, and the exit status.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// A stable code, and further data, for programs.
    pub(crate) kind: Option<String>,
    /// Boxed to keep results small, because every command may fail.
    pub(crate) data: Option<Box<Value>>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: exit::FAILED, message: message.into(), hint: None, kind: None, data: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: exit::USAGE, ..Self::new(message) }
    }

    pub(crate) fn interrupted() -> Self {
        Self { code: exit::INTERRUPTED, ..Self::new("interrupted") }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn of_kind(mut self, kind: &str) -> Self {
        self.kind = Some(kind.to_owned());
        self
    }

    /// For a call: a stable reason, and whether a retry is safe. Existing members stay.
    pub(crate) fn of_call(mut self, reason: &str, is_safe_to_retry: bool) -> Self {
        let data = self.data.get_or_insert_with(|| Box::new(json!({})));
        if let Value::Object(members) = &mut **data {
            members.entry("reason").or_insert_with(|| json!(reason));
            members.entry("safeToRetry").or_insert_with(|| json!(is_safe_to_retry));
        }
        self
    }

    /// The same as JSON, always with the same members; only `data`, and the members about calls, may be absent.
    pub(crate) fn to_json(&self) -> Value {
        let Self { code, message, hint, data, .. } = self;
        let hint = hint.as_deref().map(command_hint::completed);
        let mut error = json!({"code": self.code(), "message": message, "hint": hint, "exit_status": code});
        if let Some(data) = data {
            for member in ["reason", "safeToRetry"] {
                if let Some(value) = data.get(member) {
                    error[member] = value.clone();
                }
            }
            error["data"] = Value::clone(data);
        }
        json!({ "error": error })
    }

    /// The error code for programs. Every failure has one.
    fn code(&self) -> &str {
        self.kind.as_deref().unwrap_or(match self.code {
            exit::USAGE => "USAGE",
            exit::TOOL_FAILED => "TOOL_FAILED",
            exit::INTERRUPTED => "INTERRUPTED",
            _ => "FAILED",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "error: {}", with_local_times(&self.message))?;
        match &self.hint {
            Some(hint) => write!(out, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use registry::Timestamp;

    use super::*;
    use crate::server_view::LOCAL_TIME;

    #[test]
    fn times_of_a_service_are_local_for_people_and_utc_for_machines() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap().local(LOCAL_TIME);
        let (since, next) = ("2026-07-28T12:00:00Z", "2026-07-28T12:05:00Z");
        let message = |since: &str, next: &str| {
            format!(
                "Server `a` is not available: error since {since}; next attempt at {next} (in 5 s); it said {since}"
            )
        };
        let failure = Failure::new(message(since, next)).of_kind("SERVER_UNAVAILABLE");
        let expected = format!("error: {}", message(&at(since), &at(next)))
            .replace(&format!("it said {}", at(since)), &format!("it said {since}"));
        assert_eq!(failure.to_string(), expected, "what a server said itself stays as it is");
        assert_eq!(failure.to_json()["error"]["message"], message(since, next));
    }

    #[test]
    fn json_errors_have_a_code_a_message_and_a_hint() {
        let failure = Failure::new("no").with_hint("yes").of_kind("SERVER_NOT_FOUND");
        let message = json!({"error": {"code": "SERVER_NOT_FOUND", "message": "no", "hint": "yes", "exit_status": 1}});
        assert_eq!(failure.to_json(), message);
        assert_eq!(Failure::usage("what?").to_json()["error"]["code"], "USAGE");
        let with_data = Failure { data: Some(Box::new(json!({"a": 1}))), ..Failure::new("no") };
        assert_eq!(with_data.to_json()["error"]["data"]["a"], 1);
        assert_eq!(with_data.to_json()["error"]["code"], "FAILED");
        let of_call = with_data.of_call("answer_lost", false).of_call("other", true).to_json();
        assert_eq!(
            (&of_call["error"]["reason"], &of_call["error"]["safeToRetry"]),
            (&json!("answer_lost"), &json!(false))
        );
    }
}
