//! Traces of calls, for programs that send them to a collector: a span for each call, and one for each time at its
//! server.
//!
//! # Layout
//! - here: the configuration, and the start of a trace
//! - `call_trace`: the trace of one call, from its first span to its export
//! - `sampler`: which calls are recorded; `otlp`: the encoding of spans
//! - `exporter`: the queue of spans, and the sending
//!
//! Calls wait for nothing here. Without a collector, calls do not touch any of this.

mod call_trace;
mod exporter;
mod otlp;
mod sampler;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::trace::SpanContext;
pub use protocol::trace::{TRACEPARENT, TRACESTATE, TraceContext};

use crate::unpredictable;
pub(crate) use call_trace::{CallTrace, FinishedCall, ServerSpan};
use exporter::Exporter;
use otlp::Span;
pub use sampler::{Root, Sampler};

/// The configuration of traces.
pub struct TraceSetup {
    /// Where they are sent.
    pub collector: Arc<dyn Collector>,
    /// The sender: attributes such as `service.name`.
    pub resource: Vec<(String, String)>,
    /// Which calls are recorded.
    pub sampler: Sampler,
}

/// Receives spans: the body of an OTLP/HTTP request, in protocol buffers.
pub trait Collector: Send + Sync {
    /// Sends a body, within its own time limit.
    fn post(&self, body: Bytes) -> Pin<Box<dyn Future<Output = Result<(), ExportError>> + Send + '_>>;
}

/// Why a body was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportError {
    /// The message.
    pub why: String,
    /// A retry may succeed.
    pub may_pass: bool,
    /// The collector requests a pause of this length.
    pub pause: Option<Duration>,
}

/// How many spans were exported, and how many were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceCounters {
    /// Spans that a collector accepted.
    pub exported: u64,
    /// Spans that were dropped.
    pub dropped: u64,
}

/// Starts and exports traces of calls.
pub(crate) struct Traces {
    sampler: Sampler,
    exporter: Arc<Exporter>,
}

impl Traces {
    /// Starts the exporter; must be called in a runtime.
    pub(crate) fn new(setup: TraceSetup) -> Self {
        let TraceSetup { collector, resource, sampler } = setup;
        let exporter = Arc::new(Exporter::new(&resource));
        tokio::spawn(Arc::clone(&exporter).run(collector));
        Self { sampler, exporter }
    }

    /// Starts the trace of a call, as a child of its caller's or as a new one.
    pub(crate) fn begin(&self, context: Option<TraceContext>) -> CallTrace {
        let (parent, state) = context.map_or((None, None), |context| (Some(context.parent), context.state));
        let trace_id = parent.map_or_else(fresh_trace, |parent| parent.trace_id);
        let is_sampled = self.sampler.takes(&trace_id, parent.map(|parent| parent.is_sampled));
        let span = SpanContext { trace_id, span_id: fresh_span(), is_sampled };
        CallTrace { span, parent: parent.map(|parent| parent.span_id), state }
    }

    /// Adds the spans of an ended call.
    fn add(&self, spans: &[Span<'_>]) {
        self.exporter.add(spans);
    }

    /// The current counters.
    pub(crate) fn reading(&self) -> TraceCounters {
        self.exporter.reading()
    }

    /// Requests the end, and waits a limited time until everything is sent.
    pub(crate) async fn close(&self) {
        self.exporter.close().await;
    }
}

fn fresh_trace() -> [u8; 16] {
    let (high, low) = (unpredictable(), unpredictable());
    (u128::from(high) << 64 | u128::from(low)).max(1).to_be_bytes()
}

fn fresh_span() -> [u8; 8] {
    unpredictable().max(1).to_be_bytes()
}
