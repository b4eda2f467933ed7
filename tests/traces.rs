//! Traces: what a collector receives about calls, what servers receive, and that no call waits for it.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::collector::Span;
use testkit::http_client::HttpRequest;
use testkit::puppet::Received;
use testkit::{ClientSession, Collector, Config, Launch, Puppet, Serve, Signal, Spec, takes_less_than, wait_until};

const THEIRS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Arguments that a parser would change.
const ODD: &str = r#"{ "n" : 1e400,"twice":1,"twice":1.0, "s":"\ud800\u0041/","traceparent":"mine" }"#;

/// A service with one server, `s`.
#[track_caller]
fn serving(puppet: &Puppet, adjust: impl FnOnce(Launch) -> Launch) -> Serve {
    let config = Config::new().server("s", puppet.entry());
    let serve = Serve::start_as(&config, |launch| adjust(without_variables(launch)));
    wait_until("the server is connected", || {
        let state = serve.fetch(&HttpRequest::new("GET", "/api/v1/aggregator/state")).json();
        (state["connected_servers"] == 1).then_some(())
    });
    serve
}

#[track_caller]
fn traced(puppet: &Puppet, collector: &Collector) -> Serve {
    serving(puppet, |launch| launch.env(ENDPOINT, collector.url()))
}

/// Environment variables of the test run must not matter.
fn without_variables(launch: Launch) -> Launch {
    let ours = std::env::vars_os().map(|(name, _)| name);
    ours.filter(|name| name.to_string_lossy().starts_with("OTEL_")).fold(launch, Launch::env_remove)
}

