//! Conversations with a scripted Anthropic server.

use models::{Part, Stop, ToolResult, Usage};
use serde_json::json;
use testkit::{ModelReply, ModelServer};

use crate::fixture::{anthropic, ask, question};

#[tokio::test]
async fn text_is_streamed_as_it_arrives() {
    let server = ModelServer::start();
    server.say(ModelReply::anthropic_text("Sunny, all day."));
    let (answer, heard) = ask(&anthropic(&server), &question()).await;
    let answer = answer.unwrap();
    assert_eq!(answer.text, "Sunny, all day.");
    assert_eq!(heard, ["Sunny, ", "all ", "day."]);
    assert_eq!((answer.stop, answer.usage), (Stop::Done, Usage { input: 10, output: 5 }));

    let asked = &server.asked()[0];
    assert_eq!(asked.path, "/v1/messages");
    assert_eq!(asked.request.header("x-api-key"), Some("sk-secret"));
    assert_eq!(asked.request.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!((&asked.body["system"], &asked.body["max_tokens"]), (&json!("Be brief."), &json!(4096)));
    assert_eq!(asked.body["messages"], json!([{"role": "user", "content": [{"type": "text", "text": "Weather?"}]}]));
    assert_eq!(asked.body["tools"][0]["name"], "sky_weather");
}

#[tokio::test]
async fn several_tools_are_called_in_one_turn_and_their_results_go_back() {
    let server = ModelServer::start();
    let calls = [("a", "sky_weather", r#"{"city": "Köln"}"#), ("b", "now", "")];
    server.say(ModelReply::anthropic_calls(&calls).cut(5));
    server.say(ModelReply::anthropic_text("Rain at noon."));
    let (model, mut conversation) = (anthropic(&server), question());

    let (answer, heard) = ask(&model, &conversation).await;
    let answer = answer.unwrap();
    assert_eq!((heard.len(), &answer.stop), (2, &Stop::Tools));
    assert_eq!(answer.calls[0].parsed().unwrap()["city"], "Köln");

    conversation.answered(&answer);
    let mut weather = ToolResult::text(&answer.calls[0], "rain");
    weather.parts.push(Part::Image { media_type: "image/png".into(), data: "AAAA".into() });
    conversation.results(vec![weather, ToolResult::error(&answer.calls[1], "no clock")]);
    assert_eq!(ask(&model, &conversation).await.0.unwrap().text, "Rain at noon.");

    let messages = server.asked()[1].body["messages"].clone();
    let uses = json!([
        {"type": "tool_use", "id": "a", "name": "sky_weather", "input": {"city": "Köln"}},
        {"type": "tool_use", "id": "b", "name": "now", "input": {}},
    ]);
    assert_eq!(messages[1], json!({"role": "assistant", "content": uses}));
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let results = json!([
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "rain"}, picture]},
        {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "no clock"}], "is_error": true},
    ]);
    assert_eq!(messages[2], json!({"role": "user", "content": results}));
}

#[tokio::test]
async fn an_error_in_the_stream_is_retried_only_before_the_first_word() {
    let server = ModelServer::start();
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    server.say(ModelReply::events(format!("event: error\ndata: {error}\n\n")));
    server.say(ModelReply::anthropic_text("Sunny."));
    let model = anthropic(&server);
    assert_eq!(ask(&model, &question()).await.0.unwrap().text, "Sunny.");

    let begun = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Su"}});
    server.say(ModelReply::events(format!("data: {begun}\n\nevent: error\ndata: {error}\n\n")));
    let (failed, heard) = ask(&model, &question()).await;
    let failed = failed.unwrap_err();
    assert_eq!(heard, ["Su"]);
    assert!(
        failed.to_string().ends_with("its response ended with an error: Overloaded (overloaded_error)"),
        "{failed}"
    );
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn an_answer_in_one_piece_is_understood() {
    let server = ModelServer::start();
    let content =
        json!([{"type": "text", "text": "Look:"}, {"type": "tool_use", "id": "a", "name": "now", "input": {"x": 1}}]);
    let usage = json!({"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 2});
    server.say(ModelReply::json(&json!({"content": content, "stop_reason": "tool_use", "usage": usage})));
    let answer = ask(&anthropic(&server), &question()).await.0.unwrap();
    assert_eq!((answer.text.as_str(), answer.calls[0].arguments.as_str()), ("Look:", r#"{"x":1}"#));
    assert_eq!(answer.usage, Usage { input: 7, output: 2 });
}
