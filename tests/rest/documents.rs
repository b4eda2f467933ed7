//! Documents over REST: structure, runs, cancelled runs, and the context of a line.

use std::fs;

use serde_json::{Value, json};
use testkit::http_client::{Event, HttpRequest};
use testkit::wait_until;

use super::{PREFIX, Rest, expect, expect_error, expect_problems, names};

fn block(server: &str, tool: &str, parameters: &str) -> String {
    format!("```{server}\ntool: {tool}\n{parameters}```\n")
}

fn run(rest: &Rest, body: &Value) -> Value {
    expect(200, &rest.post("/documents/run", body))
}

fn streamed(body: &Value) -> HttpRequest {
    HttpRequest::post(&format!("{PREFIX}/documents/run"), body.to_string()).header("Accept", "text/event-stream")
}

/// A service with a folder of documents, and a secret next to it.
fn with_documents() -> (Rest, tempfile::TempDir) {
    let place = tempfile::TempDir::with_prefix("documents-").expect("the test can write there");
    let folder = place.path().join("notes");
    fs::create_dir_all(folder.join("work")).expect("the test can write there");
    fs::write(folder.join("a.md"), format!("# A\n\n{}", block("one", "echo", "text: hello\n")))
        .expect("the test can write there");
    fs::write(folder.join("work/b.md"), "# B\n<!-- mcp: one -->\n").expect("the test can write there");
    fs::write(place.path().join("secret.md"), "secret").expect("the test can write there");
    std::os::unix::fs::symlink(place.path().join("secret.md"), folder.join("link.md"))
        .expect("the test can write there");
    let rest = Rest::start_as(|launch| launch.arg("--documents").arg(&folder));
    (rest, place)
}

#[test]
fn a_text_is_returned_with_its_results_and_records_have_path_and_lines() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let text = format!("# Ä\n\n{}", block("one", "echo", "text: hello\n"));
    let reported = run(&rest, &json!({"text": text, "path": "/notes/a.md", "output": "both"}));
    assert_eq!((&reported["ok"], &reported["saved"]), (&json!(true), &json!(false)));
    assert_eq!(
        (&reported["blocks"][0]["status"], &reported["blocks"][0]["written"]),
        (&json!("done"), &json!("written"))
    );
    let after = reported["text"].as_str().unwrap();
    assert!(
        after.starts_with(&text[..text.len() - 1]) && after.contains("hello") && after.contains("<!-- mcp-result ")
    );

    let edit = &reported["edits"][0];
    let at = |name: &str| usize::try_from(edit[name].as_u64().unwrap()).unwrap();
    let patched = format!("{}{}{}", &text[..at("start")], edit["text"].as_str().unwrap(), &text[at("end")..]);
    assert_eq!(patched, after);
    assert_eq!(at("start_utf16"), at("start") - 1, "`Ä` has two bytes and one unit");

    let listed = wait_until("the call is in the account", || {
        let listed = rest.get("/executions?source=user-codeblock").json();
        (listed[0]["status"] == "success").then_some(listed)
    });
    assert_eq!((&listed[0]["document_path"], &listed[0]["section_line"]), (&json!("/notes/a.md"), &json!(3)));

    let again = run(&rest, &json!({"text": after, "output": "edits"}));
    assert_eq!((&again["edits"], again.get("text")), (&json!([]), None), "a second run changes nothing");
}

