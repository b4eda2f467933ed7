//! Streams: progress, changes, responses after a reconnect.

use serde_json::json;
use testkit::{HttpServer, Script, raw, wait_until};

use super::{assert_echoes, connected, count, count_http, wait_for_tool};
use crate::fixture::text_of;

#[test]
fn an_answer_whose_stream_broke_is_fetched_where_it_broke() {
    let server = HttpServer::start(Script::default().with_session().drop_stream_before_answer(2));
    let mut client = connected(&server);
    assert_echoes(&mut client);
    assert_eq!(text_of(&client.call("web.sleep", json!({"ms": 50}))), "slept");
    assert_echoes(&mut client);
    let requests = server.requests();
    let resumed: Vec<_> = requests.iter().filter(|request| request.header("last-event-id").is_some()).collect();
    assert_eq!(resumed.len(), 2, "{requests:#?}");
    for request in resumed {
        assert_eq!((request.method.as_str(), request.header("mcp-session-id")), ("GET", Some("session-1")));
        assert!(request.header("last-event-id").unwrap().starts_with("resume-"));
    }
    assert_eq!(count(&requests, "tools/call"), 3, "no call was sent twice");
    assert_eq!(client.stderr_text(), "");
}

#[test]
fn a_change_of_tools_reaches_the_list_and_the_client() {
    for script in [Script::default().with_session().with_get_stream(), Script::default().sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        client.tool_names();
        client.drain();
        assert_eq!(text_of(&client.call("web.change_tools", json!({"names": ["brand new"]}))), "done");
        client.notification("notifications/tools/list_changed");
        wait_for_tool(&mut client, "web.brand new", true);
        assert_eq!(text_of(&client.call("web.brand new", json!({"text": "x"}))), "x");
        client.call("web.change_tools", json!({"names": []}));
        wait_for_tool(&mut client, "web.brand new", false);
    }
}

#[test]
fn a_stream_that_the_server_closes_is_opened_again() {
    let server = HttpServer::start(Script::default().with_get_stream());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    for round in 1..=2 {
        server.wait_for(|requests| count_http(requests, "GET") >= round);
        wait_until("the stream is open", || (server.open_streams() > 0).then_some(()));
        server.close_streams();
    }
    client.call("web.change_tools", json!({"names": ["new"]}));
    wait_for_tool(&mut client, "web.new", true);
}

#[test]
fn a_server_without_a_stream_is_asked_for_one_once() {
    let server = HttpServer::start(Script::default());
    let mut client = connected(&server);
    for _ in 0..20 {
        assert_echoes(&mut client);
    }
    assert_eq!(count_http(&server.requests(), "GET"), 1);
    assert_eq!(client.stderr_text(), "");
}

#[test]
fn progress_reaches_the_client_under_its_own_token() {
    for script in [Script::default(), Script::default().sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        for token in [r#""mine""#, "7", r#""\u0041""#] {
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":"p","method":"tools/call","params":{{"_meta":{{"progressToken":{token}}},"name":"web.progress","arguments":{{"steps":3,"ms":5}}}}}}"#
            );
            client.send_raw(call.as_bytes());
            client.send_raw(b"\n");
            for step in ["1", "2", "3"] {
                let line = client.line_where("progress", |line| raw::at(line, &["method"]).is_some());
                assert_eq!(raw::at(&line, &["params", "progressToken"]), Some(token));
                assert_eq!(raw::at(&line, &["params", "progress"]), Some(step));
            }
            assert_eq!(text_of(&client.response("p")), "progressed");
            let requests = server.requests();
            let call = requests.iter().rfind(|request| request.is("tools/call")).unwrap();
            let sent = raw::at(&call.body, &["params", "_meta", "progressToken"]).unwrap();
            assert_eq!(Some(sent), raw::at(&call.body, &["id"]), "the server knows the call by one number of ours");
        }
    }
}

#[test]
fn a_cancellation_is_posted_under_the_id_that_the_server_knows() {
    for script in [Script::default(), Script::default().answers_as_sse(), Script::default().sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        assert_echoes(&mut client);
        let id = client.start_call("web.hang", json!({}));
        server.wait_for(|requests| count(requests, "tools/call") == 2);
        client.notify("notifications/cancelled", json!({"requestId": id, "reason": "no longer wanted"}));
        let requests = server.wait_for(|requests| count(requests, "notifications/cancelled") == 1);
        let find = |method| requests.iter().rfind(|request| request.is(method)).map(|request| &request.body).unwrap();
        let cancelled = find("notifications/cancelled");
        assert_eq!(raw::at(cancelled, &["params", "requestId"]), raw::at(find("tools/call"), &["id"]));
        assert_eq!(raw::at(cancelled, &["params", "reason"]), Some(r#""no longer wanted""#));
        assert_echoes(&mut client);
    }
}

#[test]
fn a_call_that_was_cancelled_holds_no_connection() {
    for script in [Script::default(), Script::default().answers_as_sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        assert_echoes(&mut client);
        let calls: Vec<u64> = (0..5).map(|_| client.start_call("web.hang", json!({}))).collect();
        let requests = server.wait_for(|requests| count(requests, "tools/call") == 6);
        let hanging = requests.iter().filter(|request| request.is("tools/call")).skip(1);
        let hanging: Vec<usize> = hanging.map(|request| request.connection).collect();
        assert!(hanging.iter().all(|&connection| server.is_connected(connection)));
        for id in calls {
            client.notify("notifications/cancelled", json!({"requestId": id}));
        }
        let is_over = || !hanging.iter().any(|&connection| server.is_connected(connection));
        wait_until("the hanging requests are given up", || is_over().then_some(()));
        assert_echoes(&mut client);
    }
}
