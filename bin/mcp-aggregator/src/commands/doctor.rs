//! `doctor`: looks at everything that can be wrong, and says what to do.

use serde_json::{Value, json};

use crate::arguments::care::DoctorArguments;
use crate::commands::{serve, tools};
use crate::doctor::finding::{self, Finding, Level};
use crate::doctor::{configuration, offered, servers, surroundings};
use crate::failure::Failure;
use crate::output::{self, say};
use crate::refusal::NO_ROOM;
use crate::target::Target;
use crate::{local, progress, session, vectors_elsewhere, words};

pub(crate) fn run(arguments: &DoctorArguments) -> Result<(), Failure> {
    words::tell_without_failures(arguments.debug);
    let mut findings = Vec::new();
    if let Some(config) = &arguments.config {
        findings.extend(of_config(arguments, config)?);
    }
    findings.extend(session::block_on(progress::shown("looking around", of_machine(arguments)))?);
    if vectors_elsewhere::is_wanted(arguments.vectors.as_deref()) {
        findings.push(of_vectors(arguments.vectors.clone())?);
    }
    tell(&findings, arguments.json)
}

/// The config, and unless it should not, every server in it.
fn of_config(arguments: &DoctorArguments, config: &std::path::Path) -> Result<Vec<Finding>, Failure> {
    let (mut findings, loaded) = configuration::examine(config);
    let Some(loaded) = loaded else { return Ok(findings) };
    if servers::want_containers(&loaded) {
        findings.push(session::block_on(async { Ok(surroundings::engine().await) })?);
    }
    if !arguments.no_start {
        let (started, tools) = servers::start(loaded, config)?;
        // A program that is not there is told by its server, which does not start for that.
        findings.retain(|finding| finding.topic != "program" || finding.level != Level::Problem);
        findings.extend(started);
        findings.extend(offered::examine(&tools));
    }
    Ok(findings)
}

/// Where vectors are to be kept. What is wrong with the address is found, too.
fn of_vectors(option: Option<String>) -> Result<Finding, Failure> {
    match vectors_elsewhere::from(option, serve::embedder().as_deref()) {
        Ok(Some(store)) => session::block_on(async { Ok(surroundings::vectors(&*store).await) }),
        Ok(None) => Ok(Finding::ok("vectors", "are kept here")),
        Err(failure) => Ok(failed("vectors", failure)),
    }
}

/// The running service, or the place where one could run.
async fn of_machine(arguments: &DoctorArguments) -> Result<Vec<Finding>, Failure> {
    let service = match arguments.target.running().await {
        Ok(service) => service,
        Err(failure) => return Ok(without_answer(arguments, failure)),
    };
    let Some(service) = service else { return Ok(without_service(arguments).await) };
    let health = match service.get("/health").await {
        Ok(health) => health,
        Err(denial) => return Ok(without_answer(arguments, denial.into())),
    };
    let mut findings = vec![Finding::ok("service", format!("runs at {}", service.url())), database(&health)];
    findings.extend(vectors(&health));
    findings.extend(more_issues(&health));
    // The disk of another machine is not ours to see.
    if arguments.target.url.is_none() {
        findings.extend(surroundings::room(&arguments.target.storage));
    }
    match servers::ask(&service).await {
        Ok((told, tools)) => {
            findings.extend(told);
            // The tools of a config have been looked at before.
            if arguments.config.is_none() {
                findings.extend(offered::examine(&tools));
            }
        }
        Err(failure) => findings.push(failed("servers", failure)),
    }
    Ok(findings)
}

/// A service that cannot be asked, and what can be seen of its surroundings without it.
fn without_answer(arguments: &DoctorArguments, failure: Failure) -> Vec<Finding> {
    let is_here = arguments.target.url.is_none();
    let room = is_here.then(|| surroundings::room(&arguments.target.storage)).flatten();
    let wanted = arguments.listen.map(|listen| surroundings::port(Some(listen)));
    std::iter::once(failed("service", failure)).chain(room).chain(wanted).collect()
}

/// What else the service knows to be wrong. Servers, vectors and the database have lines of their own.
fn more_issues(health: &Value) -> Vec<Finding> {
    let issues = health["issues"].as_array().into_iter().flatten();
    let told = issues.filter_map(|issue| {
        let message = issue["message"].as_str().unwrap_or_default();
        match issue["component"].as_str()? {
            "config" => Some(
                Finding::problem("config", message).advise("put the file right: the service reads it when it changes"),
            ),
            "settings" => Some(
                Finding::problem("settings", message).advise("change any setting: that writes all of them anew"),
            ),
            "tokens" => Some(
                Finding::problem("tokens", message).advise("put the file right: the service reads it when it changes"),
            ),
            "executions" => Some(
                Finding::problem("calls", "executions are stopped")
                    .advise("`mcp-aggregator calls allow` allows them again"),
            ),
            "embeddings" => Some(Finding::warning("embeddings", message).advise(
                "look whether the model runs and `--embeddings-url`, `--embeddings-model` and the key are right; tools are found all the same",
            )),
            "server" | "vectors" | "database" => None,
            // A service may know of more than this program does.
            other => Some(Finding::problem("service", format!("{other}: {message}"))),
        }
    });
    told.collect()
}