#[test]
fn some_blocks_can_be_run_and_a_dry_run_calls_nothing() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let text = format!("# A\n\n{0}\n## B\n\n{0}\n{1}", block("one", "size", ""), block("one", "blob", "bytes: many\n"));
    let statuses = |body: Value| {
        let reported = run(&rest, &body);
        let blocks = reported["blocks"].as_array().unwrap().clone();
        blocks.iter().map(|it| format!("{} {}", it["number"], it["status"].as_str().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(statuses(json!({"text": text, "dry_run": true})), ["1 ready", "2 ready", "3 refused"]);
    assert_eq!(rest.get("/executions").json(), json!([]));
    assert_eq!(statuses(json!({"text": text, "blocks": [2], "output": "none"})), ["2 done"]);
    assert_eq!(statuses(json!({"text": text, "section": "## B", "jobs": 2})), ["2 done", "3 refused"]);
    assert_eq!(statuses(json!({"text": text, "line": 4})), ["1 done"]);
    for (body, place) in [
        (json!({"text": text, "blocks": [4]}), "body.blocks"),
        (json!({"text": text, "section": "C"}), "body.section"),
        (json!({"text": text, "line": 1}), "body.line"),
        (json!({}), "body.text"),
        (json!({"text": text, "save": true}), "body.save"),
    ] {
        assert_eq!(expect_problems(&rest.post("/documents/run", &body))[0].0, place);
    }
}

#[test]
fn the_progress_of_a_run_is_an_event_stream_that_ends_with_the_result() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let text = [block("one", "size", ""), block("one", "ecco", "")].join("\n");
    let mut connection = rest.serve.connect();
    let mut stream = connection.ask(&streamed(&json!({"text": text})));
    assert!(stream.status == 200 && stream.is_stream());
    let events: Vec<Event> = std::iter::from_fn(|| stream.next_message()).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event.kind.as_deref()).collect();
    let expected = [
        "block.pending",
        "block.pending",
        "block.executing",
        "block.finished",
        // A refused request was never executed.
        "block.finished",
        "document.finished",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(events[0].json(), json!({"number": 1, "line": 1, "title": "one.size"}));
    assert_eq!(events[4].json()["status"], "refused");
    let reply = events[5].json();
    assert!(reply["ok"] == false && reply["text"].as_str().unwrap().contains("<!-- mcp-result "), "{reply}");
    let refused = rest.serve.fetch(&streamed(&json!({"text": text, "blocks": [9]})));
    expect_problems(&refused);
}

#[test]
fn a_run_ends_on_stop_and_when_its_stream_is_closed() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let text = [block("one", "size", ""), block("one", "hang", ""), block("one", "size", "")].join("\n");
    let begin = || {
        let mut connection = rest.serve.connect();
        connection.send(&streamed(&json!({"text": text})));
        wait_until("the call is on its way", || {
            (rest.get("/executions?status=executing").json()[0]["tool_name"] == "hang").then_some(())
        });
        connection
    };
    let mut connection = begin();
    expect(200, &rest.order("/executions/stop"));
    let mut answer = connection.answer();
    let last = std::iter::from_fn(|| answer.next_message()).last().unwrap().json();
    let statuses: Vec<&str> =
        last["blocks"].as_array().unwrap().iter().map(|it| it["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["done", "stopped", "stopped"]);
    expect(200, &rest.order("/executions/reset"));

    drop(begin());
    wait_until("the call is cancelled", || {
        rest.get("/executions?status=executing").json().as_array().unwrap().is_empty().then_some(())
    });
}

#[test]
fn a_run_makes_no_more_calls_than_its_session_may() {
    let rest = Rest::start();
    rest.register("one", &[]);
    expect(200, &rest.patch("/settings", &json!({"session_limit": 2})));
    let text = [block("one", "size", ""), block("one", "size", ""), block("one", "size", "")].join("\n");
    let reported = run(&rest, &json!({"text": text}));
    let third = &reported["blocks"][2];
    assert_eq!((&third["status"], &third["ends_run"]), (&json!("failed"), &json!(true)));
    assert!(third["message"].as_str().unwrap().contains('2'), "{third}");
    assert_eq!(run(&rest, &json!({"text": text, "blocks": [1]}))["ok"], true, "the next run begins anew");
    let mine = |blocks: Value| run(&rest, &json!({"text": text, "session": "mine", "blocks": blocks}));
    assert_eq!(mine(json!([1, 2]))["ok"], true);
    assert_eq!(mine(json!([1]))["ok"], false, "a session that is named is one");
}

#[test]
fn a_map_has_the_server_of_every_section_with_the_reason() {
    let rest = Rest::start();
    rest.register("one", &[]);
    rest.register("two", &[]);
    let bound = json!({"document": "notes/*.md", "heading_text": "Mine", "server_id": "two"});
    expect(201, &rest.post("/bindings", &bound));
    let text = format!("# Mine\n\n{}\n# Other\n", block("mcp", "size", ""));
    let map = expect(200, &rest.post("/documents/map", &json!({"text": text, "path": "/x/notes/a.md"})));
    assert_eq!((&map["sections"][0]["server"], &map["sections"][1]["server"]), (&json!("two"), &json!("one")));
    assert!(map["sections"][0]["why"].as_str().unwrap().contains("the registry binds"), "{map}");
    assert_eq!(map["sections"][0]["blocks"][0]["line"], 3);
    let map = expect(200, &rest.post("/documents/map", &json!({"text": text})));
    assert_eq!(map["sections"][0]["bound"], Value::Null, "what has no path is bound by nobody");
}

#[test]
fn the_context_of_a_line_is_its_binding_its_block_and_the_tools_that_may_be_used() {
    let rest = Rest::start();
    rest.register("one", &["--only-generated", "--tools", "2"]);
    rest.register("two", &["--only-generated", "--tools", "1"]);
    let text = format!("# Free\n\n# Bound\n<!-- mcp: two -->\n\n{}", block("one", "size", ""));
    let at = |line: u64| expect(200, &rest.post("/documents/context", &json!({"text": text, "line": line})));
    let (free, bound) = (at(1), at(6));
    assert_eq!(
        (free["tools"].as_array().unwrap().len(), &free["bound"], &free["block"]),
        (3, &Value::Null, &Value::Null)
    );
    assert_eq!(names(&bound["tools"]).iter().filter(|name| name.starts_with("two.")).count(), 1);
    assert_eq!((&bound["allowed_servers"], bound["tools"].as_array().unwrap().len()), (&json!(["two"]), 1));
    assert_eq!(bound["block"]["problem"]["trouble"], "refused");

    let lines = json!({"document": "/x/a.md", "start_line": 5, "end_line": 9, "server_id": "two"});
    expect(201, &rest.post("/bindings", &lines));
    let known = expect(200, &rest.get("/documents/context?path=/x/a.md&line=7"));
    assert_eq!(
        (&known["server"], &known["text_is_known"], &known["remarks"]),
        (&json!("two"), &json!(false), &json!([]))
    );
    let heading = json!({"document": "/x/a.md", "heading_text": "Free", "server_id": "two"});
    expect(201, &rest.post("/bindings", &heading));
    let known = expect(200, &rest.get("/documents/context?path=/x/a.md&line=1"));
    assert_eq!((&known["server"], known["remarks"].as_array().unwrap().len()), (&json!("one"), 1));
    assert_eq!(expect_problems(&rest.get("/documents/context?path=a"))[0].0, "query.line");
}

#[test]
fn documents_of_the_folder_are_listed_read_run_and_written() {
    let (rest, place) = with_documents();
    rest.register("one", &[]);
    let listed = expect(200, &rest.get("/documents"));
    let paths: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|it| it["path"].as_str()).collect();
    assert_eq!(paths, ["a.md", "work/b.md"]);
    assert_eq!(expect(200, &rest.get("/documents/text?path=work/b.md"))["text"], "# B\n<!-- mcp: one -->\n");
    let context = expect(200, &rest.get("/documents/context?path=work%2Fb.md&line=2"));
    assert_eq!((&context["text_is_known"], &context["bound"]["server"]), (&json!(true), &json!("one")));
    let map = expect(200, &rest.post("/documents/map", &json!({"path": "a.md"})));
    assert_eq!(map["sections"][0]["blocks"][0]["line"], 3);

    let file = place.path().join("notes/a.md");
    let before = fs::read_to_string(&file).unwrap();
    let reported = run(&rest, &json!({"path": "a.md"}));
    assert!(reported["ok"] == true && reported["saved"] == false);
    assert_eq!(fs::read_to_string(&file).unwrap(), before, "nothing is written unless that is asked for");
    let reported = run(&rest, &json!({"path": "a.md", "save": true}));
    assert_eq!(
        (&reported["saved"], reported["text"].as_str()),
        (&json!(true), fs::read_to_string(&file).ok().as_deref())
    );
    assert!(fs::read_to_string(&file).unwrap().contains("<!-- mcp-result "));
    let whole = rest.get("/executions?source=user-codeblock").json()[0]["document_path"].clone();
    assert!(whole.as_str().unwrap().ends_with("/notes/a.md"), "{whole}");
}

#[test]
fn a_run_of_an_outdated_version_is_refused_and_changes_are_announced() {
    let (rest, place) = with_documents();
    rest.register("one", &[]);
    let file = place.path().join("notes/a.md");
    let version = || expect(200, &rest.post("/documents/map", &json!({"path": "a.md"})))["version"].clone();
    let seen = version();
    let first = |version: &Value| json!({"path": "a.md", "blocks": [1], "version": version, "save": true});
    let mut connection = rest.serve.connect();
    let mut news = connection.ask(&HttpRequest::new("GET", &format!("{PREFIX}/documents/changes?path=a.md")));
    assert_eq!(run(&rest, &first(&seen))["ok"], true);
    assert_eq!(news.next_message().expect("the file was written").kind.as_deref(), Some("document.changed"));
    assert_eq!(version(), seen, "results are no change");

    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("# A\n", &format!("# A\n\n{}", block("one", "size", "")))).unwrap();
    expect_error(409, "DOCUMENT_CHANGED", &rest.post("/documents/run", &first(&seen)));
    assert_eq!(news.next_message().expect("it was written again").json()["is_there"], true);
    let now = version();
    assert_eq!(run(&rest, &first(&now))["ok"], true);

    // The text is equal, but other parts count as blocks: their numbers mean something else.
    fs::write(&file, format!("{}\n{}", block("two", "size", ""), block("one", "size", ""))).unwrap();
    let seen = version();
    rest.register("two", &[]);
    expect_error(409, "DOCUMENT_CHANGED", &rest.post("/documents/run", &first(&seen)));
    expect_error(404, "DOCUMENT_NOT_FOUND", &rest.get("/documents/changes?path=none.md"));
}

