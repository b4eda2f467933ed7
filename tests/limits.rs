//! Limits of calls by identity, profile, server and tool: over MCP, REST, in documents and for the assistant, on the
//! command line and in the console, and across restarts.
//!
//! - [`administration`]: setting, showing and removing limits; here: what they do to calls

mod administration;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::SystemTime;

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use testkit::http_client::HttpRequest;
use testkit::http_session::Hello;
use testkit::serve::Fetched;
use testkit::{ClientSession, HttpSession, ModelReply, ModelServer, Postgres};

use crate::documents::{block, read};
use crate::rest::{PREFIX, Rest, expect, expect_error};
use crate::service_cli::Home;

/// One call, and then one in a thousand seconds.
fn rare() -> Value {
    json!({"per_second": 0.001})
}

fn put(rest: &Rest, path: &str, limit: &Value) -> Fetched {
    let ask = HttpRequest::new("PUT", &format!("{PREFIX}/limits/{path}")).header("Content-Type", "application/json");
    rest.serve.fetch(&ask.body(limit.to_string()))
}

/// The limit of this kind and name.
#[track_caller]
fn shown(rest: &Rest, kind: &str, name: &str) -> Value {
    let limits = expect(200, &rest.get("/limits"));
    let found = limits.as_array().into_iter().flatten().find(|limit| limit["kind"] == kind && limit["name"] == name);
    found.unwrap_or_else(|| panic!("no limit of {kind} {name} in {limits}")).clone()
}

#[track_caller]
fn call(client: &mut dyn ClientSession, tool: &str) -> Value {
    client.ask("tools/call", json!({"name": tool, "arguments": {}}))
}

/// The data of an error, which must be that of a reached limit.
#[track_caller]
fn refused(answer: &Value) -> Value {
    let error = &answer["error"];
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("rate_limited")), "{answer}");
    assert_eq!(error["data"]["safeToRetry"], true);
    assert!(error["data"]["retry_after_ms"].as_u64() > Some(0), "{answer}");
    error["data"].clone()
}

#[test]
fn a_call_beyond_a_limit_is_refused_over_mcp_and_over_rest() {
    let rest = Rest::start();
    rest.register("one", &[]);
    rest.register("two", &[]);
    expect(200, &put(&rest, "tool/one.echo", &rare()));
    let mut legacy = rest.serve.session("/mcp");
    assert!(call(&mut legacy, "one.echo")["result"].is_object());
    let wait = refused(&call(&mut legacy, "one.echo"))["retry_after_ms"].as_u64().expect("a number");
    assert!(wait <= 1_000_000, "{wait}");
    refused(&call(&mut rest.serve.modern("/mcp"), "one.echo"));
    refused(&call(&mut rest.serve.session("/mcp/one"), "echo"));

    let answer = rest.call("one.echo", &json!({}));
    let context = expect_error(429, "LIMIT_REACHED", &answer);
    let seconds: u64 = answer.headers["retry-after"].parse().expect("a number of seconds");
    let millis = context["retry_after_ms"].as_u64().expect("a number");
    assert_eq!(seconds, millis.div_ceil(1000));
    let expected = json!({"limit": "per_second", "of": "tool", "name": "one.echo", "per_second": 0.001,
        "retry_after_ms": millis, "reason": "rate_limited", "safeToRetry": true});
    assert_eq!(context, expected);
    let execute = rest.post("/execute", &json!({"name": "one.echo"}));
    assert!(execute.status == 429 && execute.headers.contains_key("retry-after"), "{execute:?}");

    assert!(call(&mut legacy, "one.size")["result"].is_object(), "another tool");
    assert!(call(&mut legacy, "two.echo")["result"].is_object(), "the same tool of another server");
    assert_eq!(shown(&rest, "tool", "one.echo")["refused"], 5);
    let metrics = rest.serve.fetch(&HttpRequest::new("GET", "/metrics")).body;
    for line in [
        "mcp_limits{of=\"tool\"} 1",
        "mcp_limits{of=\"identity\"} 0",
        "mcp_calls_rate_limited_total{of=\"tool\",limit=\"per_second\"} 5",
        "mcp_calls_refused_total{reason=\"limit\"} 5",
    ] {
        assert!(metrics.lines().any(|known| known == line), "no {line} in\n{metrics}");
    }
    expect(204, &rest.delete("/limits/tool/one.echo"));
    assert!(call(&mut legacy, "one.echo")["result"].is_object(), "the limit is gone");
}

