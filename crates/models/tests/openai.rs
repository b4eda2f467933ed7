//! Conversations with a scripted OpenAI server.

use models::{Part, Stop, ToolResult, Usage};
use serde_json::json;
use testkit::{ModelReply, ModelServer};

use crate::fixture::{ask, openai, question};

#[tokio::test]
async fn text_is_streamed_as_it_arrives() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_text("Sunny, all day."));
    let (answer, heard) = ask(&openai(&server), &question()).await;
    let answer = answer.unwrap();
    assert_eq!(answer.text, "Sunny, all day.");
    assert_eq!(heard, ["Sunny, ", "all ", "day."]);
    assert_eq!((answer.stop, answer.usage), (Stop::Done, Usage { input: 10, output: 5 }));

    let asked = &server.asked()[0];
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.request.header("authorization"), Some("Bearer sk-secret"));
    assert_eq!(asked.body["model"], "gpt-test");
    assert_eq!(asked.body["stream_options"], json!({"include_usage": true}));
    assert_eq!(asked.body["tools"][0]["function"]["name"], "sky_weather");
    let said = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]);
    assert_eq!(asked.body["messages"], said);
}

#[tokio::test]
async fn several_tools_are_called_in_one_turn_and_their_results_go_back() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("a", "sky_weather", r#"{"city": "Köln"}"#), ("b", "now", "")]));
    server.say(ModelReply::openai_text("Rain at noon."));
    let (model, mut conversation) = (openai(&server), question());

    let (answer, heard) = ask(&model, &conversation).await;
    let answer = answer.unwrap();
    assert_eq!(heard, ["(sky_weather)", "(now)"]);
    assert_eq!(answer.stop, Stop::Tools);
    assert_eq!(answer.calls[0].parsed().unwrap()["city"], "Köln");
    assert_eq!(answer.calls[1].parsed().unwrap().len(), 0);

    conversation.answered(&answer);
    let picture = Part::Image { media_type: "image/png".into(), data: "AAAA".into() };
    let mut weather = ToolResult::text(&answer.calls[0], "rain");
    weather.parts.push(picture);
    conversation.results(vec![weather, ToolResult::error(&answer.calls[1], "no clock")]);
    assert_eq!(ask(&model, &conversation).await.0.unwrap().text, "Rain at noon.");

    let messages = server.asked()[1].body["messages"].clone();
    assert_eq!(
        messages[2]["tool_calls"][0]["function"],
        json!({"name": "sky_weather", "arguments": "{\"city\": \"Köln\"}"})
    );
    assert_eq!(messages[2]["tool_calls"][1]["function"]["arguments"], "{}");
    let rain = "rain\n[a picture, image/png, 3 bytes]";
    assert_eq!(messages[3], json!({"role": "tool", "tool_call_id": "a", "content": rain}));
    assert_eq!(messages[4], json!({"role": "tool", "tool_call_id": "b", "content": "Error: no clock"}));
    assert!(messages.get(5).is_none());
}

#[tokio::test]
async fn a_stream_may_be_cut_anywhere() {
    let server = ModelServer::start();
    for piece in [1, 2, 3, 7, 64] {
        server.say(ModelReply::openai_calls(&[("a", "sky_weather", r#"{"city": "Köln 🌧"}"#)]).cut(piece));
        let answer = ask(&openai(&server), &question()).await.0.unwrap();
        assert_eq!(answer.calls[0].arguments, r#"{"city": "Köln 🌧"}"#, "{piece}");
        assert_eq!(answer.usage.total(), 15, "{piece}");
    }
}

#[tokio::test]
async fn servers_that_only_resemble_openai_are_understood() {
    let server = ModelServer::start();
    let call = |piece: serde_json::Value| json!({"tool_calls": [piece]});
    // Calls without an index, each complete.
    server.say(ModelReply::openai(
        vec![
            call(json!({"id": "a", "function": {"name": "now", "arguments": "{}"}})),
            call(json!({"id": "b", "function": {"name": "sky_weather", "arguments": {"city": "Rom"}}})),
        ],
        "stop",
    ));
    // The same index for all, and the name again with every piece.
    server.say(ModelReply::openai(
        vec![
            call(json!({"index": 0, "id": "a", "function": {"name": "now", "arguments": "{}"}})),
            call(json!({"index": 0, "id": "b", "function": {"name": "sky_weather", "arguments": "{\"city\":"}})),
            call(json!({"index": 0, "id": "b", "function": {"name": "sky_weather", "arguments": "\"Rom\"}"}})),
        ],
        "tool_calls",
    ));
    // No ids at all.
    server.say(ModelReply::openai(
        vec![
            call(json!({"index": 0, "function": {"name": "now", "arguments": "{}"}})),
            call(json!({"index": 1, "function": {"name": "sky_weather", "arguments": "{\"city\":\"Rom\"}"}})),
        ],
        "tool_calls",
    ));
    // In one piece.
    let calls = json!([
        {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "sky_weather", "arguments": "{\"city\":\"Rom\"}"}},
    ]);
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    server
        .say(ModelReply::json(&json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})));
    for round in 0..4 {
        let answer = ask(&openai(&server), &question()).await.0.unwrap();
        let called: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(called, ["now", "sky_weather"], "{round}");
        assert_eq!(answer.calls[1].parsed().unwrap()["city"], "Rom", "{round}");
        assert_ne!(answer.calls[0].id, answer.calls[1].id, "{round}");
        assert_eq!(answer.stop, Stop::Tools, "{round}");
    }
}

#[tokio::test]
async fn invalid_json_arguments_reach_the_caller_and_are_not_sent_back() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_calls(&[("a", "sky_weather", r#"{"city": "#)]));
    server.say(ModelReply::openai_text("Sorry."));
    let (model, mut conversation) = (openai(&server), question());
    let answer = ask(&model, &conversation).await.0.unwrap();
    let wrong = answer.calls[0].parsed().unwrap_err();
    conversation.answered(&answer);
    conversation.results(vec![ToolResult::error(&answer.calls[0], wrong.to_string())]);
    ask(&model, &conversation).await.0.unwrap();
    let messages = server.asked()[1].body["messages"].clone();
    assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"], "{}");
    assert!(messages[3]["content"].as_str().unwrap().starts_with("Error: the arguments are not JSON"));
}

#[tokio::test]
async fn a_model_without_tool_calls_gets_its_tools_in_the_prompt() {
    let server = ModelServer::start();
    server.say(ModelReply::refused(400, "registry.ollama.ai/library/x does not support tools"));
    server.say(ModelReply::openai_text("```tool_call\n{\"name\": \"now\", \"arguments\": {}}\n```"));
    server.say(ModelReply::openai_text("Noon."));
    let (model, conversation) = (openai(&server), question());
    let (answer, heard) = ask(&model, &conversation).await;
    assert_eq!(answer.unwrap().calls[0].name, "now");
    assert_eq!(heard, ["(now)"]);
    // It is not tried a second time.
    assert_eq!(ask(&model, &conversation).await.0.unwrap().text, "Noon.");
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked[2].body.get("tools").is_none());
    assert!(asked[2].body["messages"][0]["content"].as_str().unwrap().contains("- sky_weather: Tells the weather."));
}
