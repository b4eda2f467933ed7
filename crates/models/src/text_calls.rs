//! Tools for models that cannot call any by themselves: a convention in plain text.
//!
//! The model is told of its tools in the system prompt, and asked to write a call as a fenced block:
//!
//! ````text
//! ```tool_call
//! {"name": "git_log", "arguments": {"count": 3}}
//! ```
//! ````
//!
//! Results come back as the next message of the user, one paragraph for each. What models write instead, because they
//! were taught so, is understood, too: `<tool_call>{...}</tool_call>`, a fence of another name with such an object in it,
//! `parameters` or `input` instead of `arguments`, and an answer that is nothing but such an object.

use serde_json::Value;

use crate::conversation::{Answer, Conversation, Part, Stop, ToolCall, ToolResult, Turn};
use crate::{SafeNames, Tool};

const FENCE: &str = "```";

/// The tool name of a call that names none.
const UNREADABLE: &str = "tool_call";

/// The same conversation with tools and calls as text.
pub(crate) fn text_conversation(conversation: &Conversation, tools: &[Tool], names: &SafeNames) -> Conversation {
    let turns = conversation.turns.iter().map(|turn| match turn {
        Turn::User(parts) => Turn::User(parts.clone()),
        Turn::Assistant { text, calls } => {
            let blocks = calls.iter().map(written);
            let said: Vec<String> =
                std::iter::once(text.clone()).filter(|text| !text.is_empty()).chain(blocks).collect();
            Turn::Assistant { text: said.join("\n\n"), calls: Vec::new() }
        }
        Turn::Tools(results) => Turn::User(results.iter().map(|result| Part::Text(reported(result))).collect()),
    });
    Conversation { system: instructed(&conversation.system, tools, names), turns: turns.collect() }
}

/// An answer with the calls in its text converted to calls.
pub(crate) fn understood(mut answer: Answer, names: &SafeNames) -> Answer {
    let (text, calls) = calls_in(&answer.text, names);
    if calls.is_empty() {
        return answer;
    }
    let numbered =
        (0..).zip(calls).map(|(number, (name, arguments))| ToolCall { id: format!("call_{number}"), name, arguments });
    answer.calls = numbered.collect();
    answer.text = text;
    answer.stop = Stop::Tools;
    answer
}

fn instructed(system: &str, tools: &[Tool], names: &SafeNames) -> String {
    let mut text = system.to_owned();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str("You can use tools. To use one, write a fenced block and nothing after it:\n\n");
    text.push_str("```tool_call\n{\"name\": \"the tool's name\", \"arguments\": {}}\n```\n\n");
    text.push_str("Several blocks call several tools. Their results come with the next message. ");
    text.push_str("When you need no tool, answer without such a block. The tools:\n");
    for tool in tools {
        let Some(name) = names.safe(&tool.name) else { continue };
        text.push_str(&format!("\n- {name}: {}\n  arguments: {}", tool.description.trim(), tool.schema));
    }
    text
}

fn written(call: &ToolCall) -> String {
    let said = match call.parsed() {
        Ok(arguments) => serde_json::json!({ "name": call.name, "arguments": arguments }).to_string(),
        // The unreadable call is the whole answer.
        Err(_) => call.arguments.clone(),
    };
    format!("{FENCE}tool_call\n{said}\n{FENCE}")
}

fn reported(result: &ToolResult) -> String {
    format!("Result of {}:\n{}", result.name, result.words())
}

/// The text without the calls, and the calls.
fn calls_in(text: &str, names: &SafeNames) -> (String, Vec<(String, String)>) {
    let said = text.rsplit_once("</think>").map_or(text, |(_, said)| said);
    if let Some(calls) = read(said, names, false) {
        return (String::new(), calls);
    }
    let (mut rest, mut kept, mut calls) = (said, String::new(), Vec::new());
    while let Some(block) = next_block(rest) {
        kept.push_str(&rest[..block.start]);
        match read(block.inner, names, block.is_marked) {
            Some(more) => calls.extend(more),
            None => kept.push_str(&rest[block.start..block.end]),
        }
        rest = &rest[block.end..];
    }
    kept.push_str(rest);
    (kept.trim().to_owned(), calls)
}

struct Block<'t> {
    start: usize,
    end: usize,
    inner: &'t str,
    /// Whether it is marked as a call.
    is_marked: bool,
}

/// The next fenced block or tag. One without an end extends to the end of the text: many models stop right before the
/// end mark.
fn next_block(text: &str) -> Option<Block<'_>> {
    let fence = text.find(FENCE).and_then(|start| {
        let label_at = start + FENCE.len();
        let line_end = text[label_at..].find('\n').map(|length| label_at + length)?;
        let label = text[label_at..line_end].trim();
        let inner_end = text[line_end..].find(FENCE).map_or(text.len(), |length| line_end + length);
        let end = (inner_end + FENCE.len()).min(text.len());
        let is_marked = matches!(label, "tool_call" | "tool_calls" | "tool" | "function_call");
        Some(Block { start, end, inner: &text[line_end..inner_end], is_marked })
    });
    let tag = text.find("<tool_call>").map(|start| {
        let inner_at = start + "<tool_call>".len();
        let inner_end = text[inner_at..].find("</tool_call>").map_or(text.len(), |length| inner_at + length);
        let end = (inner_end + "</tool_call>".len()).min(text.len());
        Block { start, end, inner: &text[inner_at..inner_end], is_marked: true }
    });
    match (fence, tag) {
        (Some(fence), Some(tag)) => Some(if fence.start < tag.start { fence } else { tag }),
        (fence, tag) => fence.or(tag),
    }
}

