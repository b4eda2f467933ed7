//! `calls`: the latest calls of tools; and an end to one of them, or to all.

use serde_json::Value;

use crate::arguments::care::{CallsArguments, CallsVerb};
use crate::client::{Client, encoded};
use crate::failure::Failure;
use crate::output::{self, say};
use crate::session;
use crate::shown::{self, moment, table, text};
use crate::table::printable;

pub(crate) fn run(arguments: &CallsArguments) -> Result<(), Failure> {
    session::block_on(async {
        let service = arguments.target.service().await?;
        match arguments.verb {
            None => list(arguments, &service).await,
            Some(CallsVerb::Stop) => {
                let stopped = service.post("/executions/stop", None).await?;
                let cancelled = &stopped["cancelled"];
                tell(arguments, &stopped, &format!("calls are refused from now on; {cancelled} were cancelled"))?;
                say("hint: `mcp-aggregator calls allow` allows them again");
                Ok(())
            }
            Some(CallsVerb::Allow) => {
                let allowed = service.post("/executions/reset", None).await?;
                tell(arguments, &allowed, "calls are allowed again")
            }
            Some(CallsVerb::Cancel) => {
                let id = arguments.id.as_deref().unwrap_or_default();
                let call = service.delete(&format!("/executions/{}", encoded(id))).await?;
                let words =
                    format!("{}.{}: {}", text(&call, "server_name"), text(&call, "tool_name"), text(&call, "status"));
                tell(arguments, &call, &words)
            }
        }
    })
}

fn tell(arguments: &CallsArguments, answer: &Value, words: &str) -> Result<(), Failure> {
    if arguments.json {
        return output::print_json(answer);
    }
    say(words);
    Ok(())
}

async fn list(arguments: &CallsArguments, service: &Client) -> Result<(), Failure> {
    let calls = service.get(&format!("/executions?limit={}", arguments.limit)).await?;
    if arguments.json {
        return output::print_json(&calls);
    }
    let rows: Vec<_> = calls.as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        say("nobody has called a tool yet");
        return Ok(());
    }
    output::print_lines(&table(["ASKED", "ID", "STATE", "TOOK", "TOOL", "WHY"], rows))
}

fn row(call: &Value) -> [String; 6] {
    let took = call["duration_ms"].as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    let why = call["error_message"].as_str().unwrap_or_default();
    let tool = format!("{}.{}", text(call, "server_name"), text(call, "tool_name"));
    [moment(call, "submitted_at"), text(call, "id"), shown::status(call), took, tool, printable(why)]
}
