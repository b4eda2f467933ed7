//! `search`: searches tools by what they do.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use tool_search::Strategy;

use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::session;
use crate::table::printable;
use crate::target::TargetArguments;

/// Search the tools of connected servers by what they do. Needs a running service.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator search create an issue
  mcp-aggregator search \"rename a file\" --server files --limit 3"
)]
pub(crate) struct SearchArguments {
    /// What you want to do, in plain words
    #[arg(value_name = "WORDS", required = true)]
    pub(crate) query: Vec<String>,
    /// The maximum number of tools
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Only tools of this server, by name or id; may be repeated
    #[arg(long, value_name = "SERVER")]
    pub(crate) server: Vec<String>,
    /// Only tools with this skill, by name or id; may be repeated
    #[arg(long, value_name = "SKILL")]
    pub(crate) skill: Vec<String>,
    /// Search all tools, or search skills first and then their tools
    #[arg(long, value_name = "direct|hierarchical", default_value = "direct",
        value_parser = strategies(), hide_possible_values = true)]
    pub(crate) strategy: Strategy,
    /// Only tools with at least this score, from 0 to 1
    #[arg(long, value_name = "SCORE", default_value_t = 0.0)]
    pub(crate) threshold: f32,
    /// Print the response of the REST API, with the input schema of each tool
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

fn strategies() -> impl TypedValueParser<Value = Strategy> {
    PossibleValuesParser::new(Strategy::ALL.map(Strategy::as_str)).map(|word| word.parse().expect("it is one of them"))
}

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
    let (tools, note) = session::block_on(async { Ok(arguments.target.service().await?.search(&body).await?) })?;
    if let Some(note) = note {
        print_message(note);
    }
    if arguments.json {
        return output::print_json(&Value::Array(tools));
    }
    if tools.is_empty() {
        print_message("no tool matches; only connected servers are searched, `mcp-aggregator list` lists all");
        return Ok(());
    }
    output::print_lines(&table(["SCORE", "TOOL", "WHAT IT DOES"], tools.iter().map(row).collect()))
}

fn row(tool: &Value) -> [String; 3] {
    let description = tool["description"].as_str().unwrap_or_default();
    let first = description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    [format!("{:.2}", tool["score"].as_f64().unwrap_or_default()), text(tool, "name"), printable(first)]
}
