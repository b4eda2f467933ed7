//! `doctor`: diagnoses problems, and suggests fixes.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::api_error::NO_ROOM;
use crate::cli::shared::{DEBUG, listen_address};
use crate::commands::tools;
use crate::doctor::diagnosis::{self, Diagnosis, Level};
use crate::doctor::{configuration, environment, profiles, servers, tool_checks};
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::target::{Target, TargetArguments};
use crate::{local_registry, progress, session, stderr_log, vector_store_args};

/// Diagnose problems, and suggest how to fix them.
///
/// This command checks the config, if you pass one: its variables, programs and servers, which it starts. It checks the
/// running service and its servers or, if none runs, the port and the registry; the container engine and Qdrant, if
/// they are used; and all tools: names that some clients reject, more tools than clients accept, and the tokens that
/// tools/list costs a model. It changes nothing. Each line is ok, warning or problem. The exit status is 1 if there is
/// a problem.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator doctor
  mcp-aggregator doctor --config mcp.json
  mcp-aggregator doctor --config mcp.json --no-start --json | jq '.findings[] | select(.level != \"ok\")'"
)]
pub(crate) struct DoctorArguments {
    /// Also check this config
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Do not start the servers of the config
    #[arg(long)]
    pub(crate) no_start: bool,
    /// The address that a service should listen on: ADDRESS:PORT, or a port on localhost [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Also check this Qdrant, as in `serve --vectors` [default: the variable MCP_VECTORS]
    #[arg(long, value_name = "URL")]
    pub(crate) vectors: Option<String>,
    /// Print JSON: {"ok", "findings": [{"topic", "level", "message", "advice"}]}
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, help = DEBUG)]
    pub(crate) debug: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

pub(crate) fn run(arguments: &DoctorArguments) -> Result<(), Failure> {
    stderr_log::init_without_failures(arguments.debug);
    let mut findings = Vec::new();
    if let Some(config) = &arguments.config {
        findings.extend(of_config(arguments, config)?);
    }
    findings.extend(session::block_on(progress::with_spinner("running checks", of_machine(arguments)))?);
    if vector_store_args::is_wanted(arguments.vectors.as_deref()) {
        findings.push(of_vectors(arguments.vectors.clone())?);
    }
    print_outcome(&findings, arguments.json)
}

/// Checks the config and, unless disabled, every server in it.
fn of_config(arguments: &DoctorArguments, config: &std::path::Path) -> Result<Vec<Diagnosis>, Failure> {
    let (mut findings, loaded) = configuration::examine(config);
    let Some(loaded) = loaded else { return Ok(findings) };
    if servers::want_containers(&loaded) {
        findings.push(session::block_on(async { Ok(environment::engine().await) })?);
    }
    if !arguments.no_start {
        let (started, tools) = servers::start(loaded, config)?;
        // A missing program is reported with its server, which fails to start.
        findings.retain(|finding| finding.topic != "program" || finding.level != Level::Problem);
        findings.extend(started);
        findings.extend(tool_checks::examine(&tools));
    }
    Ok(findings)
}

/// Checks the vector store, including its address.
fn of_vectors(option: Option<String>) -> Result<Diagnosis, Failure> {
    match vector_store_args::from(option, crate::model_args::builtin_embedder().as_deref()) {
        Ok(Some(store)) => session::block_on(async { Ok(environment::vectors(&*store).await) }),
        Ok(None) => Ok(Diagnosis::ok("vectors", "are kept here")),
        Err(failure) => Ok(failed("vectors", failure)),
    }
}

/// Checks the running service, or whether one could run.
async fn of_machine(arguments: &DoctorArguments) -> Result<Vec<Diagnosis>, Failure> {
    let service = match arguments.target.running().await {
        Ok(service) => service,
        Err(failure) => return Ok(without_answer(arguments, failure)),
    };
    let Some(service) = service else { return Ok(without_service(arguments).await) };
    let health = match service.get("/health").await {
        Ok(health) => health,
        Err(denial) => return Ok(without_answer(arguments, denial.into())),
    };
    let mut findings = vec![Diagnosis::ok("service", format!("runs at {}", service.url())), database(&health)];
    findings.extend(vectors(&health));
    findings.extend(more_issues(&health));
    // The disk of another machine cannot be checked.
    if arguments.target.url.is_none() {
        findings.extend(environment::room(&arguments.target.storage));
    }
    match servers::ask(&service).await {
        Ok((findings_of_service, tools)) => {
            findings.extend(findings_of_service);
            // The tools of a config were already checked.
            if arguments.config.is_none() {
                findings.extend(tool_checks::examine(&tools));
            }
        }
        Err(failure) => findings.push(failed("servers", failure)),
    }
    findings.extend(profiles::of_service(&service).await);
    Ok(findings)
}

/// Checks a service that does not answer, as far as that is possible without it.
fn without_answer(arguments: &DoctorArguments, failure: Failure) -> Vec<Diagnosis> {
    let is_here = arguments.target.url.is_none();
    let room = is_here.then(|| environment::room(&arguments.target.storage)).flatten();
    let wanted = arguments.listen.map(|listen| environment::port(Some(listen)));
    std::iter::once(failed("service", failure)).chain(room).chain(wanted).collect()
}

