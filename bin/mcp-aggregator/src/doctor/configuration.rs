//! Checks the config: whether it is valid, its variables are set, and its programs exist.

use std::path::Path;

use aggregator::Accepted;
use aggregator::load::{self, LoadError, Loaded};
use catalog::config::{Problem, ProblemKind};
use catalog::{Config, ConfigError, Program, ServerSpec, Transport};
use serde_json::{Map, Value, json};

use super::diagnosis::Diagnosis;
use super::profiles;
use crate::assistant;
use crate::config::ConfigSource;
use crate::identity_args;

/// The default `PATH`.
const STANDARD_FOLDERS: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin"];

/// The findings about a config; and the config, if it can be used.
pub(crate) fn examine(path: &Path) -> (Vec<Diagnosis>, Option<Loaded>) {
    let source = match load::read(path) {
        Ok(source) => source,
        Err(error) => return (not_loaded(&error), None),
    };
    let (mut problems, loaded) = match load::parse(path, source.clone(), Accepted::All) {
        Ok(loaded) => (Vec::new(), loaded),
        Err(error) => match without_problems(path, &source) {
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
    let model = assistant::check(ConfigSource { path, bytes: &source });
    findings.extend(model.err().map(|failure| Diagnosis::problem("assistant", failure.message)));
    let identity = identity_args::check(ConfigSource { path, bytes: &source });
    findings.extend(identity.err().map(|failure| Diagnosis::problem("auth", failure.message)));
    findings.extend(loaded.config.warnings.iter().map(|warning| Diagnosis::warning("config", warning.to_string())));
    findings.extend(profiles::of_config(&loaded, path));
    findings.extend(loaded.config.servers.iter().filter_map(program));
    (findings, Some(loaded))
}

/// A config with problems, reduced to its valid servers. `None` if there are none.
fn without_problems(path: &Path, source: &[u8]) -> Option<Loaded> {
    // A file whose servers cannot be read has been reported.
    let servers = Config::entries(source, Accepted::All).ok()?;
    let reduced = |servers: &Map<String, Value>| {
        let source = json!({ "mcpServers": servers }).to_string().into_bytes();
        load::parse(path, source, Accepted::All).ok()
    };
    let is_fine = |name: &String, entry: &Value| reduced(&Map::from_iter([(name.clone(), entry.clone())])).is_some();
    let servers: Map<String, Value> = servers.into_iter().filter(|(name, entry)| is_fine(name, entry)).collect();
    if servers.is_empty() { None } else { reduced(&servers) }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The servers that can be used in spite of the problems of a file.
    fn usable(text: &str) -> Option<Vec<String>> {
        let loaded = without_problems(Path::new("/etc/mcp.json"), text.as_bytes())?;
        Some(loaded.config.servers.iter().map(|spec| spec.name.to_string()).collect())
    }

    #[test]
    fn a_file_with_problems_is_reduced_to_servers_that_every_other_command_would_use() {
        let text = "{ // ours\n \"mcpServers\": {\"bad\": {}, \"good\": {\"command\": \"x\"}, },\n}";
        assert_eq!(usable(text), Some(vec!["good".to_owned()]));
        let shadowed = r#"{"mcpServers": [], "servers": {"unused": {"command": "x"}}}"#;
        assert_eq!(usable(shadowed), None, "the first key counts, as everywhere");
        assert_eq!(usable("{"), None);
    }
}
