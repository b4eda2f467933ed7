//! The search surface of an assistant: with many tools, a model gets three tools that find, describe and call the
//! others. They have the same names as those for MCP clients.

use std::collections::HashMap;

use models::{Tool, ToolCall};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::executor::OfferedTool;

/// With more tools than this, a model has to search. The same limit applies to unknown MCP clients.
pub(crate) const MAX_LISTED_TOOLS: usize = 100;

pub(crate) const SEARCH: &str = "search_tools";
pub(crate) const DESCRIBE: &str = "describe_tool";
pub(crate) const CALL: &str = "call_tool";

/// How many tools a search returns by default, and at most.
const DEFAULT_FOUND: usize = 8;
const MAX_FOUND: usize = 50;
/// The maximum number of characters of a description, and of bytes of a schema, in a search result.
const MAX_DESCRIPTION_LEN: usize = 300;
const MAX_SCHEMA_LEN: usize = 2_000;

/// The search tools.
pub(crate) fn tools(offers: &[OfferedTool]) -> Vec<Tool> {
    let name = json!({ "type": "string", "description": "The tool's name as search_tools gives it" });
    let about = format!(
        "Finds tools by what they do. {} tools can be used here although they are not listed. Search before you say that \
         something cannot be done; then use call_tool with a name that was found.",
        offers.len()
    );
    vec![
        Tool::new(
            SEARCH,
            about,
            json!({
                "type": "object",
                "properties": {
                    "query": {
                        "type": "string",
                        "description": "What you want to do, in plain words, e.g. \"create an issue\" or \"read a file\""
                    },
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MAX_FOUND,
                        "description": format!("At most so many (default {DEFAULT_FOUND})")
                    }
                },
                "required": ["query"]
            }),
        ),
        Tool::new(
            DESCRIBE,
            "Shows the whole description and input schema of a tool that search_tools found. Only needed where the search \
             result does not show them.",
            json!({ "type": "object", "properties": { "name": name }, "required": ["name"] }),
        ),
        Tool::new(
            CALL,
            "Calls a tool that search_tools found and returns its result.",
            json!({
                "type": "object",
                "properties": {
                    "name": name,
                    "arguments": { "type": "object", "description": "The tool's own arguments, as its schema says" }
                },
                "required": ["name"]
            }),
        ),
    ]
}

/// The call that a model means: for `call_tool`, the inner call with its arguments as written; otherwise the call
/// itself.
pub(crate) fn inner_call(call: &ToolCall) -> Result<ToolCall, String> {
    if call.name != CALL {
        return Ok(call.clone());
    }
    let members: HashMap<String, Box<RawValue>> = serde_json::from_str(&call.arguments)
        .map_err(|error| format!("the arguments of {CALL} must be a JSON object: {error}"))?;
    let text = |member: &str| serde_json::from_str::<String>(members.get(member)?.get()).ok();
    let name = text("name").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| format!("{CALL} needs `name`: a tool's name as {SEARCH} gives it"))?;
    // Some models write an object as a string.
    let arguments = text("arguments").or_else(|| members.get("arguments").map(|raw| raw.get().to_owned()));
    Ok(ToolCall { id: call.id.clone(), name, arguments: arguments.unwrap_or_else(|| "{}".to_owned()) })
}

/// The query and the limit of a search.
pub(crate) fn search_arguments(arguments: &Map<String, Value>) -> Result<(String, usize), String> {
    let query = arguments.get("query").and_then(Value::as_str).filter(|query| !query.trim().is_empty());
    let query = query.ok_or_else(|| format!("{SEARCH} needs `query`: what you want to do, in plain words"))?;
    let limit = match arguments.get("limit") {
        // Some models write numbers as strings.
        Some(Value::String(digits)) => digits.trim().parse().ok(),
        Some(number) => number.as_u64().and_then(|number| usize::try_from(number).ok()),
        None => None,
    };
    Ok((query.to_owned(), limit.unwrap_or(DEFAULT_FOUND).clamp(1, MAX_FOUND)))
}

/// The text for a model about the tools that were found.
pub(crate) fn found<'o>(offers: impl Iterator<Item = &'o OfferedTool>) -> String {
    let shown: Vec<String> = offers.map(|offer| shown(&offer.tool)).collect();
    if shown.is_empty() {
        return "No tool fits. Try other words.".to_owned();
    }
    format!("{}\n\nUse {CALL} with one of these names.", shown.join("\n\n"))
}

fn shown(tool: &Tool) -> String {
    let words = tool.description.split_whitespace().collect::<Vec<_>>().join(" ");
    let about = match words.char_indices().nth(MAX_DESCRIPTION_LEN) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    };
    let schema = tool.schema.to_string();
    let schema = if schema.len() > MAX_SCHEMA_LEN { format!("{DESCRIBE} shows its arguments") } else { schema };
    format!("{}: {about}\narguments: {schema}", tool.name)
}

/// The whole definition of a tool as text for a model.
pub(crate) fn described(tool: &Tool) -> String {
    format!("{}: {}\narguments: {}", tool.name, tool.description, tool.schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> ToolCall {
        ToolCall { id: "1".to_owned(), name: CALL.to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn the_inner_arguments_are_taken_as_they_were_written() {
        let inner =
            inner_call(&call(r#"{"arguments": {"n": 1.50, "n2": 12345678901234567890123}, "name": "a.b"}"#)).unwrap();
        assert_eq!(
            (inner.name.as_str(), inner.arguments.as_str()),
            ("a.b", r#"{"n": 1.50, "n2": 12345678901234567890123}"#)
        );
        assert_eq!(inner_call(&call(r#"{"name": "a.b"}"#)).unwrap().arguments, "{}");
        assert_eq!(
            inner_call(&call(r#"{"name": "a.b", "arguments": "{\"a\": 1}"}"#)).unwrap().arguments,
            r#"{"a": 1}"#
        );
        for wrong in ["", "{}", "[]", r#"{"name": 5}"#, r#"{"name": ""}"#, "{"] {
            assert!(inner_call(&call(wrong)).unwrap_err().contains(CALL), "{wrong}");
        }
    }

    #[test]
    fn a_search_needs_a_query() {
        let wish = |arguments: Value| search_arguments(arguments.as_object().unwrap());
        assert_eq!(wish(json!({ "query": "read" })), Ok(("read".to_owned(), DEFAULT_FOUND)));
        assert_eq!(wish(json!({ "query": "read", "limit": "3" })).unwrap().1, 3);
        assert_eq!(wish(json!({ "query": "read", "limit": 1000 })).unwrap().1, MAX_FOUND);
        assert!(wish(json!({ "query": " " })).unwrap_err().contains("`query`"));
    }

    #[test]
    fn long_definitions_are_shown_on_request_only() {
        let schema = json!({ "type": "object", "description": "x".repeat(3_000) });
        let tool = Tool::new("a.b", "y".repeat(1_000), schema);
        let short = shown(&tool);
        assert!(short.len() < 500 && short.contains(DESCRIBE), "{short}");
        assert!(described(&tool).len() > 4_000);
        assert!(found(std::iter::empty()).contains("No tool fits"));
    }
}
