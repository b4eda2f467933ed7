//! Detects repeated calls: a model that keeps requesting the same makes no progress.

use std::collections::HashMap;

use models::ToolCall;

/// How often the same call may be made; after that the model gets a message instead.
const MAX_REPEATS: usize = 2;

/// The calls so far.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// By tool and arguments.
    calls: HashMap<(String, String), usize>,
    /// The same for invalid calls, as they were written.
    mistakes: HashMap<(String, String), usize>,
}

impl Repeats {
    /// Counts a call, and returns whether it may be made again.
    pub(crate) fn record_call(&mut self, tool: &str, arguments: &serde_json::Map<String, serde_json::Value>) -> bool {
        // The order of members does not matter.
        let mut members: Vec<(&String, String)> = arguments.iter().map(|(name, it)| (name, it.to_string())).collect();
        members.sort();
        let count = self.calls.entry((tool.to_owned(), format!("{members:?}"))).or_default();
        *count += 1;
        *count <= MAX_REPEATS
    }

    /// Counts an invalid call, and returns whether the model may still correct it.
    pub(crate) fn record_mistake(&mut self, call: &ToolCall) -> bool {
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
        let mut record = |arguments: Value| repeats.record_call("t", arguments.as_object().unwrap());
        assert!(record(json!({"a": 1, "b": 2})) && record(json!({"b": 2, "a": 1})) && record(json!({"a": 1})));
        assert!(!record(json!({"a": 1, "b": 2})));
    }
}
