//! `check`: checks the config, and with `--start` every server in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aggregator::load::Loaded;
use aggregator::{Fleet, NamePolicy, Separator, ServerState};
use catalog::config::Warning;
use catalog::{Config, ServerSpec, Transport};
use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use upstream::Report;

use crate::cli::shared::{ConfigArgument, DEBUG};
use crate::config::ConfigSource;
use crate::failure::Failure;
use crate::session::{self, Session};
use crate::table::{aligned, printable};
use crate::{assistant, config, identity_args, output, progress, stderr_log};

/// Check a config, and with --start every server in it.
///
/// Without --start, this command starts nothing: it reads the config, replaces variables, and prints the servers
/// without their arguments and environment, because these may contain secrets.
/// With --start, it starts every server, lists its tools and stops it again. The exit status is 1 if a server failed.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator check --config mcp.json
  mcp-aggregator check --config mcp.json --start
  mcp-aggregator check --config mcp.json --start --json | jq '.servers[] | select(.state == \"failed\")'"
)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Start every server, and report which ones work and why others do not
    #[arg(long)]
    pub(crate) start: bool,
    /// Print JSON: {"ok", "servers": [..]}, or {"ok", "error": {..}} if the config is wrong
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, help = DEBUG)]
    pub(crate) debug: bool,
}

pub(crate) fn run(arguments: &CheckArguments) -> Result<(), Failure> {
    let loaded = match config::read(&arguments.config.path) {
        Ok(loaded) => loaded,
        Err(error) => {
            let failure = config::explain(&error);
            if arguments.json {
                output::print_json(&json!({"ok": false, "error": failure.to_json()["error"]}))?;
            }
            return Err(failure);
        }
    };
    for warning in &loaded.config.warnings {
        output::print_message(format_args!("warning: {}", printable(&warning.to_string())));
    }
    let source = ConfigSource { path: &arguments.config.path, bytes: &loaded.source };
    assistant::check(source)?;
    identity_args::check(source)?;
    if arguments.start { start_all(loaded, arguments) } else { show_plan(&loaded, arguments.json) }
}

/// Prints what would be started, without arguments and environment, which may contain secrets.
fn show_plan(loaded: &Loaded, as_json: bool) -> Result<(), Failure> {
    let (servers, disabled) = (&loaded.config.servers, &loaded.config.disabled);
    if as_json {
        let enabled =
            servers.iter().map(|spec| json!({"server": spec.name.as_str(), kind_of(spec): spec.transport.place()}));
        let disabled = disabled.iter().map(|name| json!({"server": name.as_str(), "disabled": true}));
        let servers: Vec<Value> = enabled.chain(disabled).collect();
        return output::print_json(&json!({"ok": true, "servers": servers, "warnings": warnings(&loaded.config)}));
    }
    let header = ["SERVER", "PROGRAM OR URL"].map(str::to_owned);
    let enabled = servers.iter().map(|spec| [printable(spec.name.as_str()), printable(&spec.transport.place())]);
    let off = disabled.iter().map(|name| [printable(name.as_str()), "(disabled)".to_owned()]);
    let rows: Vec<_> = [header].into_iter().chain(enabled).chain(off).collect();
    output::print_lines(&aligned(&rows))?;
    output::print_message(format_args!("the config is valid: {} to start, {} disabled", servers.len(), disabled.len()));
    Ok(())
}

fn warnings(config: &Config) -> Vec<Value> {
    let warning = |warning: &Warning| json!({"path": warning.path, "message": warning.message});
    config.warnings.iter().map(warning).collect()
}

fn kind_of(spec: &ServerSpec) -> &'static str {
    match spec.transport {
        Transport::Stdio(_) => "command",
        Transport::Remote(_) => "url",
        Transport::Container(_) => "docker",
    }
}

/// The result for one server.
pub(crate) struct ServerCheck {
    pub(crate) server: String,
    state: ServerState,
    /// Why it failed, if it did.
    report: Option<Arc<Report>>,
    pub(crate) tools: usize,
    pub(crate) took: Duration,
}

