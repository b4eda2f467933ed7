//! `list`: all servers, and how they are.

use serde_json::Value;

use crate::arguments::servers::ListArguments;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{self, place, table, text};
use crate::table::{printable, wrapped};
use crate::target::Target;
use crate::{local_registry, session};

/// How many servers are asked for at once: as many as REST gives.
const PAGE: usize = 1000;

pub(crate) fn run(arguments: &ListArguments) -> Result<(), Failure> {
    let (servers, runs) = session::block_on(async {
        match arguments.target.find_existing_or_none().await? {
            Some(Target::Service(service)) => Ok((servers_with_usage(&service).await?, true)),
            Some(target @ Target::Registry(_)) => Ok((servers(&target).await?, false)),
            None => Ok((Vec::new(), false)),
        }
    })?;
    if arguments.json {
        return output::print_json(&Value::Array(servers));
    }
    if servers.is_empty() {
        print_message("there is no server yet");
        print_message(
            "hint: `mcp-aggregator add NAME -- COMMAND` adds one, `mcp-aggregator import` those of other programs",
        );
    } else {
        output::print_lines(&lines(&servers))?;
    }
    if !runs {
        print_message("no service runs here; `mcp-aggregator serve` starts one");
    }
    Ok(())
}

/// All servers, however many there are.
pub(crate) async fn servers(target: &Target) -> Result<Vec<Value>, Failure> {
    match target {
        Target::Service(service) => servers_of(service).await,
        Target::Registry(store) => local_registry::list(store).await,
    }
}

/// All servers of a service, however many there are.
pub(crate) async fn servers_of(service: &Client) -> Result<Vec<Value>, Failure> {
    all(service, "").await
}

/// The same, with what their processes and containers use.
pub(crate) async fn servers_with_usage(service: &Client) -> Result<Vec<Value>, Failure> {
    all(service, "&include_usage=true").await
}

async fn all(service: &Client, how: &str) -> Result<Vec<Value>, Failure> {
    let mut servers = Vec::new();
    loop {
        let page = service.list(&format!("/servers?limit={PAGE}&offset={}{how}", servers.len())).await?;
        let is_last = page.len() < PAGE;
        servers.extend(page);
        if is_last {
            return Ok(servers);
        }
    }
}

/// A line for each server; under one in a container, which; under one that is not well, why.
fn lines(servers: &[Value]) -> Vec<String> {
    let row = |server: &Value| {
        let config = &server["connection_config"];
        [
            text(server, "name"),
            server_view::status(server),
            text(server, "tool_count"),
            server_view::cpu(&server["usage"]).unwrap_or_else(|| "-".to_owned()),
            server_view::memory(&server["usage"]).unwrap_or_else(|| "-".to_owned()),
            text(server, "transport_type"),
            place(config),
        ]
    };
    let rows = servers.iter().map(row).collect();
    let mut lines = Vec::new();
    let header = ["SERVER", "STATUS", "TOOLS", "CPU", "MEMORY", "TRANSPORT", "PROGRAM OR ADDRESS"];
    for (index, line) in table(header, rows).into_iter().enumerate() {
        lines.push(line);
        let server = index.checked_sub(1).and_then(|index| servers.get(index));
        lines.extend(server.and_then(server_view::container).map(|container| format!("  container: {container}")));
        let progress = server.and_then(|server| server["progress"].as_str());
        lines.extend(progress.map(|progress| format!("  {}", printable(progress))));
        lines.extend(
            server.and_then(why).into_iter().flat_map(|why| wrapped(&format!("why: {why}"), server_view::NOTE)),
        );
    }
    lines
}

/// What is wrong with a server: the first line of it; `show` tells the rest.
fn why(server: &Value) -> Option<String> {
    let message = server["error_message"].as_str().unwrap_or_default();
    let first = message.lines().map(str::trim).find(|line| !line.is_empty()).map(printable);
    if server["auto_disabled"] != true {
        let retry = server["next_retry_at"].as_str().map(|_| server_view::moment(server, "next_retry_at"));
        return first.map(|first| match retry {
            Some(retry) => format!("{first}; next attempt at {retry}"),
            None => first,
        });
    }
    let name = server_view::text(server, "name");
    let cause = first.map(|first| format!(": {first}")).unwrap_or_default();
    Some(format!("too many failures switched it off (`mcp-aggregator enable {name}` tries again){cause}"))
}
