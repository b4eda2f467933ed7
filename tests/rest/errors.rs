//! Invalid and forbidden requests: errors always have the same structure.

use serde_json::json;
use testkit::http_client::HttpRequest;

use super::{PREFIX, Rest, expect, expect_error, expect_problems};

#[test]
fn what_is_no_json_is_reported_as_such() {
    let rest = Rest::start();
    for body in ["{", "nonsense", "{} {}", "\u{feff}{}"] {
        let problems = expect_problems(&rest.serve.fetch(&HttpRequest::post(&format!("{PREFIX}/servers"), body)));
        assert_eq!(problems, [("body".to_owned(), "json_invalid".to_owned())], "{body}");
    }
    let problems =
        expect_problems(&rest.serve.fetch(&HttpRequest::post(&format!("{PREFIX}/servers"), b"{\"a\":\"\xff\"}")));
    assert_eq!(problems[0].1, "json_invalid");
    assert_eq!(expect_problems(&rest.post("/servers", &json!([])))[0].1, "dict_type");
    assert_eq!(expect_problems(&rest.order("/servers"))[0].1, "missing");
}

#[test]
fn other_types_than_json_are_refused() {
    let rest = Rest::start();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "nonsense"] {
        let ask = HttpRequest::post(&format!("{PREFIX}/tools/call"), r#"{"name":"x"}"#).header("Content-Type", kind);
        expect_error(415, "UNSUPPORTED_MEDIA_TYPE", &rest.serve.fetch(&ask));
    }
    for kind in ["application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json"] {
        let ask = HttpRequest::post(&format!("{PREFIX}/tools/call"), r#"{"name":"x"}"#).header("Content-Type", kind);
        expect_error(404, "TOOL_NOT_FOUND", &rest.serve.fetch(&ask));
    }
}

#[test]
fn paths_that_lead_nowhere_and_wrong_methods_are_reported() {
    let rest = Rest::start();
    for path in ["/api", "/api/", "/api/v2", "/api/v1/aggregator", "/api/v1/aggregator/nothing", "/api/v1/servers"] {
        expect_error(404, "NOT_FOUND", &rest.serve.fetch(&HttpRequest::new("GET", path)));
    }
    for (method, path, allowed) in [
        ("PUT", "/servers", "POST, GET"),
        ("DELETE", "/servers", "POST, GET"),
        ("POST", "/servers/one", "GET, PATCH, DELETE"),
        ("GET", "/servers/one/connect", "POST"),
        ("POST", "/state", "GET"),
    ] {
        let answer = rest.serve.fetch(&HttpRequest::new(method, &format!("{PREFIX}{path}")).body("{}"));
        expect_error(405, "METHOD_NOT_ALLOWED", &answer);
        assert_eq!(answer.headers["allow"], allowed, "{method} {path}");
    }
}

#[test]
fn a_parameter_that_is_not_known_is_refused_for_it_would_mean_everything() {
    let rest = Rest::start();
    for (path, name) in
        [("/executions?server=bad", "server"), ("/servers?limit=5&stauts=error", "stauts"), ("/state?x", "x")]
    {
        let answer = rest.get(path);
        assert_eq!(expect_problems(&answer), [(format!("query.{name}"), "extra_forbidden".to_owned())], "{path}");
    }
    assert!(rest.get("/executions?server=bad").body.contains("`server_id`"));
    expect(200, &rest.get("/servers?_=1731744000"));
}

#[test]
fn a_slash_too_many_and_the_head_alone_are_fine() {
    let rest = Rest::start();
    expect(200, &rest.get("/servers/"));
    let mut connection = rest.serve.connect();
    connection.send(&HttpRequest::new("HEAD", &format!("{PREFIX}/state")).header("Connection", "close"));
    let answer = String::from_utf8(connection.wait_closed()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn names_that_no_server_can_have_are_not_found() {
    let rest = Rest::start();
    for name in ["%00", "%ff", "..", "a%2Fb", "%F0%9F%A6%80", "' OR 1=1 --".replace(' ', "%20").as_str()] {
        assert_eq!(rest.get(&format!("/servers/{name}")).status, 404, "{name}");
        assert_eq!(rest.delete(&format!("/servers/{name}")).status, 404, "{name}");
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let rest = Rest::start();
    let ask = HttpRequest::post(&format!("{PREFIX}/execute"), "").header("Content-Length", "99999999999");
    expect_error(413, "PAYLOAD_TOO_LARGE", &rest.serve.fetch(&ask));
}

#[test]
fn unauthorized_requests_get_the_usual_error_format() {
    let rest = Rest::start_as(|launch| launch.env("MCP_AGGREGATOR_TOKEN", "secret"));
    for path in ["/api/v1/aggregator/state", "/api/v1/aggregator/nothing", "/metrics"] {
        let refused = rest.serve.fetch(&HttpRequest::new("GET", path));
        expect_error(401, "UNAUTHORIZED", &refused);
        assert!(refused.headers["www-authenticate"].starts_with("Bearer"));
        let wrong = HttpRequest::new("GET", path).header("Authorization", "Bearer wrong");
        expect_error(401, "UNAUTHORIZED", &rest.serve.fetch(&wrong));
    }
    let right = HttpRequest::new("GET", &format!("{PREFIX}/state")).header("Authorization", "Bearer secret");
    expect(200, &rest.serve.fetch(&right));
    for path in ["/api/docs", "/api/v1/openapi.json"] {
        assert_eq!(rest.serve.fetch(&HttpRequest::new("GET", path)).status, 200, "it tells nothing that is not public");
    }
    expect_error(403, "FORBIDDEN", &rest.serve.fetch(&right.clone().header("Host", "evil.example")));
    let page = right.header("Origin", "https://evil.example");
    expect_error(403, "FORBIDDEN", &rest.serve.fetch(&page));
}

#[test]
fn a_page_that_is_let_in_may_change_things_and_read_how_many_there_are() {
    let rest = Rest::start_as(|launch| launch.args(["--allow-origin", "https://console.example"]));
    let page = |method: &str| {
        HttpRequest::new(method, &format!("{PREFIX}/servers")).header("Origin", "https://console.example")
    };
    let asked = rest.serve.fetch(&page("OPTIONS").header("Access-Control-Request-Method", "PATCH"));
    assert!(asked.headers["access-control-allow-methods"].contains("PUT, PATCH"), "{asked:?}");
    let listed = rest.serve.fetch(&page("GET"));
    assert_eq!(listed.headers["access-control-allow-origin"], "https://console.example");
    assert!(listed.headers["access-control-expose-headers"].contains("X-Total-Count"));
}