/// A call over REST, answered by the puppet; returns what the puppet received.
#[track_caller]
fn call_over_rest(serve: &Serve, puppet: &Puppet, headers: &[(&str, &str)]) -> Received {
    let body = format!(r#"{{"name":"s.t","arguments":{ODD}}}"#);
    let ask = HttpRequest::post("/api/v1/aggregator/tools/call", body);
    let ask = headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
    let mut connection = serve.connect();
    connection.send(&ask);
    let received = puppet.expect("tools/call");
    received.answer(r#"{"content":[]}"#);
    let mut answer = connection.answer();
    let body = String::from_utf8_lossy(&answer.bytes()).into_owned();
    assert_eq!(answer.status, 200, "{body}");
    received
}

/// A call of an MCP client with that `_meta`, answered by the puppet; returns what the puppet received.
#[track_caller]
fn call(client: &mut dyn ClientSession, puppet: &Puppet, meta: &Value) -> Received {
    let params = client.dress(json!({"name": "s.t", "arguments": {"a": 1}, "_meta": meta}));
    let id = client.fresh_id();
    client.send_line(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string());
    let received = puppet.expect("tools/call");
    received.answer(r#"{"content":[]}"#);
    assert!(client.answer_to(id)["result"].is_object());
    received
}

/// The trace context that the server received.
fn traceparent_of(received: &Received) -> String {
    received.text_param(&["_meta", "traceparent"]).unwrap_or_default()
}

/// The span of the last call, and that of its time at the server.
#[track_caller]
fn last_two(collector: &Collector, count: usize) -> (Span, Span) {
    let spans = collector.wait_for_spans(count);
    assert_eq!(spans.len(), count, "{spans:#?}");
    let (own, at_server) = (spans[count - 2].clone(), spans[count - 1].clone());
    assert_eq!((own.kind, at_server.kind), (2, 3), "{spans:#?}");
    assert_eq!((&at_server.trace_id, &at_server.parent_span_id), (&own.trace_id, &own.span_id));
    (own, at_server)
}

#[test]
fn a_trace_passes_from_client_to_server_whatever_their_revisions() {
    for spec in [Spec::legacy().tool("t"), Spec::modern().tool("t")] {
        let (puppet, collector) = (Puppet::new(spec), Collector::start());
        let serve = traced(&puppet, &collector);
        let (mut legacy, mut modern) = (serve.session("/mcp"), serve.modern("/mcp"));
        let clients: [&mut dyn ClientSession; 2] = [&mut legacy, &mut modern];
        for (client, count) in clients.into_iter().zip([2, 4]) {
            let received = call(client, &puppet, &json!({"traceparent": THEIRS, "tracestate": "a=1,b=2", "x/y": 1}));
            let (own, at_server) = last_two(&collector, count);
            assert_eq!((own.trace_id.as_str(), own.parent_span_id.as_str()), (&THEIRS[3..35], &THEIRS[36..52]));
            assert_eq!((own.name.as_str(), own.trace_state.as_str()), ("tools/call t", "a=1,b=2"));
            assert_eq!(own.attribute("mcp_aggregator.source"), "mcp");
            assert_eq!(own.attribute("mcp_aggregator.server.name"), "s");
            assert_eq!(traceparent_of(&received), at_server.traceparent());
            assert_eq!(received.text_param(&["_meta", "tracestate"]).as_deref(), Some("a=1,b=2"));
            assert_eq!(received.param(&["_meta", "x/y"]), Some("1"));
        }
    }
}

#[test]
fn a_call_without_a_trace_begins_one() {
    let (puppet, collector) = (Puppet::over_http(Spec::legacy().tool("t")), Collector::start());
    let serve = traced(&puppet, &collector);
    let mut client = serve.session("/mcp");
    let id = client.begin_call("s.t", json!({}));
    let received = puppet.expect("tools/call");
    received.answer(r#"{"content":[],"isError":true}"#);
    client.answer_to(id);
    let (own, at_server) = last_two(&collector, 2);
    assert_eq!(own.parent_span_id, "");
    assert_eq!(traceparent_of(&received), at_server.traceparent());
    assert_eq!(own.attribute("error.type"), "tool_error");
    assert_eq!(own.attribute("jsonrpc.request.id"), id.to_string());
    let execution = serve.fetch(&HttpRequest::new("GET", "/api/v1/aggregator/executions")).json();
    assert_eq!(execution[0]["id"], own.attribute("mcp_aggregator.execution.id"));
}

#[test]
fn a_call_over_rest_returns_its_trace_in_a_header() {
    let (puppet, collector) = (Puppet::new(Spec::legacy().tool("t")), Collector::start());
    let serve = traced(&puppet, &collector);
    let received = call_over_rest(&serve, &puppet, &[("traceparent", THEIRS), ("tracestate", "a=1")]);
    let (own, at_server) = last_two(&collector, 2);
    assert_eq!((own.trace_id.as_str(), own.parent_span_id.as_str()), (&THEIRS[3..35], &THEIRS[36..52]));
    assert_eq!(own.attribute("mcp_aggregator.source"), "rest");
    assert_eq!(traceparent_of(&received), at_server.traceparent());
    assert_eq!(received.text_param(&["_meta", "tracestate"]).as_deref(), Some("a=1"));
    assert_eq!(received.param(&["arguments"]), Some(ODD));
}

#[test]
fn nothing_of_a_request_is_different_but_its_cause() {
    let collector = Collector::start();
    // What a server receives of this line, with its number replaced by 7.
    let relayed = |collector: Option<&Collector>, line: &str| {
        let puppet = Puppet::new(Spec::legacy().tool("t"));
        let serve = match collector {
            Some(collector) => traced(&puppet, collector),
            None => serving(&puppet, |launch| launch),
        };
        let mut client = serve.session("/mcp");
        client.send_line(line);
        let received = puppet.expect("tools/call");
        received.answer(r#"{"content":[]}"#);
        client.line_to("\"i\"");
        let line = String::from_utf8(received.line().to_vec()).unwrap();
        let number = received.id().unwrap();
        (line.replacen(&format!(r#""id": {number} "#), r#""id": 7 "#, 1), traceparent_of(&received))
    };
    let with = |name: &str, id: &str, meta: &str| {
        format!(
            r#"{{"params" : {{{meta}"arguments":{ODD}, "name":"{name}"}},"id": {id} ,"method":"tools/call","jsonrpc":"2.0"}}"#
        )
    };
    let theirs = format!(r#""_meta" : {{ "k":1.0,"traceparent" :"{THEIRS}" }}, "#);

    let (untraced, _) = relayed(None, &with("s.t", "\"i\"", ""));
    assert_eq!(untraced, with("t", "7", ""), "nothing is added where nothing is traced");
    let (untraced, _) = relayed(None, &with("s.t", "\"i\"", &theirs));
    assert_eq!(untraced, with("t", "7", &theirs), "what the caller says is passed on");
    let (line, traceparent_of) = relayed(Some(&collector), &with("s.t", "\"i\"", &theirs));
    assert_ne!(traceparent_of, THEIRS);
    assert_eq!(line, with("t", "7", &theirs.replace(THEIRS, &traceparent_of)));
    let (line, traceparent_of) = relayed(Some(&collector), &with("s.t", "\"i\"", ""));
    let added = format!(r#","_meta":{{"traceparent":"{traceparent_of}"}}}},"id""#);
    assert_eq!(line, with("t", "7", "").replacen(r#"},"id""#, &added, 1));
}

#[test]
fn a_trace_context_over_rest_is_passed_on_even_without_tracing() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&puppet, |launch| launch);
    assert_eq!(traceparent_of(&call_over_rest(&serve, &puppet, &[("traceparent", THEIRS)])), THEIRS);
    assert_eq!(call_over_rest(&serve, &puppet, &[]).param(&["_meta"]), None);
    assert_eq!(call_over_rest(&serve, &puppet, &[("traceparent", "junk")]).param(&["_meta"]), None);
}

#[test]
fn a_collector_gets_the_service_name_and_the_configured_headers() {
    let (puppet, collector) = (Puppet::new(Spec::legacy().tool("t")), Collector::start());
    let serve = serving(&puppet, |launch| {
        launch
            .env(ENDPOINT, format!("{}/base/", collector.url()))
            .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=very%20secret")
            .env("OTEL_SERVICE_NAME", "tools of the house")
            .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    });
    call_over_rest(&serve, &puppet, &[]);
    let span = &collector.wait_for_spans(2)[0];
    let request = &collector.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/base/v1/traces"));
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(request.header("api-key"), Some("very secret"));
    assert_eq!(span.resource["service.name"], "tools of the house");
    assert_eq!(span.resource["deployment.environment.name"], "test");
    assert!(!serve.stderr_text().contains("secret"));
}

#[test]
fn unsampled_traces_are_not_exported_and_the_server_gets_the_flag() {
    let (puppet, collector) = (Puppet::new(Spec::legacy().tool("t")), Collector::start());
    let serve = serving(&puppet, |launch| {
        launch.env(ENDPOINT, collector.url()).env("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    });
    let received = call_over_rest(&serve, &puppet, &[]);
    assert!(traceparent_of(&received).ends_with("-00"), "{}", traceparent_of(&received));
    call_over_rest(&serve, &puppet, &[("traceparent", THEIRS)]);
    let spans = collector.wait_for_spans(2);
    assert!(spans.iter().all(|span| span.trace_id == THEIRS[3..35]), "{spans:#?}");
    assert_eq!(spans.len(), 2);
}

#[test]
fn the_last_spans_are_sent_before_the_end() {
    let (puppet, collector) = (Puppet::new(Spec::legacy().tool("t")), Collector::start());
    let mut serve = traced(&puppet, &collector);
    for _ in 0..5 {
        call_over_rest(&serve, &puppet, &[]);
    }
    serve.signal(Signal::TERM);
    assert!(serve.wait_exit().success());
    assert_eq!(collector.wait_for_spans(10).len(), 10);
}

#[test]
fn a_dead_or_silent_collector_delays_no_call() {
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let silent = Collector::silent();
    for (url, complaint) in [(format!("http://{gone}"), "failed to send traces"), (silent.url(), "not sent in time")] {
        takes_less_than(Duration::from_secs(8), || {
            let puppet = Puppet::new(Spec::legacy().tool("t"));
            let mut serve = serving(&puppet, |launch| launch.env(ENDPOINT, &url));
            let began = Instant::now();
            for _ in 0..20 {
                call_over_rest(&serve, &puppet, &[]);
            }
            // A collector may take ten seconds for each request, so all these calls would take more than three minutes.
            assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
            if url == silent.url() {
                silent.wait_for_requests(1);
            } else {
                serve.wait_for_stderr(complaint);
            }
            serve.signal(Signal::TERM);
            let began = Instant::now();
            assert!(serve.wait_exit().success());
            let took = began.elapsed();
            assert_eq!(serve.stderr_text().matches(complaint).count(), 1, "{}", serve.stderr_text());
            took
        });
    }
}

#[test]
fn spans_that_are_refused_are_counted() {
    let (puppet, collector) = (Puppet::new(Spec::legacy().tool("t")), Collector::start());
    let serve = traced(&puppet, &collector);
    let metric = |fate: &str, count: u32| {
        let line = format!("mcp_trace_spans_total{{fate=\"{fate}\"}} {count}");
        wait_until(&line, || serve.fetch(&HttpRequest::new("GET", "/metrics")).body.contains(&line).then_some(()));
    };
    metric("exported", 0);
    collector.answer_with(400);
    call_over_rest(&serve, &puppet, &[]);
    metric("dropped", 2);
    collector.answer_with(200);
    call_over_rest(&serve, &puppet, &[]);
    metric("exported", 2);
}

#[test]
fn a_collector_that_is_busy_gets_the_same_spans_later() {
    let (puppet, collector) = (Puppet::new(Spec::legacy().tool("t")), Collector::start());
    let serve = traced(&puppet, &collector);
    collector.answer_with(503);
    call_over_rest(&serve, &puppet, &[]);
    let refused = collector.wait_for_requests(1)[0].body.clone();
    collector.answer_with(200);
    assert_eq!(collector.wait_for_requests(2)[1].body, refused);
}

#[test]
fn variables_that_make_no_sense_cost_only_the_traces() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&puppet, |launch| {
        launch.env(ENDPOINT, "http://127.0.0.1:1").env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    });
    serve.wait_for_stderr("calls are not traced");
    assert_eq!(call_over_rest(&serve, &puppet, &[]).param(&["_meta"]), None);
    let metrics = serve.fetch(&HttpRequest::new("GET", "/metrics")).body;
    assert!(metrics.contains("mcp_calls_total") && !metrics.contains("mcp_trace_spans"), "{metrics}");
}
