//! `enable` and `disable`: whether a server may be connected.

use clap::Args;
use serde_json::Value;

use super::add::decided;
use crate::cli::shared::OneServer;
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::status_text;
use crate::table::printable;
use crate::target::Target;
use crate::{local_registry, progress, session};

/// Enable a server and reset its failures.
///
/// A running service connects the server. Use this also for a server that the service disabled because it failed
/// too often.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator enable memory"
)]
pub(crate) struct EnableArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
}

/// Disable a server: disconnect it, and do not connect it again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator disable memory")]
pub(crate) struct DisableArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
}

pub(crate) fn enable(arguments: &EnableArguments) -> Result<(), Failure> {
    set_enabled(&arguments.one, true)
}

pub(crate) fn disable(arguments: &DisableArguments) -> Result<(), Failure> {
    set_enabled(&arguments.one, false)
}

fn set_enabled(one: &OneServer, on: bool) -> Result<(), Failure> {
    let server = session::block_on(async {
        match one.target.find_for_change().await? {
            Target::Service(service) => {
                let verb = if on { "enable" } else { "disable" };
                let switched = service.post(&format!("/servers/{}/{verb}", encoded(&one.server)), None).await?;
                if !on {
                    return Ok(switched);
                }
                progress::with_spinner(&format!("connecting `{}`", one.server), decided(&service, switched)).await
            }
            Target::Registry(store) => local_registry::set_enabled(&store, &one.server, on).await,
        }
    })?;
    if on && server["status"] == "error" {
        return Err(not_connected(one, &server)?);
    }
    print_outcome(one, &server, if on { "enabled" } else { "disabled" })
}

/// It is enabled, but cannot be connected.
fn not_connected(one: &OneServer, server: &Value) -> Result<Failure, Failure> {
    if one.json {
        output::print_json(server)?;
    }
    let name = &one.server;
    let why = server["error_message"].as_str().unwrap_or("the cause is unknown");
    let why = why.lines().map(printable).collect::<Vec<_>>().join("\n  ");
    Ok(Failure::new(format!("enabled `{name}`, but it could not be connected: {why}")).with_hint(format!(
        "`mcp-aggregator test {name}` tests it, `mcp-aggregator history {name}` shows what happened"
    )))
}

/// The result of the command.
pub(super) fn print_outcome(one: &OneServer, server: &Value, done: &str) -> Result<(), Failure> {
    if one.json {
        return output::print_json(server);
    }
    let status_text = status_text(server);
    let more = status_text.strip_prefix(done).map_or_else(|| format!(": {status_text}"), str::to_owned);
    print_message(format_args!("{done} `{}`{more}", one.server));
    Ok(())
}