/// The calls in a text that contains nothing else. Without a mark, only existing tools count: other objects with a name
/// are examples.
fn read(text: &str, names: &SafeNames, is_marked: bool) -> Option<Vec<(String, String)>> {
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text.trim()).into_iter().collect();
    let Ok(values) = values else {
        // An unreadable call still counts as a call, so that the model gets the error.
        let text = text.trim();
        let is_meant = is_marked && text.starts_with(['{', '[']);
        return is_meant.then(|| vec![(name_in(text).unwrap_or_else(|| UNREADABLE.to_owned()), text.to_owned())]);
    };
    let values: Vec<Value> = values
        .into_iter()
        .flat_map(|value| match value {
            Value::Array(several) => several,
            one => vec![one],
        })
        .collect();
    let calls: Option<Vec<(String, String)>> = values.iter().map(|value| call(value, names, is_marked)).collect();
    calls.filter(|calls| !calls.is_empty())
}

fn call(value: &Value, names: &SafeNames, is_marked: bool) -> Option<(String, String)> {
    let value = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
    let name = value.get("name").or_else(|| value.get("tool")).and_then(Value::as_str)?;
    if !is_marked && names.original(name).is_none() {
        return None;
    }
    let arguments = ["arguments", "parameters", "input", "args"].iter().find_map(|member| value.get(member));
    let arguments = match arguments {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "{}".to_owned(),
    };
    Some((name.to_owned(), arguments))
}

/// The name in a call that is not JSON.
fn name_in(text: &str) -> Option<String> {
    let after = text.split_once("\"name\"")?.1.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    after.split_once('"').map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names() -> SafeNames {
        SafeNames::of(["git_log", "sky:weather"])
    }

    fn understood_text(text: &str) -> (String, Vec<(String, String)>) {
        let answer = understood(Answer { text: text.to_owned(), ..Answer::default() }, &names());
        (answer.text, answer.calls.into_iter().map(|call| (call.name, call.arguments)).collect())
    }

    #[test]
    fn calls_are_understood_in_all_the_ways_models_write_them() {
        let call = vec![("git_log".to_owned(), r#"{"count":3}"#.to_owned())];
        for text in [
            "```tool_call\n{\"name\": \"git_log\", \"arguments\": {\"count\": 3}}\n```",
            "```tool_call\n{\"name\": \"git_log\", \"arguments\": {\"count\": 3}}",
            "```json\n{\"name\": \"git_log\", \"parameters\": {\"count\": 3}}\n```",
            "<tool_call>{\"name\": \"git_log\", \"input\": {\"count\": 3}}</tool_call>",
            "<tool_call>\n{\"name\": \"git_log\", \"arguments\": {\"count\": 3}}",
            "<think>```tool_call\n{\"name\": \"x\"}\n```</think>{\"name\": \"git_log\", \"arguments\": {\"count\": 3}}",
            "{\"function\": {\"name\": \"git_log\", \"arguments\": \"{\\\"count\\\":3}\"}}",
        ] {
            assert_eq!(understood_text(text), (String::new(), call.clone()), "{text}");
        }
    }

    #[test]
    fn several_calls_and_words_around_them_are_distinguished() {
        let text = "Let me look.\n```tool_call\n{\"name\": \"git_log\"}\n```\n```tool_call\n{\"name\": \"none\"}\n```";
        let (said, calls) = understood_text(text);
        assert_eq!(said, "Let me look.");
        assert_eq!(calls, [("git_log".to_owned(), "{}".to_owned()), ("none".to_owned(), "{}".to_owned())]);
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for text in [
            "An example:\n```json\n{\"name\": \"Ada\", \"arguments\": 1}\n```",
            "```rust\nfn main() {}\n```",
            "{\"name\": \"Ada\"}",
            "no call at all",
        ] {
            assert_eq!(understood_text(text), (text.to_owned(), vec![]), "{text}");
        }
    }

    #[test]
    fn a_call_that_is_no_json_is_a_call_with_bad_arguments() {
        let (_, calls) = understood_text("```tool_call\n{\"name\": \"git_log\", \"arguments\": {\"count\": }}\n```");
        assert_eq!(calls[0].0, "git_log");
        assert!(serde_json::from_str::<Value>(&calls[0].1).is_err());
        let (said, calls) = understood_text("Well.\n```tool_call\n{\"name\": broken}\n```");
        assert_eq!((said.as_str(), calls), ("Well.", vec![("tool_call".to_owned(), "{\"name\": broken}".to_owned())]));
    }

    #[test]
    fn a_conversation_is_reported_as_text() {
        let mut conversation = Conversation::new("Be brief.");
        conversation.ask("Weather?");
        let call = ToolCall { id: "1".into(), name: "sky_weather".into(), arguments: "{}".into() };
        conversation.turns.push(Turn::Assistant { text: String::new(), calls: vec![call.clone()] });
        conversation.results(vec![ToolResult::error(&call, "no sky")]);
        let tools = [Tool::new("sky:weather", "Tells it.", json!({"type": "object"}))];
        let text_conversation = text_conversation(&conversation, &tools, &names());
        assert!(
            text_conversation.system.starts_with("Be brief.\n\nYou can use tools."),
            "{}",
            text_conversation.system
        );
        assert!(text_conversation.system.contains("- sky_weather: Tells it.\n  arguments: {\"type\":\"object\"}"));
        let block = "```tool_call\n{\"name\":\"sky_weather\",\"arguments\":{}}\n```";
        assert_eq!(text_conversation.turns[1], Turn::Assistant { text: block.into(), calls: vec![] });
        assert_eq!(
            text_conversation.turns[2],
            Turn::User(vec![Part::Text("Result of sky_weather:\nError: no sky".into())])
        );
    }
}
