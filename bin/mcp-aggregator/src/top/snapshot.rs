//! The state of a service at one moment: its servers, and the calls of the last minute.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::client::Client;
use crate::commands::list;
use crate::failure::Failure;
use crate::server_view;
use crate::table::printable;

/// The age of the oldest calls.
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of calls.
const MAX_CALLS: usize = 500;

/// The state of a service.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) url: String,
    pub(crate) uptime: Duration,
    pub(crate) tools: u64,
    /// Whether calls are refused until `calls allow`.
    pub(crate) is_stopped: bool,
    pub(crate) servers: Vec<Server>,
    /// Newest first.
    pub(crate) calls: Vec<Call>,
    /// Whether there were more calls than the maximum.
    pub(crate) has_more: bool,
}

/// A server with its numbers of the last minute.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) tools: u64,
    pub(crate) calls: usize,
    pub(crate) errors: usize,
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    /// Its CPU and memory usage, in words; empty if unknown.
    pub(crate) cpu: String,
    pub(crate) memory: String,
    /// The same for programs.
    pub(crate) cpu_percent: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
    /// Its instances, if not everybody shares it.
    pub(crate) instances: Vec<Instance>,
    /// The same for programs.
    pub(crate) instances_json: Value,
}

/// An instance of a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Instance {
    /// Whose it is.
    pub(crate) whose: String,
    pub(crate) status: String,
    pub(crate) running_calls: u64,
}

/// A call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Call {
    /// Its start in local time.
    pub(crate) time: String,
    /// The same as the service reports it.
    pub(crate) submitted_at: String,
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) status: String,
    pub(crate) millis: Option<f64>,
    pub(crate) source: String,
}

impl Call {
    fn is_failed(&self) -> bool {
        matches!(self.status.as_str(), "error" | "timeout")
    }

    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.status.as_str(), "pending" | "executing")
    }
}

/// Requests the state from a service.
pub(crate) async fn take(service: &Client) -> Result<Snapshot, Failure> {
    let since = Timestamp::now() - jiff::SignedDuration::try_from(WINDOW).expect("a minute is no long time");
    let state = service.get("/state").await?;
    let servers = list::servers_with_usage(service).await?;
    let calls = service.get(&format!("/executions?limit={MAX_CALLS}&since={since}")).await?;
    Ok(read(service.url(), &state, &servers, &calls))
}

fn read(url: &str, state: &Value, servers: &[Value], calls: &Value) -> Snapshot {
    let calls: Vec<Call> = calls.as_array().into_iter().flatten().map(call).collect();
    let uptime = Duration::try_from_secs_f64(state["uptime_seconds"].as_f64().unwrap_or_default());
    Snapshot {
        url: printable(url),
        uptime: uptime.unwrap_or_default(),
        tools: state["total_tools"].as_u64().unwrap_or_default(),
        is_stopped: state["executions_stopped"] == true,
        servers: servers.iter().map(|described| server(described, &calls)).collect(),
        has_more: calls.len() >= MAX_CALLS,
        calls,
    }
}

fn call(call: &Value) -> Call {
    let moment = server_view::moment(call, "submitted_at");
    Call {
        time: moment.split_once(' ').map_or(moment.as_str(), |(_, time)| time).to_owned(),
        submitted_at: server_view::text(call, "submitted_at"),
        server: server_view::text(call, "server_name"),
        tool: server_view::text(call, "tool_name"),
        status: server_view::text(call, "status"),
        millis: call["duration_ms"].as_f64(),
        source: server_view::text(call, "source"),
    }
}

