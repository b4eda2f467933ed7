//! `history`: lists the events of a server's connection.

use clap::Args;
use serde_json::Value;

use crate::cli::shared::OneServer;
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{moment, text, wrapping_table};
use crate::table::printable;
use crate::target::Target;
use crate::{local_registry, session};

/// Show the connection history of a server, newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator history memory
  mcp-aggregator history memory --limit 3 --json")]
pub(crate) struct HistoryArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
    /// The maximum number of events
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
}

pub(crate) fn run(arguments: &HistoryArguments) -> Result<(), Failure> {
    let HistoryArguments { one, limit } = arguments;
    let events = session::block_on(async {
        match one.target.require_existing().await? {
            Target::Service(service) => {
                Ok(service.get(&format!("/servers/{}/history?limit={limit}", encoded(&one.server))).await?)
            }
            Target::Registry(store) => local_registry::history(&store, &one.server, *limit).await,
        }
    })?;
    if one.json {
        return output::print_json(&events);
    }
    let rows: Vec<_> = events.as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        print_message(format_args!("`{}` has no connection history yet", one.server));
        return Ok(());
    }
    output::print_lines(&wrapping_table(["TIME", "EVENT", "STATUS", "DETAILS"], rows))
}

fn row(event: &Value) -> [String; 4] {
    let details = &event["details"];
    let states = format!("{} -> {}", text(details, "from"), text(details, "to"));
    let detail = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), |_| moment(details, name));
        if name == "error" { value } else { format!("{name}={value}") }
    };
    let more = details.as_object().into_iter().flatten().filter(|(name, _)| *name != "from" && *name != "to");
    let more = more.map(detail).collect::<Vec<_>>().join(" ");
    [moment(event, "timestamp"), text(event, "event_type"), states, printable(&more)]
}
