//! `names`: what can stand where a command line ends, for shells that complete it; `place`: what that is. Hidden: nobody
//! types it.

mod position;

use std::time::Duration;

use clap::{Args, FromArgMatches};
use serde_json::Value;

use crate::arguments::completions::NamesArguments;
use crate::arguments::whole_command;
use crate::commands::{client, list};
use crate::failure::Failure;
use crate::import::clients::Client;
use crate::target::{Target, TargetArguments};
use crate::{local_registry, output, session};
use position::Place;

/// How long whoever knows may take to answer.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints them, one a line. Where nothing can be found out, there are none: nobody wants to read why while typing. Where
/// something else stands than names, it fails, and the shell goes by what it knows itself.
pub(crate) fn run(arguments: &NamesArguments) -> Result<(), Failure> {
    let mut whole = whole_command();
    whole.build();
    if let [help, _] = arguments.words.as_slice()
        && help == "help"
    {
        return output::print_lines(&verbs(&whole));
    }
    let place = Place::of(&whole, &arguments.words).ok_or_else(|| Failure::new("no name stands there"))?;
    let verb = place.verbs.last().map(String::as_str).unwrap_or_default();
    let mut names = match (verb, place.argument.as_str()) {
        ("connect", "server") => {
            let clients = client::CLIENTS.iter().map(|client| client.word().to_owned());
            candidates_from(&place, Wanted::Servers)?.into_iter().chain(clients).collect()
        }
        ("tools", "name") => {
            let servers = candidates_from(&place, Wanted::Servers)?;
            candidates_from(&place, Wanted::Tools { are_on: true })?.into_iter().chain(servers).collect()
        }
        (_, "server") => candidates_from(&place, Wanted::Servers)?,
        ("call", "tool") | ("off", "names") => candidates_from(&place, Wanted::Tools { are_on: true })?,
        ("on", "names") => candidates_from(&place, Wanted::Tools { are_on: false })?,
        ("get", "name") => candidates_from(&place, Wanted::Prompts)?,
        ("settings", "key") => setting_names(),
        (_, "skill") => candidates_from(&place, Wanted::Skills)?,
        ("import", "from") => Client::ALL.iter().map(|client| client.word().to_owned()).collect(),
        ("man", "command") => verbs(&whole),
        _ if !place.values.is_empty() => place.values,
        _ => return Err(Failure::new("no name stands there")),
    };
    names.retain(|name| is_safe(name));
    output::print_lines(&names)
}

fn verbs(whole: &clap::Command) -> Vec<String> {
    let seen = whole.get_subcommands().filter(|verb| !verb.is_hide_set());
    seen.map(|verb| verb.get_name().to_owned()).collect()
}

/// What only the service or the registry knows.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Servers,
    /// Those that are switched on, or off.
    Tools {
        are_on: bool,
    },
    Skills,
    Prompts,
}

fn candidates_from(place: &Place, wanted: Wanted) -> Result<Vec<String>, Failure> {
    let command = TargetArguments::augment_args(clap::Command::new("names").no_binary_name(true));
    let unfit = |error: clap::Error| Failure::usage(error.to_string());
    let matches = command.try_get_matches_from(&place.target).map_err(unfit)?;
    let target = TargetArguments::from_arg_matches(&matches).map_err(unfit)?;
    let found = async {
        match wanted {
            Wanted::Servers => servers(&target).await,
            Wanted::Tools { are_on } => tools(&target, are_on).await,
            Wanted::Skills => skills(&target).await,
            Wanted::Prompts => prompts(&target).await,
        }
    };
    // A shell stands still meanwhile.
    let found = session::block_on(async { Ok(tokio::time::timeout(COMPLETION_TIMEOUT, found).await) })?;
    Ok(found.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default())
}

/// A shell expands the words that it is offered: what a stranger called a tool must not become a command.
fn is_safe(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|letter| letter.is_alphanumeric() || "._-".contains(letter))
}

async fn servers(target: &TargetArguments) -> Result<Vec<String>, Failure> {
    let Some(target) = target.find_existing().await? else { return Ok(Vec::new()) };
    Ok(named(&list::servers(&target).await?, "name"))
}

async fn tools(target: &TargetArguments, are_on: bool) -> Result<Vec<String>, Failure> {
    let tools = match target.find_existing().await? {
        Some(Target::Service(service)) => service.get("/tools").await?,
        Some(Target::Registry(store)) => local_registry::all_tools(&store).await?,
        None => return Ok(Vec::new()),
    };
    let on = tools.as_array().into_iter().flatten().filter(|tool| (tool["enabled"] != false) == are_on);
    Ok(named(on, "name"))
}

async fn skills(target: &TargetArguments) -> Result<Vec<String>, Failure> {
    let Some(Target::Service(service)) = target.find_existing().await? else { return Ok(Vec::new()) };
    let skills = service.get("/skills").await?;
    Ok(named(skills.as_array().into_iter().flatten(), "id"))
}

async fn prompts(target: &TargetArguments) -> Result<Vec<String>, Failure> {
    let Some(Target::Service(service)) = target.find_existing().await? else { return Ok(Vec::new()) };
    Ok(named(service.get("/prompts").await?.as_array().into_iter().flatten(), "name"))
}

fn setting_names() -> Vec<String> {
    let defaults = serde_json::json!(service::Settings::default());
    defaults.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

fn named<'v>(things: impl IntoIterator<Item = &'v Value>, by: &str) -> Vec<String> {
    things.into_iter().filter_map(|thing| thing[by].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_expand_is_not_offered() {
        for (name, is_fine) in [
            ("git.log", true),
            ("a-b_c", true),
            ("x.$(rm -rf ~)", false),
            ("a`b`", false),
            ("a b", false),
            ("-x", false),
        ] {
            assert_eq!(is_safe(name), is_fine, "{name}");
        }
    }
}
