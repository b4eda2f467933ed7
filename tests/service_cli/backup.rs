//! Export and import of the whole registry.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::{Serve, wait_until};

use super::{Home, fake, row};

fn ask(serve: &Serve, path: &str) -> Value {
    serve.fetch(&HttpRequest::new("GET", &format!("/api/v1/aggregator{path}"))).json()
}

/// An export of a registry with a secret, a disabled server and a setting.
fn exported(home: &Home, arguments: &[&str]) -> String {
    let serve = home.serve();
    home.ok(&["add", "one", "--env", "KEY=hunter2", "--description", "with a key", "--", &fake()]);
    home.add("two");
    home.ok(&["disable", "two"]);
    let change = HttpRequest::new("PATCH", "/api/v1/aggregator/settings").header("Content-Type", "application/json");
    assert_eq!(serve.fetch(&change.body(r#"{"timeout_ms": 12345}"#)).status, 200);
    home.ok(arguments)
}

#[test]
fn with_secrets_another_service_is_as_this_one() {
    let text = exported(&Home::new(), &["export", "--secrets"]);
    assert!(text.contains("hunter2"), "{text}");
    let home = Home::new();
    let file = home.write("all.json", &text);
    let serve = home.serve();
    assert_eq!(row(&home.ok(&["import", &file, "--dry-run"]), "one"), ["one", "new"]);
    let report = home.json(&["import", &file, "--json"]);
    assert_eq!((&report["added"], &report["settings"]), (&json!(["one", "two"]), &json!(1)));
    wait_until("the server is connected", || (row(&home.ok(&["list"]), "one")[1] == "connected").then_some(()));
    assert_eq!(home.ok(&["call", "one.env", "name=KEY"]), "\"hunter2\"\n");
    assert_eq!(row(&home.ok(&["list"]), "two")[1], "disabled");
    assert_eq!(ask(&serve, "/settings")["timeout_ms"], 12345);
    home.ok(&["remove", "two"]);
    let report = home.json(&["import", &file, "--json"]);
    assert_eq!((&report["added"], &report["kept"]), (&json!(["two"]), &json!(["one"])));

    let audit = wait_until("it is written down", || {
        let audit = ask(&serve, "/audit?action=registry.import");
        (audit.as_array()?.len() == 2).then_some(audit)
    });
    assert_eq!(audit[1]["details"], json!({"added": ["one", "two"]}));
}

#[test]
fn without_secrets_a_server_that_has_some_waits_for_them() {
    let text = exported(&Home::new(), &["export"]);
    assert!(!text.contains("hunter2"), "{text}");
    for runs in [true, false] {
        let home = Home::new();
        let file = home.write("all.json", &text);
        let _serve = runs.then(|| home.serve());
        let report = home.json(&["import", &file, "--json"]);
        assert_eq!(report["without_secrets"], json!(["one"]), "{runs}");
        assert_eq!(row(&home.ok(&["list"]), "one")[1], "disabled", "{runs}");
        assert_eq!(home.json(&["show", "one", "--json"])["description"], "with a key");
    }
}

#[test]
fn what_makes_no_sense_is_refused_as_a_whole() {
    let good = json!({"name": "good", "transport_type": "stdio", "connection_config": {"command": fake()}});
    let bad = json!({"name": "Not Good", "transport_type": "stdio", "connection_config": {"command": "x"}});
    let backup = json!({"format": "mcp-aggregator registry", "version": 1, "servers": [good, bad]});
    for runs in [true, false] {
        let home = Home::new();
        let _serve = runs.then(|| home.serve());
        let file = home.write("all.json", &backup.to_string());
        let said = home.fails(1, &["import", &file]);
        assert!(said.contains("servers.1.name"), "{said}");
        let newer = home.write("newer.json", r#"{"format": "mcp-aggregator registry", "version": 99}"#);
        home.fails(1, &["import", &newer]);
        assert_eq!(home.json(&["list", "--json"]), json!([]));
    }
}
