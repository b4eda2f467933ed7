//! Bindings of the registry, over REST and on the command line.

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::{Serve, wait_until};

use super::block;
use crate::service_cli::Home;

const BINDINGS: &str = "/api/v1/aggregator/bindings";

fn post(serve: &Serve, body: &serde_json::Value) -> testkit::serve::Fetched {
    let ask = HttpRequest::new("POST", BINDINGS).header("Content-Type", "application/json");
    serve.fetch(&ask.body(body.to_string()))
}

#[test]
fn a_binding_in_the_registry_holds_for_the_documents_it_names() {
    let home = Home::new();
    let _serve = home.serve();
    home.add("one");
    home.add("two");
    let text = format!("# Mine\n\n{}\n# Other\n\n{}", block("mcp", "size", ""), block("mcp", "size", ""));
    home.write("project/notes.md", &text);
    home.ok(&["doc", "bind", "project/*.md", "two", "--heading", "# Mine"]);
    let said = home.run(&["run", "notes.md", "--dry-run"]).stderr;
    assert!(said.contains("two.size: ready") && said.contains("one.size: ready"), "{said}");
    let map = home.ok(&["doc", "map", "notes.md"]);
    assert!(map.contains("the registry binds `# Mine`"), "{map}");
    let listed = home.json(&["doc", "bindings", "--json"]);
    assert_eq!((&listed[0]["server_name"], &listed[0]["section_type"]), (&json!("two"), &json!("heading")));
    assert!(home.ok(&["doc", "bindings"]).contains("heading `# Mine`  two"));
    home.ok(&["doc", "unbind", &listed[0]["id"].to_string()]);
    assert_eq!(home.ok(&["doc", "bindings"]), "");
    assert!(home.fails(1, &["doc", "unbind", "77"]).contains("there is no binding `77`"));
}

#[test]
fn bindings_are_made_and_removed_without_a_service_too() {
    let home = Home::new();
    home.add("one");
    home.ok(&["doc", "bind", "notes.md", "one", "--lines", "2-5", "--no-inherit"]);
    assert!(home.ok(&["doc", "bindings"]).contains("lines 2-5  one  not for subsections"));
    assert!(home.fails(1, &["doc", "bind", "notes.md", "none", "--block-id", "x"]).contains("no server `none`"));
    home.fails(2, &["doc", "bind", "notes.md", "one"]);
    home.fails(2, &["doc", "bind", "notes.md", "one", "--lines", "5-5"]);
}

#[test]
fn rest_binds_exactly_one_part_and_audits_the_actor() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    let made = post(&serve, &json!({"document": "a.md", "server_id": "one", "block_id": "x"}));
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    assert_eq!((&made["inherit_to_children"], &made["server_name"]), (&json!(true), &json!("one")));
    for (part, status) in [
        (json!({}), 422),
        (json!({"block_id": "x", "heading_text": "y"}), 422),
        (json!({"start_line": 5, "end_line": 5}), 422),
        (json!({"start_line": 5}), 422),
    ] {
        let mut body = json!({"document": "a.md", "server_id": "one"});
        body.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        assert_eq!(post(&serve, &body).status, status, "{body}");
    }
    assert_eq!(post(&serve, &json!({"document": "a.md", "server_id": "no", "block_id": "x"})).status, 404);
    let one = format!("{BINDINGS}/{}", made["id"]);
    assert_eq!(serve.fetch(&HttpRequest::new("DELETE", &one)).status, 204);
    let gone = serve.fetch(&HttpRequest::new("DELETE", &one));
    assert_eq!((gone.status, &gone.json()["error_code"]), (404, &json!("BINDING_NOT_FOUND")));
    assert_eq!(serve.fetch(&HttpRequest::new("DELETE", &format!("{BINDINGS}/x"))).status, 404);
    wait_until("both changes are in the audit log", || {
        let log = serve.fetch(&HttpRequest::new("GET", "/api/v1/aggregator/audit")).body;
        (log.contains("binding.add") && log.contains("binding.remove")).then_some(())
    });
}