#[test]
fn each_token_is_counted_apart_over_every_way_in() {
    let tokens = NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(tokens.path(), "ann:secret-token-of-ann\nben:secret-token-of-ben\n").expect("it can be written");
    let rest = Rest::start_as(|launch| launch.arg("--token-file").arg(tokens.path()));
    let ask = |name: &str, ask: HttpRequest| {
        rest.serve.fetch(&ask.header("Authorization", &format!("Bearer secret-token-of-{name}")))
    };
    let post = |name: &str, path: &str, body: &Value| {
        ask(name, HttpRequest::post(&format!("{PREFIX}{path}"), body.to_string()))
    };
    expect(201, &post("ben", "/servers", &crate::rest::fake("one", &[])));
    testkit::wait_until("the server is connected", || {
        let server = ask("ben", HttpRequest::new("GET", &format!("{PREFIX}/servers/one"))).json();
        (server["status"] == "connected").then_some(())
    });
    let limit =
        HttpRequest::new("PUT", &format!("{PREFIX}/limits/identity/*")).header("Content-Type", "application/json");
    expect(200, &ask("ben", limit.body(json!({"per_second": 0.001, "burst": 2}).to_string())));
    let session = |name: &str| {
        let hello = Hello::default().with_token(&format!("secret-token-of-{name}"));
        HttpSession::introduce(rest.serve.address(), "/mcp", &hello)
    };
    let (mut first, mut second) = (session("ann"), session("ann"));
    assert!(call(&mut first, "one.echo")["result"].is_object());
    expect(200, &post("ann", "/tools/call", &json!({"name": "one.echo", "arguments": {}})));
    let said = call(&mut second, "one.echo");
    refused(&said);
    assert!(!said.to_string().contains("ann") && !said.to_string().contains("ben"), "{said}");
    expect_error(429, "LIMIT_REACHED", &post("ann", "/execute", &json!({"name": "one.echo"})));
    assert!(call(&mut session("ben"), "one.echo")["result"].is_object(), "another identity");
    let limits = expect(200, &ask("ben", HttpRequest::new("GET", &format!("{PREFIX}/limits"))));
    let uses = limits[0]["uses"].as_array().expect("a list");
    let uses: Vec<_> = uses.iter().map(|one| (one["name"].as_str(), one["today"].as_u64())).collect();
    assert_eq!(uses, [(Some("ann"), Some(2)), (Some("ben"), Some(1))]);
}

#[test]
fn calls_in_progress_are_limited_until_they_end() {
    let rest = Rest::start();
    rest.register("one", &[]);
    expect(200, &put(&rest, "server/one", &json!({"concurrent": 1})));
    let (id, mut begun) = rest.begin_to_hang("one");
    assert_eq!(shown(&rest, "server", "one")["uses"][0]["running"], 1);
    let context = expect_error(429, "LIMIT_REACHED", &rest.call("one.echo", &json!({})));
    assert_eq!((&context["limit"], &context["concurrent"]), (&json!("concurrent"), &json!(1)), "{context}");
    refused(&call(&mut rest.serve.session("/mcp"), "one.echo"));
    expect(200, &rest.delete(&format!("/executions/{id}")));
    expect_error(409, "EXECUTION_CANCELLED", &begun.answer());
    expect(200, &rest.call("one.echo", &json!({})));
    assert_eq!(shown(&rest, "server", "one")["uses"][0]["running"], 0);
}

