//! Metrics for Prometheus, in its text format.
//!
//! `exposition`: the format.

mod exposition;

use executions::limits::LimitsReading;
use executions::metrics::{OUTCOMES, Reading};
use notebook::WorkCounts;
use registry::{Page, Status};
use service::{Service, ServiceState};
use tool_search::SearchCounters;

use crate::{AuthCounter, AuthCounts};
use exposition::Exposition;

/// The content type of the text format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics as they are now.
pub(crate) async fn text(service: &Service, auth_counter: Option<&AuthCounter>) -> String {
    let mut out = Exposition::default();
    let listed = service.servers(None, Page::ALL);
    let statuses: Vec<Status> = listed.items.iter().map(|server| server.record.status).collect();
    servers(&mut out, &statuses);
    state(&mut out, &service.state());
    search(&mut out, service.search_counters());
    calls(&mut out, &service.reading());
    if let Some(count) = auth_counter {
        authentication(&mut out, &count());
    }
    computations(&mut out, notebook::work_counts());
    process(&mut out);
    out.finish()
}

fn servers(out: &mut Exposition, statuses: &[Status]) {
    out.gauge("mcp_servers", "Servers by status.");
    for status in Status::ALL {
        let count = statuses.iter().filter(|known| *known == status).count();
        out.number("", &[("status", status.as_str())], count as f64);
    }
}

fn state(out: &mut Exposition, state: &ServiceState) {
    out.gauge("mcp_tools", "Tools of connected servers.");
    out.number("", &[("classified", "true")], state.classified_tools as f64);
    out.number("", &[("classified", "false")], state.unclassified_tools as f64);
    out.gauge("mcp_uptime_seconds", "Time since the service started.");
    out.number("", &[], state.uptime_seconds);
}

fn search(out: &mut Exposition, reading: SearchCounters) {
    out.counter("mcp_tools_embedded_total", "Tools whose vectors were computed since the start.");
    out.number("", &[], reading.embedded as f64);
    out.counter("mcp_tools_classified_total", "Tools that were classified since the start, successfully or not.");
    out.number("", &[], reading.classified as f64);
}

fn calls(out: &mut Exposition, reading: &Reading) {
    out.counter("mcp_calls_total", "Finished calls, by server and outcome.");
    for server in &reading.servers {
        for (outcome, count) in OUTCOMES.iter().zip(server.calls) {
            out.number("", &[("server", &server.server), ("outcome", outcome.as_str())], count as f64);
        }
    }
    out.counter("mcp_call_retries_total", "Retried calls, by server.");
    for server in &reading.servers {
        out.number("", &[("server", &server.server)], server.retries as f64);
    }
    out.histogram("mcp_routing_seconds", "Time from the request until it is sent to the server, by server.");
    for server in &reading.servers {
        out.distribution(&server.server, &server.routing);
    }
    out.histogram("mcp_execution_seconds", "Time until the server answers, by server.");
    for server in &reading.servers {
        out.distribution(&server.server, &server.execution);
    }
    out.counter("mcp_health_checks_total", "Health checks, by server and result.");
    for server in &reading.servers {
        for (result, count) in [("passed", server.checks_passed), ("failed", server.checks_failed)] {
            out.number("", &[("server", &server.server), ("result", result)], count as f64);
        }
    }
    out.gauge("mcp_calls_running", "Calls that run now, by source: MCP clients or others.");
    for (way, count) in [("mcp", reading.mcp_running), ("other", reading.running)] {
        out.number("", &[("way", way)], count as f64);
    }
    out.gauge("mcp_calls_queued", "Calls that wait in the queue, by source: MCP clients or others.");
    for (way, count) in [("mcp", reading.mcp_queued), ("other", reading.queued)] {
        out.number("", &[("way", way)], count as f64);
    }
    out.counter("mcp_calls_refused_total", "Refused calls, by reason.");
    for (reason, count) in [("limit", reading.refused_by_limit), ("stopped", reading.refused_by_stop)] {
        out.number("", &[("reason", reason)], count as f64);
    }
    limits(out, &reading.limits);
    out.gauge("mcp_history_waiting", "Executions that wait to be written to the database.");
    out.number("", &[], reading.history_waiting as f64);
    out.counter("mcp_history_written_total", "Executions written to the database.");
    out.number("", &[], reading.history_written as f64);
    out.counter("mcp_history_dropped_total", "Executions dropped because the database was unreachable.");
    out.number("", &[], reading.history_dropped as f64);
    if let Some(traces) = &reading.traces {
        out.counter("mcp_trace_spans_total", "Spans of calls, by whether the collector accepted them.");
        for (fate, count) in [("exported", traces.exported), ("dropped", traces.dropped)] {
            out.number("", &[("fate", fate)], count as f64);
        }
    }
}

/// Limits by identity, profile, server and tool. Without names: those of identities are nobody else's business.
fn limits(out: &mut Exposition, reading: &LimitsReading) {
    out.gauge("mcp_limits", "Limits of calls, by what they are for.");
    for (kind, count) in &reading.limits {
        out.number("", &[("of", kind.as_str())], *count as f64);
    }
    out.counter(
        "mcp_calls_rate_limited_total",
        "Calls that these limits refused, by what the limit is for and bounds.",
    );
    for (kind, bound, count) in &reading.refused {
        out.number("", &[("of", kind.as_str()), ("limit", bound)], *count as f64);
    }
}

/// Computations outside the threads that serve calls.
fn computations(out: &mut Exposition, counts: WorkCounts) {
    let kinds = [("schema_check", counts.schema_checks), ("document", counts.documents)];
    out.gauge("mcp_computations_running", "Schema checks and document computations that run now.");
    for (kind, counts) in kinds {
        out.number("", &[("kind", kind)], counts.running as f64);
    }
    out.counter(
        "mcp_computations_cancelled_total",
        "Schema checks and document computations that were abandoned because their request ended.",
    );
    for (kind, counts) in kinds {
        out.number("", &[("kind", kind)], counts.cancelled as f64);
    }
}

fn authentication(out: &mut Exposition, numbers: &AuthCounts) {
    out.counter("mcp_authentication_failures_total", "Refused requests, by reason.");
    for (reason, count) in &numbers.failures {
        out.number("", &[("reason", reason)], *count as f64);
    }
    out.counter("mcp_authentication_limited_total", "Requests with a wrong token that were delayed.");
    out.number("", &[], numbers.limited as f64);
}

/// Metrics with the names that Prometheus uses for every process.
fn process(out: &mut Exposition) {
    let Some(bytes) = resident_bytes() else { return };
    out.gauge("process_resident_memory_bytes", "Resident memory of this process.");
    out.number("", &[], bytes as f64);
}

/// Resident memory, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
