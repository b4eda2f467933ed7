//! `names`: what can stand behind a verb, for shells that complete it. Hidden: nobody types it.

use std::time::Duration;

use crate::arguments::manual::NamesArguments;
use crate::commands::{connection, list};
use crate::failure::Failure;
use crate::target::Target;
use crate::{local, output, session};

/// How long whoever knows may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Prints them, one a line. Where nothing can be found out, there are none: nobody wants to read why while typing.
pub(crate) fn run(arguments: &NamesArguments) -> Result<(), Failure> {
    let found = session::block_on(async {
        let found = async {
            match arguments.verb.as_str() {
                "call" | "off" => tools(arguments, true).await,
                "on" => tools(arguments, false).await,
                _ => servers(arguments).await,
            }
        };
        // A shell stands still meanwhile.
        Ok(tokio::time::timeout(PATIENCE, found).await)
    });
    let mut names = found?.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default();
    if arguments.verb == "connect" {
        names.extend(connection::CLIENTS.iter().map(|client| client.word().to_owned()));
    }
    names.retain(|name| is_safe(name));
    output::print_lines(&names)
}

/// A shell expands the words that it is offered: what a stranger called a tool must not become a command.
fn is_safe(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|letter| letter.is_alphanumeric() || "._-".contains(letter))
}

async fn servers(arguments: &NamesArguments) -> Result<Vec<String>, Failure> {
    let Some(target) = arguments.target.there().await? else { return Ok(Vec::new()) };
    let servers = list::servers(&target).await?;
    Ok(servers.iter().filter_map(|server| server["name"].as_str().map(str::to_owned)).collect())
}

/// The tools that are switched on, or off.
async fn tools(arguments: &NamesArguments, are_on: bool) -> Result<Vec<String>, Failure> {
    let tools = match arguments.target.there().await? {
        Some(Target::Service(service)) => service.get("/tools").await?,
        Some(Target::Registry(store)) => local::all_tools(&store).await?,
        None => return Ok(Vec::new()),
    };
    let on = tools.as_array().into_iter().flatten().filter(|tool| (tool["enabled"] != false) == are_on);
    Ok(on.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
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
