//! What a collector receives of calls, and how a collector affects calls.

use std::sync::Mutex;
use std::time::Duration;

use testkit::collector::Span as SpanSeen;
use tokio::sync::Notify;

use super::otlp::{Kind, Status};
use super::*;
use crate::fake::{CallFixture, call, until};
use crate::{Call, Settings};

const THEIRS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Accepts what is sent, or refuses it.
#[derive(Default)]
struct FakeCollector {
    bodies: Mutex<Vec<Bytes>>,
    /// The errors of the next attempts.
    refusals: Mutex<Vec<ExportError>>,
    is_stuck: bool,
    test_server: Notify,
}

impl Collector for FakeCollector {
    fn post(&self, body: Bytes) -> Pin<Box<dyn Future<Output = Result<(), ExportError>> + Send + '_>> {
        Box::pin(async move {
            self.test_server.notify_one();
            if self.is_stuck {
                return std::future::pending().await;
            }
            if let Some(unsent) = self.refusals.lock().unwrap().pop() {
                return Err(unsent);
            }
            self.bodies.lock().unwrap().push(body);
            Ok(())
        })
    }
}

impl FakeCollector {
    fn refusing(refusals: Vec<ExportError>) -> Arc<Self> {
        Arc::new(Self { refusals: Mutex::new(refusals), ..Self::default() })
    }

    fn setup(self: &Arc<Self>) -> TraceSetup {
        let resource = vec![("service.name".to_owned(), "tests".to_owned())];
        TraceSetup { collector: Arc::clone(self) as _, resource, sampler: Sampler::default() }
    }

    fn spans(&self) -> Vec<SpanSeen> {
        self.bodies.lock().unwrap().iter().flat_map(|body| testkit::collector::spans(body)).collect()
    }
}

fn unsent(may_pass: bool) -> ExportError {
    ExportError { why: "not now".into(), may_pass, pause: None }
}

/// A minimal span.
fn some_span(traces: &Traces) {
    let span = Span {
        context: traces.begin(None).span,
        parent: None,
        state: None,
        name: "x",
        kind: Kind::Server,
        from: 1,
        to: 2,
        attributes: Vec::new(),
        status: Status::Unset,
    };
    traces.add(&[span]);
}

#[tokio::test]
async fn a_call_is_a_span_and_its_time_at_the_server_another_below_it() {
    let collector = FakeCollector::refusing(Vec::new());
    let fixture = CallFixture::traced(Settings::default(), Some(collector.setup())).await;
    fixture.server("traced").await;
    let trace = TraceContext::parse(THEIRS, Some("a=1"));
    let outcome = fixture.executions.call(Call { trace, ..call("traced.echo") }).await.unwrap();
    fixture.executions.close().await;
    let [own, at_server] = &collector.spans()[..] else { panic!("{:?}", collector.spans()) };
    assert_eq!(own.trace_id, THEIRS[3..35]);
    assert_eq!(own.parent_span_id, THEIRS[36..52]);
    assert_eq!((own.kind, own.name.as_str(), own.trace_state.as_str()), (2, "tools/call echo", "a=1"));
    assert_eq!((&at_server.trace_id, &at_server.parent_span_id), (&own.trace_id, &own.span_id));
    assert_eq!((at_server.kind, at_server.name.as_str()), (3, "tools/call echo"));
    assert!(own.from <= at_server.from && at_server.from <= at_server.to && at_server.to <= own.to);
    for (key, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "echo"),
        ("mcp_aggregator.server.name", "traced"),
        ("mcp_aggregator.source", "rest"),
        ("mcp_aggregator.outcome", "success"),
        ("mcp_aggregator.execution.id", &outcome.metadata.execution_id.to_string()),
        ("error.type", ""),
    ] {
        assert_eq!(own.attribute(key), value, "{key}");
    }
    assert_eq!(own.resource["service.name"], "tests");
    assert_eq!((&own.error, &at_server.error), (&None, &None));
    assert_eq!(fixture.executions.reading().traces, Some(TraceCounters { exported: 2, dropped: 0 }));
}

#[tokio::test]
async fn a_call_that_its_caller_does_not_record_is_not_sent() {
    let collector = FakeCollector::refusing(Vec::new());
    let fixture = CallFixture::traced(Settings::default(), Some(collector.setup())).await;
    fixture.server("unrecorded").await;
    let trace = TraceContext::parse(&THEIRS.replace("-01", "-00"), None);
    fixture.executions.call(Call { trace, ..call("unrecorded.echo") }).await.unwrap();
    fixture.executions.close().await;
    assert_eq!(collector.spans(), []);
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_a_span_with_an_error() {
    let collector = FakeCollector::refusing(Vec::new());
    let fixture = CallFixture::traced(Settings::default(), Some(collector.setup())).await;
    fixture.server("tardy").await;
    let hasty = Call { timeout_ms: Some(20), ..call("tardy.stuck") };
    fixture.executions.call(hasty).await.unwrap_err();
    fixture.executions.close().await;
    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "{spans:?}");
    for span in &spans {
        assert_eq!(span.attribute("error.type"), "timeout");
        assert!(span.error.as_ref().unwrap().contains("timed out"), "{span:?}");
    }
    assert_eq!(spans[0].attribute("mcp_aggregator.outcome"), "timeout");
}