/// Other issues that the service reports. Servers, vectors and the database have findings of their own.
fn more_issues(health: &Value) -> Vec<Diagnosis> {
    let issues = health["issues"].as_array().into_iter().flatten();
    let findings_of_service = issues.filter_map(|issue| {
        let message = issue["message"].as_str().unwrap_or_default();
        match issue["component"].as_str()? {
            "config" => Some(
                Diagnosis::problem("config", message).advise("correct the file: the service reloads it when it changes"),
            ),
            "settings" => Some(
                Diagnosis::problem("settings", message).advise("change any setting: the service then writes all of them again"),
            ),
            "tokens" => Some(
                Diagnosis::problem("tokens", message).advise("correct the file: the service reloads it when it changes"),
            ),
            "executions" => Some(
                Diagnosis::problem("calls", "executions are stopped")
                    .advise("`mcp-aggregator calls allow` allows them again"),
            ),
            "embeddings" => Some(Diagnosis::warning("embeddings", message).advise(
                "check that the model runs, and check `--embeddings-url`, `--embeddings-model` and the key; until then, search uses words only",
            )),
            "server" | "vectors" | "database" => None,
            // A newer service may report issues that this program does not know.
            other => Some(Diagnosis::problem("service", format!("{other}: {message}"))),
        }
    });
    findings_of_service.collect()
}

/// Checks where the service compares vectors, if a vector store is configured.
fn vectors(health: &Value) -> Option<Diagnosis> {
    let check = &health["checks"]["vectors"];
    let address = check["address"].as_str()?;
    if check["status"] == "ok" {
        return Some(Diagnosis::ok("vectors", format!("are compared at {address}: {} of them", check["points"])));
    }
    let issue = health["issues"].as_array()?.iter().find(|issue| issue["component"] == "vectors")?;
    let why = issue["message"].as_str().unwrap_or_default();
    Some(
        Diagnosis::warning("vectors", why)
            .advise(format!("check that Qdrant runs at {address}; until then, search works without it")),
    )
}

fn database(health: &Value) -> Diagnosis {
    let check = &health["checks"]["database"];
    match check["status"].as_str() {
        Some("healthy" | "ok") => Diagnosis::ok("registry", "the service can write it"),
        other => {
            let issues = || health["issues"].as_array().into_iter().flatten();
            let issue = issues().find(|issue| issue["component"] == "database");
            let why = issue.and_then(|issue| issue["message"].as_str()).or_else(|| check["message"].as_str());
            let why = why.or(other).unwrap_or("it reports no status");
            let advice = if why.contains("full") {
                NO_ROOM
            } else if why.contains("restore a backup") {
                "the service refuses changes until its file is restored; `mcp-aggregator export` may still save its contents"
            } else {
                "check that the database runs, and read the log of the service; the service retries automatically"
            };
            Diagnosis::problem("registry", format!("the service cannot use it: {why}")).advise(advice)
        }
    }
}

async fn without_service(arguments: &DoctorArguments) -> Vec<Diagnosis> {
    let storage = &arguments.target.storage;
    let mut findings = vec![Diagnosis::ok("service", "none is running"), environment::port(arguments.listen)];
    match arguments.target.token() {
        Ok(token) => {
            findings.extend(arguments.listen.and_then(|listen| environment::exposure(listen, token.is_some())));
        }
        Err(failure) => findings.push(failed("tokens", failure)),
    }
    let registry = environment::registry(storage).await;
    let is_there = registry.iter().any(|finding| finding.topic == "registry" && finding.message.contains("opened"));
    findings.extend(registry);
    if !is_there {
        return findings;
    }
    let target = match arguments.target.require_existing().await {
        Ok(target) => target,
        Err(failure) => {
            findings.push(failed("registry", failure));
            return findings;
        }
    };
    if let Target::Registry(store) = target {
        let listed = local_registry::list(&store).await;
        store.close().await;
        let known = match listed {
            Ok(known) => known,
            Err(failure) => {
                findings.push(failed("registry", failure));
                return findings;
            }
        };
        if servers::any_in_containers(&known) {
            findings.push(environment::engine().await);
        }
        findings.push(Diagnosis::ok(
            "registry",
            format!("{} in it; a running service connects enabled ones", tools::counted(known.len(), "server")),
        ));
    }
    findings
}

fn failed(topic: &'static str, failure: Failure) -> Diagnosis {
    let finding = Diagnosis::problem(topic, failure.message);
    match failure.hint {
        Some(hint) => finding.advise(hint),
        None => finding,
    }
}

fn print_outcome(findings: &[Diagnosis], as_json: bool) -> Result<(), Failure> {
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    if as_json {
        let findings: Vec<Value> = findings.iter().map(Diagnosis::to_json).collect();
        output::print_json(&json!({"ok": problems == 0, "findings": findings}))?;
    } else {
        output::print_lines(&diagnosis::lines(findings))?;
    }
    let counted = |count: usize, thing: &str| format!("{count} {thing}{}", if count == 1 { "" } else { "s" });
    match (problems, warnings) {
        (0, 0) => print_message("no problems"),
        (0, warnings) => print_message(format_args!("no problem, {}", counted(warnings, "warning"))),
        (problems, 0) => return Err(Failure::new(counted(problems, "problem"))),
        (problems, warnings) => {
            return Err(Failure::new(format!("{}, {}", counted(problems, "problem"), counted(warnings, "warning"))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_service_knows_to_be_wrong_is_reported() {
        let health = json!({"issues": [{"component": "config", "message": "mcp.json: bad"}, {"component": "server"},
            {"component": "executions", "message": "POST .."}, {"component": "clock", "message": "is slow"}]});
        let mut findings_of_service = more_issues(&health);
        assert_eq!(
            findings_of_service.iter().map(|finding| finding.topic).collect::<Vec<_>>(),
            ["config", "calls", "service"]
        );
        assert_eq!(findings_of_service.pop().map(|finding| finding.message).as_deref(), Some("clock: is slow"));
        assert!(findings_of_service.iter().all(|finding| finding.level == Level::Problem && finding.advice.is_some()));
    }
}
