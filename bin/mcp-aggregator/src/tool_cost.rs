//! Estimates the cost of tools in tokens from the length of their definitions, for all commands alike.

use serde_json::Value;

/// Bytes per token, roughly, in JSON.
const BYTES_PER_TOKEN: usize = 4;

/// The approximate number of tokens for this many bytes of definitions.
pub(crate) fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// The length of a tool's definition with its full name instead of its own.
pub(crate) fn listed_bytes(tool: &Value, own_name: &str) -> usize {
    let definition = tool["definition_bytes"].as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or_default();
    (definition + tool["name"].as_str().unwrap_or_default().len()).saturating_sub(own_name.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_definition_is_as_long_as_it_is_listed() {
        let tool = json!({"name": "git.log", "definition_bytes": 100});
        assert_eq!((listed_bytes(&tool, "log"), tokens(105)), (104, 27));
    }
}
