//! Tools are listed and called unchanged.

use serde_json::json;
use testkit::http_server::LineEnd;
use testkit::{HttpServer, Script, program, raw};

use super::{assert_echoes, connected, connected_to, count};
use crate::fixture::text_of;

/// Values that a parser would change, or that could break an event stream.
const VALUES: &[&str] = &[
    "-0.0",
    "1E400",
    "0.1000000000000000055511151231257827",
    "18446744073709551616",
    r#""\ud800""#,
    "\"\u{feff}é\\u00e9\\/😀\u{2028}\"",
    r#""data: x\n\nevent: endpoint\r\rid: 7""#,
    r#""\u0000\u001f""#,
    r#"{"a":1,"a":2}"#,
    "{ \"a\" : [ 1 ,\t2 ] }",
    "{\r\"a\":\r1\r}",
    r#"{"id":1,"jsonrpc":"1.0","result":{}}"#,
    r#"{"\ud800":1,"__proto__":{}}"#,
];

/// JSON without the space between its tokens.
fn compact(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let mut is_token = |character: char| {
        let is_token = in_string || !character.is_ascii_whitespace();
        in_string ^= character == '"' && !is_escaped;
        is_escaped = in_string && character == '\\' && !is_escaped;
        is_token
    };
    json.chars().filter(|&character| is_token(character)).collect()
}

#[test]
fn tools_are_listed_under_the_name_of_their_server_beside_those_of_others() {
    let server = HttpServer::start(Script::default());
    let local = json!({"command": program("fake-server")});
    let mut client = connected_to(&json!({"web": {"url": server.url()}, "local": local}));
    let names = client.tool_names();
    let remote: Vec<&String> = names.iter().filter(|name| name.starts_with("web.")).collect();
    assert_eq!(remote, ["web.echo", "web.raw", "web.sleep", "web.progress", "web.hang", "web.change_tools"]);
    assert!(names.contains(&"local.echo".to_owned()), "{names:?}");
    assert_echoes(&mut client);
    assert_eq!(text_of(&client.call("local.echo", json!({"text": "here too"}))), "here too");
    assert_eq!(client.stderr_text(), "");
}

/// Calls with every one of [`VALUES`], and checks both ends.
#[track_caller]
fn assert_unchanged(what: &str, script: Script) {
    let server = HttpServer::start(script);
    let mut client = connected(&server);
    for (number, value) in VALUES.iter().enumerate() {
        let (id, arguments) = (format!("{what}-{number}"), format!(r#"{{"v":{value}}}"#));
        let params = format!(r#"{{"_meta":{{"k": 1.0}},"name":"web.echo","arguments":{arguments}}}"#);
        let call = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call","params":{params}}}"#);
        client.send_raw(format!("{call}\n").as_bytes());
        let line = client.response_line(id);
        let returned = |member| {
            let found = raw::at(&line, &["result", member]);
            found.unwrap_or_else(|| panic!("{what}: no {member} in {}", String::from_utf8_lossy(&line)))
        };
        assert_eq!(compact(returned("structuredContent")), compact(&arguments), "{what}");
        assert_eq!(compact(returned("_meta")), r#"{"k":1.0}"#, "{what}");
        // White space between tokens is the server's choice, except for line breaks.
        if what == "JSON" && !value.contains('\r') {
            assert_eq!(returned("structuredContent"), arguments);
        }
        let requests = server.requests();
        let call = requests.iter().rfind(|request| request.is("tools/call")).expect("the call was posted");
        assert_eq!(raw::at(&call.body, &["params", "arguments"]), Some(arguments.as_str()), "{what}");
    }
    assert_eq!(client.stderr_text(), "", "{what}");
}

#[test]
fn arguments_and_results_pass_unchanged_however_the_server_writes_its_answers() {
    let (plain, events) = (Script::default(), Script::default().answers_as_sse());
    assert_unchanged("JSON", plain.clone());
    assert_unchanged("pretty JSON", plain.clone().pretty());
    assert_unchanged("torn JSON", plain.chunks_of(1));
    assert_unchanged("events", events.clone());
    assert_unchanged("pretty events", events.clone().pretty());
    assert_unchanged("events, CRLF", events.clone().line_end(LineEnd::CrLf));
    assert_unchanged("torn events", events.line_end(LineEnd::CrLf).chunks_of(1));
}

#[test]
fn arguments_and_results_pass_unchanged_over_the_older_transport() {
    let script = Script::default().sse();
    assert_unchanged("stream", script.clone());
    assert_unchanged("torn stream", script.pretty().line_end(LineEnd::CrLf).chunks_of(2));
}

#[test]
fn a_carriage_return_is_a_line_end_like_any_other() {
    let cr = Script::default().line_end(LineEnd::Cr);
    assert_unchanged("events, CR", cr.clone().answers_as_sse());
    assert_unchanged("torn pretty events, CR", cr.clone().answers_as_sse().pretty().chunks_of(3));
    assert_unchanged("stream, CR", cr.sse());
}

#[test]
fn many_calls_run_concurrently_without_waiting_for_each_other() {
    for script in [Script::default(), Script::default().answers_as_sse(), Script::default().sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        for _ in 0..10 {
            client.start_call("web.hang", json!({}));
        }
        // None of them gets a response, so all of them are pending.
        server.wait_for(|requests| count(requests, "tools/call") == 10);
        assert_echoes(&mut client);
    }
}

#[test]
fn a_notification_that_hangs_delays_nothing() {
    for script in [Script::default().with_session(), Script::default().sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        assert_echoes(&mut client);
        let requests = server.requests();
        let of = |method| requests.iter().position(|request| request.is(method));
        assert!(of("notifications/initialized") < of("tools/list"), "but what follows the first waits for it");
        server.change(|script| script.slow_notices(600_000));
        for cancelled in 1..=3 {
            let id = client.start_call("web.hang", json!({}));
            client.notify("notifications/cancelled", json!({"requestId": id}));
            server.wait_for(|requests| count(requests, "notifications/cancelled") == cancelled);
            assert_echoes(&mut client);
        }
    }
}

#[test]
fn connections_are_used_again() {
    for script in [Script::default(), Script::default().answers_as_sse(), Script::default().sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        for _ in 0..50 {
            assert_echoes(&mut client);
        }
        assert!(server.connections() <= 4, "{} connections", server.connections());
    }
}

#[test]
fn a_result_of_20_mb_passes_unchanged() {
    const LENGTH: usize = 20_000_000;
    let text = "é\\u00e9".repeat(LENGTH / 8);
    let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    for script in [Script::default(), Script::default().answers_as_sse(), Script::default().sse().chunks_of(10_000)] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        let id = client.start_call("web.raw", json!({"result": result}));
        let line = client.response_line(id);
        // Without the 20 MB in the failure message.
        assert!(raw::at(&line, &["result"]) == Some(&result), "{} bytes came back", line.len());
    }
}

#[test]
fn an_event_of_many_lines_takes_no_longer_than_its_length() {
    let server = HttpServer::start(Script::default().answers_as_sse().pretty());
    let mut client = connected(&server);
    let numbers = vec!["1"; 300_000].join(",");
    let result = format!(r#"{{"content":[],"structuredContent":{{"n":[{numbers}]}}}}"#);
    let id = client.start_call("web.raw", json!({"result": result}));
    let line = client.response_line(id);
    assert!(raw::at(&line, &["result"]).map(compact) == Some(result), "{} bytes came back", line.len());
}
