//! `status`: prints the status of the running service.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::list::servers_with_usage;
use crate::cli::shared::REST_JSON;
use crate::failure::Failure;
use crate::server_view::{self, moment, text};
use crate::table::{aligned, printable};
use crate::target::TargetArguments;
use crate::{api_error, command_hint, output, session};

/// Print the status of the running service. The exit status is 1 if there is an issue.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator status
  mcp-aggregator status --json | jq -r '.issues[].message'")]
pub(crate) struct StatusArguments {
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

pub(crate) fn run(arguments: &StatusArguments) -> Result<(), Failure> {
    let (url, health, servers) = session::block_on(async {
        let service = arguments.target.service().await?;
        let health = service.get("/health").await?;
        if !health["status"].is_string() {
            return Err(api_error::not_this_service(service.url(), "its health report has no status"));
        }
        Ok((service.url().to_owned(), health, servers_with_usage(&service).await?))
    })?;
    if arguments.json {
        let mut health = health.clone();
        health["containers"] = containers(&servers);
        output::print_json(&health)?;
    } else {
        let mut lines = lines(&url, &health, &servers);
        let shown = |server: &Value| Some(format!("  {}: {}", text(server, "name"), server_view::container(server)?));
        let housed: Vec<String> = servers.iter().filter_map(shown).collect();
        if !housed.is_empty() {
            lines.push(format!("containers ({})", housed.len()));
            lines.extend(housed);
        }
        lines.extend(needs_you(&health));
        output::print_lines(&lines)?;
    }
    let issues: Vec<String> = health["issues"].as_array().into_iter().flatten().map(issue).collect();
    if health["status"] == "healthy" {
        return Ok(());
    }
    let issue_lines = issues.iter().fold(String::new(), |issue_lines, issue| format!("{issue_lines}\n  {issue}"));
    let is_stopped = health["issues"].as_array().into_iter().flatten().any(|issue| issue["component"] == "executions");
    let hint = match is_stopped {
        true => "`mcp-aggregator calls allow` allows calls again",
        false => "`mcp-aggregator list` lists all servers",
    };
    Err(Failure::new(format!("the service reports issues{issue_lines}")).with_hint(hint))
}

fn lines(url: &str, health: &Value, servers_used: &[Value]) -> Vec<String> {
    let number = |key: &str| health[key].as_u64().unwrap_or_default();
    let uptime = Duration::try_from_secs_f64(health["uptime_seconds"].as_f64().unwrap_or_default());
    let parts = [
        ("connecting", "connecting_servers"),
        ("asleep", "asleep_servers"),
        ("disabled", "disabled_servers"),
        ("waiting for a sign-in", "sign_in_required_servers"),
    ];
    let parts = parts.map(|(word, key)| (word, number(key)));
    let lines = parts.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}, "));
    let servers = format!(
        "{} ({} connected, {}{} disconnected, {} failed{})",
        number("total_servers"),
        number("connected_servers"),
        lines.collect::<String>(),
        number("disconnected_servers").saturating_sub(parts.iter().map(|(_, count)| count).sum()),
        number("error_servers"),
        match servers_used.iter().filter(|server| server["auto_disabled"] == true).count() {
            0 => String::new(),
            off => format!(", {off} disabled after failures"),
        }
    );
    let rows = [
        ("service", printable(url)),
        ("status", server_view::status(health)),
        ("up for", in_words(uptime.unwrap_or_default())),
        ("servers", servers),
        ("tools", format!("{}{}", number("total_tools"), waiting(&health["tool_states"]))),
        ("servers use", used_by(servers_used)),
        ("last sync", moment(health, "last_sync")),
        ("database", text(&health["checks"]["database"], "status")),
        ("vectors", text(&health["checks"]["vectors"], "in_use")),
    ];
    aligned(&rows.map(|(label, value)| [label.to_owned(), value]))
}

/// What only a person can do. It is no issue of the service.
fn needs_you(health: &Value) -> Vec<String> {
    let actions = health["action_required"].as_array().map(Vec::as_slice).unwrap_or_default();
    if actions.is_empty() {
        return Vec::new();
    }
    let shown = |action: &Value| {
        let words = format!("sign in with `{}`", text(action, "command"));
        format!("  {}: {}", text(action, "server_name"), command_hint::completed(&words))
    };
    std::iter::once(format!("needs you ({})", actions.len())).chain(actions.iter().map(shown)).collect()
}

/// The total resource usage of all servers that we run; a dash if it is unknown.
fn used_by(servers: &[Value]) -> String {
    let known: Vec<&Value> = servers.iter().map(|server| &server["usage"]).filter(|usage| !usage.is_null()).collect();
    let sum = |key: &str| known.iter().filter_map(|usage| usage[key].as_f64()).sum::<f64>();
    let total = json!({ "cpu_percent": sum("cpu_percent"), "memory_bytes": sum("memory_bytes") });
    match (known.is_empty(), server_view::cpu(&total), server_view::memory(&total)) {
        (false, Some(cpu), Some(memory)) => format!("cpu {cpu}, memory {memory}"),
        _ => "-".to_owned(),
    }
}

/// The pending background work on tools; usually none.
fn waiting(states: &Value) -> String {
    let lines = [("discovered", "without an embedding yet"), ("classifying", "being classified")];
    let lines = lines.map(|(state, words)| (states[state].as_u64().unwrap_or_default(), words));
    let lines: Vec<String> =
        lines.iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}")).collect();
    if lines.is_empty() { String::new() } else { format!(" ({})", lines.join(", ")) }
}

/// The containers, each with its server.
fn containers(servers: &[Value]) -> Value {
    let housed = servers.iter().filter(|server| !server["container"].is_null()).map(|server| {
        let mut container = server["container"].clone();
        container["server"] = server["name"].clone();
        container
    });
    Value::Array(housed.collect())
}

fn issue(issue: &Value) -> String {
    if issue["component"] == "executions" {
        // The rest of the hint is for users of REST.
        return "executions are stopped".to_owned();
    }
    let message = issue["message"].as_str().unwrap_or_default();
    let lines: Vec<String> = message.lines().map(printable).collect();
    lines.join("\n  ")
}

/// The two largest units: `3 d 4 h`, `5 min 6 s`, `7 s`.
pub(crate) fn in_words(span: Duration) -> String {
    let seconds = span.as_secs();
    let parts = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let first = parts.iter().position(|&(count, _)| count > 0).unwrap_or(parts.len() - 1);
    let shown = parts[first..].iter().take(2).map(|(count, unit)| format!("{count} {unit}"));
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_reported_in_its_two_largest_units() {
        for (seconds, words) in [(0, "0 s"), (7, "7 s"), (306, "5 min 6 s"), (273_600, "3 d 4 h")] {
            assert_eq!(in_words(Duration::from_secs(seconds)), words);
        }
    }
}
