//! Checks every server: starts those of a config, and asks a running service for its own.

use std::path::Path;
use std::time::Duration;

use aggregator::load::Loaded;
use aggregator::{Fleet, NamePolicy};
use catalog::{Transport, login_command};
use serde_json::Value;
use service::SECRETS_ARE_MISSING;

use super::diagnosis::Diagnosis;
use super::profiles;
use super::tool_checks::Tool;
use crate::cli::shared::usual_separator;
use crate::client::Client;
use crate::commands::{check, list, tools};
use crate::failure::Failure;
use crate::tool_cost::listed_bytes;
use crate::{command_hint, progress, session};

/// A longer start counts as slow: clients and users give up.
const SLOW_START: Duration = Duration::from_secs(10);

/// Whether a server of the config needs a container.
pub(crate) fn want_containers(loaded: &Loaded) -> bool {
    loaded.config.servers.iter().any(|spec| matches!(spec.transport, Transport::Container(_)))
}

/// Starts every server of a config; returns the findings and all tools.
pub(crate) fn start(loaded: Loaded, config: &Path) -> Result<(Vec<Diagnosis>, Vec<Tool>), Failure> {
    let options =
        session::options("mcp-aggregator", usual_separator(), NamePolicy::Canonical, session::NO_CAPABILITIES)?;
    let source = loaded.source.clone();
    let (fleet, started, tools, unmatched) = session::with(loaded, options, async |session| {
        let starting = std::sync::Arc::clone(session.fleet());
        let (fleet, started) =
            progress::with_spinner_text(|| session::still_starting(&starting), check::find(session)).await?;
        let tools = tools::list(session).await?;
        let unmatched = profiles::of_started(&source, &session.fleet().view().snapshot);
        Ok((fleet, started, tools, unmatched))
    })?;
    let started = started.into_iter().enumerate();
    let findings = started.map(|(slot_index, one)| diagnosis(&fleet, slot_index, &one, config));
    let findings = findings.chain(unmatched).collect();
    let tools = tools.iter().map(|tool| Tool { name: tool.id.to_string(), size: tool.definition.len() }).collect();
    Ok((findings, tools))
}

fn diagnosis(fleet: &Fleet, slot_index: usize, one: &check::ServerCheck, config: &Path) -> Diagnosis {
    let (name, seconds) = (&one.server, one.took.as_secs_f64());
    if !one.has_failed() {
        let message = format!("{name} starts in {seconds:.2} s and has {}", tools::counted(one.tools, "tool"));
        return match one.took > SLOW_START {
            true => Diagnosis::warning("server", message)
                .advise("start it once by hand: the first start with npx or uvx downloads the server"),
            false => Diagnosis::ok("server", message),
        };
    }
    // A report is complete when its server has ended, which all have by now.
    let Some(report) = fleet.report(slot_index) else {
        return Diagnosis::problem("server", format!("{name} does not start: {}", one.reason()));
    };
    let stderr_lines = report.stderr_lines.iter().fold(String::new(), |words, line| format!("{words}\n{line}"));
    let finding = Diagnosis::problem(
        "server",
        format!("{name} does not start: {}: {}{stderr_lines}", report.phase, report.cause),
    );
    match report.hint {
        Some(hint) => finding.advise(hint),
        None => {
            let config = command_hint::quoted(&config.display().to_string());
            finding.advise(format!("`mcp-aggregator check --config {config} --start --debug` logs everything"))
        }
    }
}

/// The status of the servers of a running service, and all tools.
pub(crate) async fn ask(service: &Client) -> Result<(Vec<Diagnosis>, Vec<Tool>), Failure> {
    let servers = list::servers_of(service).await?;
    let tools = service.get("/tools").await?;
    let tools = tools.as_array().into_iter().flatten().filter(|tool| tool["enabled"] != false).map(tool).collect();
    Ok((servers.iter().map(|server| diagnosis_of(server, service.url())).collect(), tools))
}

/// A tool with its full name instead of its own.
fn tool(tool: &Value) -> Tool {
    let text = |key: &str| tool[key].as_str().unwrap_or_default();
    Tool { name: text("name").to_owned(), size: listed_bytes(tool, text("original_name")) }
}

fn diagnosis_of(server: &Value, service: &str) -> Diagnosis {
    let name = server["name"].as_str().unwrap_or("?");
    let status_text = crate::server_view::status_text(server);
    let why = server["error_message"].as_str().unwrap_or_default();
    match server["status"].as_str() {
        _ if server["auto_disabled"] == true => {
            Diagnosis::problem("server", format!("{name}: disabled after too many failures: {why}"))
                .advise(format!("correct the cause, then `mcp-aggregator enable {name}`"))
        }
        _ if why.contains(SECRETS_ARE_MISSING) => Diagnosis::problem("server", format!("{name}: {why}"))
            .advise(format!(
                "`mcp-aggregator add {name} --replace`, with its secrets and all other options, sets them; or use the console: {service}/servers/{name}"
            )),
        Some("error") => Diagnosis::problem("server", format!("{name}: {status_text}: {why}"))
            .advise(format!("`mcp-aggregator show {name}` shows details; `mcp-aggregator enable {name}` tries again")),
        Some("sign_in_required") => Diagnosis::warning("server", format!("{name}: a person must sign in to it"))
            .advise(format!("`{}` signs in", login_command(name))),
        Some("degraded") => Diagnosis::warning("server", format!("{name}: {status_text}: {why}"))
            .advise(format!("`mcp-aggregator history {name}` shows its connection history")),
        _ => Diagnosis::ok("server", format!("{name}: {status_text}")),
    }
}

/// Whether a server of the service needs a container.
pub(crate) fn any_in_containers(servers: &[Value]) -> bool {
    servers.iter().any(|server| server["connection_config"]["docker"].is_object())
}
