//! Checks the config: whether it is valid, its variables are set, and its programs exist.

use std::fs;
use std::io::Write;
use std::path::Path;

use aggregator::Accepted;
use aggregator::load::{LoadError, Loaded};
use catalog::config::{Problem, ProblemKind};
use catalog::{Config, ConfigError, Program, ServerSpec, Transport};
use serde_json::{Map, Value, json};

use super::diagnosis::Diagnosis;
use crate::assistant;
use crate::config;
use crate::import::read_jsonc;

/// The default `PATH`.
const STANDARD_FOLDERS: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin"];

/// The findings about a config; and the config, if it can be used.
pub(crate) fn examine(path: &Path) -> (Vec<Diagnosis>, Option<Loaded>) {
    let (mut problems, loaded) = match config::read(path) {
        Ok(loaded) => (Vec::new(), loaded),
        Err(error) => match without_problems(path) {
            Some(loaded) => (not_loaded(&error), loaded),
            None => return (not_loaded(&error), None),
        },
    };
    let (enabled, disabled) = (loaded.config.servers.len(), loaded.config.disabled.len());
    let rest = if problems.is_empty() { "" } else { " without a problem in the config" };
    let servers = if enabled == 1 { "server" } else { "servers" };
    let mut findings =
        vec![Diagnosis::ok("config", format!("{}: {enabled} {servers}{rest}, {disabled} disabled", path.display()))];
    findings.append(&mut problems);
    // Its servers work without it, but `serve` and `ask` do not.
    findings.extend(assistant::check(path).err().map(|failure| Diagnosis::problem("assistant", failure.message)));
    findings.extend(loaded.config.warnings.iter().map(|warning| Diagnosis::warning("config", warning.to_string())));
    findings.extend(loaded.config.servers.iter().filter_map(program));
    (findings, Some(loaded))
}

/// A config with problems, reduced to its valid servers. `None` if there are none.
fn without_problems(path: &Path) -> Option<Loaded> {
    let whole: Value = read_jsonc(&fs::read_to_string(path).ok()?).ok()?;
    let key = ["mcpServers", "servers"].into_iter().find(|key| whole[*key].is_object())?;
    let alone = |name: &String, entry: &Value| json!({ key: { name: entry } }).to_string();
    let is_fine = |name: &String, entry: &Value| {
        Config::parse(alone(name, entry).as_bytes(), Accepted::All, |name| std::env::var(name).ok()).is_ok()
    };
    let servers = whole[key].as_object()?.clone().into_iter().filter(|(name, entry)| is_fine(name, entry));
    let servers: Map<String, Value> = servers.collect();
    if servers.is_empty() {
        return None;
    }
    // The temporary file may contain secrets: only the user can read it, and it is removed.
    let mut rest = tempfile::NamedTempFile::new().ok()?;
    rest.write_all(json!({ key: servers }).to_string().as_bytes()).ok()?;
    config::read(rest.path()).ok()
}

fn not_loaded(error: &LoadError) -> Vec<Diagnosis> {
    match error {
        LoadError::Invalid { source: ConfigError::Problems(problems), .. } => problems.iter().map(problem).collect(),
        other => {
            vec![Diagnosis::problem("config", other.to_string()).advise("`mcp-aggregator --help` describes the config")]
        }
    }
}

fn problem(problem: &Problem) -> Diagnosis {
    let finding = match problem.kind {
        ProblemKind::Schema => Diagnosis::problem("config", format!("{} {}", problem.path, problem.message)),
        ProblemKind::MissingVariable => Diagnosis::problem("environment", problem.message.clone())
            .advise("export it where you start mcp-aggregator, or write ${NAME:-default} in the config"),
    };
    match &problem.hint {
        Some(hint) => finding.advise(hint.clone()),
        None => finding,
    }
}

/// The path of a server's program, if the server is one.
fn program(spec: &ServerSpec) -> Option<Diagnosis> {
    let Transport::Stdio(program) = &spec.transport else { return None };
    let name = &spec.name;
    let found = match upstream::process::locate(program) {
        Ok(found) => found,
        Err(error) => {
            let advice = error.hint().unwrap_or("install it, or write the full path as `command`");
            return Some(Diagnosis::problem("program", format!("{name}: {error}")).advise(advice));
        }
    };
    let is_usual = is_a_path(program) || found.parent().is_some_and(is_usual);
    let message = format!("{name}: `{}` is {}", program.command.shown(), shown(program, &found));
    Some(match is_usual {
        true => Diagnosis::ok("program", message),
        false => Diagnosis::ok("program", format!("{message}; desktop programs may not search that folder")),
    })
}

/// The value of a variable may be a secret.
fn shown(program: &Program, found: &Path) -> String {
    if program.command.has_variables() { "there".to_owned() } else { found.display().to_string() }
}

fn is_a_path(program: &Program) -> bool {
    program.command.value.contains('/')
}

fn is_usual(folder: &Path) -> bool {
    STANDARD_FOLDERS.iter().any(|usual| folder == Path::new(usual))
}