#[test]
fn a_document_that_cannot_be_written_is_there_and_nothing_of_it_is_run() {
    let (rest, place) = with_documents();
    rest.register("one", &[]);
    let file = place.path().join("notes/a.md");
    let mut mode = fs::metadata(&file).unwrap().permissions();
    mode.set_readonly(true);
    fs::set_permissions(&file, mode).unwrap();
    let refused = rest.post("/documents/run", &json!({"path": "a.md", "save": true}));
    expect_error(409, "DOCUMENT_NOT_WRITABLE", &refused);
    assert!(refused.body.contains("no permission to write it"), "{refused:?}");
    assert_eq!(rest.get("/executions").json(), json!([]));
}

#[test]
fn no_way_leads_out_of_the_folder_and_without_one_no_file_is_read() {
    let (rest, place) = with_documents();
    let secret = place.path().join("secret.md");
    let absolute = secret.to_str().unwrap();
    for path in ["../secret.md", "work/../../secret.md", "link.md", absolute, "none.md", ""] {
        let encoded = path.replace('/', "%2F");
        expect_error(404, "DOCUMENT_NOT_FOUND", &rest.get(&format!("/documents/text?path={encoded}")));
        for action in ["map", "run"] {
            let answer = rest.post(&format!("/documents/{action}"), &json!({"path": path}));
            expect_error(404, "DOCUMENT_NOT_FOUND", &answer);
        }
    }
    let bare = Rest::start();
    assert_eq!(expect(200, &bare.get("/documents")), json!([]));
    expect_error(404, "DOCUMENT_NOT_FOUND", &bare.get("/documents/text?path=a.md"));
}

