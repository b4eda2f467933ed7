//! Traces of calls, for programs that send them to a collector: each call a span, each time at its server another.
//!
//! # Layout
//! - here: what is needed for it, and where a trace begins
//! - `calling`: the trace of one call, from its first span to what is sent of it
//! - `sampling`: which calls are recorded; `otlp`: spans as a collector reads them
//! - `exporter`: those that wait to be sent, and the sending
//!
//! Calls wait for nothing here. Where there is no collector there is nothing of this on their way.

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

use crate::executions::unpredictable;
pub(crate) use call_trace::{CallTrace, FinishedCall, ServerSpan};
use exporter::Exporter;
use otlp::Span;
pub use sampler::{Root, Sampler};

/// What it takes to send traces.
pub struct TraceSetup {
    /// Where they are sent.
    pub collector: Arc<dyn Collector>,
    /// Who sends them: attributes such as `service.name`.
    pub resource: Vec<(String, String)>,
    /// Which calls are recorded.
    pub sampler: Sampler,
}

/// Takes spans: a body as OTLP over HTTP has it, in protocol buffers.
pub trait Collector: Send + Sync {
    /// Sends a body; it takes as long as it may take, and no longer.
    fn post(&self, body: Bytes) -> Pin<Box<dyn Future<Output = Result<(), ExportError>> + Send + '_>>;
}

/// Why a body was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportError {
    /// In words.
    pub why: String,
    /// The same body may be taken later.
    pub may_pass: bool,
    /// The collector wants to be left alone for so long.
    pub pause: Option<Duration>,
}

/// How many spans were sent, and how many were not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceCounters {
    /// Spans that a collector took.
    pub exported: u64,
    /// Spans that were given up.
    pub dropped: u64,
}

/// Where traces of calls begin and end.
pub(crate) struct Traces {
    sampler: Sampler,
    exporter: Arc<Exporter>,
}

impl Traces {
    /// Begins to send what comes; must be called where tasks can be started.
    pub(crate) fn new(setup: TraceSetup) -> Self {
        let TraceSetup { collector, resource, sampler } = setup;
        let exporter = Arc::new(Exporter::new(&resource));
        tokio::spawn(Arc::clone(&exporter).run(collector));
        Self { sampler, exporter }
    }

    /// A call begins, in the trace that its caller told or in one of its own.
    pub(crate) fn begin(&self, told: Option<TraceContext>) -> CallTrace {
        let (parent, state) = told.map_or((None, None), |told| (Some(told.parent), told.state));
        let trace_id = parent.map_or_else(fresh_trace, |parent| parent.trace_id);
        let is_sampled = self.sampler.takes(&trace_id, parent.map(|parent| parent.is_sampled));
        let span = SpanContext { trace_id, span_id: fresh_span(), is_sampled };
        CallTrace { span, parent: parent.map(|parent| parent.span_id), state }
    }

    /// Takes the spans of a call that is over.
    fn add(&self, spans: &[Span<'_>]) {
        self.exporter.add(spans);
    }

    /// The numbers at this moment.
    pub(crate) fn reading(&self) -> TraceCounters {
        self.exporter.reading()
    }

    /// Asks for the end, and waits until everything is sent, within reason.
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
