//! The tools of an assistant over REST, filtered and in the format of its provider; and the assistant of the service,
//! asked directly and by documents.

use std::fs;

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::{ModelReply, ModelServer, program, wait_until};

use super::{PREFIX, Rest, expect, expect_error, expect_problems};

/// Its tools: `server.tool`.
fn offered(answer: &Value) -> Vec<String> {
    answer["tools"]
        .as_array()
        .expect("tools have names")
        .iter()
        .map(|tool| tool["name"].as_str().expect("tools have names").to_owned())
        .collect()
}

fn two_servers() -> Rest {
    let rest = Rest::start();
    rest.register("one", &["--only-generated", "--tools", "2"]);
    rest.register("two", &["--only-generated", "--tools", "1"]);
    rest
}

#[test]
fn every_provider_gets_the_tools_in_its_own_form_under_names_it_accepts() {
    let rest = two_servers();
    let plain = expect(200, &rest.get("/assistant/tools"));
    assert_eq!((offered(&plain).len(), &plain["format"], &plain["provider_tools"]), (3, &Value::Null, &Value::Null));
    assert_eq!(plain["enabled_servers"], json!(["one", "two"]));
    let first = &plain["tools"][0];
    let safe = first["safe_name"].as_str().unwrap();
    assert!(!safe.contains('.') && first["name"].as_str().unwrap().starts_with("one."), "{first}");
    for (format, name) in [
        ("openai", "/0/function/name"),
        ("openai-responses", "/0/name"),
        ("anthropic", "/0/name"),
        ("gemini", "/0/functionDeclarations/0/name"),
    ] {
        let answer = expect(200, &rest.get(&format!("/assistant/tools?format={format}")));
        assert_eq!(answer["provider_tools"].pointer(name), Some(&json!(safe)), "{format}: {answer}");
    }
    assert_eq!(expect_problems(&rest.get("/assistant/tools?format=fax"))[0].0, "query.format");
}

#[test]
fn tools_are_narrowed_by_server_by_skill_and_by_the_line_of_a_document() {
    let rest = two_servers();
    let only = expect(200, &rest.get("/assistant/tools?servers=two"));
    assert_eq!((offered(&only).len(), &only["enabled_servers"]), (1, &json!(["two"])));
    assert_eq!(offered(&expect(200, &rest.get("/assistant/tools?servers=one,two"))).len(), 3);
    expect_error(404, "SERVER_NOT_FOUND", &rest.get("/assistant/tools?servers=three"));
    expect_error(404, "SKILL_NOT_FOUND", &rest.get("/assistant/tools?skills=no-such-skill"));
    expect_error(404, "DOCUMENT_NOT_FOUND", &rest.get("/assistant/tools?path=a.md&line=1"));

    let text = "# Free\n\n# Bound\n<!-- mcp: two -->\n";
    let at = |line: u64| expect(200, &rest.post("/assistant/tools", &json!({"text": text, "line": line})));
    assert_eq!((offered(&at(1)).len(), &at(1)["section_binding"]), (3, &Value::Null));
    assert_eq!((offered(&at(4)).len(), &at(4)["section_binding"]), (1, &json!("two")));
    let none = expect(200, &rest.post("/assistant/tools", &json!({"text": text, "line": 4, "servers": ["one"]})));
    assert_eq!(offered(&none), Vec::<String>::new(), "a server list does not lead out of a binding");
}

#[test]
fn a_server_that_is_disabled_offers_nothing() {
    let rest = two_servers();
    expect(200, &rest.order("/servers/two/disable"));
    let answer = expect(200, &rest.get("/assistant/tools"));
    assert_eq!((offered(&answer).len(), &answer["enabled_servers"]), (2, &json!(["one"])));
}

/// A service with a model.
pub(super) fn with_model(model: &ModelServer) -> Rest {
    let url = model.openai_url();
    let rest = Rest::start_as(|launch| launch.args(["--assistant-model", "openai:scripted", "--assistant-url", &url]));
    rest.register("one", &[]);
    rest
}

fn events_of(rest: &Rest, path: &str, body: &Value) -> Vec<(String, Value)> {
    let ask = HttpRequest::post(&format!("{PREFIX}{path}"), body.to_string()).header("Accept", "text/event-stream");
    let mut connection = rest.serve.connect();
    let mut stream = connection.ask(&ask);
    assert!(stream.is_stream());
    let reported = std::iter::from_fn(|| stream.next_message());
    reported.map(|event| (event.kind.clone().unwrap_or_default(), event.json())).collect()
}

