//! Setting, showing and removing limits, over REST, on the command line and in the console.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;

use super::{put, shown};
use crate::console::Visitor;
use crate::rest::{PREFIX, Rest, expect, expect_error, expect_problems};
use crate::service_cli::Home;

#[test]
fn a_limit_is_set_shown_replaced_audited_and_removed() {
    let rest = Rest::start();
    rest.register("one", &[]);
    assert_eq!(expect(200, &rest.get("/limits")), json!([]));
    let all = json!({"per_second": 2.5, "burst": 10, "concurrent": 3, "per_day": 1000});
    let set = expect(200, &put(&rest, "identity/oauth%3Ahttps%3A%2F%2Fid.example%2F%2042", &all));
    assert_eq!((&set["kind"], &set["name"]), (&json!("identity"), &json!("oauth:https://id.example/ 42")));
    let members = |limit: &Value| {
        let member = |name: &str| limit[name].clone();
        ["per_second", "burst", "concurrent", "per_day"].map(member)
    };
    assert_eq!(members(&set), [json!(2.5), json!(10), json!(3), json!(1000)]);
    assert_eq!((&set["exists"], &set["refused"], &set["counted"]), (&Value::Null, &json!(0), &json!(1)));
    assert_eq!(set["uses"][0]["available"], 10, "{set}");

    let of_server = expect(200, &put(&rest, "server/one", &json!({"per_second": 5})));
    assert_eq!((&of_server["exists"], &of_server["per_second"]), (&json!(true), &json!(5)));
    let replaced = expect(200, &put(&rest, "SERVER/one", &json!({"per_day": 7, "per_second": null})));
    assert_eq!(members(&replaced), [Value::Null, Value::Null, Value::Null, json!(7)], "it is replaced as a whole");
    assert_eq!(expect(200, &put(&rest, "server/gone", &json!({"per_day": 7})))["exists"], false);
    assert_eq!(expect(200, &put(&rest, "tool/one.echo", &json!({"per_day": 7})))["exists"], true);
    assert_eq!(expect(200, &put(&rest, "tool/one.nothing", &json!({"per_day": 7})))["exists"], false);
    assert_eq!(expect(200, &put(&rest, "profile/*", &json!({"per_day": 7})))["exists"], Value::Null);
    let listed = expect(200, &rest.get("/limits"));
    let listed: Vec<_> = listed.as_array().expect("a list").iter().map(|limit| limit["name"].as_str()).collect();
    let expected = ["oauth:https://id.example/ 42", "*", "gone", "one", "one.echo", "one.nothing"];
    assert_eq!(listed, expected.map(Some));
    let part = rest.get("/limits?limit=2&offset=1");
    assert_eq!((part.headers["x-total-count"].as_str(), part.json().as_array().map(Vec::len)), ("6", Some(2)));

    expect(204, &rest.delete("/limits/server/gone"));
    expect_error(404, "LIMIT_NOT_FOUND", &rest.delete("/limits/server/gone"));
    let audit = expect(200, &rest.get("/audit?action=limit.put"));
    assert_eq!((&audit[0]["target"], &audit[0]["details"]["per_day"]), (&json!("profile *"), &json!(7)));
    assert_eq!(expect(200, &rest.get("/audit?action=limit.remove"))[0]["target"], "server gone");

    expect(200, &rest.patch("/servers/one", &json!({"name": "uno"})));
    rest.wait_for_status("uno", "connected");
    assert_eq!(
        (&shown(&rest, "server", "uno")["per_day"], &shown(&rest, "tool", "uno.echo")["per_day"]),
        (&json!(7), &json!(7))
    );
    let rest = rest.restarted(false);
    assert_eq!(members(&shown(&rest, "identity", "oauth:https://id.example/ 42")), members(&set));
    assert_eq!(shown(&rest, "server", "uno")["per_day"], 7);
}

#[test]
fn everything_that_is_wrong_with_a_limit_is_reported_by_member() {
    let rest = Rest::start();
    let places = |path: &str, limit: Value| {
        let problems = expect_problems(&put(&rest, path, &limit));
        problems.into_iter().map(|(place, _)| place).collect::<Vec<_>>()
    };
    let wrong = json!({"per_second": 0, "burst": -1, "concurrent": 1.5, "per_day": "many", "per_hour": 5});
    let mut found = places("server/one", wrong);
    found.sort();
    let expected = ["body.burst", "body.concurrent", "body.per_day", "body.per_hour", "body.per_second"];
    assert_eq!(found, expected);
    assert_eq!(places("server/one", json!({})), ["body"]);
    assert_eq!(places("server/one", json!({"burst": 2})), ["body.burst"]);
    assert_eq!(places("tool/echo", json!({"per_day": 0})), ["path.name", "body.per_day"]);
    assert_eq!(places("tool/one.*", json!({"per_day": 1})), ["path.name"]);
    assert_eq!(places("group/one", json!({"per_day": 1})), ["path.kind"]);
    let answer = put(&rest, "server/one", &json!({"per_day": 0})).json();
    let msg = answer["detail"][0]["msg"].as_str().expect("a message");
    assert!(msg.contains("`per_day` is 0; it must be a whole number from 1 to"), "{msg}");
    assert_eq!(expect_problems(&rest.delete("/limits/group/one"))[0].0, "path.kind");
    let get = rest.serve.fetch(&HttpRequest::new("GET", &format!("{PREFIX}/limits/server/one")));
    expect_error(405, "METHOD_NOT_ALLOWED", &get);
    assert_eq!(expect(200, &rest.get("/limits")), json!([]), "nothing is stored");
}

