//! Calls that were made before: a model that asks for the same again and again gets nowhere.

use std::collections::HashMap;

use models::ToolCall;

/// How often the same may be called; the next time the model is told so instead.
const MAX_REPEATS: usize = 2;

/// What was called so far.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// By tool and arguments.
    calls: HashMap<(String, String), usize>,
    /// The same for calls that made no sense, as they were written.
    mistakes: HashMap<(String, String), usize>,
}

impl Repeats {
    /// Counts a call; whether it may be made once more.
    pub(crate) fn may_call(&mut self, tool: &str, arguments: &serde_json::Map<String, serde_json::Value>) -> bool {
        // Members in another order say the same.
        let mut members: Vec<(&String, String)> = arguments.iter().map(|(name, it)| (name, it.to_string())).collect();
        members.sort();
        let count = self.calls.entry((tool.to_owned(), format!("{members:?}"))).or_default();
        *count += 1;
        *count <= MAX_REPEATS
    }

    /// Counts a call that makes no sense; whether it may still come to sense.
    pub(crate) fn may_err(&mut self, call: &ToolCall) -> bool {
        let count = self.mistakes.entry((call.name.clone(), call.arguments.clone())).or_default();
        *count += 1;
        *count <= MAX_REPEATS
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_same_may_be_called_twice_in_whatever_order_it_is_written() {
        let mut repeats = Repeats::default();
        let mut may = |arguments: Value| repeats.may_call("t", arguments.as_object().unwrap());
        assert!(may(json!({"a": 1, "b": 2})) && may(json!({"b": 2, "a": 1})) && may(json!({"a": 1})));
        assert!(!may(json!({"a": 1, "b": 2})));
    }
}
