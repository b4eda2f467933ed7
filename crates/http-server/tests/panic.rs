//! A panic in a request handler: the client gets a 500, and its connection stays open.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aggregator::cycle::Chain;
use aggregator::{Aggregator, ClientLimits, Fleet, MethodSet, NamePolicy, Options, ServerLimits, Surface};
use bytes::Bytes;
use catalog::{Principal, Role};
use http_body_util::Full;
use http_server::{
    AuthFailures, FallbackBody, FallbackResponse, FallbackService, HttpServer, Limits, LocalAccess, PeerLookup, Voucher,
};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Answers below `/api`, or panics if the path requests it.
struct Fragile;

fn response(status: StatusCode, text: &str) -> FallbackResponse {
    let mut response = Response::new(FallbackBody::new(Full::<Bytes>::from(text.to_owned())));
    *response.status_mut() = status;
    response
}

impl FallbackService for Fragile {
    fn has(&self, path: &str) -> bool {
        path.starts_with("/api")
    }

    fn is_public(&self, _: &str) -> bool {
        false
    }

    fn is_for_allowed_origins(&self, _: &str) -> bool {
        false
    }

    fn vouch(&self, _: &Parts) -> Option<Voucher> {
        None
    }

    fn session_owner(&self, _: &Parts) -> Option<Voucher> {
        None
    }

    fn required_role(&self, _: &Parts) -> Role {
        Role::User
    }

    fn is_sign_in(&self, _: &Parts) -> bool {
        false
    }

    fn answer(
        self: Arc<Self>,
        parts: Parts,
        _: Bytes,
        _: Arc<Principal>,
    ) -> Pin<Box<dyn Future<Output = FallbackResponse> + Send>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            assert!(!parts.uri.path().contains("panic"), "as the test wants it");
            response(StatusCode::OK, "fine")
        })
    }

    fn refuse(&self, status: StatusCode, why: &str) -> FallbackResponse {
        response(status, why)
    }

    fn leave(&self) {}
}

const UID: u32 = 1000;

/// Every connection belongs to the served user.
struct SameUser;

impl PeerLookup for SameUser {
    fn user_of(&self, _: SocketAddr, _: SocketAddr) -> Option<u32> {
        Some(UID)
    }
}

fn panicking_server(folder: &Path) -> HttpServer {
    let options = Options {
        name: "test".into(),
        version: "1".into(),
        separator: ".".parse().expect("it is a separator"),
        names: NamePolicy::Canonical,
        start_timeout: Duration::from_secs(5),
        withheld: &[],
        servers_can_change: true,
        method_set: MethodSet::EVERYTHING,
        awaits_client: false,
        answer_timeout: Duration::from_secs(5),
        surface: Surface::Full,
        capabilities: "{}",
        server_limits: ServerLimits::from_settings(),
        client_limits: ClientLimits::default(),
    };
    let chain = Chain::enter(None, folder).expect("the folder is there");
    let fleet = Fleet::empty(options.clone(), &chain, None);
    HttpServer {
        aggregator: Aggregator::new(fleet, options),
        tokens: None,
        resource: None,
        client_certificates: None,
        local: Arc::new(LocalAccess::new(UID, Some(Box::new(SameUser)))),
        auth_failures: Arc::new(AuthFailures::new(20, 4096)),
        allowed_hosts: Vec::new(),
        trusted_proxies: Vec::new(),
        allowed_origins: Vec::new(),
        limits: Limits::default(),
        fallback: Some(Arc::new(Fragile)),
        health: None,
    }
}

/// Sends a request on a connection that stays open; the status and the body of its response.
fn ask(stream: &mut TcpStream, path: &str) -> (u16, String) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("the connection is open");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a response comes");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("heads are text").to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("it has a status");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.expect("it has a length")];
    stream.read_exact(&mut body).expect("the body comes");
    (status, String::from_utf8(body).expect("the body is text"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_gives_500_and_the_connection_stays_usable() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let address = listener.local_addr().expect("it listens");
    let (stop, stopped) = oneshot::channel::<Infallible>();
    let server = panicking_server(folder.path());
    let serving = tokio::spawn(async move {
        // Ready as soon as the other end is dropped.
        http_server::serve(server, vec![http_server::Listener { socket: listener.into(), tls: None }], async {
            drop(stopped.await);
        })
        .await
    });
    let asking = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).expect("it listens");
        for _ in 0..3 {
            assert_eq!(ask(&mut stream, "/api/fine"), (200, "fine".to_owned()));
            let (status, why) = ask(&mut stream, "/api/panic");
            assert_eq!(status, 500, "{why}");
            assert!(why.contains("Internal error") && !why.contains("as the test wants it"), "{why}");
        }
        assert_eq!(ask(&mut stream, "/health").0, 200, "on the same connection");
    });
    asking.await.expect("the requests were answered");
    drop(stop);
    serving.await.expect("it does not panic").expect("it ends well");
}