/// Starts every server, waits until each is connected or failed, and returns the results.
fn start_all(loaded: Loaded, arguments: &CheckArguments) -> Result<(), Failure> {
    stderr_log::init_without_failures(arguments.debug);
    let options = session::options("mcp-aggregator", Separator::default(), NamePolicy::Auto, session::NO_CAPABILITIES)?;
    let warnings = warnings(&loaded.config);
    let disabled: Vec<String> = loaded.config.disabled.iter().map(ToString::to_string).collect();
    let (fleet, mut findings) = session::with(loaded, options, async |session| {
        let fleet = Arc::clone(session.fleet());
        progress::with_reports(|| session::still_starting(&fleet), find(session)).await
    })?;
    // A report is complete when its server has ended, which all have by now.
    for (server, finding) in findings.iter_mut().enumerate() {
        finding.report = fleet.report(server);
    }

    let failed = findings.iter().filter(|finding| finding.has_failed()).count();
    if arguments.json {
        let servers = findings.iter().map(ServerCheck::to_json);
        let disabled = disabled.iter().map(|name| json!({"server": name, "state": "disabled"}));
        let servers: Vec<Value> = servers.chain(disabled).collect();
        output::print_json(&json!({"ok": failed == 0, "servers": servers, "warnings": warnings}))?;
    } else {
        output::print_lines(&table(&findings, &disabled))?;
    }
    match (failed, findings.len()) {
        (0, 0) => output::print_message("there is no server to start"),
        (0, 1) => output::print_message("the server works"),
        (0, all) => output::print_message(format_args!("all {all} servers work")),
        (failed, all) => return Err(Failure::new(format!("{failed} of {all} servers failed"))),
    }
    Ok(())
}

/// Waits until every server is connected or failed. Reports are complete when all have ended.
pub(crate) async fn find(session: &mut Session) -> Result<(Arc<Fleet>, Vec<ServerCheck>), Failure> {
    let started = Instant::now();
    let fleet = Arc::clone(session.fleet());
    let count = fleet.view().snapshot.servers().len();
    let times = session.unless_interrupted(start_times(&fleet, count, started)).await?;
    let view = fleet.view();
    let findings = view.snapshot.servers().iter().zip(times).map(|(server, took)| ServerCheck {
        server: server.name.to_string(),
        state: server.state.clone(),
        report: None,
        tools: server.offer.items(catalog::Kind::Tool).len(),
        took,
    });
    let findings = findings.collect();
    Ok((fleet, findings))
}

/// How long each server took to connect or to fail.
async fn start_times(fleet: &Arc<Fleet>, count: usize, started: Instant) -> Vec<Duration> {
    let mut watching = JoinSet::new();
    for server in 0..count {
        let fleet = Arc::clone(fleet);
        watching.spawn(async move {
            fleet.settled(server).await;
            (server, started.elapsed())
        });
    }
    let mut times = watching.join_all().await;
    times.sort_unstable_by_key(|&(server, _)| server);
    times.into_iter().map(|(_, took)| took).collect()
}

impl ServerCheck {
    pub(crate) fn has_failed(&self) -> bool {
        self.state != ServerState::Running
    }

    fn to_json(&self) -> Value {
        let millis = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        if !self.has_failed() {
            return json!({"server": self.server, "state": "running", "tools": self.tools, "start_ms": millis});
        }
        let mut finding =
            json!({"server": self.server, "state": "failed", "start_ms": millis, "reason": self.reason()});
        if let Some(report) = &self.report {
            finding["phase"] = json!(report.phase.to_string());
            finding["stderr"] = json!(report.stderr_lines);
            finding["hint"] = json!(report.hint);
        }
        finding
    }

    pub(crate) fn reason(&self) -> String {
        match (&self.report, &self.state) {
            (Some(report), _) => format!("{}: {}", report.phase, report.cause),
            (None, state) => state.failure().map_or_else(|| state.to_string(), str::to_owned),
        }
    }

    fn row(&self) -> [String; 4] {
        let (state, tools) =
            if self.has_failed() { ("failed", "-".to_owned()) } else { ("running", self.tools.to_string()) };
        [printable(&self.server), state.to_owned(), tools, format!("{:.2} s", self.took.as_secs_f64())]
    }

    /// The lines below a failed server.
    fn details(&self) -> Vec<String> {
        if !self.has_failed() {
            return Vec::new();
        }
        let mut lines = vec![format!("  why: {}", printable(&self.reason()))];
        if let Some(report) = &self.report {
            lines.extend(report.stderr_lines.iter().map(|line| format!("  | {}", printable(line))));
            lines.extend(report.hint.iter().map(|hint| format!("  hint: {hint}")));
        }
        lines
    }
}

/// A row for each server; below a failed one the error, its last stderr output and a hint.
fn table(findings: &[ServerCheck], disabled: &[String]) -> Vec<String> {
    let header = ["SERVER", "STATE", "TOOLS", "START"].map(str::to_owned);
    let off = |name: &String| [printable(name), "disabled".to_owned(), "-".to_owned(), "-".to_owned()];
    let rows: Vec<_> =
        [header].into_iter().chain(findings.iter().map(ServerCheck::row)).chain(disabled.iter().map(off)).collect();
    let mut lines = Vec::new();
    for (index, line) in aligned(&rows).into_iter().enumerate() {
        lines.push(line);
        let finding = index.checked_sub(1).and_then(|index| findings.get(index));
        lines.extend(finding.into_iter().flat_map(ServerCheck::details));
    }
    lines
}
