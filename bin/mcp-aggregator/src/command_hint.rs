//! Completes commands in messages with the options that select the service or the registry.
//!
//! A user who typed `--data-dir D` and follows the hint `mcp-aggregator list` would see another registry without that
//! option.

use std::sync::OnceLock;

use clap::ArgMatches;
use registry::Location;

use crate::cli::{is_typed, whole_command};

/// These options.
const OPTIONS: [(&str, &str); 5] = [
    ("url", "--url"),
    ("token_file", "--token-file"),
    ("data_dir", "--data-dir"),
    ("database", "--database"),
    ("database_schema", "--database-schema"),
];
const BEGINNING: &str = "mcp-aggregator ";

/// The options that the user typed, with their values.
static TYPED: OnceLock<Vec<(&'static str, String)>> = OnceLock::new();

/// Records the options that the user typed.
pub(crate) fn remember(verb: &ArgMatches) {
    let typed = OPTIONS.iter().filter(|(id, _)| is_typed(verb, id));
    let typed = typed.filter_map(|(id, option)| {
        let value = verb.get_raw(id)?.next()?.to_string_lossy();
        Some((*option, quoted(&without_password(id, &value))))
    });
    // Only the first call counts: there is one command line.
    TYPED.get_or_init(|| typed.collect());
}

/// The options for display: users paste messages into tickets.
fn without_password(id: &str, value: &str) -> String {
    match Location::parse(value) {
        Ok(location @ Location::Postgres(_)) if id == "database" => location.to_string(),
        _ => registry::masked_address(value),
    }
}

/// The message with all commands in backticks completed.
pub(crate) fn completed(words: &str) -> String {
    let typed = TYPED.get().map(Vec::as_slice).unwrap_or_default();
    if typed.is_empty() || !words.contains(BEGINNING) {
        return words.to_owned();
    }
    let parts = words.split('`').enumerate();
    let parts = parts.map(|(place, part)| if place % 2 == 1 { with_options(part, typed) } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`")
}

/// A command with those options that it supports and does not have.
fn with_options(command: &str, typed: &[(&'static str, String)]) -> String {
    let Some(rest) = command.strip_prefix(BEGINNING) else { return command.to_owned() };
    let whole = whole_command();
    let mut verb = &whole;
    for word in rest.split_whitespace() {
        let Some(below) = verb.find_subcommand(word) else { break };
        verb = below;
    }
    let is_known = |option: &str| verb.get_arguments().any(|known| known.get_long() == option.strip_prefix("--"));
    let is_missing = |option: &str| !command.split_whitespace().any(|word| word == option || word == "--config");
    let more: String = typed
        .iter()
        .filter(|(option, _)| is_known(option) && is_missing(option))
        .map(|(option, value)| format!(" {option} {value}"))
        .collect();
    // Arguments after `--` are for another program.
    match command.split_once(" -- ") {
        Some((ours, theirs)) => format!("{ours}{more} -- {theirs}"),
        None => format!("{command}{more}"),
    }
}

/// Quotes a word for a shell.
pub(crate) fn quoted(value: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-:@%+=,~".contains(letter);
    if !value.is_empty() && value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_gets_the_options_that_it_knows() {
        let typed = [("--token-file", "t".to_owned()), ("--data-dir", quoted("/my data"))];
        let command = |command: &str| with_options(command, &typed);
        assert_eq!(command("mcp-aggregator list"), "mcp-aggregator list --token-file t --data-dir '/my data'");
        assert_eq!(command("mcp-aggregator serve"), "mcp-aggregator serve --token-file t --data-dir '/my data'");
        assert_eq!(
            command("mcp-aggregator doc map a.md"),
            "mcp-aggregator doc map a.md --token-file t --data-dir '/my data'"
        );
        assert_eq!(command("mcp-aggregator --help"), "mcp-aggregator --help");
        assert_eq!(command("mcp-aggregator tools --config c"), "mcp-aggregator tools --config c");
        let added = "mcp-aggregator add a --token-file t --data-dir '/my data' -- x";
        assert_eq!(command("mcp-aggregator add a -- x"), added);
        assert_eq!(command("docker info"), "docker info");
    }

    #[test]
    fn a_password_is_not_repeated() {
        let shown = without_password("database", "postgres://me:hunter2@127.0.0.1:5432/reg");
        assert!(shown.contains("127.0.0.1:5432/reg") && !shown.contains("hunter2"), "{shown}");
        assert_eq!(without_password("database", "./a.db"), "./a.db");
    }

    #[test]
    fn what_is_typed_for_a_shell_is_quoted() {
        assert_eq!(quoted("http://127.0.0.1:8808"), "http://127.0.0.1:8808");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
