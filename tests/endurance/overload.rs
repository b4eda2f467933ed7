//! More calls at once than may run: limits are enforced, and every call gets a response.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::http_client::{Connection, HttpRequest};
use testkit::serve::Fetched;
use testkit::wait_until;

use crate::rest::{Begun, PREFIX, Rest, expect, expect_error};

const CALLS: usize = 500;
const LIMIT: u64 = 20;

/// Makes all calls at once, each of which takes this long; returns their responses.
fn call_all(rest: &Rest, each: Duration) -> Vec<Fetched> {
    let mut connections: Vec<Connection> = (0..CALLS).map(|_| rest.serve.connect()).collect();
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

/// The number of executions with this status.
#[track_caller]
fn wait_for_count(rest: &Rest, status: &str, count: usize) {
    wait_until(&format!("{count} executions with {status}"), || {
        let listed = rest.get(&format!("/executions?tool_name=sleep&status={status}&limit=1"));
        (listed.headers["x-total-count"] == count.to_string()).then_some(())
    });
}

#[test]
fn of_500_concurrent_calls_only_the_limit_runs_and_the_others_wait() {
    let rest = Rest::start();
    rest.register("one", &[]);
    expect(200, &rest.patch("/settings", &json!({"concurrent_limit": LIMIT, "queue_limit": CALLS})));
    for answer in call_all(&rest, Duration::from_millis(10)) {
        let result = expect(200, &answer);
        assert_eq!(result["content"][0]["text"], "slept", "{result}");
    }
    let most = most_at_once(&rest).as_u64().expect("a number");
    assert!((2..=LIMIT).contains(&most), "{most} calls ran at once");
    wait_for_count(&rest, "success", CALLS);
}

#[test]
fn refused_connections_get_an_error_with_retry_after() {
    let rest = Rest::start();
    rest.register("one", &[]);
    expect(200, &rest.patch("/settings", &json!({"concurrent_limit": LIMIT, "queue_limit": 30})));
    let (done, refused): (Vec<Fetched>, Vec<Fetched>) =
        call_all(&rest, Duration::from_secs(1)).into_iter().partition(|answer| answer.status == 200);
    assert!(done.iter().all(|answer| answer.json()["content"][0]["text"] == "slept"));
    assert!(done.len() >= 50, "those who ran and those who waited: {}", done.len());
    assert!(!refused.is_empty(), "they came faster than they could be served");
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
    assert_eq!(most_at_once(&rest), LIMIT, "no more and no less");
    wait_for_count(&rest, "success", done.len());
    assert_eq!(expect(200, &rest.get("/executions?status=executing")), json!([]), "nothing is left behind");
}
