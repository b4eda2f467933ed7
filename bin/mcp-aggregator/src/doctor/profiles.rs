//! Profiles: whether they can be used, and patterns in them that match nothing.

use std::path::Path;

use aggregator::load::Loaded;
use catalog::profile::profiles_of_config;
use catalog::{ConfigError, Profile, Snapshot};
use serde_json::Value;

use super::diagnosis::Diagnosis;
use crate::client::Client;
use crate::table::printable;

/// What to do about a pattern.
const ADVICE: &str = "correct the profile; `mcp-aggregator profiles show NAME` shows what it admits";

/// The findings about the profiles of a config. Which items its servers have is known only if they were started.
pub(crate) fn of_config(loaded: &Loaded, path: &Path) -> Vec<Diagnosis> {
    let profiles = match profiles_of_config(&loaded.source) {
        Ok(profiles) => profiles,
        Err(ConfigError::Problems(problems)) => {
            let problem = |problem: &catalog::config::Problem| {
                Diagnosis::problem("profiles", format!("{} {}", problem.path, problem.message))
            };
            return problems.iter().map(problem).collect();
        }
        Err(error) => return vec![Diagnosis::problem("profiles", format!("{}: {error}", path.display()))],
    };
    let config = &loaded.config;
    let started = config.servers.iter().map(|server| server.name.as_str());
    let others = config.unset.iter().map(|server| &server.name).chain(&config.disabled);
    let known: Vec<&str> = started.chain(others.map(|name| name.as_str())).collect();
    let unknown = profiles.into_iter().flat_map(|(name, spec)| {
        let problems = Profile::new(&name, spec).unknown_servers(&known);
        problems.into_iter().map(move |problem| warning(&name, &problem.to_string())).collect::<Vec<_>>()
    });
    unknown.collect()
}

/// The findings about patterns of the config's profiles, when its servers were started.
pub(crate) fn of_started(source: &[u8], snapshot: &Snapshot) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for (name, spec) in profiles_of_config(source).unwrap_or_default() {
        for unmatched in Profile::new(&name, spec).unmatched(snapshot) {
            // Those of servers were reported before any was started.
            if unmatched.problem.member.first().is_none_or(|member| member != "servers") {
                findings.push(warning(&name, &unmatched.problem.to_string()));
            }
        }
    }
    findings
}

/// The findings of a running service.
pub(crate) async fn of_service(service: &Client) -> Vec<Diagnosis> {
    // A service that cannot be asked has been reported.
    let profiles = service.list("/profiles").await.unwrap_or_default();
    let mut findings = Vec::new();
    for profile in &profiles {
        let name = profile["name"].as_str().unwrap_or_default();
        let warnings = profile["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        findings.extend(warnings.map(|said| warning(name, said)));
    }
    findings
}

fn warning(profile: &str, said: &str) -> Diagnosis {
    Diagnosis::warning("profiles", format!("{}: {}", printable(profile), printable(said))).advise(ADVICE)
}
