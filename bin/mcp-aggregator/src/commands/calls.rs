//! `calls`: the latest calls of tools; and an end to one of them, or to all.

use serde_json::Value;

use crate::arguments::diagnostics::{CallsArguments, CallsVerb};
use crate::client::{Client, encoded};
use crate::command_hint;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{self, moment, table, text};
use crate::session;
use crate::table::{printable, wrapped};

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
                    &format!("calls are refused from now on; {cancelled} were cancelled"),
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

/// Who names one call does not mean everybody's.
fn refuse_one(arguments: &CallsArguments) -> Result<(), Failure> {
    let word = match arguments.verb {
        Some(CallsVerb::Stop) => "stop",
        Some(CallsVerb::Allow) => "allow",
        Some(CallsVerb::Cancel) | None => return Ok(()),
    };
    let Some(id) = &arguments.id else { return Ok(()) };
    let id = command_hint::quoted(id);
    Err(Failure::usage(format!("`calls {word}` is about all calls, of everybody, and takes no ID"))
        .with_hint(format!("`mcp-aggregator calls cancel {id}` ends that one")))
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
        print_message("nobody has called a tool yet");
        return Ok(());
    }
    output::print_lines(&lines(&calls))
}

/// A line for each call; under one that can be cancelled, its id; under one that failed, why.
fn lines(calls: &[Value]) -> Vec<String> {
    let mut rows = table(["ASKED", "STATE", "TOOK", "BY", "TOOL"], calls.iter().map(row).collect()).into_iter();
    let mut lines: Vec<String> = rows.next().into_iter().collect();
    for (call, row) in calls.iter().zip(rows) {
        lines.push(row);
        if call["completed_at"].is_null() {
            lines.push(format!("  id: {}", text(call, "id")));
        }
        let why = call["error_message"].as_str().and_then(|why| why.lines().next()).map(printable);
        lines.extend(why.into_iter().flat_map(|why| wrapped(&format!("why: {why}"), server_view::NOTE)));
    }
    lines
}

fn row(call: &Value) -> [String; 5] {
    let took = call["duration_ms"].as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    let tool = format!("{}.{}", text(call, "server_name"), text(call, "tool_name"));
    // The client, and whose token it was, if that says more than the way it came.
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
    fn who_wants_to_end_a_call_sees_its_id_and_a_failure_says_why() {
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
    }
}