#[tokio::test]
async fn each_failure_has_a_code() {
    let collector = FakeCollector::refusing(Vec::new());
    let fixture = CallFixture::traced(Settings::default(), Some(collector.setup())).await;
    fixture.server("wrong-in-traces").await;
    fixture.executions.call(call("wrong-in-traces.failing")).await.unwrap();
    fixture.executions.call(call("wrong-in-traces.refusing")).await.unwrap_err();
    fixture.executions.close().await;
    let spans = collector.spans();
    let said = |key: &str| -> Vec<String> { spans.iter().map(|span| span.attribute(key).to_owned()).collect() };
    assert_eq!(said("error.type")[..], ["tool_error", "tool_error", "-32602", "-32602"]);
    assert_eq!(said("rpc.response.status_code")[..], ["", "", "-32602", "-32602"]);
    assert_eq!(spans[2].error.as_deref(), Some("no such city"));
    assert_eq!(spans[0].error.as_deref(), Some("the tool reported an error"), "what it said is not told");
}

#[tokio::test]
async fn a_call_that_is_made_again_has_a_span_for_each_time() {
    let collector = FakeCollector::refusing(Vec::new());
    let settings = Settings { retry_backoff_ms: vec![1, 1, 1], ..Settings::default() };
    let fixture = CallFixture::traced(settings, Some(collector.setup())).await;
    fixture.server("again-in-traces").await;
    fixture.executions.call(call("again-in-traces.lost-twice")).await.unwrap();
    fixture.executions.close().await;
    let [own, first, second, third] = &collector.spans()[..] else { panic!("{:?}", collector.spans()) };
    assert_eq!((own.attribute("mcp_aggregator.retries"), own.attribute("error.type")), ("2", ""));
    for server_span in [first, second] {
        assert_eq!(
            (server_span.attribute("error.type"), server_span.error.as_deref()),
            ("answer_lost", Some("answer_lost"))
        );
    }
    assert_eq!(third.error, None);
    assert!(first.to <= second.from && second.to <= third.from);
    assert!([first, second, third].iter().all(|server_span| server_span.parent_span_id == own.span_id));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_unreachable_for_a_while_gets_everything_later() {
    let collector = FakeCollector::refusing(vec![unsent(true), unsent(true)]);
    let traces = Traces::new(collector.setup());
    some_span(&traces);
    until("the span is sent", || collector.spans().len() == 1).await;
    assert_eq!(traces.reading(), TraceCounters { exported: 1, dropped: 0 });
}

#[tokio::test(start_paused = true)]
async fn what_a_collector_refuses_for_good_is_given_up_and_counted() {
    let collector = FakeCollector::refusing(vec![unsent(false)]);
    let traces = Traces::new(collector.setup());
    some_span(&traces);
    until("the span is given up", || traces.reading().dropped == 1).await;
    some_span(&traces);
    until("the next is sent", || traces.reading().exported == 1).await;
    assert_eq!(collector.spans().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_never_answers_costs_the_oldest_spans_and_no_more_than_a_moment_at_the_end() {
    let collector = Arc::new(FakeCollector { is_stuck: true, ..FakeCollector::default() });
    let traces = Traces::new(collector.setup());
    some_span(&traces);
    collector.test_server.notified().await;
    for _ in 0..10_000 {
        some_span(&traces);
    }
    assert_eq!(traces.reading(), TraceCounters { exported: 0, dropped: 10_000 - 8192 });
    let began = tokio::time::Instant::now();
    traces.close().await;
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn many_spans_go_in_few_requests_and_none_is_lost() {
    let collector = FakeCollector::refusing(Vec::new());
    let traces = Traces::new(collector.setup());
    for _ in 0..1200 {
        some_span(&traces);
    }
    traces.close().await;
    assert_eq!(collector.spans().len(), 1200);
    assert_eq!(collector.bodies.lock().unwrap().len(), 3);
}

#[test]
fn ids_are_never_all_zeros_and_never_the_same() {
    let ids: std::collections::HashSet<_> = (0..1000).map(|_| fresh_trace()).collect();
    assert_eq!(ids.len(), 1000);
    assert!(!ids.contains(&[0; 16]));
}
