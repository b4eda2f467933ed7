//! A PostgreSQL that is unreachable when the service starts: the service waits, and reports it.

use std::net::{SocketAddr, TcpListener};

use testkit::http_client::{Connection, HttpRequest};
use testkit::{Driver, Launch, Postgres, Signal, program, wait_until};

/// Starts a service, which need not get to the point of serving.
fn start(folder: &std::path::Path, arguments: &[&str]) -> Driver {
    Launch::program(program("mcp-aggregator"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.join("data"))
        .args(arguments)
        .env_remove("MCP_AGGREGATOR_TOKEN")
        .start()
}

/// The address of a service that waits for its database.
fn address_of(service: &Driver) -> SocketAddr {
    service.wait_for_stderr("/health returns 503");
    wait_until("the address", || {
        let text = service.stderr_text();
        let (_, rest) = text.split_once("; http://")?;
        rest.split_once("/health")?.0.parse().ok()
    })
}

fn fetch(address: SocketAddr, ask: &HttpRequest) -> (u16, String) {
    let mut connection = Connection::open(address);
    let (status, body) = connection.try_fetch(ask).expect("it answers");
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[test]
fn a_service_that_starts_first_waits_for_postgres_and_serves_when_it_is_there() {
    let Some(mut postgres) = Postgres::start() else { return };
    let url = postgres.database("late");
    postgres.stop();
    let folder = tempfile::tempdir().unwrap();
    let mut service = start(folder.path(), &["--database", &url]);
    let address = address_of(&service);
    let (status, body) = fetch(address, &HttpRequest::new("GET", "/health"));
    assert_eq!(status, 503);
    assert!(body.contains(r#""status":"starting""#) && body.contains("waiting for the database"), "{body}");
    assert!(!body.contains("postgres"), "everybody may ask, so no address is named: {body}");
    for ask in [
        HttpRequest::post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
        HttpRequest::new("GET", "/api/v1/aggregator/state"),
        HttpRequest::new("GET", "/"),
    ] {
        let (status, body) = fetch(address, &ask);
        assert!(status == 503 && body.contains("waiting for the database"), "{ask:?}: {status} {body}");
    }
    service.wait_for_stderr("attempt 2: ");
    assert!(!folder.path().join("data/credential.key").exists(), "no key is made for what is not there");
    postgres.start_again();
    service.wait_for_stderr("listening on http://");
    let health = wait_until("it is well", || {
        let (status, body) = fetch(address, &HttpRequest::new("GET", "/health"));
        (status == 200).then_some(body)
    });
    assert!(health.contains(r#""status":"ok""#), "{health}");
    let (status, _) = fetch(address, &HttpRequest::new("GET", "/api/v1/aggregator/servers"));
    assert_eq!(status, 200, "it serves at the same address");
    service.signal(Signal::TERM);
    assert!(service.wait_exit().success());
}

/// An address without a listener.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    format!("postgres://me@{}/x", listener.local_addr().expect("it has an address"))
}

#[test]
fn it_gives_up_when_the_time_is_over_and_not_before_an_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = start(folder.path(), &["--database", &nobody(), "--database-wait", "5"]);
    service.wait_for_stderr("waiting up to 5 s for the database");
    assert!(!service.wait_exit().success());
    service.wait_for_stderr("(--database-wait)");
    let stderr = service.stderr_text();
    assert!(stderr.contains("attempt 1: ") && stderr.contains("attempt 2: "), "{stderr}");
    assert!(stderr.contains("gave up after 5 s (--database-wait)"), "{stderr}");
    let mut service = start(folder.path(), &["--database", &nobody(), "--database-wait", "0"]);
    assert!(!service.wait_exit().success());
    service.wait_for_stderr("could not open the registry");
    let stderr = service.stderr_text();
    assert!(!stderr.contains("waiting up to"), "{stderr}");
}

#[test]
fn a_signal_ends_the_wait() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = start(folder.path(), &["--database", &nobody()]);
    service.wait_for_stderr("attempt 1: ");
    service.signal(Signal::TERM);
    assert!(service.wait_exit().success());
}

#[test]
fn what_waiting_cannot_mend_fails_at_once() {
    let Some(postgres) = Postgres::shared() else { return };
    postgres.psql("postgres", "CREATE ROLE barred");
    let there = postgres.url("postgres");
    let barred = there.replace("postgres://postgres@", "postgres://barred@");
    let unknown = there.replace("postgres://postgres@", "postgres://nobody-knows@");
    let missing = postgres.url("no-such-database");
    // A server without TLS, which is required.
    let without_tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = without_tls.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for stream in without_tls.incoming().flatten() {
            let mut stream = stream;
            let mut request = [0; 8];
            drop(stream.read_exact(&mut request).and_then(|()| stream.write_all(b"N")));
        }
    });
    let tls = format!("postgres://me@{port}/x?sslmode=require");
    for (database, what) in [(barred, "barred"), (unknown, "nobody-knows"), (missing, "no-such-database"), (tls, "TLS")]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut service = start(folder.path(), &["--database", &database]);
        assert!(!service.wait_exit().success());
        service.wait_for_stderr(what);
        let stderr = service.stderr_text();
        assert!(!stderr.contains("waiting up to"), "{stderr}");
    }
}
