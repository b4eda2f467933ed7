//! Remote servers that are unreachable: detected by calls, reported at once, and reconnected when they are back.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{HttpServer, Script, wait_until};

use super::{Rest, expect};

/// Less than all pauses between attempts together, which are 21 s, and more than a busy machine needs.
const PROMPTLY: Duration = Duration::from_secs(18);

#[test]
fn an_unreachable_remote_server_is_reported_immediately_and_reconnects() {
    for (kind, script) in [
        ("http", Script::default()),
        ("http", Script::default().with_session().with_get_stream()),
        ("sse", Script::default().sse()),
    ] {
        let rest = Rest::start();
        // It is not the regular health check that notices it.
        expect(200, &rest.patch("/settings", &json!({"health_check_interval_s": 3600, "failure_threshold": 50})));
        let server = HttpServer::start(script.clone());
        let registration = json!({"name": "far", "transport_type": kind, "connection_config": {"url": server.url()}});
        expect(201, &rest.post("/servers", &registration));
        rest.wait_for_status("far", "connected");
        assert_eq!(rest.call("far.echo", &json!({"text": "x"})).status, 200);

        let port = server.port();
        server.stop();
        let began = Instant::now();
        let answer = rest.call("far.echo", &json!({"text": "x"}));
        assert!(answer.status >= 500, "{answer:?}");
        let standing = rest.wait_for_status("far", "error");
        assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
        assert!(standing["error_message"].as_str().unwrap().contains("unreachable"), "{standing}");
        let began = Instant::now();
        for _ in 0..3 {
            let answer = rest.call("far.echo", &json!({"text": "x"}));
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(answer.body.contains("unreachable"), "{answer:?}");
        }
        assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());

        let _back = HttpServer::start_on(port, script);
        rest.wait_for_status("far", "connected");
        assert_eq!(rest.call("far.echo", &json!({"text": "x"})).status, 200);
    }
}

#[test]
fn a_remote_server_that_has_worked_is_never_disabled_and_recovers_also_after_a_restart() {
    let rest = Rest::start();
    expect(200, &rest.patch("/settings", &json!({"retry_backoff_ms": [1, 1, 1]})));
    let server = HttpServer::start(Script::default());
    let registration = json!({"name": "far", "transport_type": "http", "connection_config": {"url": server.url()}});
    expect(201, &rest.post("/servers", &registration));
    rest.wait_for_status("far", "connected");
    let port = server.port();
    server.stop();
    assert!(rest.call("far.echo", &json!({"text": "x"})).status >= 500);
    let failing = |rest: &Rest| {
        wait_until("it failed more often than one that never worked may", || {
            let server = expect(200, &rest.get("/servers/far"));
            let is_waiting = server["status"] == "error" && server["next_retry_at"].is_string();
            (is_waiting && server["failure_count"].as_u64() > Some(6)).then_some(server)
        })
    };
    let down = failing(&rest);
    assert_eq!((&down["enabled"], &down["auto_disabled_at"]), (&json!(true), &json!(null)), "{down}");
    assert_eq!(down["retry_count"].as_u64(), down["failure_count"].as_u64().map(|count| count - 1), "{down}");
    let rest = rest.restarted(true);
    failing(&rest);
    let _back = HttpServer::start_on(port, Script::default());
    let up = rest.wait_for_status("far", "connected");
    assert_eq!((&up["retry_count"], &up["next_retry_at"]), (&json!(0), &json!(null)), "{up}");
}