#[test]
fn images_come_with_the_answer_and_are_linked_in_the_text() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let result = r#"result: '{"content":[{"type":"image","data":"aGVsbG8=","mimeType":"image/png"}]}'"#;
    let message = run(&rest, &json!({"text": block("one", "raw", &format!("{result}\n")), "path": "/n/my notes.md"}));
    let image = &message["attachments"][0];
    assert_eq!(image["base64"], "aGVsbG8=");
    assert!(image["path"].as_str().unwrap().starts_with("my notes.assets/"), "{image}");
    assert!(message["text"].as_str().unwrap().contains("my%20notes.assets/"), "{message}");
}

#[test]
fn a_document_gets_no_more_bindings_than_it_may_have() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let new = |heading: &str| json!({"document": "a.md", "server_id": "one", "heading_text": heading});
    for number in 0..1_000 {
        expect(201, &rest.post("/bindings", &new(&format!("H{number}"))));
    }
    let refused = expect(422, &rest.post("/bindings", &new("one more")));
    assert_eq!(refused["error_code"], "VALIDATION_ERROR", "{refused}");
    assert!(refused["detail"].as_str().unwrap_or_default().contains("has 1000 bindings"), "{refused}");
    let too_long =
        rest.post("/bindings", &json!({"document": "b.md", "server_id": "one", "heading_text": "x".repeat(1_001)}));
    expect(422, &too_long);
    // Overlapping patterns may name it again; then it does not run, and reports why.
    expect(201, &rest.post("/bindings", &json!({"document": "*.md", "server_id": "one", "heading_text": "x"})));
    let run = json!({"text": "```one\ntool: echo\n```\n", "path": "a.md", "dry_run": true});
    let ran = expect(200, &rest.post("/documents/run", &run));
    let why = ran["blocks"][0]["problem"]["faults"][0]["what"].as_str().unwrap_or_default();
    assert!(why.contains("1001 bindings for this document"), "{ran}");
}
