//! Tools: listing, enabling, disabling and calling them.

use serde_json::{Value, json};
use testkit::{Puppet, Spec};

use super::{Rest, expect, expect_error, expect_problems, names};

fn with_two() -> Rest {
    let rest = Rest::start();
    rest.register("one", &[]);
    rest.register("two", &["--tools", "1"]);
    rest
}

#[test]
fn tools_are_listed_of_all_servers_or_of_one() {
    let rest = with_two();
    let all = expect(200, &rest.get("/tools"));
    assert!(names(&all).contains(&"one.echo") && names(&all).contains(&"two.echo"));
    for query in ["/tools?server_id=two", "/servers/two/tools"] {
        let of_two = expect(200, &rest.get(query));
        assert!(names(&of_two).iter().all(|name| name.starts_with("two.")), "{of_two}");
        let tool = &of_two[0];
        assert_eq!((&tool["name"], &tool["original_name"]), (&json!("two.tool_0"), &json!("tool_0")));
        assert_eq!(tool["input_schema"]["required"], json!(["path"]));
        let part = rest.get(&format!("{query}{}limit=2&offset=1", if query.contains('?') { '&' } else { '?' }));
        assert_eq!(names(&expect(200, &part)), names(&json!([of_two[1], of_two[2]])));
        assert_eq!(part.headers["x-total-count"], of_two.as_array().unwrap().len().to_string());
        assert_eq!((&tool["is_external"], tool["is_classified"].is_boolean()), (&json!(true), true));
    }
}

#[test]
fn a_tool_is_called_in_three_ways() {
    let rest = with_two();
    let id = rest.get("/servers/two").json()["id"].clone();
    for (body, strategy, server) in [
        (json!({"name": "one.echo"}), "namespace_resolved", "one"),
        (json!({"tool_name": "echo", "server_id": "two"}), "server_specified", "two"),
        (json!({"name": "echo", "server_id": id}), "server_specified", "two"),
        (json!({"name": "tool_0"}), "original_name", "two"),
    ] {
        for path in ["/tools/call", "/execute"] {
            let result = expect(200, &rest.post(path, &body));
            let metadata = &result["metadata"];
            assert_eq!(metadata["routing_strategy"], strategy, "{result}");
            assert_eq!(metadata["routed_to"], server);
            for time in ["routing_time_ms", "execution_time_ms", "total_time_ms"] {
                assert!(metadata[time].as_f64().is_some_and(|time| time >= 0.0), "{metadata}");
            }
        }
    }
}

