//! The trace of one call.

use protocol::trace::SpanContext;
use registry::{ExecutionId, ExecutionStatus, Source, Timestamp};
use tokio::time::Instant;

use super::otlp::{Kind, Span, Status, Value};
use super::{Traces, fresh_span};
use crate::Ended;

/// The method of all calls.
const METHOD: &str = "tools/call";

/// The trace that a call belongs to, and its own span there.
#[derive(Debug, Clone)]
pub(crate) struct CallTrace {
    pub(crate) span: SpanContext,
    /// The id of the parent span.
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) state: Option<Box<str>>,
}

/// The time of a call at its server. There are several if it was retried.
#[derive(Debug)]
pub(crate) struct ServerSpan {
    pub(crate) span: SpanContext,
    pub(crate) from: Instant,
    /// When and how it failed, if it was retried after this.
    pub(crate) failed: Option<(Instant, Box<str>)>,
}

impl CallTrace {
    /// Starts a span at the server.
    pub(crate) fn server_span(&self, from: Instant) -> ServerSpan {
        ServerSpan { span: SpanContext { span_id: fresh_span(), ..self.span }, from, failed: None }
    }
}

/// An ended call, with what is exported of it.
pub(crate) struct FinishedCall<'c> {
    pub(crate) id: ExecutionId,
    pub(crate) server: &'c str,
    pub(crate) tool: &'c str,
    pub(crate) source: Source,
    /// Its request id, if its client speaks MCP.
    pub(crate) request_id: Option<&'c str>,
    /// When it was requested, on both clocks.
    pub(crate) submitted: (Timestamp, Instant),
    pub(crate) server_spans: &'c [ServerSpan],
    pub(crate) retries: u32,
    pub(crate) over: Instant,
    pub(crate) ended: &'c Ended,
}

impl FinishedCall<'_> {
    /// Exports its spans: its own, and one for each time at its server.
    pub(crate) fn export(&self, trace: &CallTrace, traces: &Traces) {
        let name = format!("{METHOD} {}", self.tool);
        let id = self.id.to_string();
        let mut spans = vec![self.own_span(trace, &name, &id)];
        spans.extend(self.server_spans.iter().map(|server_span| self.span_of(server_span, trace, &name)));
        traces.add(&spans);
    }

    fn own_span<'s>(&'s self, trace: &'s CallTrace, name: &'s str, id: &'s str) -> Span<'s> {
        let mut attributes = self.attributes(self.ended.kind.as_deref());
        attributes.extend([
            ("mcp_aggregator.execution.id", Value::Text(id)),
            ("mcp_aggregator.source", Value::Text(self.source.as_str())),
            ("mcp_aggregator.outcome", Value::Text(self.ended.status.as_str())),
        ]);
        attributes.extend(self.request_id.map(|id| ("jsonrpc.request.id", Value::Text(id.trim_matches('"')))));
        if self.retries > 0 {
            attributes.push(("mcp_aggregator.retries", Value::Number(self.retries.into())));
        }
        Span {
            context: trace.span,
            parent: trace.parent,
            state: trace.state.as_deref(),
            name,
            kind: Kind::Server,
            from: self.nanos(self.submitted.1),
            to: self.nanos(self.over),
            attributes,
            status: self.status(),
        }
    }

    fn span_of<'s>(&'s self, server_span: &'s ServerSpan, trace: &'s CallTrace, name: &'s str) -> Span<'s> {
        let (to, error, status) = match &server_span.failed {
            Some((at, why)) => (*at, Some(&**why), Status::Error(why)),
            None => (self.over, self.ended.kind.as_deref(), self.status()),
        };
        Span {
            context: server_span.span,
            parent: Some(trace.span.span_id),
            state: trace.state.as_deref(),
            name,
            kind: Kind::Client,
            from: self.nanos(server_span.from),
            to: self.nanos(to),
            attributes: self.attributes(error),
            status,
        }
    }

    /// The attributes of all its spans, by OpenTelemetry's conventions for MCP where these exist.
    fn attributes<'s>(&'s self, error: Option<&'s str>) -> Vec<(&'static str, Value<'s>)> {
        let mut attributes = vec![
            ("mcp.method.name", Value::Text(METHOD)),
            ("gen_ai.operation.name", Value::Text("execute_tool")),
            ("gen_ai.tool.name", Value::Text(self.tool)),
            ("mcp_aggregator.server.name", Value::Text(self.server)),
        ];
        if let Some(error) = error {
            attributes.push(("error.type", Value::Text(error)));
            // Words are our own reasons; numbers are codes of JSON-RPC.
            attributes.extend(error.parse::<i64>().ok().map(|_| ("rpc.response.status_code", Value::Text(error))));
        }
        attributes
    }

    fn status(&self) -> Status<'_> {
        match self.ended.status {
            ExecutionStatus::Error | ExecutionStatus::Timeout => {
                Status::Error(self.ended.why.as_deref().unwrap_or_default())
            }
            _ => Status::Unset,
        }
    }

    /// In nanoseconds since 1970.
    fn nanos(&self, moment: Instant) -> u64 {
        let (at, submitted) = self.submitted;
        let began = u64::try_from(at.as_micros()).unwrap_or(0) * 1000;
        began + u64::try_from(moment.saturating_duration_since(submitted).as_nanos()).unwrap_or(0)
    }
}
