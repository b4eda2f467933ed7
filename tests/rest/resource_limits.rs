//! Documents and schemas that would take hours of CPU time: they end quickly, and no other request waits for them.

use std::fs;

use rustix::process::Signal;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use testkit::http_client::HttpRequest;
use testkit::{Puppet, Spec};

use super::{Begun, PREFIX, Rest, expect};
use crate::console::{Visitor, add_puppet};

/// A block with a tool whose schema check never ends.
const BLOCK: &str = "# Notes\n\n```s\ntool: t\nc: x\n```\n";

/// Every level applies the one below it twice: 2^45 steps.
fn doubling_tool() -> String {
    let mut definitions = Map::new();
    definitions.insert("d0".to_owned(), json!({"type": "object"}));
    for level in 1..=45 {
        let below = json!({"$ref": format!("#/$defs/d{}", level - 1)});
        definitions.insert(format!("d{level}"), json!({"allOf": [below, below]}));
    }
    let schema = json!({"type": "object", "$defs": definitions, "allOf": [{"$ref": "#/$defs/d45"}]});
    json!({"name": "t", "inputSchema": schema}).to_string()
}

/// More than there are threads that serve requests.
fn more_than_processors() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from) + 4
}

/// Starts a run without waiting for its response.
fn begin_run(rest: &Rest, body: &Value) -> Begun {
    let mut connection = rest.serve.connect();
    connection.send(&HttpRequest::post(&format!("{PREFIX}/documents/run"), body.to_string()));
    Begun(connection)
}

fn health(rest: &Rest) -> u16 {
    rest.serve.fetch(&HttpRequest::new("GET", "/health")).status
}

#[test]
fn a_schema_without_end_is_not_checked_and_stops_nothing() {
    let place = TempDir::with_prefix("documents-").expect("a temporary folder can be made");
    fs::write(place.path().join("a.md"), BLOCK).expect("the test can write there");
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&doubling_tool()).echoes());
    let mut rest = Rest::start_as(|launch| launch.arg("--documents").arg(place.path()));
    add_puppet(&rest, "s", &puppet);

    let dry = json!({"text": BLOCK, "dry_run": true});
    let mut runs: Vec<Begun> = (0..more_than_processors()).map(|_| begin_run(&rest, &dry)).collect();
    assert_eq!(health(&rest), 200);
    for run in &mut runs {
        let block = &expect(200, &run.answer())["blocks"][0];
        let why = block["not_checked"].as_str().unwrap_or_else(|| panic!("it says why: {block}"));
        assert!(why.contains("steps") || why.contains("in time"), "{why}");
        assert_eq!(block["status"], "ready", "the server decides: {block}");
    }
    // A run still calls the tool, and reports that the arguments were not checked.
    let ran = expect(200, &rest.post("/documents/run", &json!({"text": BLOCK})));
    assert_eq!(ran["blocks"][0]["status"], "done", "{ran}");
    assert!(ran["blocks"][0]["not_checked"].is_string(), "{ran}");

    let visitor = Visitor::new(&rest);
    let page = visitor.page("/documents?path=a.md");
    assert!(page.contains("The parameters were not checked") && !page.contains("This block cannot run"), "{page}");
    assert!(visitor.page("/playground?tool=s.t").contains("s.t"));

    // Shutdown does not wait for running checks.
    let _abandoned: Vec<Begun> = (0..more_than_processors()).map(|_| begin_run(&rest, &dry)).collect();
    assert_eq!(health(&rest), 200);
    rest.serve.signal(Signal::TERM);
    assert_eq!(rest.serve.wait_exit().code(), Some(0));
}

/// A metric about schema checks.
fn schema_checks(rest: &Rest, metric: &str) -> u64 {
    let numbers = rest.serve.fetch(&HttpRequest::new("GET", "/metrics")).body;
    let name = format!("{metric}{{kind=\"schema_check\"}} ");
    let found = numbers.lines().find_map(|line| line.strip_prefix(&name));
    found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{name} is in {numbers}"))
}

#[test]
fn a_connection_that_is_dropped_ends_its_checks() {
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(&doubling_tool()).echoes());
    let rest = Rest::start();
    add_puppet(&rest, "s", &puppet);
    assert_eq!(schema_checks(&rest, "mcp_computations_cancelled_total"), 0);
    // Enough blocks that their checks run until the time of one run is used up.
    let dry = json!({"text": BLOCK.repeat(5_000), "dry_run": true});
    let run = begin_run(&rest, &dry);
    testkit::wait_until("a check runs", || (schema_checks(&rest, "mcp_computations_running") > 0).then_some(()));
    drop(run);
    testkit::wait_until("a check is cancelled", || {
        (schema_checks(&rest, "mcp_computations_cancelled_total") == 1).then_some(())
    });
    testkit::wait_until("no check runs", || (schema_checks(&rest, "mcp_computations_running") == 0).then_some(()));
    // Nothing starts again: a new request does not wait for the blocks of the abandoned run.
    let ran = expect(200, &rest.post("/documents/run", &json!({"text": BLOCK, "dry_run": true})));
    assert_eq!(ran["blocks"][0]["status"], "ready", "{ran}");
    assert_eq!(schema_checks(&rest, "mcp_computations_cancelled_total"), 1);
}

#[test]
fn a_dry_run_by_the_command_line_ends_as_well() {
    let home = crate::service_cli::Home::new();
    let puppet = Puppet::new(Spec::legacy().raw_tool(&doubling_tool()));
    let config = testkit::Config::new().server("s", puppet.entry());
    let document = home.write("project/a.md", BLOCK);
    let config = home.write("config.json", &config.text());
    let ran = home.run(&["run", &document, "--dry-run", "--config", &config]);
    assert!(ran.stderr.contains("s.t: ready") && ran.stderr.contains("parameters not checked"), "{}", ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{}", ran.stderr);
}

#[test]
fn blocks_with_many_keys_stop_nothing() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let keys: String = (0..40_000).map(|number| format!("key_{number}: {number}\n")).collect();
    let text = format!("```one\ntool: echo\n{keys}```\n");
    let body = json!({"text": text, "dry_run": true});
    let mut runs: Vec<Begun> = (0..6).map(|_| begin_run(&rest, &body)).collect();
    assert_eq!(health(&rest), 200);
    for run in &mut runs {
        let mut answer = run.answer();
        // On a busy machine the work of the others may be refused for now, which stops nothing either.
        while answer.status == 429 {
            answer = begin_run(&rest, &body).answer();
        }
        let answer = expect(200, &answer);
        assert_eq!(answer["blocks"][0]["status"], "ready", "{:.500}", answer.to_string());
    }
    let too_many: String = (0..60_000).map(|number| format!("key_{number}: {number}\n")).collect();
    let body = json!({"text": format!("```one\ntool: echo\n{too_many}```\n"), "dry_run": true});
    let refused = expect(200, &rest.post("/documents/run", &body));
    let what = refused["blocks"][0]["problem"]["faults"][0]["what"].as_str().unwrap_or_default().to_owned();
    assert!(what.contains("too many values"), "{what}");
}

#[test]
fn a_text_that_is_no_document_any_more_is_refused() {
    let rest = Rest::start();
    let text = "x".repeat(16 * 1024 * 1024 + 1);
    for path in ["/documents/map", "/documents/run"] {
        let refused = rest.post(path, &json!({"text": text}));
        assert!(refused.status == 422 || refused.status == 413, "{path}: {} {:.300}", refused.status, refused.body);
    }
}