#[test]
fn a_name_that_several_have_is_answered_with_all_it_could_be() {
    let rest = with_two();
    let context = expect_error(400, "TOOL_AMBIGUOUS", &rest.call("echo", &json!({})));
    let mut candidates: Vec<&str> =
        context["candidates"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    candidates.sort_unstable();
    assert_eq!(candidates, ["one.echo", "two.echo"]);
}

#[test]
fn arguments_and_results_are_the_same_bytes_on_both_sides() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let arguments = r#"{"n" : 1e400,"twice":1,"twice":1.0,"s":"\ud800\u0041/","big":123456789012345678901234567890}"#;
    let ask = |body: String| {
        rest.serve.fetch(&testkit::http_client::HttpRequest::post("/api/v1/aggregator/tools/call", body)).body
    };
    let message = ask(format!(r#"{{"name":"one.echo","arguments":{arguments}}}"#));
    assert!(message.contains(&format!(r#""structuredContent":{arguments}"#)), "{message}");

    let result = r#"{ "content":[{"type":"text","text":"\u00e9"}], "metadata": {"mine":1.0} }"#;
    let body = json!({"name": "one.raw", "arguments": {"result": result}}).to_string();
    let message = ask(body);
    let kept = result.strip_suffix('}').unwrap();
    assert!(message.starts_with(kept), "{message}");
    let added = r#","isError":false,"_aggregator":{"execution_id":"#;
    assert!(message[kept.len()..].starts_with(added), "ours has another name: {message}");
}

#[test]
fn a_tool_error_is_an_ordinary_result() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let result = r#"{"content":[],"isError":true}"#;
    let reply = expect(200, &rest.call("one.raw", &json!({"result": result})));
    assert_eq!(reply["isError"], true);
    let execution = reply["metadata"]["execution_id"].as_str().unwrap();
    assert_eq!(expect(200, &rest.get(&format!("/executions/{execution}")))["status"], "error");
}

#[test]
fn calls_that_fail_say_how() {
    let rest = Rest::start();
    rest.register("one", &[]);
    expect_error(404, "TOOL_NOT_FOUND", &rest.call("one.nothing", &json!({})));
    let body = json!({"name": "echo", "server_id": "nobody"});
    expect_error(404, "SERVER_NOT_FOUND", &rest.post("/tools/call", &body));

    let error = r#"{"code":-32099,"message":"no luck","data":[1]}"#;
    let context = expect_error(502, "EXECUTION_FAILED", &rest.call("one.raw_error", &json!({"error": error})));
    assert_eq!(context["error"], serde_json::from_str::<Value>(error).unwrap());
    assert_eq!(context["server_name"], "one");

    let body = json!({"name": "one.hang", "timeout_ms": 50});
    let context = expect_error(504, "EXECUTION_TIMEOUT", &rest.post("/tools/call", &body));
    assert!(context["execution_id"].is_string(), "{context}");

    let answer = rest.call("one.crash", &json!({"code": 3}));
    assert!([502, 503].contains(&answer.status), "{answer:?}");
}

#[test]
fn mistakes_in_a_call_are_reported_with_their_place() {
    let rest = Rest::start();
    for (body, place, kind) in [
        (json!({}), "body.name", "missing"),
        (json!({"name": 1}), "body.name", "string_type"),
        (json!({"name": "a", "arguments": []}), "body.arguments", "dict_type"),
        (json!({"name": "a", "timeout_ms": 0}), "body.timeout_ms", "greater_than_equal"),
        (json!({"name": "a", "source": "mcp"}), "body.source", "enum"),
        (json!({"name": "a", "tool_name": "b"}), "body.tool_name", "value_error"),
        (json!({"name": ""}), "body.name", "string_pattern_mismatch"),
        (json!({"tool_name": " "}), "body.tool_name", "string_pattern_mismatch"),
    ] {
        for path in ["/tools/call", "/execute"] {
            let problems = expect_problems(&rest.post(path, &body));
            assert_eq!(problems, [(place.to_owned(), kind.to_owned())], "{body}");
        }
    }
}

#[test]
fn results_always_have_is_error() {
    let rest = Rest::start();
    rest.register("one", &[]);
    for path in ["/tools/call", "/execute"] {
        let answer = expect(200, &rest.post(path, &json!({"name": "one.echo", "arguments": {"text": "x"}})));
        assert_eq!(answer["isError"], false, "{answer}");
        let failed = json!({"name": "one.raw", "arguments": {"result": r#"{"content":[],"isError":true}"#}});
        let answer = expect(200, &rest.post(path, &failed));
        assert_eq!(answer["isError"], true, "{answer}");
    }
}

#[test]
fn a_search_has_no_members_that_mean_nothing() {
    let rest = Rest::start();
    let body = json!({"query": "x", "top_k": 5});
    let problems = expect_problems(&rest.post("/search", &body));
    assert_eq!(problems, [("body.top_k".to_owned(), "extra_forbidden".to_owned())]);
    let ask = testkit::http_client::HttpRequest::post("/api/v1/search", body.to_string());
    assert_eq!(expect_problems(&rest.serve.fetch(&ask)), problems);
}

#[test]
fn what_is_registered_over_rest_is_there_for_mcp_clients_at_once() {
    let rest = Rest::start();
    let mut session = rest.serve.session("/mcp");
    rest.register("late", &["--only-generated", "--tools", "1"]);
    use testkit::ClientSession as _;
    let listed = session.ask("tools/list", json!({}));
    assert_eq!(names(&listed["result"]["tools"]), ["late.tool_0"]);
    rest.delete("/servers/late");
    let listed = session.ask("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"], json!([]));
}

#[test]
fn tools_are_disabled_and_enabled_one_by_one_in_bulk_and_by_server() {
    let rest = with_two();
    let is_on = |name: &str| expect(200, &rest.get(&format!("/tools/{name}")))["enabled"] == true;
    let off = expect(
        200,
        &rest.post("/tools/switch", &json!({"enabled": false, "names": ["one.echo", "two.echo", "one.echo"]})),
    );
    assert_eq!(off, json!({"changed": 2}));
    assert!(!is_on("one.echo") && !is_on("two.echo") && is_on("one.hang"));
    assert_ne!(rest.call("one.echo", &json!({"text": "x"})).status, 200);
    let patch = |name: &str, enabled: bool| rest.patch(&format!("/tools/{name}"), &json!({"enabled": enabled}));
    assert_eq!(expect(200, &patch("one.echo", true))["enabled"], true);
    assert_eq!(rest.call("one.echo", &json!({"text": "x"})).status, 200);
    let all = expect(200, &rest.post("/tools/switch", &json!({"enabled": false, "server_id": "one"})));
    assert!(all["changed"].as_u64().is_some_and(|changed| changed > 1), "{all}");
    assert!(!is_on("one.hang") && is_on("two.tool_0"));

    expect_error(404, "TOOL_NOT_FOUND", &patch("one.nothing", true));
    let some = rest.post("/tools/switch", &json!({"enabled": false, "names": ["two.tool_0", "two.nothing"]}));
    expect_error(404, "TOOL_NOT_FOUND", &some);
    assert!(is_on("two.tool_0"), "if one is not there, none is touched");
    assert_eq!(
        expect_problems(&rest.post("/tools/switch", &json!({"names": []}))),
        [("body.enabled".to_owned(), "missing".to_owned())]
    );
    let audit = rest.get("/audit?action=tool.disable").json();
    assert_eq!(audit[0]["who"], "rest", "{audit}");
}

#[test]
fn annotations_of_a_tool_are_displayed_before_it_is_called() {
    let puppet = Puppet::over_http(Spec::legacy().raw_tool(
        r#"{"name":"wipe","title":"Wipe it all","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},"annotations":{"destructiveHint":true}}"#,
    ));
    let rest = Rest::start();
    let config = json!({"url": format!("http://{}/mcp", puppet.address())});
    expect(201, &rest.post("/servers", &json!({"name": "w", "transport_type": "http", "connection_config": config})));
    rest.wait_for_status("w", "connected");
    for reported in [expect(200, &rest.get("/tools"))[0].clone(), expect(200, &rest.get("/tools/w.wipe"))] {
        assert_eq!(
            (&reported["title"], &reported["annotations"]),
            (&json!("Wipe it all"), &json!({"destructiveHint": true}))
        );
        assert_eq!(reported["output_schema"], json!({"type": "object"}), "{reported}");
    }
}
