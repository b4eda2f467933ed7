//! `calls`: lists the latest tool calls; cancels one, or all.

use clap::Args;
use executions::with_local_times;
use serde_json::Value;

use crate::cli::shared::REST_JSON;
use crate::client::{Client, encoded};
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{self, moment, table, text};
use crate::table::{printable, wrapped};
use crate::target::TargetArguments;
use crate::{command_hint, session};

/// List the latest tool calls, cancel one, or stop and allow all calls. Needs a running service.
///
/// `calls cancel ID` cancels one call. `calls stop` cancels every call and refuses new ones from all clients until
/// `calls allow`, even after a restart. The service itself keeps running.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator calls
  mcp-aggregator calls --limit 100 --json | jq '.[] | select(.status == \"error\")'
  mcp-aggregator calls cancel 0199c0de-0000-7000-8000-000000000000
  mcp-aggregator calls stop
  mcp-aggregator calls allow"
)]
pub(crate) struct CallsArguments {
    /// What to do with calls
    #[arg(value_name = "stop|allow|cancel", hide_possible_values = true)]
    pub(crate) verb: Option<CallsVerb>,
    /// The call to cancel
    #[arg(value_name = "ID", required_if_eq("verb", "cancel"))]
    pub(crate) id: Option<String>,
    /// The maximum number of calls to list
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// What to do with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CallsVerb {
    Stop,
    Allow,
    Cancel,
}

pub(crate) fn run(arguments: &CallsArguments) -> Result<(), Failure> {
    refuse_one(arguments)?;
    session::block_on(async {
        let service = arguments.target.service().await?;
        match arguments.verb {
            None => list(arguments, &service).await,
            Some(CallsVerb::Stop) => {
                let stopped = service.post("/executions/stop", None).await?;
                let cancelled = &stopped["cancelled"];
                print_outcome(
                    arguments,
                    &stopped,
                    &format!("new calls are refused; {cancelled} calls were cancelled"),
                )?;
                print_message("hint: `mcp-aggregator calls allow` allows them again");
                Ok(())
            }
            Some(CallsVerb::Allow) => {
                let allowed = service.post("/executions/reset", None).await?;
                print_outcome(arguments, &allowed, "calls are allowed again")
            }
            Some(CallsVerb::Cancel) => {
                let id = arguments.id.as_deref().unwrap_or_default();
                let call = service.delete(&format!("/executions/{}", encoded(id))).await?;
                let words =
                    format!("{}.{}: {}", text(&call, "server_name"), text(&call, "tool_name"), text(&call, "status"));
                print_outcome(arguments, &call, &words)
            }
        }
    })
}

/// Refuses an id before `stop` or `allow`, which concern all calls.
fn refuse_one(arguments: &CallsArguments) -> Result<(), Failure> {
    let word = match arguments.verb {
        Some(CallsVerb::Stop) => "stop",
        Some(CallsVerb::Allow) => "allow",
        Some(CallsVerb::Cancel) | None => return Ok(()),
    };
    let Some(id) = &arguments.id else { return Ok(()) };
    let id = command_hint::quoted(id);
    Err(Failure::usage(format!("`calls {word}` applies to all calls of all clients, and takes no ID"))
        .with_hint(format!("`mcp-aggregator calls cancel {id}` cancels that one")))
}

fn print_outcome(arguments: &CallsArguments, answer: &Value, words: &str) -> Result<(), Failure> {
    if arguments.json {
        return output::print_json(answer);
    }
    print_message(words);
    Ok(())
}

async fn list(arguments: &CallsArguments, service: &Client) -> Result<(), Failure> {
    let calls = service.list(&format!("/executions?limit={}", arguments.limit)).await?;
    if arguments.json {
        return output::print_json(&Value::Array(calls));
    }
    if calls.is_empty() {
        print_message("there are no calls yet");
        return Ok(());
    }
    output::print_lines(&lines(&calls))
}

/// A row for each call; below it the id of a running call, or the error of a failed one.
fn lines(calls: &[Value]) -> Vec<String> {
    let mut rows = table(["ASKED", "STATE", "TOOK", "BY", "TOOL"], calls.iter().map(row).collect()).into_iter();
    let mut lines: Vec<String> = rows.next().into_iter().collect();
    for (call, row) in calls.iter().zip(rows) {
        lines.push(row);
        if call["completed_at"].is_null() {
            lines.push(format!("  id: {}", text(call, "id")));
        }
        let why = call["error_message"].as_str().map(with_local_times);
        let why = why.as_deref().and_then(|why| why.lines().next()).map(printable);
        lines.extend(why.into_iter().flat_map(|why| wrapped(&format!("why: {why}"), server_view::NOTE)));
    }
    lines
}

fn row(call: &Value) -> [String; 5] {
    let took = call["duration_ms"].as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    let tool = format!("{}.{}", text(call, "server_name"), text(call, "tool_name"));
    // The client and its token, if that says more than the source.
    let known = ["client", "caller"].map(|key| text(call, key));
    let known: Vec<String> = known.into_iter().filter(|word| !["-", "rest"].contains(&word.as_str())).collect();
    let by = match known.as_slice() {
        [] => text(call, "source"),
        known => format!("{} ({})", text(call, "source"), known.join(", ")),
    };
    [moment(call, "submitted_at"), server_view::status(call), took, by, tool]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn running_calls_are_listed_with_their_ids_and_failed_ones_with_the_reason() {
        let call = |status: &str, completed: Option<&str>, why: Option<&str>| {
            json!({"id": "0199", "server_name": "git", "tool_name": "log", "source": "cli", "status": status,
                "submitted_at": "2026-07-28T12:00:00Z", "completed_at": completed, "duration_ms": 1.25,
                "error_message": why})
        };
        let over = Some("2026-07-28T12:00:01Z");
        let calls = [call("executing", None, None), call("error", over, Some("no\nmore")), call("done", over, None)];
        let asked = moment(&calls[0], "submitted_at");
        assert_eq!(
            lines(&calls)[1..],
            [
                format!("{asked}  executing  1.2 ms  cli  git.log"),
                "  id: 0199".to_owned(),
                format!("{asked}  error      1.2 ms  cli  git.log"),
                "  why: no".to_owned(),
                format!("{asked}  done       1.2 ms  cli  git.log"),
            ]
        );
        let why = "Server `git` is not available: error since 2026-07-28T12:00:00Z";
        let lines = lines(&[call("error", over, Some(why))]);
        assert_eq!(lines[2], format!("  why: Server `git` is not available: error since {asked}"));
    }
}