/// Where the service compares vectors, if that should be elsewhere.
fn vectors(health: &Value) -> Option<Finding> {
    let check = &health["checks"]["vectors"];
    let address = check["address"].as_str()?;
    if check["status"] == "ok" {
        return Some(Finding::ok("vectors", format!("are compared at {address}: {} of them", check["points"])));
    }
    let issue = health["issues"].as_array()?.iter().find(|issue| issue["component"] == "vectors")?;
    let why = issue["message"].as_str().unwrap_or_default();
    Some(
        Finding::warning("vectors", why)
            .advise(format!("look whether Qdrant runs at {address}; tools are found all the same")),
    )
}

fn database(health: &Value) -> Finding {
    let check = &health["checks"]["database"];
    match check["status"].as_str() {
        Some("healthy" | "ok") => Finding::ok("registry", "the service can write it"),
        other => {
            let issues = || health["issues"].as_array().into_iter().flatten();
            let issue = issues().find(|issue| issue["component"] == "database");
            let why = issue.and_then(|issue| issue["message"].as_str()).or_else(|| check["message"].as_str());
            let why = why.or(other).unwrap_or("it does not say how it is");
            let advice = if why.contains("full") {
                NO_ROOM
            } else if why.contains("restore a backup") {
                "the service refuses changes until its file is back; `mcp-aggregator export` may still rescue what was in it"
            } else {
                "look whether the database runs, and at the log of the service; it tries again by itself"
            };
            Finding::problem("registry", format!("the service cannot use it: {why}")).advise(advice)
        }
    }
}

async fn without_service(arguments: &DoctorArguments) -> Vec<Finding> {
    let storage = &arguments.target.storage;
    let mut findings = vec![Finding::ok("service", "none runs here"), surroundings::port(arguments.listen)];
    match arguments.target.token() {
        Ok(token) => findings.extend(arguments.listen.and_then(|listen| surroundings::door(listen, token.is_some()))),
        Err(failure) => findings.push(failed("tokens", failure)),
    }
    let registry = surroundings::registry(storage).await;
    let is_there = registry.iter().any(|finding| finding.topic == "registry" && finding.message.contains("opened"));
    findings.extend(registry);
    if !is_there {
        return findings;
    }
    let target = match arguments.target.looked_at().await {
        Ok(target) => target,
        Err(failure) => {
            findings.push(failed("registry", failure));
            return findings;
        }
    };
    if let Target::Registry(store) = target {
        let listed = local::list(&store).await;
        store.close().await;
        let known = match listed {
            Ok(known) => known,
            Err(failure) => {
                findings.push(failed("registry", failure));
                return findings;
            }
        };
        if servers::any_in_containers(&known) {
            findings.push(surroundings::engine().await);
        }
        findings.push(Finding::ok(
            "registry",
            format!("{} in it; a running service tries what is enabled", tools::counted(known.len(), "server")),
        ));
    }
    findings
}

fn failed(topic: &'static str, failure: Failure) -> Finding {
    let finding = Finding::problem(topic, failure.message);
    match failure.hint {
        Some(hint) => finding.advise(hint),
        None => finding,
    }
}

fn tell(findings: &[Finding], as_json: bool) -> Result<(), Failure> {
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    if as_json {
        let findings: Vec<Value> = findings.iter().map(Finding::to_json).collect();
        output::print_json(&json!({"ok": problems == 0, "findings": findings}))?;
    } else {
        output::print_lines(&finding::lines(findings))?;
    }
    let counted = |count: usize, thing: &str| format!("{count} {thing}{}", if count == 1 { "" } else { "s" });
    match (problems, warnings) {
        (0, 0) => say("all is well"),
        (0, warnings) => say(format_args!("no problem, {}", counted(warnings, "warning"))),
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
    fn what_the_service_knows_to_be_wrong_is_told() {
        let health = json!({"issues": [{"component": "config", "message": "mcp.json: bad"}, {"component": "server"},
            {"component": "executions", "message": "POST .."}, {"component": "clock", "message": "is slow"}]});
        let mut told = more_issues(&health);
        assert_eq!(told.iter().map(|finding| finding.topic).collect::<Vec<_>>(), ["config", "calls", "service"]);
        assert_eq!(told.pop().map(|finding| finding.message).as_deref(), Some("clock: is slow"));
        assert!(told.iter().all(|finding| finding.level == Level::Problem && finding.advice.is_some()));
    }
}