fn server(described: &Value, calls: &[Call]) -> Server {
    let name = server_view::text(described, "name");
    let own: Vec<&Call> = calls.iter().filter(|call| call.server == name).collect();
    let mut times: Vec<f64> = own.iter().filter_map(|call| call.millis).collect();
    times.sort_by(f64::total_cmp);
    Server {
        status: server_view::text(described, "status"),
        tools: described["tool_count"].as_u64().unwrap_or_default(),
        calls: own.len(),
        errors: own.iter().filter(|call| call.is_failed()).count(),
        p50: percentile(&times, 50),
        p95: percentile(&times, 95),
        cpu: server_view::cpu(&described["usage"]).unwrap_or_default(),
        memory: server_view::memory(&described["usage"]).unwrap_or_default(),
        cpu_percent: described["usage"]["cpu_percent"].as_f64(),
        memory_bytes: described["usage"]["memory_bytes"].as_u64(),
        instances: described["instances"].as_array().into_iter().flatten().map(instance).collect(),
        instances_json: described["instances"].clone(),
        name,
    }
}

fn instance(described: &Value) -> Instance {
    Instance {
        whose: server_view::instance_owner(described),
        status: server_view::text(described, "status"),
        running_calls: described["running_calls"].as_u64().unwrap_or_default(),
    }
}

/// The nearest-rank percentile of sorted numbers.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Milliseconds, rounded.
fn rounded(millis: f64) -> f64 {
    (millis * 1000.0).round() / 1000.0
}

impl Snapshot {
    pub(crate) fn to_json(&self) -> Value {
        let servers = self.servers.iter().map(|server| {
            json!({"name": server.name, "status": server.status, "tools": server.tools, "calls": server.calls,
                "errors": server.errors, "p50_ms": server.p50.map(rounded), "p95_ms": server.p95.map(rounded),
                "cpu_percent": server.cpu_percent, "memory_bytes": server.memory_bytes,
                "instances": server.instances_json})
        });
        let calls = self.calls.iter().map(|call| {
            json!({"submitted_at": call.submitted_at, "server": call.server, "tool": call.tool, "status": call.status,
                "duration_ms": call.millis.map(rounded), "source": call.source})
        });
        json!({"url": self.url, "uptime_seconds": self.uptime.as_secs(), "tools": self.tools, "stopped": self.is_stopped,
            "servers": servers.collect::<Vec<_>>(), "calls": calls.collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_server_are_those_of_its_calls() {
        let call = |server: &str, status: &str, millis: Value| {
            json!({"server_name": server, "tool_name": "t", "status": status, "duration_ms": millis, "source": "mcp",
                "submitted_at": "2026-07-28T12:00:01.5Z"})
        };
        let calls = json!([
            call("a", "executing", Value::Null),
            call("a", "success", json!(1.0)),
            call("a", "error", json!(3.0)),
            call("b", "success", json!(9.0)),
        ]);
        let servers = [json!({"name": "a", "status": "connected", "tool_count": 2}), json!({"name": "c"})];
        let snapshot = read("http://x", &json!({"uptime_seconds": 61.5, "total_tools": 2}), &servers, &calls);
        let a = &snapshot.servers[0];
        assert_eq!((a.calls, a.errors, a.p50, a.p95), (3, 1, Some(1.0), Some(3.0)));
        assert_eq!((snapshot.servers[1].calls, snapshot.servers[1].p50), (0, None));
        let local = server_view::moment(&json!({"at": "2026-07-28T12:00:01Z"}), "at");
        assert!(local.ends_with(&format!(" {}", snapshot.calls[0].time)) && snapshot.calls[0].is_under_way());
        assert_eq!(snapshot.to_json()["servers"][0]["p95_ms"], 3.0);
        assert_eq!(snapshot.to_json()["calls"][0]["submitted_at"], "2026-07-28T12:00:01.5Z");
        assert_eq!(rounded(0.282_000_000_000_000_03).to_string(), "0.282");
    }

    #[test]
    fn the_rank_of_a_percentile_is_the_nearest() {
        let numbers: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!((percentile(&numbers, 50), percentile(&numbers, 95)), (Some(10.0), Some(19.0)));
        assert_eq!(percentile(&[], 50), None);
    }
}
