//! A profile of a config file, for a command that serves one client.

use std::path::Path;
use std::sync::Arc;

use aggregator::Fleet;
use aggregator::load::{LoadError, Loaded};
use catalog::Profile;
use catalog::profile::profiles_of_config;

use crate::failure::Failure;
use crate::{config, suggestion};

/// The profile of that name. Servers that it hides are removed from the config, so they are not even started.
pub(crate) fn apply(name: &str, loaded: &mut Loaded, path: &Path) -> Result<Arc<Profile>, Failure> {
    let invalid = |source| LoadError::Invalid { path: path.to_owned(), source };
    let profiles = profiles_of_config(&loaded.source).map_err(|source| config::explain(&invalid(source)))?;
    let names: Vec<String> = profiles.iter().map(|(name, _)| name.clone()).collect();
    let Some((_, spec)) = profiles.into_iter().find(|(known, _)| known == name) else {
        let message = format!("there is no profile `{name}` in {}", path.display());
        let close = suggestion::among(name, names.iter().map(String::as_str));
        let hint = close.unwrap_or_else(|| match names.is_empty() {
            true => "the file has no profiles; add them under \"profiles\"".to_owned(),
            false => format!("the file has {}", names.join(", ")),
        });
        return Err(Failure::usage(message).of_kind("PROFILE_NOT_FOUND").with_hint(hint));
    };
    let profile = Profile::new(name, spec);
    let config = &mut loaded.config;
    let started = config.servers.iter().map(|server| &server.name);
    let others = config.unset.iter().map(|server| &server.name).chain(&config.disabled);
    let known: Vec<&str> = started.chain(others).map(|name| name.as_str()).collect();
    if let Some(problem) = profile.unknown_servers(&known).first() {
        return Err(Failure::new(format!("profile `{name}`: {problem}")).of_kind("INVALID_SCHEMA"));
    }
    config.servers.retain(|server| profile.has_server(server.name.as_str()));
    config.unset.retain(|server| profile.has_server(server.name.as_str()));
    Ok(profile)
}

/// Reports patterns that match nothing, when all servers are up or down.
pub(crate) async fn report_unmatched(fleet: Arc<Fleet>, profile: Arc<Profile>) {
    fleet.all_decided().await;
    // The servers are known from the config; hidden ones are not in the snapshot.
    let unmatched = profile.unmatched(&fleet.view().snapshot);
    for unmatched in unmatched.into_iter().filter(|it| it.problem.member.first().is_none_or(|it| it != "servers")) {
        tracing::warn!(profile = %profile.name(), "{}", unmatched.problem);
    }
}
