//! `search`: the tools that fit what somebody wants to do.

use serde_json::{Value, json};

use crate::arguments::tools::SearchArguments;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::session;
use crate::table::printable;

pub(crate) fn run(arguments: &SearchArguments) -> Result<(), Failure> {
    let mut body = json!({
        "query": arguments.query.join(" "),
        "limit": arguments.limit,
        "server_filter": arguments.server,
        "skill_filter": arguments.skill,
        "strategy": arguments.strategy.as_str(),
        "threshold": arguments.threshold,
    });
    body["include_schemas"] = Value::Bool(arguments.json);
    let tools = session::block_on(async { Ok(arguments.target.service().await?.list_for("/search", &body).await?) })?;
    if arguments.json {
        return output::print_json(&Value::Array(tools));
    }
    if tools.is_empty() {
        print_message(
            "nothing fits; only tools of connected servers are searched, and `mcp-aggregator list` shows those",
        );
        return Ok(());
    }
    output::print_lines(&table(["SCORE", "TOOL", "WHAT IT DOES"], tools.iter().map(row).collect()))
}

fn row(tool: &Value) -> [String; 3] {
    let description = tool["description"].as_str().unwrap_or_default();
    let first = description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    [format!("{:.2}", tool["score"].as_f64().unwrap_or_default()), text(tool, "name"), printable(first)]
}
