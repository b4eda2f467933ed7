//! `history`: what happened to the connection of a server.

use serde_json::Value;

use crate::arguments::servers::HistoryArguments;
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{moment, text, wrapping_table};
use crate::table::printable;
use crate::target::Target;
use crate::{local_registry, session};

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
        print_message(format_args!("nothing has happened to `{}` yet", one.server));
        return Ok(());
    }
    output::print_lines(&wrapping_table(["TIME", "EVENT", "STATUS", "DETAILS"], rows))
}

fn row(event: &Value) -> [String; 4] {
    let details = &event["details"];
    let states = format!("{} -> {}", text(details, "from"), text(details, "to"));
    let told = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), |_| moment(details, name));
        if name == "error" { value } else { format!("{name}={value}") }
    };
    let more = details.as_object().into_iter().flatten().filter(|(name, _)| *name != "from" && *name != "to");
    let more = more.map(told).collect::<Vec<_>>().join(" ");
    [moment(event, "timestamp"), text(event, "event_type"), states, printable(&more)]
}
