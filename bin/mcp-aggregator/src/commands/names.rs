//! `names`, hidden: prints completions for the end of a command line; `position`: what is expected there.

mod position;

use std::time::Duration;

use clap::{Args, FromArgMatches};
use position::Position;
use serde_json::Value;

use crate::cli::whole_command;
use crate::commands::{client, list};
use crate::failure::Failure;
use crate::import::clients::Client;
use crate::target::{Target, TargetArguments};
use crate::{local_registry, output, session};

/// Print completions for an unfinished command line.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct NamesArguments {
    /// The words after `mcp-aggregator`; the last one is unfinished
    #[arg(value_name = "WORDS", last = true)]
    pub(crate) words: Vec<String>,
}

/// The timeout of the service or the registry.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints candidates, one per line. If they cannot be determined, it prints none, because an error would disturb
/// typing. If something else than a name is expected, it fails, and the shell uses its own completion.
pub(crate) fn run(arguments: &NamesArguments) -> Result<(), Failure> {
    let mut whole = whole_command();
    whole.build();
    if let [help, _] = arguments.words.as_slice()
        && help == "help"
    {
        return output::print_lines(&verbs(&whole));
    }
    let position = Position::of(&whole, &arguments.words).ok_or_else(|| Failure::new("no name is expected there"))?;
    let verb = position.verbs.last().map(String::as_str).unwrap_or_default();
    let mut names = match (verb, position.argument.as_str()) {
        ("connect", "server") => {
            let clients = client::CLIENTS.iter().map(|client| client.as_str().to_owned());
            candidates_from(&position, Wanted::Servers)?.into_iter().chain(clients).collect()
        }
        ("tools", "name") => {
            let servers = candidates_from(&position, Wanted::Servers)?;
            candidates_from(&position, Wanted::Tools { are_on: true })?.into_iter().chain(servers).collect()
        }
        (_, "server") => candidates_from(&position, Wanted::Servers)?,
        ("call", "tool") | ("off", "names") => candidates_from(&position, Wanted::Tools { are_on: true })?,
        ("on", "names") => candidates_from(&position, Wanted::Tools { are_on: false })?,
        ("get", "name") => candidates_from(&position, Wanted::Prompts)?,
        ("settings", "key") => setting_names(),
        (_, "skill") => candidates_from(&position, Wanted::Skills)?,
        ("import", "from") => Client::ALL.iter().map(|client| client.as_str().to_owned()).collect(),
        ("man", "command") => verbs(&whole),
        _ if !position.values.is_empty() => position.values,
        _ => return Err(Failure::new("no name is expected there")),
    };
    names.retain(|name| is_safe(name));
    output::print_lines(&names)
}

fn verbs(whole: &clap::Command) -> Vec<String> {
    let seen = whole.get_subcommands().filter(|verb| !verb.is_hide_set());
    seen.map(|verb| verb.get_name().to_owned()).collect()
}

/// Names that only the service or the registry knows.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Servers,
    /// Enabled ones, or disabled ones.
    Tools {
        are_on: bool,
    },
    Skills,
    Prompts,
}

fn candidates_from(position: &Position, wanted: Wanted) -> Result<Vec<String>, Failure> {
    let command = TargetArguments::augment_args(clap::Command::new("names").no_binary_name(true));
    let unfit = |error: clap::Error| Failure::usage(error.to_string());
    let matches = command.try_get_matches_from(&position.target).map_err(unfit)?;
    let target = TargetArguments::from_arg_matches(&matches).map_err(unfit)?;
    let found = async {
        match wanted {
            Wanted::Servers => servers(&target).await,
            Wanted::Tools { are_on } => tools(&target, are_on).await,
            Wanted::Skills => skills(&target).await,
            Wanted::Prompts => prompts(&target).await,
        }
    };
    // The shell waits for this command.
    let found = session::block_on(async { Ok(tokio::time::timeout(COMPLETION_TIMEOUT, found).await) })?;
    Ok(found.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default())
}

/// A shell expands candidates: a name from a server must not become a command.
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
