//! An assistant that uses tools: `mcp-aggregator ask`, `mcp-aggregator context`, and the block `assistant` of documents,
//! against scripted models over real HTTP.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::{Config, ModelReply, ModelServer, Output, Serve, ServerEntry, fake, program, wait_until};

use crate::documents::{begin, read, without_results};
use crate::service_cli::Home;

/// The environment variables that select this model.
fn environment(model: &ModelServer) -> [(&'static str, String); 3] {
    [
        ("OPENAI_BASE_URL", model.openai_url()),
        ("MCP_MODEL", "scripted".to_owned()),
        ("MCP_MODEL_PROVIDER", "openai".to_owned()),
    ]
}

fn run(home: &Home, model: &ModelServer, arguments: &[&str]) -> Output {
    let environment = environment(model);
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    home.run_with(arguments, &environment)
}

fn executions(serve: &Serve) -> Vec<Value> {
    let ask = HttpRequest::new("GET", "/api/v1/aggregator/executions?source=ai-autonomous");
    serve.fetch(&ask).json().as_array().cloned().unwrap_or_default()
}

/// Registers a server with the running service, and waits for its tools.
fn add(home: &Home, name: &str) {
    home.add(name);
    wait_until("its tools are there", || home.ok(&["context"]).contains(&format!("{name}.echo")).then_some(()));
}

fn config(home: &Home) -> String {
    let notes = ServerEntry::new(program("example-notes").to_str().expect("our folders are UTF-8"));
    let folder = home.path().join("notes");
    let notes = notes.args(["--dir", folder.to_str().expect("our folders are UTF-8")]);
    home.write("project/mcp.json", &Config::new().server("one", fake()).server("notes", notes).text())
}

#[test]
fn a_question_is_answered_with_the_tools_of_the_running_service() {
    let home = Home::new();
    let serve = home.serve();
    add(&home, "one");
    let model = ModelServer::start();
    model
        .say(ModelReply::openai_calls(&[("1", "one_echo", r#"{"text": "a"}"#), ("2", "one_echo", r#"{"text": "b"}"#)]));
    model.say(ModelReply::openai_text("It said a and b.").cut(5));
    let output = run(&home, &model, &["ask", "What does it say?", "--transcript", "said.json", "--server", "one"]);
    assert_eq!((output.status.code(), output.stdout.as_str()), (Some(0), "It said a and b.\n"), "{}", output.stderr);
    assert!(output.stderr.contains(r#"calling one.echo {"text": "a"}"#), "{}", output.stderr);
    assert!(output.stderr.contains("ms: one.echo"), "{}", output.stderr);
    let asked = model.asked();
    assert_eq!(asked[0].body["messages"][1]["content"], "What does it say?");
    assert!(asked[1].body["messages"][3]["content"].as_str().unwrap().contains('a'), "{}", asked[1].body);
    let said: Value = serde_json::from_str(&read(home.path().join("project/said.json").to_str().unwrap())).unwrap();
    assert_eq!((&said["ended"], &said["calls"]), (&json!("answered"), &json!(2)));
    let listed = wait_until("both calls are in the account", || {
        let listed = executions(&serve);
        (listed.len() == 2).then_some(listed)
    });
    assert_eq!(listed[0]["source"], "ai-autonomous");
}

#[test]
fn anthropics_models_get_requests_in_their_own_format() {
    let home = Home::new();
    let config = config(&home);
    let model = ModelServer::start();
    model.say(ModelReply::anthropic_calls(&[("1", "one_echo", r#"{"text": "a"}"#)]));
    model.say(ModelReply::anthropic_text("So it is."));
    let url = model.anthropic_url();
    let asked = ["ask", "Well?", "--provider", "anthropic", "--base-url", &url, "--model", "m", "--config", &config];
    let output = run(&home, &model, &asked);
    assert_eq!((output.status.code(), output.stdout.as_str()), (Some(0), "So it is.\n"), "{}", output.stderr);
    assert_eq!(model.asked()[1].body["messages"][2]["content"][0]["type"], "tool_result");
}

#[test]
fn the_line_of_a_document_determines_its_tools() {
    let home = Home::new();
    let config = config(&home);
    home.write("project/doc.md", "# Free\n\n# Bound\n<!-- mcp: one -->\n");
    let at = |line: &str| home.json(&["context", "--config", &config, "--doc", "doc.md", "--line", line, "--json"]);
    assert_eq!(at("1")["enabled_servers"], json!(["one", "notes"]));
    assert_eq!((&at("4")["enabled_servers"], &at("4")["section_binding"]), (&json!(["one"]), &json!("one")));
    for (format, name) in [
        ("openai", "/0/function/name"),
        ("openai-responses", "/0/name"),
        ("anthropic", "/0/name"),
        ("gemini", "/0/functionDeclarations/0/name"),
    ] {
        let tools = home.json(&["context", "--config", &config, "--server", "notes", "--format", format]);
        let name = tools.pointer(name).and_then(Value::as_str).unwrap_or_default();
        assert!(name.starts_with("notes_"), "{format}: {tools}");
    }
    let _serve = home.serve();
    add(&home, "two");
    let table = home.ok(&["context"]);
    assert!(table.contains("two_echo  ") && table.contains("two.echo"), "{table}");
    let by_service = home.json(&["context", "--doc", "doc.md", "--line", "1", "--json"]);
    assert_eq!(by_service["enabled_servers"], json!(["two"]));
}

#[test]
fn destructive_tools_are_not_called_without_a_user_to_confirm() {
    let home = Home::new();
    let config = config(&home);
    fs::create_dir_all(home.path().join("notes")).unwrap();
    let note = home.write("notes/plan.md", "# Plan\n");
    for (yes, is_there) in [(false, true), (true, false)] {
        let model = ModelServer::start();
        model.say(ModelReply::openai_calls(&[("1", "notes_delete", r#"{"name": "plan"}"#)]));
        model.say(ModelReply::openai_text("Well."));
        let mut arguments = vec!["ask", "Delete the plan", "--config", &config];
        arguments.extend(yes.then_some("--yes"));
        let output = run(&home, &model, &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
        assert_eq!(output.stderr.contains("hint: --yes allows such calls"), !yes, "{}", output.stderr);
        assert_eq!(fs::exists(&note).unwrap(), is_there, "{}", output.stderr);
    }
}

#[test]
fn errors_are_reported_with_advice() {
    let home = Home::new();
    let config = config(&home);
    let said = home.fails(2, &["ask", "Well?", "--config", &config]);
    assert!(said.contains("no model is configured") && said.contains("--base-url"), "{said}");

    let model = ModelServer::start();
    model.say(ModelReply::refused(401, "no such key"));
    let output = run(&home, &model, &["ask", "Well?", "--config", &config]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("no such key") && output.stderr.contains("check the API key"), "{}", output.stderr);

    model.answer_by(|asked| {
        let turn = asked.body["messages"].as_array().map_or(0, Vec::len);
        ModelReply::openai_calls(&[("1", "one_echo", &format!("{{\"text\": \"{turn}\"}}"))])
    });
    let output = run(&home, &model, &["ask", "Well?", "--config", &config, "--max-rounds", "3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("after 3 rounds") && output.stderr.contains("--max-rounds"), "{}", output.stderr);
}

#[test]
fn ctrl_c_ends_it_and_cancels_its_calls() {
    let home = Home::new();
    let serve = home.serve();
    add(&home, "one");
    let model = ModelServer::start();
    model.say(ModelReply::openai_calls(&[("1", "one_hang", "{}")]));
    let url = model.openai_url();
    let mut child = begin(&home, &["ask", "Well?", "--base-url", &url, "--model", "m"], "calling one.hang");
    wait_until("the call is under way", || executions(&serve).first().cloned());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_until("the call is cancelled", || (executions(&serve)[0]["status"] == "cancelled").then_some(()));
}

#[test]
fn the_limit_of_a_session_is_reported_to_the_model() {
    let home = Home::new();
    let serve = home.serve();
    add(&home, "one");
    let ask = HttpRequest::new("PATCH", "/api/v1/aggregator/settings").header("Content-Type", "application/json");
    assert_eq!(serve.fetch(&ask.body(json!({"session_limit": 1}).to_string())).status, 200);
    let model = ModelServer::start();
    model
        .say(ModelReply::openai_calls(&[("1", "one_echo", r#"{"text": "a"}"#), ("2", "one_echo", r#"{"text": "b"}"#)]));
    model.say(ModelReply::openai_text("One, then."));
    let output = run(&home, &model, &["ask", "Well?"]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("failed: one.echo"), "{}", output.stderr);
    assert!(model.asked()[1].body["messages"].to_string().contains("limit"), "{}", model.asked()[1].body);
}

#[test]
fn a_block_of_a_document_is_answered_with_the_tools_of_its_section() {
    let home = Home::new();
    let config = config(&home);
    let text = "# Notes\n\n## Bound\n<!-- mcp: one -->\n\n```assistant\nWhat does echo say?\n```\n\nThe end.\n";
    let doc = home.write("project/doc.md", text);
    let model = ModelServer::start();
    model.say(ModelReply::openai_calls(&[("1", "one_echo", r#"{"text": "hello"}"#)]));
    model.say(ModelReply::openai_text("It says **hello**."));
    let output = run(&home, &model, &["run", "doc.md", "--config", &config]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("calling one.echo"), "{}", output.stderr);
    let report = read(&doc);
    assert!(report.contains("It says **hello**."), "{report}");
    assert_eq!(without_results(&report), text);
    let tools = model.asked()[0].body["tools"].to_string();
    assert!(tools.contains("one_echo") && !tools.contains("notes_"), "{tools}");

    let _serve = home.serve();
    add(&home, "one");
    model.say(ModelReply::openai_text("It says nothing."));
    let output = run(&home, &model, &["run", "doc.md"]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert!(read(&doc).contains("It says nothing."));
}

#[test]
fn without_a_model_option_the_service_model_is_used() {
    let home = Home::new();
    let model = ModelServer::start();
    let url = model.openai_url();
    let serve = home.serve_as(|launch| launch.args(["--assistant-model", "scripted", "--assistant-url", &url]));
    add(&home, "one");
    model.say(ModelReply::openai_calls(&[("1", "one_echo", r#"{"text": "a"}"#)]));
    model.say(ModelReply::openai_text("It said a.").cut(3));
    let output = home.run(&["ask", "What does it say?", "--transcript", "said.json"]);
    assert_eq!((output.status.code(), output.stdout.as_str()), (Some(0), "It said a.\n"), "{}", output.stderr);
    assert!(output.stderr.contains(r#"calling one.echo {"text": "a"}"#), "{}", output.stderr);
    let said: Value = serde_json::from_str(&read(home.path().join("project/said.json").to_str().unwrap())).unwrap();
    assert_eq!(said["ended"], "answered");
    wait_until("the call is in the account", || (executions(&serve).len() == 1).then_some(()));

    let doc = home.write("project/doc.md", "# A\n\n```assistant\nWell?\n```\n");
    model.say(ModelReply::openai_text("From the service."));
    let output = home.run(&["run", "doc.md"]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert!(read(&doc).contains("From the service."));

    drop(serve);
    let _serve = home.serve();
    let said = home.fails(2, &["ask", "Well?"]);
    assert!(said.contains("no model is configured") && said.contains("--assistant-model"), "{said}");
    let output = home.run(&["run", "doc.md"]);
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    assert!(read(&doc).contains("From the service."), "an answer that is there stays");
}

#[test]
fn many_tools_are_searched_for_instead_of_being_sent_with_every_round() {
    let home = Home::new();
    let many = fake().arg("--tools").arg("150");
    let config = home.write("project/many.json", &Config::new().server("many", many).text());
    let model = ModelServer::start();
    let script = |answer: &str| {
        model.say(ModelReply::openai_calls(&[("1", "search_tools", r#"{"query": "give the arguments back"}"#)]));
        let call = r#"{"name": "many.echo", "arguments": {"text": "hello"}}"#;
        model.say(ModelReply::openai_calls(&[("2", "call_tool", call)]));
        model.say(ModelReply::openai_text(answer));
    };
    let check = |output: &Output, asked: usize| {
        assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
        assert!(output.stderr.contains(r#"calling many.echo {"text": "hello"}"#), "{}", output.stderr);
        for round in asked..asked + 3 {
            assert_eq!(model.asked()[round].body["tools"].as_array().map(Vec::len), Some(3));
        }
        let found = model.asked()[asked + 1].body["messages"].to_string();
        assert!(found.contains("many.echo: Gives the arguments back"), "{found}");
        let result = model.asked()[asked + 2].body["messages"].to_string();
        assert!(result.contains("hello"), "{result}");
    };
    script("By config.");
    check(&run(&home, &model, &["ask", "Well?", "--config", &config]), 0);

    let serve = home.serve_as(|launch| launch.args(["--config", &config]));
    wait_until("its tools are there", || home.ok(&["context"]).contains("many.echo").then_some(()));
    script("By the service.");
    check(&run(&home, &model, &["ask", "Well?"]), 3);
    drop(serve);

    let url = model.openai_url();
    let with_model = ["--config", &config, "--assistant-model", "scripted", "--assistant-url", &url];
    let _serve = home.serve_as(|launch| launch.args(with_model));
    wait_until("its tools are there", || home.ok(&["context"]).contains("many.echo").then_some(()));
    script("By the model of the service.");
    check(&home.run(&["ask", "Well?"]), 6);
}

#[test]
fn a_dry_run_reports_whether_an_assistant_is_available() {
    let home = Home::new();
    let config = config(&home);
    let doc = home.write("project/doc.md", "# A\n\n```assistant\nWell?\n```\n");
    let dry = |more: &[&str]| home.run(&[&["run", "doc.md", "--dry-run", "--json"], more].concat());
    let block = |output: &Output| serde_json::from_str::<Value>(&output.stdout).expect("JSON")["blocks"][0].clone();
    let refused = dry(&["--config", &config]);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert_eq!(
        (&block(&refused)["status"], &block(&refused)["problem"]["trouble"]),
        (&json!("refused"), &json!("no_assistant"))
    );
    assert!(
        refused.stderr.contains("no model is configured") && !refused.stderr.contains("ready"),
        "{}",
        refused.stderr
    );

    let model = ModelServer::start();
    let url = model.openai_url();
    let ready = dry(&["--config", &config, "--provider", "openai", "--model", "scripted", "--base-url", &url]);
    assert_eq!((ready.status.code(), &block(&ready)["status"]), (Some(0), &json!("ready")), "{}", ready.stderr);

    let serve = home.serve();
    let refused = dry(&[]);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert_eq!(block(&refused)["problem"]["trouble"], "no_assistant");
    drop(serve);
    let _serve = home.serve_as(|launch| launch.args(["--assistant-model", "scripted", "--assistant-url", &url]));
    let ready = dry(&[]);
    assert_eq!((ready.status.code(), &block(&ready)["status"]), (Some(0), &json!("ready")), "{}", ready.stderr);
    assert!(model.asked().is_empty(), "nobody is asked by a dry run");
    assert!(!read(&doc).contains("mcp-result"));
}

#[test]
fn a_config_may_name_the_model() {
    let home = Home::new();
    let model = ModelServer::start();
    let mut config: Value = serde_json::from_str(&read(&config(&home))).unwrap();
    config["assistant"] = json!({"model": "named", "baseUrl": model.openai_url()});
    let config = home.write("project/named.json", &config.to_string());
    model.say(ModelReply::openai_text("By config."));
    assert_eq!(home.ok(&["ask", "Well?", "--config", &config]), "By config.\n");
    assert_eq!(model.asked()[0].body["model"], "named");
    let _serve = home.serve_as(|launch| launch.args(["--config", &config]));
    model.say(ModelReply::openai_text("By the service's config."));
    assert_eq!(home.ok(&["ask", "Well?"]), "By the service's config.\n");
}

#[test]
fn a_binding_that_makes_no_sense_leaves_the_model_without_tools() {
    let home = Home::new();
    let config = config(&home);
    let doc = home.write("project/doc.md", "---\nmcp: [oops\n---\n\n# A\n\n```assistant\nWell?\n```\n");
    let model = ModelServer::start();
    model.say(ModelReply::openai_text("Without."));
    let output = run(&home, &model, &["ask", "Well?", "--config", &config, "--doc", "doc.md", "--line", "5"]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("warning: line ") && output.stderr.contains("no tools"), "{}", output.stderr);
    assert!(model.asked()[0].body.get("tools").is_none(), "{}", model.asked()[0].body);
    let output = run(&home, &model, &["run", "doc.md", "--config", &config]);
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    assert!(read(&doc).contains("no tools may be used while the document has an invalid binding"), "{}", read(&doc));
}
