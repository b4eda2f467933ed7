//! The config: whether it can be read, whether its variables are set, and whether its programs are there.

use std::path::Path;

use aggregator::load::{LoadError, Loaded};
use catalog::config::{Problem, ProblemKind};
use catalog::{ConfigError, Program, ServerSpec, Transport};

use super::finding::Finding;
use crate::config;

/// Where every program looks, however it was started.
const USUAL_FOLDERS: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin"];

/// What is to be said about a config; and the config, if it can be run.
pub(crate) fn examine(path: &Path) -> (Vec<Finding>, Option<Loaded>) {
    let loaded = match config::read(path) {
        Ok(loaded) => loaded,
        Err(error) => return (not_loaded(&error), None),
    };
    let (enabled, disabled) = (loaded.config.servers.len(), loaded.config.disabled.len());
    let mut findings =
        vec![Finding::ok("config", format!("{}: {enabled} servers, {disabled} disabled", path.display()))];
    findings.extend(loaded.config.warnings.iter().map(|warning| Finding::warning("config", warning.to_string())));
    findings.extend(loaded.config.servers.iter().filter_map(program));
    (findings, Some(loaded))
}

fn not_loaded(error: &LoadError) -> Vec<Finding> {
    match error {
        LoadError::Invalid { source: ConfigError::Problems(problems), .. } => problems.iter().map(problem).collect(),
        other => vec![
            Finding::problem("config", other.to_string()).advise("`mcp-aggregator help check` shows what a config is"),
        ],
    }
}

fn problem(problem: &Problem) -> Finding {
    let finding = match problem.kind {
        ProblemKind::Schema => Finding::problem("config", format!("{} {}", problem.path, problem.message)),
        ProblemKind::MissingVariable => Finding::problem("environment", problem.message.clone())
            .advise("export it where this program is started, or write ${NAME:-default} in the config"),
    };
    match &problem.hint {
        Some(hint) => finding.advise(hint.clone()),
        None => finding,
    }
}

/// Where the program of a server is, if it is a program.
fn program(spec: &ServerSpec) -> Option<Finding> {
    let Transport::Stdio(program) = &spec.transport else { return None };
    let name = &spec.name;
    let found = match upstream::process::locate(program) {
        Ok(found) => found,
        Err(error) => {
            let advice = "install it, or write the full path as `command`";
            return Some(Finding::problem("program", format!("{name}: {error}")).advise(advice));
        }
    };
    let is_usual = is_a_path(program) || found.parent().is_some_and(is_usual);
    let message = format!("{name}: `{}` is {}", program.command.shown(), shown(program, &found));
    Some(match is_usual {
        true => Finding::ok("program", message),
        false => Finding::ok("program", format!("{message}; desktop programs may not look there")),
    })
}

/// What a variable was filled with may be a secret.
fn shown(program: &Program, found: &Path) -> String {
    if program.command.has_variables() { "there".to_owned() } else { found.display().to_string() }
}

fn is_a_path(program: &Program) -> bool {
    program.command.value.contains('/')
}

fn is_usual(folder: &Path) -> bool {
    USUAL_FOLDERS.iter().any(|usual| folder == Path::new(usual))
}
