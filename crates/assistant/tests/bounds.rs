//! Limits of a dialogue, and what the model is told about them.

use assistant::{DialogueEnd, DialogueLimits};
use testkit::{ModelReply, ModelServer};

use crate::fixture::{Dialect, RecordingExecutor, ask, last_results, model};

#[tokio::test]
async fn a_model_that_never_stops_calling_tools_reaches_the_round_limit() {
    let server = ModelServer::start();
    server.answer_by(|asked| {
        let turn = asked.body["messages"].as_array().map_or(0, Vec::len);
        ModelReply::openai_calls(&[("1", "files_read", &format!("{{\"turn\": {turn}}}"))])
    });
    let executor = RecordingExecutor::default();
    let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits { rounds: 4, calls: None }).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::RoundsSpent(4));
    assert_eq!((server.asked().len(), executor.names().len()), (4, 3), "nobody would have heard of the last call");
}

#[tokio::test]
async fn a_model_that_repeats_a_call_is_warned_and_then_stopped() {
    let server = ModelServer::start();
    server.answer_by(|_| ModelReply::anthropic_calls(&[("1", "files_read", r#"{"path": "a"}"#)]));
    let executor = RecordingExecutor::default();
    let went = ask(&model(&server, Dialect::Anthropic), &executor, DialogueLimits { rounds: 50, calls: None }).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Repeating);
    assert_eq!(executor.names().len(), 2);
    assert!(last_results(&server).contains("with the same arguments before"));
}

#[tokio::test]
async fn a_model_warned_about_repetition_may_still_answer() {
    let server = ModelServer::start();
    for _ in 0..3 {
        server.say(ModelReply::openai_calls(&[("1", "files_read", "{}")]));
    }
    server.say(ModelReply::openai_text("Fine."));
    let went = ask(&model(&server, Dialect::OpenAi), &RecordingExecutor::default(), DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused_and_the_model_is_informed() {
    let server = ModelServer::start();
    let wanted = [("1", "files_read", r#"{"n": 1}"#), ("2", "files_read", r#"{"n": 2}"#)];
    server.say(ModelReply::openai_calls(&wanted));
    server.say(ModelReply::openai_text("Only one."));
    let executor = RecordingExecutor::default();
    let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits { rounds: 5, calls: Some(1) }).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
    assert_eq!(executor.names().len(), 1);
    assert!(last_results(&server).contains("the limit is 1"));
}

#[tokio::test]
async fn different_calls_beyond_the_limit_are_not_a_loop() {
    let server = ModelServer::start();
    server.answer_by(|asked| {
        let turn = asked.body["messages"].as_array().map_or(0, Vec::len);
        ModelReply::openai_calls(&[("1", "files_read", &format!("{{\"turn\": {turn}}}"))])
    });
    let executor = RecordingExecutor::default();
    let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits { rounds: 50, calls: Some(2) }).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::CallsSpent(2));
    assert_eq!((executor.names().len(), went.dialogue.calls_made()), (2, 2));
    assert_eq!(server.asked().len(), 4, "it was told once, and could have answered");
}

#[tokio::test]
async fn calls_that_were_not_permitted_are_not_counted_and_are_no_circle_while_they_differ() {
    let server = ModelServer::start();
    for path in ["a", "b", "c"] {
        server.say(ModelReply::openai_calls(&[("1", "files_delete", &format!("{{\"path\": \"{path}\"}}"))]));
    }
    server.say(ModelReply::openai_calls(&[("1", "files_read", r#"{"path": "a"}"#)]));
    server.say(ModelReply::openai_text("Read, not deleted."));
    let executor = RecordingExecutor::default();
    let went = ask(&model(&server, Dialect::OpenAi), &executor, DialogueLimits { rounds: 10, calls: Some(1) }).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Answered);
    assert_eq!((executor.names(), went.dialogue.calls_made()), (vec!["files.read".to_owned()], 1));
}

#[tokio::test]
async fn a_model_that_repeats_a_mistake_is_stopped_as_a_loop() {
    let server = ModelServer::start();
    server.answer_by(|_| ModelReply::openai_calls(&[("1", "files_eat", "{}")]));
    let went = ask(
        &model(&server, Dialect::OpenAi),
        &RecordingExecutor::default(),
        DialogueLimits { rounds: 50, calls: None },
    )
    .await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Repeating);
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test]
async fn an_answer_without_text_is_none() {
    let server = ModelServer::start();
    server.say(ModelReply::openai(vec![serde_json::json!({})], "stop"));
    let went = ask(&model(&server, Dialect::OpenAi), &RecordingExecutor::default(), DialogueLimits::default()).await;
    assert_eq!(went.outcome.unwrap().ended, DialogueEnd::Silent);
}

#[tokio::test]
async fn an_answer_that_had_no_room_is_distinguished_from_a_whole_one() {
    let server = ModelServer::start();
    server.say(ModelReply::openai(vec![serde_json::json!({"content": "Once upon"})], "length"));
    let went = ask(&model(&server, Dialect::OpenAi), &RecordingExecutor::default(), DialogueLimits::default()).await;
    let outcome = went.outcome.unwrap();
    assert_eq!((outcome.answer.as_str(), outcome.ended), ("Once upon", DialogueEnd::CutShort));
}
