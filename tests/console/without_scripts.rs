//! The console without scripts: confirmations, results and document runs as pages.

use std::fs;

use serde_json::json;
use testkit::puppet::{Puppet, Spec};

use super::documents::with_documents;
use super::{Visitor, add_puppet};
use crate::rest::Rest;

#[test]
fn irreversible_actions_have_a_confirmation_page() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let visitor = Visitor::new(&rest);
    for (path, fields, question) in [
        ("/servers/fake/remove", &[][..], "Remove fake with its tools and its history?"),
        ("/executions/stop", &[], "Cancel all calls and refuse new ones"),
        ("/export", &[("secrets", "revealed")], "Anyone who has the file can read all credentials."),
    ] {
        let asked = visitor.submit(path, fields);
        assert!(asked.status == 200 && asked.body.contains(question), "{asked:?}");
        assert!(asked.body.contains(&format!("action=\"{path}\"")) && asked.body.contains(">Cancel</a>"), "{asked:?}");
    }
    assert_eq!(rest.get("/servers/fake").status, 200, "nothing was done yet");
    assert_eq!(rest.call("fake.echo", &json!({"text": "x"})).status, 200);
    let sure = ("sure", "yes");
    assert_eq!(visitor.submit("/export", &[("secrets", "revealed"), sure]).json()["servers"][0]["name"], "fake");
    assert!(visitor.submit("/executions/stop", &[sure]).body.contains("All calls are stopped."));
    assert!(visitor.submit("/servers/fake/remove", &[sure]).body.contains("Removed fake."));
}

/// A tool of a server that always gives the same result.
fn with_answer(content: &serde_json::Value) -> (Rest, Puppet) {
    let rest = Rest::start();
    let tool = r#"{"name":"say","inputSchema":{"type":"object"}}"#;
    let answer = json!({ "content": content, "isError": false }).to_string();
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(tool).answers("tools/call", &answer));
    add_puppet(&rest, "one", &puppet);
    (rest, puppet)
}

#[test]
fn a_long_result_is_truncated_and_can_be_downloaded_by_its_user() {
    let (rest, _puppet) = with_answer(&json!([{"type": "text", "text": "x".repeat(3_000_000)}]));
    let (visitor, other) = (Visitor::new(&rest), Visitor::new(&rest));
    let ran = visitor.submit("/playground", &[("tool", "one.say"), ("arguments", "{}")]);
    assert!(ran.body.len() < 150_000 && ran.body.contains("/playground/result"), "{} bytes", ran.body.len());
    let whole = visitor.get("/playground/result");
    assert!(whole.headers["content-disposition"].contains("result.json"), "{:?}", whole.headers);
    assert_eq!(whole.json()["content"][0]["text"].as_str().map(str::len), Some(3_000_000));
    assert_eq!(other.get("/playground/result").status, 303, "it is nobody else's");
}

#[test]
fn pictures_are_shown_and_a_question_says_what_it_needs() {
    let picture = json!({"type": "image", "mimeType": "image/png", "data": "aGVsbG8="});
    let asked = json!({"type": "text", "text": "MCP error -32603: The client cannot be asked now"});
    let (rest, _puppet) = with_answer(&json!([picture, asked]));
    let visitor = Visitor::new(&rest);
    let ran = visitor.submit("/playground", &[("tool", "one.say"), ("arguments", "{}")]);
    assert!(ran.body.contains("<img src=\"data:image/png;base64,aGVsbG8=\""), "{ran:?}");
    assert!(ran.body.contains("Answering it requires JavaScript"), "{ran:?}");
}

#[test]
fn a_document_runs_from_a_form_and_edits_are_kept() {
    let (rest, place) = with_documents();
    let visitor = Visitor::new(&rest);
    let file = place.path().join("notes/friday.md");
    let read = || fs::read_to_string(&file).expect("it is there");
    let version = |page: &str| {
        let from = page.split("name=\"version\" value=\"").nth(1).expect("the form says what it shows");
        from.split('"').next().unwrap_or_default().to_owned()
    };
    let shown = version(&visitor.page("/documents?path=friday.md"));
    let run = |blocks: &str, more: &[(&str, &str)]| {
        let fixed = [("path", "friday.md"), ("version", shown.as_str()), ("blocks", blocks)];
        visitor.submit("/documents/run", &fixed.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let one = run("2", &[]);
    assert!(one.body.contains("1 done") && one.body.contains("again"), "{one:?}");
    assert_eq!(read().matches("<!-- mcp-result ").count(), 1, "only that block was run");
    let all = run("1 2 3", &[]);
    assert!(all.body.contains("3 done"), "{all:?}");

    let edited = read().replacen("<!-- /mcp-result", "and what I think of it\n<!-- /mcp-result", 1);
    fs::write(&file, edited).expect("the test can write there");
    let kept = run("1 3", &[]);
    assert!(kept.body.contains("The result of block 1 was edited by hand. Replace it?"), "{kept:?}");
    assert!(read().contains("what I think of it"), "nothing is replaced yet");
    let replaced = run("1", &[("sure", "yes")]);
    assert!(replaced.body.contains("1 done") && !read().contains("what I think of it"), "{replaced:?}");

    fs::write(&file, format!("# New\n\n```one\ntool: echo\n```\n\n{}", read())).expect("the test can write there");
    let before = read();
    let changed = run("1", &[]);
    assert!(changed.body.contains("Nothing was run, because the document changed"), "{changed:?}");
    assert_eq!(read(), before);
}
