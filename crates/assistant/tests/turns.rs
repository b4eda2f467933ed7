//! Turns of a dialogue: text, calls, results, text.

use assistant::{DialogueEnd, DialogueLimits};
use models::{Provider, ToolCalling};
use serde_json::json;
use testkit::{ModelReply, ModelServer};
use tokio::sync::Barrier;

use crate::fixture::{BOTH, Dialect, RecordingExecutor, ask, last_results, model, with};

fn calls(plays: Dialect, calls: &[(&str, &str, &str)]) -> ModelReply {
    match plays {
        Dialect::OpenAi => ModelReply::openai_calls(calls),
        Dialect::Anthropic => ModelReply::anthropic_calls(calls),
    }
}

fn text(plays: Dialect, text: &str) -> ModelReply {
    match plays {
        Dialect::OpenAi => ModelReply::openai_text(text),
        Dialect::Anthropic => ModelReply::anthropic_text(text),
    }
}

#[tokio::test]
async fn results_go_back_turn_after_turn_until_there_is_an_answer() {
    for plays in BOTH {
        let server = ModelServer::start();
        server.say(calls(plays, &[("1", "files_read", r#"{"path": "a"}"#)]).cut(7));
        server.say(calls(plays, &[("2", "files_write", r#"{"path": "b"}"#)]));
        server.say(text(plays, "All is done."));
        let executor = RecordingExecutor::default();
        let went = ask(&model(&server, plays), &executor, DialogueLimits::default()).await;
        let outcome = went.outcome.unwrap();
        assert_eq!((outcome.answer.as_str(), &outcome.ended), ("All is done.", &DialogueEnd::Answered));
        assert_eq!((outcome.usage.input, outcome.usage.output), (30, 15));
        let done = executor.done.lock().unwrap().clone();
        let expected =
            [("files.read".to_owned(), json!({"path": "a"})), ("files.write".to_owned(), json!({"path": "b"}))];
        assert_eq!(done, expected);
        assert!(last_results(&server).contains("files.write gave"), "{plays:?}");
        assert_eq!(
            went.printed,
            [
                r#"calling files.read {"path": "a"}"#,
                "called files.read well",
                r#"calling files.write {"path": "b"}"#,
                "called files.write well",
                "All ",
                "is ",
                "done.",
                "/",
            ]
        );
    }
}

#[tokio::test]
async fn read_only_calls_run_concurrently() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("1", "files_read", r#"{"n": 1}"#), ("2", "files_read", r#"{"n": 2}"#)]));
    server.say(ModelReply::openai_text("Both."));
    // Neither call returns before both have started.
    let executor = RecordingExecutor { meeting: Some(Barrier::new(2)), ..RecordingExecutor::default() };
    let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
    assert_eq!(executor.names(), ["files.read", "files.read"]);
}

#[tokio::test]
async fn calls_that_change_something_run_alone_and_in_their_order() {
    let server = ModelServer::start();
    let wanted =
        [("1", "files_write", r#"{"n": 1}"#), ("2", "files_read", r#"{"n": 2}"#), ("3", "files_write", r#"{"n": 3}"#)];
    server.say(ModelReply::anthropic_calls(&wanted));
    server.say(ModelReply::anthropic_text("So."));
    let executor = RecordingExecutor::default();
    let went = ask(&model(&server, Dialect::Anthropic), &executor, DialogueLimits::default()).await;
    assert_eq!(executor.names(), ["files.write", "files.read", "files.write"]);
    let printed: Vec<&str> = went.printed.iter().filter_map(|it| it.split(' ').next()).take(6).collect();
    assert_eq!(printed, ["calling", "called", "calling", "called", "calling", "called"]);
}

#[tokio::test]
async fn a_tool_that_may_destroy_something_is_called_only_if_that_is_permitted() {
    for is_allowed in [false, true] {
        let server = ModelServer::start();
        server.say(ModelReply::openai_calls(&[("1", "files_delete", "{}")]));
        server.say(ModelReply::openai_text("Well."));
        let executor = RecordingExecutor { is_allowed, ..RecordingExecutor::default() };
        let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits::default()).await;
        assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
        assert_eq!(executor.names().len(), usize::from(is_allowed));
        assert_eq!(last_results(&server).contains("the user does not want"), !is_allowed);
    }
}

#[tokio::test]
async fn a_model_without_native_tool_calls_uses_tools_as_text() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_text(
        "I look.\n```tool_call\n{\"name\": \"files_read\", \"arguments\": {\"path\": \"a\"}}\n```",
    ));
    server.say(ModelReply::openai_text("It says so."));
    let provider =
        Provider { tool_calling: ToolCalling::Text, ..Provider::openai(server.openai_url(), None, "scripted") };
    let executor = RecordingExecutor::default();
    let went = ask(&with(provider), &executor, DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().answer, "It says so.");
    assert_eq!(executor.names(), ["files.read"]);
    assert!(server.asked()[0].body.get("tools").is_none());
    assert!(last_results(&server).contains("Result of files_read"));
}

#[tokio::test]
async fn a_transcript_is_complete_and_uses_the_tools_own_names() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("1", "files_read", r#"{"path": "a"}"#)]));
    server.say(ModelReply::openai_text("So."));
    let went = ask(&model(&server, Dialect::OpenAi), &RecordingExecutor::default(), DialogueLimits::default()).await;
    let outcome = went.outcome.unwrap();
    let transcript = went.dialogue.transcript("scripted", Some(&outcome));
    assert_eq!(transcript["turns"][0], json!({"role": "user", "text": "Well?"}));
    assert_eq!(transcript["turns"][1]["calls"][0]["tool"], "files.read");
    assert_eq!(transcript["turns"][1]["calls"][0]["arguments"], json!({"path": "a"}));
    assert_eq!(transcript["turns"][2]["results"][0]["is_error"], false);
    assert_eq!((&transcript["ended"], &transcript["calls"]), (&json!("answered"), &json!(1)));
}
