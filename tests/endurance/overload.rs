//! More calls at once than may run: limits are enforced, and every call gets a response.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::http_client::{Connection, HttpRequest};
use testkit::serve::Fetched;
use testkit::wait_until;

use crate::rest::{Begun, PREFIX, Rest, expect, expect_error};

const CALLS: usize = 500;
const LIMIT: u64 = 20;

/// Makes so many calls at once, each of which takes this long; returns their responses.
fn call_all(rest: &Rest, count: usize, each: Duration) -> Vec<Fetched> {
    let mut connections: Vec<Connection> = (0..count).map(|_| rest.serve.connect()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        let body = json!({"name": "one.sleep", "arguments": {"ms": each.as_millis() as usize + number % 7}});
        connection.send(&HttpRequest::post(&format!("{PREFIX}/tools/call"), body.to_string()));
    }
    connections.into_iter().map(|connection| Begun(connection).answer()).collect()
}

/// The maximum number of concurrent calls at the server.
fn most_at_once(rest: &Rest) -> Value {
    expect(200, &rest.call("one.most_open", &json!({})))["structuredContent"]["count"].clone()
}

/// Waits for a number of executions of a tool with this status.
#[track_caller]
fn wait_for_count(rest: &Rest, tool: &str, status: &str, count: usize) {
    wait_until(&format!("{count} executions with {status}"), || {
        let listed = rest.get(&format!("/executions?tool_name={tool}&status={status}&limit=1"));
        (listed.headers["x-total-count"] == count.to_string()).then_some(())
    });
}

#[test]
fn of_500_concurrent_calls_only_the_limit_runs_and_the_others_wait() {
    let rest = Rest::start();
    rest.register("one", &[]);
    expect(200, &rest.patch("/settings", &json!({"concurrent_limit": LIMIT, "queue_limit": CALLS})));
    for answer in call_all(&rest, CALLS, Duration::from_millis(10)) {
        let result = expect(200, &answer);
        assert_eq!(result["content"][0]["text"], "slept", "{result}");
    }
    let most = most_at_once(&rest).as_u64().expect("a number");
    assert!((2..=LIMIT).contains(&most), "{most} calls ran at once");
    wait_for_count(&rest, "sleep", "success", CALLS);
}

#[test]
fn refused_connections_get_an_error_with_retry_after() {
    const QUEUE: usize = 30;
    let rest = Rest::start();
    rest.register("one", &[]);
    expect(200, &rest.patch("/settings", &json!({"concurrent_limit": LIMIT, "queue_limit": QUEUE})));
    let begin = |_| {
        let mut connection = rest.serve.connect();
        connection.send(&HttpRequest::post(&format!("{PREFIX}/tools/call"), json!({"name": "one.hang"}).to_string()));
        connection
    };
    // None of them ends by itself, so that however slow this machine is, those that come later find no room.
    let accepted: Vec<Connection> = (0..usize::try_from(LIMIT).unwrap() + QUEUE).map(begin).collect();
    wait_for_count(&rest, "hang", "executing", 20);
    wait_for_count(&rest, "hang", "pending", QUEUE);
    let refused = call_all(&rest, CALLS - accepted.len(), Duration::ZERO);
    for answer in &refused {
        let context = expect_error(429, "LIMIT_REACHED", answer);
        assert_eq!((&context["limit"], &context["concurrent_limit"]), (&json!("queue_limit"), &json!(LIMIT)));
        let wait: u64 = answer.headers["retry-after"].parse().expect("a number of seconds");
        assert!((1..=60).contains(&wait));
        assert!(
            answer.json()["detail"].as_str().unwrap().contains("20 may run, and 30 already wait"),
            "{}",
            answer.body
        );
    }
    expect(200, &rest.order("/servers/one/disconnect?force=true"));
    for connection in accepted {
        let answer = Begun(connection).answer();
        assert!([409, 502, 503].contains(&answer.status), "{answer:?}");
    }
    wait_until("nothing is left behind", || {
        (rest.get("/executions?status=executing").json() == json!([])).then_some(())
    });
}
