//! Servers elsewhere that are gone: seen when somebody calls them, told at once, and met again when they are back.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{HttpServer, Script};

use super::{Rest, expect};

/// Less than all pauses between attempts together, which are 21 s, and more than a busy machine needs.
const PROMPTLY: Duration = Duration::from_secs(18);

#[test]
fn a_remote_server_that_is_gone_is_told_at_once_and_works_again_when_it_is_back() {
    for (kind, script) in [
        ("http", Script::default()),
        ("http", Script::default().with_session().with_get_stream()),
        ("sse", Script::default().sse()),
    ] {
        let rest = Rest::start();
        // The regular look is not what finds out.
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
        assert!(standing["error_message"].as_str().unwrap().contains("cannot be reached"), "{standing}");
        let began = Instant::now();
        for _ in 0..3 {
            let answer = rest.call("far.echo", &json!({"text": "x"}));
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(answer.body.contains("cannot be reached"), "{answer:?}");
        }
        assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());

        let _back = HttpServer::start_on(port, script);
        rest.wait_for_status("far", "connected");
        assert_eq!(rest.call("far.echo", &json!({"text": "x"})).status, 200);
    }
}
