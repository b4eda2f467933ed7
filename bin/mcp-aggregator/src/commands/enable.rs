//! `enable` and `disable`: whether a server may be connected.

use serde_json::Value;

use super::add::decided;
use crate::arguments::servers::OneServer;
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::status_text;
use crate::table::printable;
use crate::target::Target;
use crate::{local_registry, progress, session};

pub(crate) fn enable(one: &OneServer) -> Result<(), Failure> {
    run(one, true)
}

pub(crate) fn disable(one: &OneServer) -> Result<(), Failure> {
    run(one, false)
}

fn run(one: &OneServer, on: bool) -> Result<(), Failure> {
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
            Target::Registry(store) => local_registry::switch(&store, &one.server, on).await,
        }
    })?;
    if on && server["status"] == "error" {
        return Err(not_connected(one, &server)?);
    }
    print_outcome(one, &server, if on { "enabled" } else { "disabled" })
}

/// It may be connected now, but cannot.
fn not_connected(one: &OneServer, server: &Value) -> Result<Failure, Failure> {
    if one.json {
        output::print_json(server)?;
    }
    let name = &one.server;
    let why = server["error_message"].as_str().unwrap_or("nobody knows why");
    let why = why.lines().map(printable).collect::<Vec<_>>().join("\n  ");
    Ok(Failure::new(format!("enabled `{name}`, but it could not be connected: {why}")).with_hint(format!(
        "`mcp-aggregator test {name}` tries it, `mcp-aggregator history {name}` shows what happened"
    )))
}

/// What became of a server.
pub(super) fn print_outcome(one: &OneServer, server: &Value, done: &str) -> Result<(), Failure> {
    if one.json {
        return output::print_json(server);
    }
    let status_text = status_text(server);
    let more = status_text.strip_prefix(done).map_or_else(|| format!(": {status_text}"), str::to_owned);
    print_message(format_args!("{done} `{}`{more}", one.server));
    Ok(())
}
