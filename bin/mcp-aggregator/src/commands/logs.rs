//! `logs`: prints the stderr of a server.

use std::io::{self, IsTerminal};

use clap::Args;
use protocol::escape;
use serde_json::{Value, json};

use crate::cli::shared::OneServer;
use crate::client::{Client, encoded};
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::session;

/// Print the stderr of a server. Needs a running service.
///
/// The service keeps the last 200 lines of each server that it starts as a program or in a container, and masks
/// secrets in them.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator logs memory
  mcp-aggregator logs memory -f
  mcp-aggregator logs memory --lines 20"
)]
pub(crate) struct LogsArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
    /// Keep printing new lines until Ctrl-C; with --json, one object per line
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print only the last N lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) lines: Option<u32>,
}

pub(crate) fn run(arguments: &LogsArguments) -> Result<(), Failure> {
    session::block_on(async {
        let service = arguments.one.target.service().await?;
        let path = format!("/servers/{}/log", encoded(&arguments.one.server));
        if arguments.follow {
            follow(arguments, &service, &path).await
        } else {
            print(arguments, &service, &path).await
        }
    })
}

async fn print(arguments: &LogsArguments, service: &Client, path: &str) -> Result<(), Failure> {
    let log = last_of(&service.get(path).await?, arguments.lines);
    if arguments.one.json {
        return output::print_json(&log);
    }
    print_missed(&log);
    output::print(lines_of(&log).as_bytes())?;
    if log["lines"].as_array().is_none_or(Vec::is_empty) {
        let server = service.get(&format!("/servers/{}", encoded(&arguments.one.server))).await?;
        print_message(why_empty(&arguments.one.server, &server));
    }
    Ok(())
}

/// Prints existing and new lines until the service ends the stream or stdout is closed.
async fn follow(arguments: &LogsArguments, service: &Client, path: &str) -> Result<(), Failure> {
    let mut on_event = |kind: &str, log: &Value| {
        let log = match kind {
            "log.tail" => last_of(log, arguments.lines),
            "log.lines" => log.clone(),
            _ => return Ok(true),
        };
        if arguments.one.json {
            return output::print_while_read(format!("{log}\n").as_bytes());
        }
        print_missed(&log);
        output::print_while_read(lines_of(&log).as_bytes())
    };
    service.follow(path, &mut on_event).await
}

/// The log, limited to its last lines.
fn last_of(log: &Value, most: Option<u32>) -> Value {
    let lines = log["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    json!({ "lines": lines[lines.len().saturating_sub(most)..], "missed": log["missed"] })
}

fn print_missed(log: &Value) {
    if let Some(missed @ 1..) = log["missed"].as_u64() {
        print_message(format_args!("note: {missed} earlier lines are missing: they came too fast"));
    }
}

/// The output of a server is untrusted: it is escaped on a terminal.
fn lines_of(log: &Value) -> String {
    let is_terminal = io::stdout().is_terminal();
    let lines = log["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let shown = |line: &str| if is_terminal { escape::multi_line(line).into_owned() } else { line.to_owned() };
    lines.map(|line| shown(line) + "\n").collect()
}

fn why_empty(name: &str, server: &Value) -> String {
    let config = &server["connection_config"];
    if config["command"].is_string() || config["docker"].is_object() {
        return format!("`{name}` has written nothing to stderr");
    }
    format!("`{name}` is a remote server: only servers that the service starts have a log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_printed_on_request() {
        let log = json!({"lines": ["a", "b", "c"], "missed": 2});
        assert_eq!(last_of(&log, Some(2)), json!({"lines": ["b", "c"], "missed": 2}));
        assert_eq!(last_of(&log, None), log);
        assert_eq!(lines_of(&log), "a\nb\nc\n");
    }

    #[test]
    fn a_remote_server_has_no_log() {
        assert!(why_empty("a", &json!({"connection_config": {"url": "http://x"}})).contains("is a remote server"));
        assert!(why_empty("a", &json!({"connection_config": {"command": "x"}})).contains("nothing to stderr"));
    }
}
