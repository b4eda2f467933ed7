//! Turns: words, calls, results, words.

use assistant::{Bounds, Ended};
use models::{Provider, ToolCalling};
use serde_json::json;
use testkit::{ModelReply, ModelServer};
use tokio::sync::Barrier;

use crate::world::{BOTH, Noting, Plays, ask, last_results, model, with};

fn calls(plays: Plays, calls: &[(&str, &str, &str)]) -> ModelReply {
    match plays {
        Plays::OpenAi => ModelReply::openai_calls(calls),
        Plays::Anthropic => ModelReply::anthropic_calls(calls),
    }
}

fn text(plays: Plays, text: &str) -> ModelReply {
    match plays {
        Plays::OpenAi => ModelReply::openai_text(text),
        Plays::Anthropic => ModelReply::anthropic_text(text),
    }
}

#[tokio::test]
async fn results_go_back_turn_after_turn_until_there_is_an_answer() {
    for plays in BOTH {
        let server = ModelServer::start();
        server.say(calls(plays, &[("1", "files_read", r#"{"path": "a"}"#)]).cut(7));
        server.say(calls(plays, &[("2", "files_write", r#"{"path": "b"}"#)]));
        server.say(text(plays, "All is done."));
        let hands = Noting::default();
        let went = ask(&model(&server, plays), &hands, Bounds::default()).await;
        let outcome = went.outcome.unwrap();
        assert_eq!((outcome.answer.as_str(), &outcome.ended), ("All is done.", &Ended::Answered));
        assert_eq!((outcome.usage.input, outcome.usage.output), (30, 15));
        let done = hands.done.lock().unwrap().clone();
        let expected =
            [("files.read".to_owned(), json!({"path": "a"})), ("files.write".to_owned(), json!({"path": "b"}))];
        assert_eq!(done, expected);
        assert!(last_results(&server).contains("files.write gave"), "{plays:?}");
        assert_eq!(
            went.told,
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
async fn calls_that_do_no_harm_beside_others_run_at_the_same_time() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("1", "files_read", r#"{"n": 1}"#), ("2", "files_read", r#"{"n": 2}"#)]));
    server.say(ModelReply::openai_text("Both."));
    // Neither comes back before both are there.
    let hands = Noting { meeting: Some(Barrier::new(2)), ..Noting::default() };
    let went = ask(&model(&server, Plays::OpenAi), &hands, Bounds::default()).await;
    assert_eq!(went.outcome.unwrap().ended, Ended::Answered);
    assert_eq!(hands.names(), ["files.read", "files.read"]);
}

#[tokio::test]
async fn calls_that_change_something_run_alone_and_in_their_order() {
    let server = ModelServer::start();
    let wanted =
        [("1", "files_write", r#"{"n": 1}"#), ("2", "files_read", r#"{"n": 2}"#), ("3", "files_write", r#"{"n": 3}"#)];
    server.say(ModelReply::anthropic_calls(&wanted));
    server.say(ModelReply::anthropic_text("So."));
    let hands = Noting::default();
    let went = ask(&model(&server, Plays::Anthropic), &hands, Bounds::default()).await;
    assert_eq!(hands.names(), ["files.write", "files.read", "files.write"]);
    let told: Vec<&str> = went.told.iter().filter_map(|it| it.split(' ').next()).take(6).collect();
    assert_eq!(told, ["calling", "called", "calling", "called", "calling", "called"]);
}

#[tokio::test]
async fn a_tool_that_may_destroy_something_is_called_only_if_that_is_permitted() {
    for is_allowed in [false, true] {
        let server = ModelServer::start();
        server.say(ModelReply::openai_calls(&[("1", "files_delete", "{}")]));
        server.say(ModelReply::openai_text("Well."));
        let hands = Noting { is_allowed, ..Noting::default() };
        let went = ask(&model(&server, Plays::OpenAi), &hands, Bounds::default()).await;
        assert_eq!(went.outcome.unwrap().ended, Ended::Answered);
        assert_eq!(hands.names().len(), usize::from(is_allowed));
        assert_eq!(last_results(&server).contains("the user does not want"), !is_allowed);
    }
}

#[tokio::test]
async fn a_model_without_tool_calls_of_its_own_uses_tools_in_words() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_text(
        "I look.\n```tool_call\n{\"name\": \"files_read\", \"arguments\": {\"path\": \"a\"}}\n```",
    ));
    server.say(ModelReply::openai_text("It says so."));
    let provider =
        Provider { tool_calling: ToolCalling::Text, ..Provider::openai(server.openai_url(), None, "scripted") };
    let hands = Noting::default();
    let went = ask(&with(provider), &hands, Bounds::default()).await;
    assert_eq!(went.outcome.unwrap().answer, "It says so.");
    assert_eq!(hands.names(), ["files.read"]);
    assert!(server.asked()[0].body.get("tools").is_none());
    assert!(last_results(&server).contains("Result of files_read"));
}

#[tokio::test]
async fn a_transcript_has_all_that_was_said_under_the_tools_own_names() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("1", "files_read", r#"{"path": "a"}"#)]));
    server.say(ModelReply::openai_text("So."));
    let went = ask(&model(&server, Plays::OpenAi), &Noting::default(), Bounds::default()).await;
    let outcome = went.outcome.unwrap();
    let transcript = went.dialogue.transcript("scripted", Some(&outcome));
    assert_eq!(transcript["turns"][0], json!({"role": "user", "text": "Well?"}));
    assert_eq!(transcript["turns"][1]["calls"][0]["tool"], "files.read");
    assert_eq!(transcript["turns"][1]["calls"][0]["arguments"], json!({"path": "a"}));
    assert_eq!(transcript["turns"][2]["results"][0]["is_error"], false);
    assert_eq!((&transcript["ended"], &transcript["calls"]), (&json!("answered"), &json!(1)));
}
