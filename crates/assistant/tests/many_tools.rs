//! With many tools, the model searches for them.

use assistant::{DialogueEnd, DialogueLimits, OfferedTool};
use models::Tool;
use serde_json::json;
use testkit::{ModelReply, ModelServer};

use crate::fixture::{BOTH, Dialect, RecordingExecutor, ask_with, last_results, model, offers};

/// The three tools, and `count` more.
fn many(count: usize) -> Vec<OfferedTool> {
    let more = (0..count).map(|number| OfferedTool {
        tool: Tool::new(format!("more.tool_{number}"), format!("Does number {number}."), json!({ "type": "object" })),
        is_read_only: true,
        is_idempotent: false,
        is_destructive: false,
    });
    offers().into_iter().chain(more).collect()
}

fn tool_names(server: &ModelServer, round: usize) -> Vec<String> {
    let tools = server.asked()[round].body["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &serde_json::Value| {
        let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
        name.expect("a tool has a name").to_owned()
    };
    tools.iter().map(name).collect()
}

#[tokio::test]
async fn many_tools_are_found_and_called_without_being_listed() {
    for plays in BOTH {
        let server = ModelServer::start();
        let calls = |calls: &[(&str, &str, &str)]| match plays {
            Dialect::OpenAi => ModelReply::openai_calls(calls),
            Dialect::Anthropic => ModelReply::anthropic_calls(calls),
        };
        server.say(calls(&[("1", "search_tools", r#"{"query": "number seven"}"#)]));
        server.say(calls(&[("2", "call_tool", r#"{"name": "more.tool_7", "arguments": {"path": "a", "n": 1.50}}"#)]));
        server.say(match plays {
            Dialect::OpenAi => ModelReply::openai_text("Done."),
            Dialect::Anthropic => ModelReply::anthropic_text("Done."),
        });
        let executor =
            RecordingExecutor { finds: vec!["more.tool_7".into(), "gone.tool".into()], ..RecordingExecutor::default() };
        let went = ask_with(many(200), &model(&server, plays), &executor, DialogueLimits::default()).await;
        assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered, "{plays:?}");
        for round in 0..3 {
            assert_eq!(tool_names(&server, round), ["search_tools", "describe_tool", "call_tool"], "{plays:?}");
        }
        let found = server.asked()[1].body["messages"].to_string();
        assert!(found.contains("more.tool_7: Does number 7.") && !found.contains("gone.tool"), "{found}");
        assert_eq!(executor.names(), ["more.tool_7"]);
        assert!(
            last_results(&server).contains(r#"more.tool_7 gave {\"path\": \"a\", \"n\": 1.50}"#),
            "as it was written"
        );
        assert_eq!(went.dialogue.calls_made(), 1, "a search is no call of a server");
        assert!(went.printed.iter().any(|printed| printed.starts_with("calling more.tool_7 ")), "{:?}", went.printed);
    }
}

#[tokio::test]
async fn few_tools_are_listed_as_they_are() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_text("Done."));
    let few = many(97);
    ask_with(few.clone(), &model(&server, Dialect::OpenAi), &RecordingExecutor::default(), DialogueLimits::default())
        .await;
    assert_eq!(tool_names(&server, 0).len(), few.len());
}

#[tokio::test]
async fn what_a_model_gets_wrong_with_our_tools_is_reported() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[
        ("1", "search_tools", "{}"),
        ("2", "search_tools", r#"{"query": "trouble"}"#),
        ("3", "search_tools", r#"{"query": "nothing like it"}"#),
        ("4", "call_tool", "{}"),
        ("5", "call_tool", r#"{"name": "files.eat"}"#),
        ("6", "call_tool", r#"{"name": "files.read", "arguments": {"path": 5}}"#),
        ("7", "call_tool", r#"{"name": "files.delete"}"#),
        ("8", "describe_tool", r#"{"name": "files_read"}"#),
        ("9", "files_read", r#"{"path": "by its own name"}"#),
    ]));
    server.say(ModelReply::openai_text("Sorry."));
    let executor = RecordingExecutor::default();
    let went = ask_with(many(200), &model(&server, Dialect::OpenAi), &executor, DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
    let printed = last_results(&server);
    for part in [
        "search_tools needs `query`",
        "nobody searches today",
        "No tool fits",
        "call_tool needs `name`",
        "there is no tool `files.eat`",
        "is not of type",
        "the user does not want files.delete to be called",
        "files.read: Does files.read.",
    ] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    assert_eq!(executor.names(), ["files.read"], "what is known is called by its own name as well");
}
