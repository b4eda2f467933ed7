//! The database becomes unreachable and comes back while calls are made.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use testkit::http_client::{Connection, HttpRequest};
use testkit::{Postgres, wait_until};

use crate::rest::{PREFIX, Rest, expect, expect_error, fake};

const CLIENTS: usize = 4;
/// The number of calls during the outage.
const MEANWHILE: usize = 300;

/// Calls that are repeated until the end of the test.
#[derive(Default)]
struct Load {
    answered: AtomicUsize,
    is_over: AtomicBool,
}

impl Load {
    /// Every call must succeed.
    fn run(&self, address: SocketAddr) {
        let mut connection = Connection::open(address);
        let ask = HttpRequest::post(
            &format!("{PREFIX}/tools/call"),
            json!({"name": "one.echo", "arguments": {}}).to_string(),
        );
        while !self.is_over.load(Ordering::Relaxed) {
            let (status, body) = connection.try_fetch(&ask).expect("the service is there");
            assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until this many further calls were answered.
    #[track_caller]
    fn wait_for_more(&self, more: usize) {
        let wanted = self.answered.load(Ordering::Relaxed) + more;
        wait_until(&format!("{more} more calls are answered"), || {
            (self.answered.load(Ordering::Relaxed) >= wanted).then_some(())
        });
    }
}

/// The load ends, whatever happens to the test.
struct Ending<'l>(&'l Load);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn calls_go_on_without_the_database_and_everything_is_written_when_it_is_back() {
    let Some(mut postgres) = Postgres::start() else { return };
    let url = postgres.database("outage");
    let rest = Rest::on_database(&url);
    rest.register("one", &[]);
    rest.register("two", &[]);
    let (load, address) = (Load::default(), rest.serve.address());
    std::thread::scope(|scope| {
        let _ending = Ending(&load);
        for _ in 0..CLIENTS {
            scope.spawn(|| load.run(address));
        }
        load.wait_for_more(MEANWHILE);
        for (nth, stop) in [Postgres::stop, Postgres::crash].into_iter().enumerate() {
            stop(&mut postgres);
            load.wait_for_more(MEANWHILE);
            expect(200, &rest.get("/state"));
            let health = wait_until("the service says what is wrong", || {
                let health = rest.get("/health").json();
                (health["status"] == "degraded").then_some(health)
            });
            assert_ne!(health["checks"]["database"]["status"], "ok", "{health}");
            expect_error(503, "DATABASE_UNAVAILABLE", &rest.post("/servers", &fake("never", &[])));
            // Changes of a server in the meantime take effect, and are stored later.
            let order = if nth == 0 { "disconnect" } else { "connect" };
            expect(200, &rest.order(&format!("/servers/two/{order}")));
            load.wait_for_more(MEANWHILE);

            postgres.start_again();
            let name = format!("new-{nth}");
            wait_until("servers can be registered again", || {
                let answer = rest.post("/servers", &fake(&name, &[]));
                assert!([201, 503].contains(&answer.status), "{answer:?}");
                (answer.status == 201).then_some(())
            });
            let expected = if nth == 0 { "DISCONNECTED" } else { "CONNECTED" };
            wait_until("what happened meanwhile is written", || {
                let sql = "SELECT status FROM mcp.external_servers WHERE name = 'two'";
                (postgres.psql("outage", sql) == expected).then_some(())
            });
            load.wait_for_more(MEANWHILE);
        }
    });
    let answered = load.answered.load(Ordering::Relaxed).to_string();
    wait_until("every call is in the history", || {
        let kept = "SELECT count(*) FROM mcp.executions WHERE tool_name = 'echo' AND status = 'SUCCESS'";
        (postgres.psql("outage", kept) == answered).then_some(())
    });
    assert_eq!(expect(200, &rest.get("/health"))["checks"]["database"]["status"], "ok");
    assert_eq!(postgres.psql("outage", "SELECT count(*) FROM mcp.external_servers WHERE name = 'never'"), "0");
}
