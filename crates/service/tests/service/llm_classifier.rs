//! Classification of tools by a language model: requested once, checked, and not required when it is unreachable.

use std::sync::Arc;
use std::time::Duration;

use models::{Budget, Limits, Model, Provider};
use registry::ToolRecord;
use serde_json::{Value, json};
use testkit::{ModelReply, ModelRequestSeen, ModelServer};
use tool_search::{ClassifierScope, ClassifierSetup, ToolState, ToolStates, ToolView};

use crate::fixture::{FixtureOptions, MakeClassifier, ServiceFixture, fake, somebody};

fn classifier(url: String) -> MakeClassifier {
    Arc::new(move || {
        let limits = Limits { first_byte: Duration::from_secs(10), tries: 1, ..Limits::default() };
        let budget = Arc::new(Budget::unlimited());
        let model = Model::new(Provider::openai(url.clone(), None, "judge"), limits, Arc::clone(&budget)).unwrap();
        ClassifierSetup { model, budget, about: ClassifierScope::Always, pause: Duration::from_millis(20) }
    })
}

async fn asking(server: &ModelServer) -> ServiceFixture {
    ServiceFixture::with(FixtureOptions {
        classifier: Some(classifier(server.openai_url())),
        ..FixtureOptions::default()
    })
    .await
}

/// The tools that a request is about.
fn tools_in(asked: &ModelRequestSeen) -> Vec<Value> {
    let user = asked.body["messages"][1]["content"].as_str().unwrap();
    let lines: Vec<&str> = user.lines().collect();
    serde_json::from_str(&lines[1..lines.len() - 1].concat()).unwrap()
}

/// A response that assigns every tool to this skill.
fn all_are(skill: &str, tools: &[Value]) -> Value {
    let skills = json!([{ "id": skill, "confidence": 0.875 }]);
    let each: Vec<Value> = tools.iter().map(|tool| json!({ "id": tool["id"], "skills": skills })).collect();
    json!({ "tools": each, "new_skills": [] })
}

fn says_files(asked: &ModelRequestSeen) -> ModelReply {
    ModelReply::openai_json(&all_are("files", &tools_in(asked)))
}