#[test]
fn limits_are_set_and_removed_with_and_without_a_service() {
    let home = Home::new();
    home.add("one");
    for runs in [false, true] {
        let _serve = runs.then(|| home.serve());
        assert_eq!(home.json(&["limits", "--json"]), json!([]), "{runs}");
        assert_eq!(home.ok(&["limits"]), "");
        home.ok(&["limits", "set", "identity", "*", "--per-second", "0.5", "--burst", "3", "--per-day", "100"]);
        let set = home.json(&["limits", "set", "server", "one", "--concurrent", "2", "--json"]);
        assert_eq!((&set["kind"], &set["concurrent"]), (&json!("server"), &json!(2)));
        let table = home.ok(&["limits"]);
        assert_eq!(crate::service_cli::row(&table, "identity")[..6], ["identity", "*", "0.5", "3", "-", "100"]);
        assert_eq!(crate::service_cli::row(&table, "server")[..5], ["server", "one", "-", "-", "2"]);
        let said = home.fails(1, &["limits", "set", "server", "one", "--concurrent", "0"]);
        assert!(said.contains("`concurrent` is 0; it must be a whole number from 1 to"), "{said}");
        let said = home.fails(2, &["limits", "set", "server", "one"]);
        assert!(said.contains("--per-second"), "{said}");
        assert!(home.fails(2, &["limits", "set", "group", "one", "--per-day", "1"]).contains("identity"));
        let said = home.fails(1, &["limits", "remove", "tool", "one.echo"]);
        assert!(said.contains("there is no limit") && said.contains("`mcp-aggregator limits` lists"), "{said}");
        let removed = home.json(&["limits", "remove", "server", "one", "--json"]);
        assert_eq!(removed, json!({"removed": {"kind": "server", "name": "one"}}));
        home.ok(&["limits", "remove", "identity", "*"]);
    }
    let _serve = home.serve();
    let output = home.run(&["limits", "set", "server", "tow", "--per-day", "1"]);
    assert!(output.stderr.contains("there is no server `tow` now"), "{}", output.stderr);
    home.ok(&["limits", "set", "tool", "one.echo", "--per-day", "1"]);
    testkit::wait_until("its tools are there", || home.ok(&["tools"]).contains("one.echo").then_some(()));
    home.ok(&["call", "one.echo"]);
    let said = home.fails(1, &["call", "one.echo"]);
    assert!(said.contains("Tool `one.echo` has reached its limit of 1 call per day"), "{said}");
}

#[test]
fn limits_are_set_and_removed_in_the_console() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let visitor = Visitor::new(&rest);
    assert!(visitor.page("/limits").contains("No limits"));
    let set =
        visitor.submit("/limits", &[("kind", "tool"), ("name", "one.echo"), ("per_second", "0.001"), ("burst", "")]);
    assert!(set.body.contains("Set: tool one.echo 0.001 calls per second."), "{set:?}");
    expect(200, &rest.call("one.echo", &json!({})));
    expect_error(429, "LIMIT_REACHED", &rest.call("one.echo", &json!({})));
    let page = visitor.page("/limits");
    assert!(page.contains("0 · 1") && page.contains(r#"data-name="Refused">1<"#), "{page}");
    let wrong = visitor.submit("/limits", &[("kind", "server"), ("name", "o<ne"), ("per_day", "many")]);
    assert_eq!(wrong.status, 422);
    assert!(wrong.body.contains("per_day: `per_day` is &quot;many&quot;; it must be a whole number"), "{wrong:?}");
    assert!(
        wrong.body.contains(r#"value="o&lt;ne""#) && wrong.body.contains(r#"value="many""#),
        "the input stays: {wrong:?}"
    );
    visitor.submit("/limits", &[("kind", "identity"), ("name", "*"), ("concurrent", "5")]);
    expect(200, &rest.call("one.size", &json!({})));
    assert!(visitor.page("/limits").contains("<code>local</code> 0 · 1"));
    let asked = visitor.submit("/limits/remove", &[("kind", "tool"), ("name", "one.echo")]);
    assert!(asked.body.contains("Are you sure?"), "{asked:?}");
    let removed = visitor.submit("/limits/remove", &[("kind", "tool"), ("name", "one.echo"), ("sure", "yes")]);
    assert!(removed.body.contains("Removed the limit of tool one.echo."), "{removed:?}");
    expect(200, &rest.call("one.echo", &json!({})));
    assert!(visitor.page("/audit").contains("removed a limit"));
}