#[test]
fn a_document_and_the_assistant_are_limited_as_well() {
    let home = Home::new();
    let model = ModelServer::start();
    let _serve = home.serve();
    home.add("one");
    home.ok(&["limits", "set", "server", "one", "--per-second", "0.001"]);
    let text = [block("one", "echo", "text: first\n"), block("one", "size", "")].join("\n");
    let notes = home.write("project/notes.md", &text);
    let said = home.fails(1, &["run", "notes.md"]);
    assert!(said.contains("Server `one` has reached its limit of 0.001 calls per second"), "{said}");
    let report = read(&notes);
    assert_eq!(report.matches("status=error").count(), 1, "{report}");

    testkit::wait_until("its tools are there", || home.ok(&["context"]).contains("one.echo").then_some(()));
    model.say(ModelReply::openai_calls(&[("1", "one_echo", r#"{"text": "a"}"#)]));
    model.say(ModelReply::openai_text("Later, then."));
    let url = model.openai_url();
    let output = home.run(&["ask", "Well?", "--base-url", &url, "--model", "m"]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("failed: one.echo"), "{}", output.stderr);
    let told = model.asked()[1].body["messages"].to_string();
    assert!(told.contains("has reached its limit of 0.001 calls per second"), "{told}");
}

/// The days since 1970, in UTC.
fn today() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is right").as_secs() / (24 * 3600)
}

/// Runs what counts calls of a day; once more if a day ended meanwhile.
fn within_one_day(scenario: impl Fn()) {
    let day = today();
    match catch_unwind(AssertUnwindSafe(&scenario)) {
        Ok(()) => {}
        Err(_) if today() != day => scenario(),
        Err(failure) => resume_unwind(failure),
    }
}

/// The day goes on after a restart; `until_stored` waits until a `kill -9` loses nothing.
fn the_day_goes_on_after_a_restart(rest: Rest, until_stored: Option<&dyn Fn()>) {
    rest.register("one", &[]);
    expect(200, &put(&rest, "identity/local", &json!({"per_day": 3})));
    expect(200, &put(&rest, "server/*", &json!({"per_day": 100})));
    for _ in 0..2 {
        expect(200, &rest.call("one.echo", &json!({})));
    }
    if let Some(wait) = until_stored {
        wait();
    }
    let rest = rest.restarted(until_stored.is_some());
    rest.wait_for_status("one", "connected");
    assert_eq!(shown(&rest, "identity", "local")["uses"][0]["today"], 2);
    let of_server = json!([{"name": "one", "running": 0, "today": 2, "available": null}]);
    assert_eq!(shown(&rest, "server", "*")["uses"], of_server);
    expect(200, &rest.call("one.echo", &json!({})));
    let context = expect_error(429, "LIMIT_REACHED", &rest.call("one.echo", &json!({})));
    assert_eq!((&context["limit"], &context["per_day"]), (&json!("per_day"), &json!(3)), "{context}");
    let wait = context["retry_after_ms"].as_u64().expect("a number");
    assert!(wait <= 24 * 3600 * 1000, "{wait}");
}

#[test]
fn a_restart_does_not_begin_the_day_again() {
    within_one_day(|| the_day_goes_on_after_a_restart(Rest::start(), None));
}

#[test]
fn a_kill_does_not_begin_the_day_again() {
    let Some(postgres) = Postgres::shared() else { return };
    within_one_day(|| {
        let name = format!("limits_kill_{}", today());
        let url = postgres.database(&name);
        let stored = || {
            testkit::wait_until("the counts are stored", || {
                let sum = postgres.psql(&name, "SELECT sum(calls) FROM mcp.limit_counts");
                (sum.trim() == "4").then_some(())
            });
        };
        the_day_goes_on_after_a_restart(Rest::on_database(&url), Some(&stored));
    });
}
