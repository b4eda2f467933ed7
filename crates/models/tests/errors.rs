//! Providers that refuse, disconnect, hang, or are unreachable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use models::{Budget, Limits, Model, ModelErrorKind, Provider};
use testkit::{ModelReply, ModelServer, wait_until};

use crate::fixture::{QUICK, ask, openai, question, with};

#[tokio::test]
async fn a_busy_provider_is_retried_after_its_retry_after() {
    let server = ModelServer::start();
    server.say(ModelReply::refused(429, "Slow down").with("Retry-After", "0.05"));
    server.say(ModelReply::refused(503, "Later").with("Retry-After-Ms", "50"));
    server.say(ModelReply::openai_text("Sunny."));
    let begun = Instant::now();
    assert_eq!(ask(&openai(&server), &question()).await.0.unwrap().text, "Sunny.");
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_provider_that_stays_busy_or_demands_a_long_pause_is_given_up() {
    let server = ModelServer::start();
    server.answer_by(|_| ModelReply::refused(529, "Overloaded"));
    let failed = ask(&openai(&server), &question()).await.0.unwrap_err();
    assert_eq!(
        failed.to_string(),
        format!(
            "the model `gpt-test` at {} did not answer: it is overloaded (HTTP 529): Overloaded (scripted)",
            server.openai_url()
        )
    );
    assert_eq!(server.asked().len(), 3);

    server.say(ModelReply::refused(429, "Tomorrow").with("Retry-After", "86400"));
    let failed = ask(&openai(&server), &question()).await.0.unwrap_err();
    assert_eq!(failed.retry_after(), Some(Duration::from_secs(86400)));
    assert!(failed.may_pass());
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test]
async fn a_refusal_is_reported_in_the_providers_words_without_the_key() {
    let server = ModelServer::start();
    server.say(ModelReply::refused(401, "Incorrect API key provided: sk-secret"));
    let failed = ask(&openai(&server), &question()).await.0.unwrap_err();
    assert!(failed.to_string().ends_with("HTTP 401: Incorrect API key provided: [key] (scripted)"), "{failed}");
    assert_eq!(failed.hint(), Some("check the API key"));
    assert!(!format!("{failed:?}").contains("sk-secret"));
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn an_answer_that_ends_before_its_first_word_is_requested_again() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_text("Sunny.").breaks_after(0));
    server.say(ModelReply::openai_text("Sunny."));
    assert_eq!(ask(&openai(&server), &question()).await.0.unwrap().text, "Sunny.");
    server.say(ModelReply::openai_text("Sunny and warm and dry.").breaks_after(50));
    let (failed, heard) = ask(&openai(&server), &question()).await;
    assert!(matches!(failed.unwrap_err().kind, ModelErrorKind::BrokeOff(_)));
    assert_eq!(heard[0], "Sunny ");
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_stream_without_its_final_event_is_not_an_answer() {
    let server = ModelServer::start();
    server.answer_by(|_| ModelReply::events("data: {\"choices\": []}\n\n".to_owned()));
    let failed = ask(&openai(&server), &question()).await.0.unwrap_err();
    assert!(matches!(failed.kind, ModelErrorKind::BrokeOff(_)), "{failed}");
}

#[tokio::test]
async fn silence_ends_before_and_within_an_answer() {
    let server = ModelServer::start();
    let hasty = Limits { first_byte: Duration::from_secs(2), idle: Duration::from_secs(2), ..QUICK };
    let model = with(Provider::openai(server.openai_url(), None, "m"), hasty);
    for percent in [0, 50] {
        server.say(ModelReply::openai_text("Sunny.").falls_silent_after(percent));
        let failed = ask(&model, &question()).await.0.unwrap_err();
        assert!(matches!(failed.kind, ModelErrorKind::TimedOut { .. }), "{failed}");
    }
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn something_that_is_no_model_is_recognised() {
    let server = ModelServer::start();
    server.say(ModelReply::html("<html>Welcome to nginx!</html>"));
    let failed = ask(&openai(&server), &question()).await.0.unwrap_err();
    assert!(failed.to_string().contains("Welcome to nginx"), "{failed}");
    server.say(ModelReply::json(&serde_json::json!({"hello": "world"})));
    assert!(matches!(ask(&openai(&server), &question()).await.0.unwrap_err().kind, ModelErrorKind::Foreign(_)));
}

#[tokio::test]
async fn an_unreachable_service_is_reported_with_a_hint() {
    let server = ModelServer::start();
    let model = openai(&server);
    drop(server);
    let failed = ask(&model, &question()).await.0.unwrap_err();
    assert!(matches!(failed.kind, ModelErrorKind::Unreachable(_) | ModelErrorKind::BrokeOff(_)), "{failed}");
    let bad = Model::new(Provider::openai("nonsense", None, "m"), QUICK, Arc::default());
    assert!(matches!(bad.map(|_| ()).unwrap_err().kind, ModelErrorKind::BadAddress(_)));
}

#[tokio::test]
async fn a_budget_ends_the_asking() {
    let server = ModelServer::start();
    server.answer_by(|_| ModelReply::openai_text("Sunny."));
    let budget = Arc::new(Budget::new(Some(5), Some(20)));
    let model = Model::new(Provider::openai(server.openai_url(), None, "m"), QUICK, Arc::clone(&budget)).unwrap();
    ask(&model, &question()).await.0.unwrap();
    ask(&model, &question()).await.0.unwrap();
    let failed = ask(&model, &question()).await.0.unwrap_err();
    assert_eq!(failed.kind, ModelErrorKind::BudgetSpent("20 tokens".to_owned()));
    assert_eq!((budget.spent().requests, budget.spent().tokens), (2, 30));
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn to_stop_waiting_cancels() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_text("Sunny.").falls_silent_after(50));
    let model = Arc::new(openai(&server));
    let asking = tokio::spawn({
        let model = Arc::clone(&model);
        async move { ask(&model, &question()).await.0.is_ok() }
    });
    let waiting = tokio::task::spawn_blocking(move || {
        server.wait_for(1);
        // The server keeps the connection open, so that there is something to wait for.
        server
    });
    let _server = waiting.await.unwrap();
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    // The slot is free again.
    let other = ModelServer::start();
    other.say(ModelReply::openai_text("Sunny."));
    wait_until("the model is only ours", || (Arc::strong_count(&model) == 1).then_some(()));
}
