//! `show`: prints the details of a server.

use catalog::login_command;
use clap::Args;
use serde_json::Value;

use crate::cli::shared::OneServer;
use crate::client::encoded;
use crate::failure::Failure;
use crate::server_view::{self, connection_summary, moment, text};
use crate::table::{aligned, printable};
use crate::target::Target;
use crate::{command_hint, local_registry, output, session};

/// Show the details of a server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator show memory
  mcp-aggregator show memory --json | jq -r '.tools[].name'")]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
}

pub(crate) fn run(arguments: &ShowArguments) -> Result<(), Failure> {
    let one = &arguments.one;
    let server = session::block_on(async {
        match one.target.require_existing().await? {
            Target::Service(service) => {
                let path = format!("/servers/{}", encoded(&one.server));
                let mut server = service.get(&path).await?;
                server["tools"] = service.get(&format!("{path}/tools")).await?;
                Ok(server)
            }
            Target::Registry(store) => local_registry::show(&store, &one.server).await,
        }
    })?;
    if one.json { output::print_json(&server) } else { output::print_lines(&lines(&server)) }
}

fn lines(server: &Value) -> Vec<String> {
    let config = &server["connection_config"];
    let mut rows = vec![
        ("name", text(server, "name")),
        ("id", text(server, "id")),
        ("description", text(server, "description")),
        ("transport", text(server, "transport_type")),
        ("reached at", connection_summary(config)),
    ];
    for (label, key) in [("env", "env"), ("headers", "headers")] {
        rows.extend(
            config[key]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, value)| (label, printable(&format!("{name}={}", value.as_str().unwrap_or_default())))),
        );
    }
    rows.extend(match &server["container"] {
        Value::Null => usage(&server["usage"]),
        known => container(known),
    });
    rows.extend([
        ("health check", text(server, "health_check_url")),
        ("origin", text(server, "origin")),
        ("status", server_view::status(server)),
        ("progress", text(server, "progress")),
        ("enabled", enabled_word(server)),
        ("lazy", text(config, "lazy").replace('-', "false")),
        ("share", text(config, "share")),
        ("connected", moment(server, "connected_at")),
        ("last connected", moment(server, "last_connected_at")),
        ("next attempt", moment(server, "next_retry_at")),
        ("registered", moment(server, "registered_at")),
    ]);
    let is_said = |(_, value): &(&str, String)| !value.is_empty() && value != "-";
    let rows: Vec<[String; 2]> =
        rows.into_iter().filter(is_said).map(|(label, value)| [label.to_owned(), value]).collect();
    let mut lines = aligned(&rows);
    let error = server["error_message"].as_str().unwrap_or_default();
    let is_sign_in_missing = server["status"] == "sign_in_required";
    if is_sign_in_missing {
        let command = login_command(server["name"].as_str().unwrap_or_default());
        lines.push(command_hint::completed(&format!("needs you: sign in with `{}`", printable(&command))));
    }
    if !error.is_empty() {
        lines.push(if is_sign_in_missing { "why" } else { "last error" }.to_owned());
    }
    lines.extend(error.lines().map(|line| format!("  | {}", printable(line))));
    let notices = server["server_info"]["notices"].as_array().map(Vec::as_slice).unwrap_or_default();
    lines.extend(notices.iter().filter_map(Value::as_str).map(|notice| format!("notice: {}", printable(notice))));
    lines.extend(server_view::instances(server));
    let tools = server["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    lines.push(format!("tools ({})", tools.len()));
    lines.extend(tools.iter().map(|tool| format!("  {}", text(tool, "name"))));
    lines
}

/// The rows about its container, if it has one.
fn container(container: &Value) -> Vec<(&'static str, String)> {
    if container.is_null() {
        return Vec::new();
    }
    vec![
        ("container", format!("{} ({:.12})", text(container, "name"), text(container, "id"))),
        ("image", text(container, "image_digest")),
        ("cpu", server_view::cpu(container).unwrap_or_default()),
        ("memory", server_view::memory(container).unwrap_or_default()),
    ]
}

/// The resource usage of its processes, if we started it.
fn usage(usage: &Value) -> Vec<(&'static str, String)> {
    let processes = usage["processes"].as_u64().filter(|count| *count > 1);
    let more = processes.map(|count| format!(" in {count} processes")).unwrap_or_default();
    let memory = server_view::memory(usage).map(|memory| memory + &more);
    vec![("cpu", server_view::cpu(usage).unwrap_or_default()), ("memory", memory.unwrap_or_default())]
}

fn enabled_word(server: &Value) -> String {
    let by_failures = match server["auto_disabled"] == true {
        true => {
            let name = text(server, "name");
            format!(" (disabled after too many failures; `mcp-aggregator enable {name}` tries again)")
        }
        false => String::new(),
    };
    let asked_only = if server["auto_connect"] == false { " (not connected automatically)" } else { "" };
    format!("{}{by_failures}{asked_only}", text(server, "enabled"))
}
