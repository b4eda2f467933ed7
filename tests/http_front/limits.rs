//! Too much, too slow, too many: such clients are disconnected, and others are not affected.

use std::io::Write;
use std::time::{Duration, Instant};

use testkit::http_client::{Connection, HttpRequest};
use testkit::{Puppet, Serve, Spec, rss_kb, takes_less_than};

use super::{PING, assert_echoes};
use crate::relay::{config, serving};

fn puppet() -> Puppet {
    Puppet::new(Spec::legacy().tool("t").echoes())
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.session("/mcp");
    for length in ["104857600", "9999999999999"] {
        let mut connection = serve.connect();
        connection.send(&session.post("").header("Content-Length", length));
        assert_eq!(connection.answer().status, 413, "{length}");
    }
    // A number beyond any integer may be refused as invalid.
    let mut connection = serve.connect();
    connection.send(&session.post("").header("Content-Length", "99999999999999999999999"));
    assert!((400..500).contains(&connection.answer().status));
    assert_echoes(&mut session, "s.t");
}

#[test]
fn a_body_without_an_announced_length_is_cut_off_at_the_limit() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.session("/mcp");
    let before = rss_kb(serve.pid());
    let mut connection = serve.connect();
    connection.send(&session.post("").header("Transfer-Encoding", "chunked"));
    let chunk = vec![b' '; 1 << 20];
    let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), &chunk, b"\r\n"].concat();
    // It refuses them long before this many.
    let written = (0..200).take_while(|_| connection.write(&framed).is_ok()).count();
    if written == 200 {
        assert_eq!(connection.answer().status, 413);
    } else if let Ok(Some(answer)) = connection.try_answer() {
        assert_eq!(answer.status, 413);
    }
    drop(connection);
    assert_echoes(&mut session, "s.t");
    let grown = rss_kb(serve.pid()).saturating_sub(before);
    assert!(grown < 200_000, "grew by {grown} kB");
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.session("/mcp");
    let refused = |connection: &mut Connection| match connection.try_answer() {
        Ok(Some(answer)) => (400..500).contains(&answer.status),
        Ok(None) | Err(_) => true,
    };
    let mut large = serve.connect();
    // The connection may be closed before all of it is written.
    large.write(format!("POST /mcp HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)).as_bytes()).ok();
    assert!(refused(&mut large));
    let mut many = serve.connect();
    let headers: String = (0..5000).map(|number| format!("X-{number}: 1\r\n")).collect();
    many.write(format!("POST /mcp HTTP/1.1\r\n{headers}\r\n").as_bytes()).ok();
    assert!(refused(&mut many));
    assert_echoes(&mut session, "s.t");
}

#[test]
fn what_is_no_http_is_let_go() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.session("/mcp");
    for nonsense in ["\0\u{1}\u{2}\r\n\r\n", "GET\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "{\"jsonrpc\":\"2.0\"}\r\n\r\n"] {
        let mut connection = serve.connect();
        connection.write(nonsense.as_bytes()).expect("a socket takes that much");
        connection.wait_closed();
    }
    // Two lengths, or a length and chunks: request smuggling, because two readers disagree about the end.
    for head in ["Content-Length: 4\r\nContent-Length: 5", "Content-Length: 4\r\nTransfer-Encoding: chunked"] {
        let mut connection = serve.connect();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        );
        connection.write(request.as_bytes()).expect("a socket takes that much");
        let said = String::from_utf8_lossy(&connection.wait_closed()).into_owned();
        assert!(!said.contains("\"status\":\"ok\""), "{head}: {said}");
    }
    assert_echoes(&mut session, "s.t");
}

#[test]
fn a_client_that_sends_its_request_too_slowly_is_disconnected_and_delays_no_other() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.session("/mcp");
    let mut in_the_head: Vec<Connection> = (0..100).map(|_| serve.connect()).collect();
    for connection in &mut in_the_head {
        connection.write(b"POST /mcp HTTP/1.1\r\nHost: loc").expect("a socket takes that much");
    }
    let mut in_the_body = serve.connect();
    in_the_body.send(&session.post("{").header("Content-Length", "1000"));
    takes_less_than(Duration::from_secs(5), || {
        let begun = Instant::now();
        assert_echoes(&mut session, "s.t");
        begun.elapsed()
    });
    for connection in &mut in_the_head {
        connection.wait_closed();
    }
    in_the_body.wait_closed();
    assert_echoes(&mut session, "s.t");
}

#[test]
fn a_body_that_stalls_or_trickles_is_refused_and_its_connection_closed() {
    let puppet = puppet();
    let serve = Serve::start_as(&config(&[("s", &puppet)]), |launch| launch.args(["--limit", "body-seconds=1"]));
    let session = serve.session("/mcp");
    for ask in [
        session.post("{"),
        HttpRequest::post("/api/v1/aggregator/servers", "{"),
        HttpRequest::new("POST", "/login").body("t"),
    ] {
        let mut stalling = serve.connect();
        stalling.send(&ask.clone().header("Content-Length", "100000"));
        let mut answer = stalling.answer();
        assert_eq!(answer.status, 408, "{ask:?}");
        answer.bytes();
        stalling.wait_closed();

        let mut trickling = serve.connect();
        trickling.send(&ask.clone().header("Content-Length", "100000"));
        let mut writer = trickling.writer();
        let trickle = std::thread::spawn(move || {
            // Sends a byte from time to time, until the connection is closed.
            while writer.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(trickling.answer().status, 408, "{ask:?}");
        trickle.join().expect("the connection is closed, and writing to it ends");
    }
}

#[test]
fn a_request_that_is_not_let_in_does_not_keep_its_connection_by_trickling() {
    let puppet = puppet();
    let serve =
        Serve::start_as(&config(&[("s", &puppet)]), |launch| launch.env("MCP_AGGREGATOR_TOKEN", "0123456789abcdef"));
    let mut connection = serve.connect();
    connection.send(&HttpRequest::post("/mcp", "{").header("Content-Length", "100000"));
    let mut answer = connection.answer();
    assert_eq!(answer.status, 401);
    answer.bytes();
    connection.wait_closed();
}

#[test]
fn a_request_after_a_refused_one_is_processed() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    for _ in 0..3 {
        let mut refused = connection.ask(&session.post(PING).header("Accept", "text/html"));
        assert_eq!(refused.status, 406);
        refused.bytes();
        let mut answer = connection.ask(&session.post(PING));
        assert_eq!(answer.status, 200);
        answer.bytes();
    }
}
