//! Errors of models, providers, tools and users.

use assistant::{Dialogue, DialogueEnd, DialogueLimits, ToolCallError};
use models::ModelErrorKind;
use testkit::{ModelReply, ModelServer};

use crate::fixture::{BOTH, Dialect, RecordingExecutor, ask, last_results, model, offers};

#[tokio::test]
async fn a_tool_that_is_not_there_is_reported_with_those_that_are() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("1", "files_eat", "{}")]));
    server.say(ModelReply::openai_text("Sorry."));
    let executor = RecordingExecutor::default();
    let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
    assert!(executor.names().is_empty());
    let printed = last_results(&server);
    assert!(printed.contains("there is no tool `files_eat`; there are files_read, files_write"), "{printed}");
}

#[tokio::test]
async fn a_similar_tool_name_is_suggested_and_the_servers_own_name_accepted() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("1", "write", "{}")]));
    server.say(ModelReply::openai_calls(&[("2", "files.read", r#"{"path": "a"}"#)]));
    server.say(ModelReply::openai_text("Done."));
    let executor = RecordingExecutor::default();
    let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
    assert!(went.printed[1].contains("there is no tool `write`; there are files_write, "), "{:?}", went.printed);
    assert_eq!(executor.names(), ["files.read"]);
}

#[tokio::test]
async fn arguments_that_are_no_json_are_reported_with_the_schema_and_nothing_is_called() {
    let server = ModelServer::start();
    server.say(ModelReply::anthropic_calls(&[("1", "files_read", r#"{"path": "#)]));
    server.say(ModelReply::anthropic_calls(&[("2", "files_read", r#"{"path": "a"}"#)]));
    server.say(ModelReply::anthropic_text("Now."));
    let executor = RecordingExecutor::default();
    let went = ask(&model(&server, Dialect::Anthropic), &executor, DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
    assert_eq!(executor.names(), ["files.read"]);
    assert!(went.printed[1].contains("the arguments are not JSON"), "{:?}", went.printed);
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_reported_with_the_schema_and_nothing_is_called() {
    for plays in BOTH {
        let server = ModelServer::start();
        let calls = |arguments: &str| match plays {
            Dialect::OpenAi => ModelReply::openai_calls(&[("1", "files_read", arguments)]),
            Dialect::Anthropic => ModelReply::anthropic_calls(&[("1", "files_read", arguments)]),
        };
        server.say(calls(r#"{"path": 5}"#));
        server.say(calls(r#"{"path": "a"}"#));
        server.say(match plays {
            Dialect::OpenAi => ModelReply::openai_text("Now."),
            Dialect::Anthropic => ModelReply::anthropic_text("Now."),
        });
        let executor = RecordingExecutor::default();
        let went = ask(&model(&server, plays), &executor, DialogueLimits { rounds: 5, calls: Some(1) }).await;
        assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
        assert_eq!(executor.names(), ["files.read"], "the first was not made, and did not count");
        let printed = &went.printed[1];
        assert!(printed.contains("5 is not of type") && printed.contains("fit this schema: {"), "{printed}");
    }
}

#[tokio::test]
async fn a_call_that_failed_is_reported_to_the_model() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("1", "files_read", "{}")]));
    server.say(ModelReply::openai_text("Too bad."));
    let executor = RecordingExecutor {
        mishap: Some(ToolCallError::Failed("the server is down".to_owned())),
        ..RecordingExecutor::default()
    };
    let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().answer, "Too bad.");
    assert!(last_results(&server).contains("the server is down"));
}

#[tokio::test]
async fn a_stopped_call_ends_the_run() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("1", "files_write", "{}"), ("2", "files_write", r#"{"n": 2}"#)]));
    let executor = RecordingExecutor {
        mishap: Some(ToolCallError::Stopped("stopped by ada".to_owned())),
        ..RecordingExecutor::default()
    };
    let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Stopped("stopped by ada".to_owned()));
    assert_eq!((server.asked().len(), executor.names().len()), (1, 1));
}

#[tokio::test]
async fn a_busy_provider_is_retried_and_one_that_refuses_is_not() {
    let server = ModelServer::start();
    server.say(ModelReply::refused(429, "slow down").with("retry-after", "0"));
    server.say(ModelReply::openai_text("Here."));
    let went = ask(&model(&server, Dialect::OpenAi), &RecordingExecutor::default(), DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().answer, "Here.");

    server.say(ModelReply::refused(401, "bad key"));
    let went = ask(&model(&server, Dialect::OpenAi), &RecordingExecutor::default(), DialogueLimits::default()).await;
    assert!(matches!(went.outcome.unwrap_err().kind, ModelErrorKind::Refused { status: 401, .. }));
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_transcript_remains_if_the_provider_fails_after_the_calls() {
    let server = ModelServer::start();
    server.say(ModelReply::anthropic_calls(&[("1", "files_read", "{}")]));
    server.say(ModelReply::anthropic_text("Half of an answer.").breaks_after(60));
    let went = ask(&model(&server, Dialect::Anthropic), &RecordingExecutor::default(), DialogueLimits::default()).await;
    assert!(went.outcome.is_err());
    let transcript = went.dialogue.transcript("scripted", None);
    let turns = transcript["turns"].as_array().unwrap();
    assert_eq!((turns.len(), &turns[3]["is_unfinished"]), (4, &true.into()), "{transcript}");
    assert!(turns[3]["text"].as_str().unwrap().starts_with("Half"), "{transcript}");
    assert_eq!(transcript["ended"], "interrupted");
}

#[tokio::test]
async fn dropping_it_stops_it_and_keeps_the_transcript() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("1", "files_read", "{}")]));
    let executor = RecordingExecutor { is_stuck: true, ..RecordingExecutor::default() };
    let model = model(&server, Dialect::OpenAi);
    let mut dialogue = Dialogue::new("", "Well?", offers(), DialogueLimits::default());
    let called = async {
        while executor.names().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let mut tell = |_: assistant::DialogueEvent<'_>| {};
    tokio::select! {
        _ = dialogue.run(&model, &executor, &mut tell) => panic!("the call never comes back"),
        () = called => {}
    }
    assert_eq!(dialogue.conversation.turns.len(), 2);
}
