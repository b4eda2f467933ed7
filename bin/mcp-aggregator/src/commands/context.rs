//! `context`: the tools that an assistant may use.

use std::path::Path;

use aggregator::NamePolicy;
use serde_json::Value;

use crate::arguments::assistant::ContextArguments;
use crate::assistant::{OfferedTools, ToolRequest};
use crate::failure::Failure;
use crate::table::{aligned, cut, printable, seen_width};
use crate::{config, documents, output, session, stderr_log};

/// However long the names are, this much of each description is shown.
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
    let separator = crate::arguments::usual_separator();
    let options = session::options("mcp-aggregator", separator, NamePolicy::Canonical, session::NOTHING)?;
    session::with(loaded, options, async |session| {
        session.all_decided().await?;
        OfferedTools::by_config(session.fleet(), &servers, wanted)
    })
}

/// The name that models know a tool by, its own, and what it does.
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