/// Waits until all tools of a server fulfil a condition.
async fn until(fixture: &ServiceFixture, server: &str, wished: impl Fn(&ToolRecord) -> bool) -> Vec<ToolRecord> {
    let waiting = async {
        loop {
            let tools = fixture.service.tools(Some(server)).await.unwrap();
            if !tools.is_empty() && tools.iter().all(&wished) {
                return tools;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    match tokio::time::timeout(testkit::DEADLINE, waiting).await {
        Ok(tools) => tools,
        Err(_) => panic!("never so: {:#?}", fixture.service.tools(Some(server)).await),
    }
}

async fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(testkit::DEADLINE, waiting).await.is_ok(), "never so: {what}");
}

fn is_for(skill: &'static str) -> impl Fn(&ToolRecord) -> bool {
    move |tool| tool.primary_skill.as_deref() == Some(skill)
}

fn was_asked(tool: &ToolRecord) -> bool {
    tool.classified_by.as_deref().is_some_and(|by| by.ends_with(" + judge"))
}

#[tokio::test(flavor = "multi_thread")]
async fn classifications_of_a_model_are_stored_and_never_requested_again() {
    let server = ModelServer::start();
    server.answer_by(says_files);
    let fixture = asking(&server).await;
    fixture.service.register(&somebody(), fake("one", &[])).await.unwrap();
    let tools = until(&fixture, "one", is_for("files")).await;
    assert_eq!((&tools[0].skills, &tools[0].confidences), (&vec!["files".to_owned()], &vec![0.875]));
    let asked = server.asked().len();
    assert_eq!(asked, tools.len().div_ceil(30));

    // Neither after a restart nor when the same tools come under other ids.
    let fixture = fixture.again().await;
    fixture.service.remove(&somebody(), "one", false).await.unwrap();
    fixture.service.register(&somebody(), fake("one", &[])).await.unwrap();
    until(&fixture, "one", is_for("files")).await;
    assert_eq!(server.asked().len(), asked);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_or_slow_model_is_retried_after_recovery() {
    let server = ModelServer::start();
    let port = server.port();
    let fixture = asking(&server).await;
    drop(server);
    fixture.service.register(&somebody(), fake("one", &[])).await.unwrap();
    let tools = until(&fixture, "one", |tool| tool.classified_by.is_some() && !was_asked(tool)).await;
    let count = tools.len() as u64;
    let states = |state: ToolState| fixture.service.with_states(tools.clone()).iter().all(|tool| tool.state == state);
    // The classification by embeddings may be written a moment before it is known here.
    wait_for("all tools wait for the model", || states(ToolState::Classifying)).await;
    assert_eq!(fixture.service.state().tool_states, ToolStates { classifying: count, ..ToolStates::default() });
    let server = ModelServer::start_on(port);
    server.say(ModelReply::refused(503, "warming up"));
    server.say(ModelReply::openai_text("x").falls_silent_after(0));
    server.answer_by(says_files);
    until(&fixture, "one", is_for("files")).await;
    wait_for("all tools are classified", || states(ToolState::Classified)).await;
    assert_eq!(fixture.service.state().tool_states, ToolStates { classified: count, ..ToolStates::default() });
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_without_a_fitting_skill_is_unclassified_after_all_classifiers() {
    let server = ModelServer::start();
    server.answer_by(|asked| {
        let each: Vec<Value> = tools_in(asked).iter().map(|tool| json!({ "id": tool["id"], "skills": [] })).collect();
        ModelReply::openai_json(&json!({ "tools": each, "new_skills": [] }))
    });
    let fixture = asking(&server).await;
    fixture.service.register(&somebody(), fake("one", &[])).await.unwrap();
    let tools = until(&fixture, "one", was_asked).await;
    let is_unclassified = |tools: Vec<ToolView>| tools.iter().all(|tool| tool.state == ToolState::Unclassified);
    wait_for("all tools are unclassified", || is_unclassified(fixture.service.with_states(tools.clone()))).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_with_invalid_answers_changes_nothing_and_is_not_retried_forever() {
    for lie in [
        |_: &ModelRequestSeen| ModelReply::openai_text("These are fine tools, I am sure."),
        |_: &ModelRequestSeen| {
            ModelReply::openai_json(&json!({ "tools": [{ "id": "t999", "skills": [] }], "new_skills": [] }))
        },
        |asked: &ModelRequestSeen| ModelReply::openai_json(&all_are("world-domination", &tools_in(asked))),
    ] {
        let server = ModelServer::start();
        server.answer_by(lie);
        let fixture = asking(&server).await;
        fixture.service.register(&somebody(), fake("one", &[])).await.unwrap();
        let tools = until(&fixture, "one", was_asked).await;
        let skills = fixture.service.skills();
        let is_known = |id: &String| skills.iter().any(|skill| skill.id == *id);
        assert!(tools.iter().all(|tool| tool.skills.iter().all(is_known)), "{tools:#?}");
        assert!(server.asked().len() <= 1 + tools.len(), "{}", server.asked().len());
        fixture.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_injection_affects_only_tools_of_its_own_server() {
    let server = ModelServer::start();
    // A tool called `tool_0` controls the model by prompt injection, and wants every tool to be for e-mail.
    server.answer_by(|asked| {
        let tools = tools_in(asked);
        let is_hostile = tools.iter().any(|tool| tool["name"] == "tool_0");
        let many: Vec<Value> = (1..100).map(|number| json!({ "id": format!("t{number}") })).collect();
        ModelReply::openai_json(&if is_hostile { all_are("email", &many) } else { all_are("files", &tools) })
    });
    let fixture = asking(&server).await;
    fixture.service.register(&somebody(), fake("good", &[])).await.unwrap();
    fixture.service.register(&somebody(), fake("bad", &["--tools", "1"])).await.unwrap();
    let (good, _) = tokio::join!(until(&fixture, "good", was_asked), until(&fixture, "bad", was_asked));
    assert!(good.iter().all(is_for("files")), "{good:#?}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suggested_skills_wait_for_an_administrator() {
    let server = ModelServer::start();
    server.answer_by(|asked| {
        let tools = tools_in(asked);
        let new = |id: &str| json!({ "id": id, "name": "N", "description": "D", "tools": [tools[0]["id"]] });
        let mut answer = all_are("files", &tools);
        answer["new_skills"] = json!([new("bees"), new("wasps")]);
        ModelReply::openai_json(&answer)
    });
    let fixture = asking(&server).await;
    fixture.service.register(&somebody(), fake("one", &[])).await.unwrap();
    until(&fixture, "one", was_asked).await;
    let waiting = fixture.service.suggestions().await.unwrap();
    assert_eq!(waiting.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["bees", "wasps"]);
    assert!(waiting[0].tools[0].starts_with("one."), "{waiting:?}");

    let asked = server.asked().len();
    Arc::clone(&fixture.service).reject_suggestion(&somebody(), "wasps").await.unwrap();
    let bees = Arc::clone(&fixture.service).accept_suggestion(&somebody(), "bees").await.unwrap();
    assert!(bees.enabled && bees.is_changed);
    // With other skills it is another request.
    tokio::task::block_in_place(|| server.wait_for(asked + 1));
    until(&fixture, "one", was_asked).await;
    assert!(fixture.service.suggestions().await.unwrap().is_empty());
    assert!(Arc::clone(&fixture.service).accept_suggestion(&somebody(), "wasps").await.is_err());
    fixture.end().await;
}
