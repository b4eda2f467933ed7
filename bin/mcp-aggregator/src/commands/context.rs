//! `context`: prints the tools that an assistant may use.

use std::path::Path;

use aggregator::NamePolicy;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use models::Format;
use serde_json::Value;

use crate::assistant::{NarrowingArguments, OfferedTools, ToolRequest};
use crate::cli::shared::ServersArguments;
use crate::failure::Failure;
use crate::table::{aligned, cut, printable, seen_width};
use crate::{config, documents, output, session, stderr_log};

/// Print the tools that an assistant may use, in the format of its provider.
///
/// These are the tools of connected servers, filtered by a line of a document, by server and by skill. Their names are
/// valid for every provider.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator context
  mcp-aggregator context --doc notes.md --line 40
  mcp-aggregator context --server github --format anthropic    the value of `tools` in a request"
)]
pub(crate) struct ContextArguments {
    #[command(flatten)]
    pub(crate) narrowing: NarrowingArguments,
    /// Print the tools in the request format of a provider: openai, openai-responses, anthropic or gemini
    #[arg(long, value_name = "FORMAT", value_parser = formats(), hide_possible_values = true)]
    pub(crate) format: Option<Format>,
    /// Print the response of the REST API, with all details
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) servers: ServersArguments,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::as_str)).try_map(|word| word.parse())
}

/// The minimum width of the description column, however long the names are.
const MIN_DESCRIPTION_WIDTH: usize = 20;

pub(crate) fn run(arguments: &ContextArguments) -> Result<(), Failure> {
    stderr_log::init(arguments.servers.debug);
    let wanted = ToolRequest::new(&arguments.narrowing, arguments.format)?;
    let offered = match &arguments.servers.config {
        Some(config) => by_config(config, &wanted)?,
        None => session::block_on(async {
            let service = arguments.servers.target.service().await?;
            OfferedTools::by_service(&service, &wanted).await
        })?,
    };
    offered.print_remarks();
    offered.print_cost();
    if arguments.json {
        return output::print_json(&offered.0);
    }
    if arguments.format.is_some() {
        return output::print_json(&offered.0["provider_tools"]);
    }
    output::print_lines(&lines(offered.tools()))?;
    let why = offered.0["why"].as_str().filter(|_| !offered.0["section_binding"].is_null());
    let why = why.map(|why| format!("; {}", printable(why))).unwrap_or_default();
    let count = offered.tools().len();
    output::print_message(format_args!("{count} tool{}{why}", if count == 1 { "" } else { "s" }));
    Ok(())
}

fn by_config(config: &Path, wanted: &ToolRequest) -> Result<OfferedTools, Failure> {
    let mut loaded = config::load(config)?;
    let servers = documents::servers_of_config(&loaded.config);
    let needed = wanted.needed(&servers)?;
    loaded.config.servers.retain(|spec| needed.iter().any(|name| name == spec.name.as_str()));
    let separator = crate::cli::shared::usual_separator();
    let options = session::options("mcp-aggregator", separator, NamePolicy::Canonical, session::NO_CAPABILITIES)?;
    session::with(loaded, options, async |session| {
        session.all_decided().await?;
        OfferedTools::by_config(session.fleet(), &servers, wanted)
    })
}

/// The name of a tool for models, its own name, and its description.
fn lines(tools: &[Value]) -> Vec<String> {
    let text = |tool: &Value, member: &str| printable(tool[member].as_str().unwrap_or_default());
    let widest = |member: &str| tools.iter().map(|tool| text(tool, member).chars().count()).max().unwrap_or_default();
    let taken = widest("safe_name") + widest("name") + 4;
    let room = seen_width().unwrap_or(usize::MAX).saturating_sub(taken).max(MIN_DESCRIPTION_WIDTH);
    let row = |tool: &Value| {
        let description = tool["description"].as_str().unwrap_or_default().trim().lines().next().unwrap_or_default();
        [text(tool, "safe_name"), text(tool, "name"), cut(&printable(description), room)]
    };
    aligned(&tools.iter().map(row).collect::<Vec<_>>())
}
