//! The requests of sign-ins stay within their limits, and their errors say whether anything was sent.

use oauth::{METADATA_TIMEOUT, Network, Secret};

use super::*;
use crate::test_server::{Reply, TestServer};

fn get(url: impl Into<String>) -> HttpRequest {
    HttpRequest {
        method: Method::Get,
        url: url.into(),
        headers: vec![("accept", "application/json".into()), ("authorization", "Basic c2VjcmV0".into())],
        body: Bytes::new(),
        redirects: Redirects::Follow,
        network: Network::Any,
        timeout: METADATA_TIMEOUT,
        wanted: Wanted::Whole,
    }
}

fn post(url: impl Into<String>) -> HttpRequest {
    HttpRequest { method: Method::Post, body: "a=b".into(), ..get(url) }
}

async fn error_of(request: HttpRequest) -> FetchError {
    match HttpFetch.fetch(request).await {
        Ok(response) => panic!("{response:?}"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_request_arrives_as_it_is_and_any_status_is_a_response() {
    let server = TestServer::start(|_| {
        Reply::status(418).with("content-type", "text/plain; charset=x").with("www-authenticate", "A").saying("tea")
    })
    .await;
    let fetched = HttpFetch.fetch(post(server.url("/token?a=1#f"))).await.unwrap();
    assert_eq!(
        (fetched.status, fetched.content_type.as_str(), &*fetched.body),
        (418, "text/plain; charset=x", &b"tea"[..])
    );
    assert_eq!(fetched.www_authenticate, ["A"]);
    let seen = server.seen().remove(0);
    assert_eq!((seen.line().as_str(), seen.body.as_str()), ("POST /token?a=1", "a=b"));
    assert_eq!(seen.header("accept"), Some("application/json"));
    assert!(seen.header("user-agent").is_some_and(|agent| agent.starts_with("mcp-aggregator/")));
    assert_eq!(Some(seen.header("host").unwrap()), server.origin.strip_prefix("http://"));
}

#[tokio::test]
async fn redirects_are_followed_a_few_times_and_lose_secrets_at_another_origin() {
    let other = TestServer::start(|seen| match seen.path.as_str() {
        "/end" => Reply::json("{}"),
        _ => Reply::redirect(301, "/again"),
    })
    .await;
    let end = other.url("/end");
    let server = TestServer::start(move |seen| match seen.path.as_str() {
        "/1" => Reply::redirect(302, "2"),
        "/2" => Reply::redirect(308, &end),
        _ => Reply::status(404),
    })
    .await;
    assert_eq!(HttpFetch.fetch(get(server.url("/1"))).await.unwrap().status, 200);
    assert!(server.seen().iter().all(|seen| seen.header("authorization").is_some()));
    assert_eq!(other.seen()[0].header("authorization"), None);
    assert_eq!(other.seen()[0].header("accept"), Some("application/json"));

    assert_eq!(HttpFetch.fetch(get(other.url("/again"))).await.unwrap().status, 301);
    assert_eq!(other.count("GET /again"), 1 + MAX_REDIRECTS);
    let returned = HttpRequest { redirects: Redirects::Return, ..get(server.url("/1")) };
    assert_eq!(HttpFetch.fetch(returned).await.unwrap().status, 302);
}

#[tokio::test]
async fn a_post_is_repeated_only_where_the_redirect_says_so() {
    let server = TestServer::start(|seen| match seen.path.as_str() {
        "/moved" => Reply::redirect(302, "/end"),
        "/repeat" => Reply::redirect(307, "/end"),
        _ => Reply::json("{}"),
    })
    .await;
    assert_eq!(HttpFetch.fetch(post(server.url("/moved"))).await.unwrap().status, 302);
    assert_eq!(server.count("POST /end"), 0);
    assert_eq!(HttpFetch.fetch(post(server.url("/repeat"))).await.unwrap().status, 200);
    assert_eq!(server.seen().last().unwrap().body, "a=b");
}

#[tokio::test]
async fn private_networks_are_refused_as_address_as_name_and_as_redirect() {
    let server = TestServer::start(|_| Reply::json("{}")).await;
    let port = server.origin.rsplit_once(':').unwrap().1.to_owned();
    let public = |url: String| HttpRequest { network: Network::Public, ..get(url) };
    for host in ["127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]"] {
        let error = error_of(public(format!("http://{host}:{port}/"))).await;
        assert!(matches!(&error, FetchError::Refused(why) if why.contains("private network")), "{host}: {error:?}");
    }
    assert!(server.seen().is_empty());
    for host in ["127.0.0.1", "localhost"] {
        let allowed = HttpRequest { network: Network::PublicOrLoopback, ..get(format!("http://{host}:{port}/")) };
        assert_eq!(HttpFetch.fetch(allowed).await.unwrap().status, 200, "{host}");
    }
    let redirecting = TestServer::start(|_| Reply::redirect(302, "http://169.254.169.254/latest?secret=1")).await;
    let error = error_of(HttpRequest { network: Network::PublicOrLoopback, ..get(redirecting.url("/")) }).await;
    let FetchError::Refused(why) = &error else { panic!("{error:?}") };
    assert!(
        why.contains("private network") && why.contains("after a redirect to http://169.254.169.254/latest"),
        "{why}"
    );
    assert!(!why.contains("secret"), "{why}");
}

#[tokio::test]
async fn what_is_no_web_address_is_refused() {
    for url in ["/relative", "ftp://127.0.0.1/", "file:///etc/passwd", "http://"] {
        assert!(matches!(error_of(get(url)).await, FetchError::Refused(_)), "{url}");
    }
    let server = TestServer::start(|_| Reply::redirect(302, "file:///etc/passwd")).await;
    assert!(matches!(error_of(get(server.url("/"))).await, FetchError::Refused(_)));
    let mut bad = get(server.url("/"));
    bad.headers.push(("x", Secret::from("hunter2\r\nb: c")));
    let error = error_of(bad).await;
    assert!(matches!(&error, FetchError::Refused(why) if !why.contains("hunter2")), "{error:?}");
}

#[tokio::test]
async fn a_response_that_is_too_large_is_lost_and_the_largest_is_not() {
    let server = TestServer::start(|seen| Reply::json("x".repeat(seen.path[1..].parse().unwrap()))).await;
    let fetched = HttpFetch.fetch(get(server.url(&format!("/{MAX_RESPONSE_BYTES}")))).await.unwrap();
    assert_eq!(fetched.body.len(), MAX_RESPONSE_BYTES);
    let larger = server.url(&format!("/{}", MAX_RESPONSE_BYTES + 1));
    let error = error_of(get(larger.clone())).await;
    assert!(matches!(&error, FetchError::Lost(why) if why.contains("longer than 1 MB")), "{error:?}");
    let head = HttpRequest { wanted: Wanted::Head, ..get(larger) };
    assert_eq!(HttpFetch.fetch(head).await.unwrap().status, 200);
}

#[tokio::test]
async fn only_what_was_certainly_not_sent_is_unsent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    assert!(matches!(error_of(post(nobody)).await, FetchError::Unsent(_)));
    let server = TestServer::start(|seen| if seen.path == "/close" { Reply::Close } else { Reply::Silence }).await;
    assert!(matches!(error_of(post(server.url("/close"))).await, FetchError::Lost(_)));
    let hurried = HttpRequest { timeout: Duration::from_millis(200), ..post(server.url("/silence")) };
    let error = error_of(hurried).await;
    assert!(matches!(&error, FetchError::Lost(why) if why.contains("0.2 s")), "{error:?}");
    // It accepts connections, and says nothing where a TLS handshake is expected.
    let safe = server.url("/").replace("http:", "https:");
    let hurried = HttpRequest { timeout: Duration::from_millis(200), ..post(safe) };
    assert!(matches!(error_of(hurried).await, FetchError::Unsent(_)));
}

#[tokio::test]
async fn a_stream_without_an_end_has_a_head() {
    let server = TestServer::start(|_| Reply::Stream).await;
    let head = HttpRequest { wanted: Wanted::Head, ..get(server.url("/mcp")) };
    assert_eq!(HttpFetch.fetch(head).await.unwrap().content_type, "text/event-stream");
}