#[test]
fn the_service_answers_questions_and_records_the_calls() {
    let model = ModelServer::start();
    let rest = with_model(&model);
    model.say(ModelReply::openai_calls(&[("1", "one_echo", r#"{"text": "a"}"#), ("2", "one_eat", "{}")]));
    model.say(ModelReply::openai_text("It says a."));
    let asked = json!({"question": "What does it say?", "transcript": true, "servers": ["one"]});
    let reply = expect(200, &rest.post("/assistant/ask", &asked));
    assert_eq!(
        (&reply["ok"], &reply["answer"], &reply["ended"]),
        (&json!(true), &json!("It says a."), &json!("answered"))
    );
    assert_eq!((&reply["calls"][0]["tool"], &reply["calls"][0]["problem"]), (&json!("one.echo"), &Value::Null));
    assert!(reply["calls"][1]["problem"].as_str().unwrap().contains("there is no tool"), "{reply}");
    assert_eq!(reply["transcript"]["turns"][0]["text"], "What does it say?");
    assert_eq!(model.asked()[0].body["model"], "scripted");
    let listed = wait_until("the call is in the account", || {
        let listed = rest.get("/executions?source=ai-autonomous").json();
        (listed[0]["status"] == "success").then_some(listed)
    });
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[test]
fn events_of_the_assistant_are_streamed() {
    let model = ModelServer::start();
    let rest = with_model(&model);
    model.say(ModelReply::openai_calls(&[("1", "one_echo", r#"{"text": "a"}"#)]));
    model.say(ModelReply::openai_text("It says a.").cut(5));
    let events = events_of(&rest, "/assistant/ask", &json!({"question": "Well?"}));
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..2], ["assistant.calling", "assistant.called"]);
    assert_eq!(names.last(), Some(&"assistant.finished"));
    let words = events.iter().filter(|(name, _)| name == "assistant.words");
    assert_eq!(words.map(|(_, data)| data["text"].as_str().unwrap()).collect::<String>(), "It says a.");

    model.say(ModelReply::refused(401, "no such key"));
    let events = events_of(&rest, "/assistant/ask", &json!({"question": "Well?"}));
    let (name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), &data["error_code"]), ("assistant.failed", &json!("MODEL_FAILED")));
    assert!(data["detail"].as_str().unwrap().contains("no such key"), "{data}");
    model.say(ModelReply::refused(401, "no such key"));
    expect_error(502, "MODEL_FAILED", &rest.post("/assistant/ask", &json!({"question": "Well?"})));
}

#[test]
fn a_question_that_is_given_up_cancels_its_calls() {
    let model = ModelServer::start();
    let rest = with_model(&model);
    model.say(ModelReply::openai_calls(&[("1", "one_hang", "{}")]));
    let mut connection = rest.serve.connect();
    connection.send(&HttpRequest::post(&format!("{PREFIX}/assistant/ask"), json!({"question": "Well?"}).to_string()));
    wait_until("the call is on its way", || {
        (rest.get("/executions?status=executing").json()[0]["source"] == "ai-autonomous").then_some(())
    });
    drop(connection);
    wait_until("the call is cancelled", || {
        (rest.get("/executions?source=ai-autonomous").json()[0]["status"] == "cancelled").then_some(())
    });
}

#[test]
fn destructive_tools_are_called_only_if_the_request_allows_it() {
    let model = ModelServer::start();
    let rest = with_model(&model);
    let notes = rest.folder.path().join("notes");
    fs::create_dir_all(&notes).unwrap();
    fs::write(notes.join("plan.md"), "# Plan\n").unwrap();
    let config = json!({
        "command": program("example-notes").to_str().unwrap(),
        "args": ["--dir", notes.to_str().unwrap()],
    });
    let server = json!({"name": "notes", "transport_type": "stdio", "connection_config": config});
    expect(201, &rest.post("/servers", &server));
    rest.wait_for_status("notes", "connected");
    for is_confirmed in [false, true] {
        model.say(ModelReply::openai_calls(&[("1", "notes_delete", r#"{"name": "plan"}"#)]));
        model.say(ModelReply::openai_text("Well."));
        let asked = json!({"question": "Delete the plan", "confirm_destructive": is_confirmed});
        let reply = expect(200, &rest.post("/assistant/ask", &asked));
        assert_eq!(reply["calls"][0]["problem"].is_null(), is_confirmed, "{reply}");
        assert_eq!(fs::exists(notes.join("plan.md")).unwrap(), !is_confirmed);
    }
    model.say(ModelReply::openai_calls(&[("1", "notes_delete", r#"{"name": 5}"#)]));
    model.say(ModelReply::openai_text("Well."));
    let asked = json!({"question": "Delete 5", "confirm_destructive": true});
    let reply = expect(200, &rest.post("/assistant/ask", &asked));
    let problem = reply["calls"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("`name`: 5 is not of type \"string\""), "nothing was called: {problem}");
}

#[test]
fn a_block_of_a_document_is_answered_and_its_steps_are_reported() {
    let model = ModelServer::start();
    let rest = with_model(&model);
    rest.register("two", &[]);
    let text = "# A\n<!-- mcp: one -->\n\n```assistant\nWhat does echo say?\n```\n";
    model.say(ModelReply::openai_calls(&[("1", "one_echo", r#"{"text": "hello"}"#)]));
    model.say(ModelReply::openai_text("It says **hello**."));
    let events = events_of(&rest, "/documents/run", &json!({"text": text, "path": "/notes/a.md"}));
    let at = |wanted: &str| events.iter().position(|(name, _)| name == wanted).unwrap_or_else(|| panic!("{events:?}"));
    assert!(at("block.executing") < at("assistant.calling") && at("assistant.called") < at("assistant.words"));
    assert_eq!((&events[at("assistant.calling")].1["line"], at("document.finished")), (&json!(4), events.len() - 1));
    let after = events.last().unwrap().1["text"].as_str().unwrap();
    assert!(after.contains("It says **hello**."), "{after}");
    let asked = model.asked()[0].body.clone();
    assert!(asked["tools"].to_string().contains("one_echo") && !asked["tools"].to_string().contains("two_"));
    assert!(asked["messages"][0]["content"].as_str().unwrap().contains("line 4 of this document"));
    let listed = wait_until("the call is in the account", || {
        let listed = rest.get("/executions?source=ai-autonomous").json();
        (listed[0]["status"] == "success").then_some(listed)
    });
    assert_eq!((&listed[0]["document_path"], &listed[0]["section_line"]), (&json!("/notes/a.md"), &json!(4)));
}

#[test]
fn without_a_model_existing_answers_stay() {
    let model = ModelServer::start();
    let rest = with_model(&model);
    model.say(ModelReply::openai_text("Forty-two."));
    let text = "```assistant\nHow much?\n```\n";
    let answered = expect(200, &rest.post("/documents/run", &json!({"text": text})))["text"].clone();
    assert!(answered.as_str().unwrap().contains("Forty-two."), "{answered}");

    let rest = rest.restarted(false);
    expect_error(503, "ASSISTANT_UNAVAILABLE", &rest.post("/assistant/ask", &json!({"question": "Well?"})));
    let reply = expect(200, &rest.post("/documents/run", &json!({"text": answered})));
    let block = &reply["blocks"][0];
    assert_eq!((&reply["ok"], &block["status"]), (&json!(false), &json!("refused")));
    assert_eq!(reply["text"], answered);
    assert_eq!(block["problem"]["trouble"], "no_assistant");
    assert!(block["problem"]["faults"][0]["what"].as_str().unwrap().contains("--assistant-model"), "{reply}");
}

#[test]
fn an_invalid_binding_gives_no_tools_and_is_reported() {
    let rest = two_servers();
    let text = "---\nmcp: [oops\n---\n\n# A\n";
    let reply = expect(200, &rest.post("/assistant/tools", &json!({"text": text, "line": 5})));
    assert_eq!((offered(&reply), &reply["enabled_servers"]), (Vec::new(), &json!([])));
    assert_eq!(reply["remarks"].as_array().unwrap().len(), 1, "{reply}");
    let context = expect(200, &rest.post("/documents/context", &json!({"text": text, "line": 5})));
    assert_eq!((&context["allowed_servers"], &context["remarks"]), (&json!([]), &reply["remarks"]));
}
