//! Answers that are JSON, and embeddings.

use models::{Model, ModelErrorKind, Question};
use serde_json::{Value, json};
use testkit::{ModelReply, ModelServer};

use crate::fixture::{anthropic, openai};

async fn colour(model: &Model) -> Result<Value, models::ModelError> {
    let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"], "additionalProperties": false});
    let question =
        Question { system: "Look.", user: "What colour?", name: "colour", schema: &schema, max_tokens: None };
    model.json(question).await
}

#[tokio::test]
async fn a_model_api_without_schema_support_gets_another_request_form_from_then_on() {
    let server = ModelServer::start();
    server.say(ModelReply::refused(400, "response_format json_schema is not supported"));
    server.say(ModelReply::refused(422, "response_format is unknown"));
    server.say(ModelReply::openai_text("It is:\n```json\n{\"colour\": \"red\"}\n```"));
    server.say(ModelReply::openai_text("{\"colour\": \"blue\"}"));
    let model = openai(&server);
    assert_eq!(colour(&model).await.unwrap(), json!({"colour": "red"}));
    assert_eq!(colour(&model).await.unwrap(), json!({"colour": "blue"}));
    let asked = server.asked();
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[0].body["response_format"]["json_schema"]["strict"], true);
    assert_eq!(asked[1].body["response_format"], json!({"type": "json_object"}));
    assert!(asked[1].body["messages"][0]["content"].as_str().unwrap().contains("\"colour\""));
    assert!(asked[2].body.get("response_format").is_none());
    assert!(asked[3].body.get("response_format").is_none());
}

#[tokio::test]
async fn prose_is_no_answer() {
    let server = ModelServer::start();
    server.say(ModelReply::openai_text("Red, I would say."));
    let failed = colour(&openai(&server)).await.unwrap_err();
    assert!(matches!(&failed.kind, ModelErrorKind::NoJson(said) if said.starts_with("Red, I")), "{failed}");
}

#[tokio::test]
async fn anthropic_is_given_a_tool_that_takes_the_answer() {
    let server = ModelServer::start();
    server.say(ModelReply::anthropic_calls(&[("a", "colour", r#"{"colour": "red"}"#)]));
    assert_eq!(colour(&anthropic(&server)).await.unwrap(), json!({"colour": "red"}));
    let asked = server.asked()[0].body.clone();
    assert_eq!(asked["tool_choice"], json!({"type": "tool", "name": "colour"}));
    assert_eq!(asked["tools"][0]["input_schema"]["required"], json!(["colour"]));
}

#[tokio::test]
async fn vectors_come_in_batches_and_have_one_length() {
    let server = ModelServer::start();
    server.answer_by(|asked| {
        let texts = asked.body["input"].as_array().unwrap();
        let vectors: Vec<Vec<f32>> = texts.iter().map(|text| vec![text.as_str().unwrap().len() as f32, 1.0]).collect();
        ModelReply::embeddings(&vectors)
    });
    let model = openai(&server);
    let texts: Vec<String> = (0..100).map(|length| "x".repeat(length)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let vectors = model.embed(&texts).await.unwrap();
    assert_eq!((vectors.len(), &vectors[99]), (100, &vec![99.0, 1.0]));
    assert_eq!(server.asked().len(), 2);
    assert_eq!(server.asked()[0].path, "/v1/embeddings");

    server.say(ModelReply::embeddings(&[vec![1.0], vec![1.0, 2.0]]));
    assert!(model.embed(&["a", "b"]).await.unwrap_err().to_string().contains("different lengths"));
    assert!(anthropic(&server).embed(&["a"]).await.is_err());
}
