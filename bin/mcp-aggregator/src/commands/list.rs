//! `list`: lists all servers and their status.

use clap::Args;
use serde_json::Value;

use crate::cli::shared::REST_JSON;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{self, connection_summary, table, text};
use crate::table::{printable, wrapped};
use crate::target::{Target, TargetArguments};
use crate::{local_registry, session};

/// List all servers and their status.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator list
  mcp-aggregator list --json | jq -r '.[] | select(.status == \"error\") | .name'")]
pub(crate) struct ListArguments {
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// The page size: the maximum of REST.
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
        print_message("there are no servers yet");
        print_message(
            "hint: `mcp-aggregator add NAME -- COMMAND` adds one, `mcp-aggregator import` imports those of MCP clients",
        );
    } else {
        output::print_lines(&lines(&servers))?;
    }
    if !runs {
        print_message("no service is running; `mcp-aggregator serve` starts one");
    }
    Ok(())
}

/// All servers, on all pages.
pub(crate) async fn servers(target: &Target) -> Result<Vec<Value>, Failure> {
    match target {
        Target::Service(service) => servers_of(service).await,
        Target::Registry(store) => local_registry::list(store).await,
    }
}

/// All servers of a service, on all pages.
pub(crate) async fn servers_of(service: &Client) -> Result<Vec<Value>, Failure> {
    all(service, "").await
}

/// The same, with the resource usage of their processes and containers.
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

/// A row for each server; below it its container, and its error.
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
            connection_summary(config),
        ]
    };
    let rows = servers.iter().map(row).collect();
    let mut lines = Vec::new();
    let header = ["SERVER", "STATUS", "TOOLS", "CPU", "MEMORY", "TRANSPORT", "PROGRAM OR URL"];
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

/// The first line of a server's error; `show` has the rest.
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
    Some(format!("disabled after too many failures (`mcp-aggregator enable {name}` tries again){cause}"))
}
