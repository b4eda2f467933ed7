//! Whole connections to servers that require a sign-in.

use std::time::Duration;

use catalog::Offer;
use protocol::Envelope;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use upstream::loop_detection::LoopDetector;
use upstream::watchdog::Watchdog;
use upstream::{
    Cause, Connection, Ending, Handshake, InstanceMark, Report, ServerLimits, ServerRequest, Stop, Upstream,
    UpstreamObserver,
};

use super::*;

/// What an observer is told.
enum ObservedEvent {
    Running(Arc<Connection>),
    Ended(Arc<Ending>),
}

#[derive(Debug)]
struct Observer(mpsc::UnboundedSender<ObservedEvent>);

impl UpstreamObserver for Observer {
    fn on_running(&self, _index: usize, connection: &Arc<Connection>, _offer: Offer) {
        drop(self.0.send(ObservedEvent::Running(Arc::clone(connection))));
    }

    fn on_ended(&self, _index: usize, ending: &Arc<Ending>) {
        drop(self.0.send(ObservedEvent::Ended(Arc::clone(ending))));
    }

    fn on_offer_changed(&self, _connection: &Arc<Connection>, _offer: Arc<Offer>) {}
    fn on_reinitialized(self: Arc<Self>, _server: &Arc<Connection>) {}
    fn on_notification(&self, _server: &Arc<Connection>, _method: &str, _line: &Bytes, _envelope: &Envelope) {}
    fn on_server_request(&self, _index: usize, _request: ServerRequest) {}
    fn on_report(&self, _index: usize, _report: Report) {}
}

struct Running {
    events: mpsc::UnboundedReceiver<ObservedEvent>,
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(signed: &Signed, path: &str) -> Self {
        let instance_mark = Arc::new(InstanceMark::new(std::process::id(), 7, None));
        let upstream = Upstream {
            index: 0,
            audience: upstream::Audience::Everybody,
            mark_number: 0,
            spec: signed.spec(path),
            environment: Vec::new(),
            withheld: &[],
            handshake: Handshake {
                client_info: Bytes::from_static(br#"{"name":"test","version":"0"}"#),
                capabilities: Bytes::from_static(b"{}"),
                start_timeout: Duration::from_secs(30),
                tools_only: false,
                skips_lists: false,
                client_lifecycle: None,
            },
            loop_detector: Arc::new(LoopDetector::new(&instance_mark)),
            instance_mark,
            watchdog: Arc::new(Watchdog::absent()),
            limits: ServerLimits::from_settings(),
            cleans_up_leftovers: false,
        };
        let (sender, events) = mpsc::unbounded_channel();
        let (stop, stopping) = watch::channel(Stop::Never);
        let connector = crate::connector(Arc::clone(&signed.oauth), oauth::Protected::of);
        let task = tokio::spawn(upstream.run(Arc::new(Observer(sender)), stopping, Some(connector)));
        Self { events, stop, task }
    }

    async fn connection(&mut self) -> Arc<Connection> {
        match self.events.recv().await.unwrap() {
            ObservedEvent::Running(connection) => connection,
            ObservedEvent::Ended(ending) => panic!("{ending}"),
        }
    }

    async fn ending(&mut self) -> Arc<Ending> {
        match self.events.recv().await.unwrap() {
            ObservedEvent::Running(_) => panic!("it is running"),
            ObservedEvent::Ended(ending) => ending,
        }
    }
}

/// What an MCP server answers to a message.
fn answer(seen: &Seen) -> Reply {
    let message = &seen.body;
    let id = message.split_once(r#""id":"#).and_then(|(_, rest)| rest.split([',', '}']).next());
    let Some(id) = id else { return Reply::status(202) };
    let outcome = if message.contains(r#""method":"initialize""#) {
        r#""result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#
    } else if message.contains("tools/list") {
        r#""result":{"tools":[]}"#
    } else if message.contains("ping") {
        r#""result":{}"#
    } else {
        r#""error":{"code":-32601,"message":"no such method"}"#
    };
    Reply::json(format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#))
}

fn mcp_server(seen: &Seen) -> Reply {
    match seen.method.as_str() {
        "GET" => Reply::Stream,
        "DELETE" => Reply::status(200),
        _ if seen.body.contains("tools/call") => {
            Reply::status(403).with("www-authenticate", r#"Bearer error="insufficient_scope", scope="write""#)
        }
        _ => answer(seen).with("mcp-session-id", "s1"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_survives_new_tokens_and_missing_rights_and_signs_every_request() {
    let signed = Signed::start(None, mcp_server).await.signed_in().await;
    // Already the handshake needs a new one.
    signed.expire();
    let mut running = Running::start(&signed, "/mcp");
    let connection = running.connection().await;
    assert_eq!(signed.server.count("POST /token"), 1);
    signed.server.wait_for(|seen| seen.line() == "GET /mcp").await;
    signed.expire();
    assert!(connection.request("ping", None).await.is_some());
    assert_eq!(signed.server.count("POST /token"), 2);
    assert!(connection.request("tools/call", Some(br#"{"name":"x"}"#)).await.is_none());
    assert!(connection.request("ping", None).await.is_some());
    running.stop.send_replace(Stop::Gently);
    running.task.await.unwrap();
    assert_eq!(signed.server.count("DELETE /mcp"), 1);
    for seen in signed.server.seen().into_iter().filter(|seen| seen.path == "/mcp") {
        assert!(seen.header("authorization").is_some_and(|header| header.starts_with("Bearer token-")), "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_nobody_has_signed_in_to_is_asked_once() {
    let signed = Signed::start(None, mcp_server).await;
    let ending = Running::start(&signed, "/mcp").ending().await;
    let Ending::Failed { cause: Cause::SignInRequired { why, .. }, .. } = &*ending else { panic!("{ending:?}") };
    assert!(!why.is_empty());
    assert_eq!((signed.server.count("POST /mcp"), signed.server.count("GET /mcp")), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_transport_requires_a_sign_in_as_well_and_carries_the_token() {
    let server = TestServer::start(|seen| match (seen.line().as_str(), seen.header("authorization")) {
        // It refuses the newer transport before it looks at tokens.
        ("POST /sse", _) => Reply::status(405),
        ("GET /sse", None) => Reply::status(401).with("www-authenticate", "Bearer"),
        ("GET /sse", _) => Reply::Stream,
        ("POST /message", _) => Reply::Silence,
        _ => metadata(seen),
    })
    .await;
    let signed = Signed { server, ..Signed::start(None, |_| Reply::Close).await };
    let ending = Running::start(&signed, "/sse").ending().await;
    assert!(matches!(&*ending, Ending::Failed { cause: Cause::SignInRequired { .. }, .. }), "{ending:?}");

    let signed = signed.signed_in().await;
    let running = Running::start(&signed, "/sse");
    let posted = signed.server.wait_for(|seen| seen.line() == "POST /message").await;
    assert_eq!(posted.header("authorization"), Some("Bearer token-1-secret"));
    running.task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_down_is_no_demand_for_a_sign_in() {
    let signed = Signed::start(Some(Reply::status(503)), mcp_server).await.signed_in().await;
    signed.expire();
    let ending = Running::start(&signed, "/mcp").ending().await;
    assert!(matches!(&*ending, Ending::Failed { cause: Cause::Remote(_), .. }), "{ending:?}");
    assert_eq!(signed.server.count("POST /mcp"), 1);
}
