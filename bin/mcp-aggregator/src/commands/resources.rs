//! `resources`: lists resources, or reads one.

use std::io::{self, IsTerminal};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use catalog::Kind;
use clap::{Args, Subcommand};
use protocol::{escape, reply};
use serde_json::{Value, json};

use super::items::{self, ItemsSource, first_line};
use crate::client::encoded;
use crate::commands::tools;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::{session, stderr_log};

/// List the resources of all servers or of one, or read one.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mcp-aggregator resources
  mcp-aggregator resources files
  mcp-aggregator resources read file:///notes.txt
  mcp-aggregator resources read file:///picture.png > picture.png"
)]
pub(crate) struct ResourcesArguments {
    #[command(subcommand)]
    pub(crate) verb: Option<ResourcesVerb>,
    /// Only the resources of this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Print JSON: [{"uri", "name", .., "server_name", "template"}]; the `uri` of a template is a pattern
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: ItemsSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResourcesVerb {
    /// Read a resource and print its content, text or bytes
    #[command(after_help = "\
Examples:
  mcp-aggregator resources read file:///notes.txt
  mcp-aggregator resources read file:///notes.txt --server files --json")]
    Read(ResourcesReadArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ResourcesReadArguments {
    /// The URI of the resource
    #[arg(value_name = "URI")]
    pub(crate) uri: String,
    /// The server that has it, by name or id [default: the one that lists it]
    #[arg(long, value_name = "SERVER", conflicts_with = "config")]
    pub(crate) server: Option<String>,
    /// Print the result as the server sent it
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: ItemsSource,
}

pub(crate) fn run(arguments: &ResourcesArguments) -> Result<(), Failure> {
    match &arguments.verb {
        Some(ResourcesVerb::Read(arguments)) => read(arguments),
        None => list(arguments),
    }
}

fn list(arguments: &ResourcesArguments) -> Result<(), Failure> {
    let (source, server) = (&arguments.source, arguments.server.as_deref());
    stderr_log::init(source.debug);
    let (resources, templates) = match &source.config {
        Some(config) => items::with_config(
            source,
            config,
            |loaded| items::keep_only(loaded, server),
            async |session| Ok((items::listed(session, Kind::Resource), items::listed(session, Kind::Template))),
        )?,
        None => session::block_on(async {
            let service = source.target.service().await?;
            let wanted = server.map(|server| format!("?server_id={}", encoded(server))).unwrap_or_default();
            let resources = service.list(&format!("/resources{wanted}")).await?;
            Ok((resources, service.list(&format!("/resources/templates{wanted}")).await?))
        })?,
    };
    let counted =
        format!("{}, {}", tools::counted(resources.len(), "resource"), tools::counted(templates.len(), "template"));
    let all = marked(resources, false).chain(marked(templates, true)).collect::<Vec<_>>();
    if arguments.json {
        return output::print_json(&Value::Array(all));
    }
    let row = |resource: &Value| {
        let name = ["title", "name"].map(|key| text(resource, key)).into_iter().find(|name| name != "-");
        let kind = text(resource, "mime_type");
        [text(resource, "uri"), text(resource, "server_name"), kind, name.unwrap_or_default(), first_line(resource)]
    };
    if !all.is_empty() {
        let header = ["URI", "SERVER", "TYPE", "NAME", "DESCRIPTION"];
        output::print_lines(&table(header, all.iter().map(row).collect()))?;
    }
    print_message(counted);
    Ok(())
}

fn marked(resources: Vec<Value>, are_templates: bool) -> impl Iterator<Item = Value> {
    resources.into_iter().map(move |mut resource| {
        resource["template"] = json!(are_templates);
        resource
    })
}

fn read(arguments: &ResourcesReadArguments) -> Result<(), Failure> {
    let ResourcesReadArguments { uri, server, json: as_json, source } = arguments;
    stderr_log::init(source.debug);
    let result = match &source.config {
        Some(config) => items::with_config(
            source,
            config,
            |loaded| items::keep_only(loaded, server.as_deref()),
            async |session| items::ask(session, "resources/read", reply::object([("uri", reply::string(uri))])).await,
        )?,
        None => session::block_on(async {
            let service = source.target.service().await?;
            let body = json!({"uri": uri, "server_id": server});
            match service.ask_bytes("/resources/read", &body).await.map_err(Failure::from) {
                Err(refused) if refused.kind.as_deref() == Some("RESOURCE_NOT_FOUND") => {
                    // Failures are ignored: that the resource is missing is already known.
                    let known = service.get("/resources").await.ok().unwrap_or_default();
                    let known = known.as_array().map(Vec::as_slice).unwrap_or_default();
                    Err(items::with_similar(refused, uri, known, "uri", "mcp-aggregator resources"))
                }
                answered => Ok(answered?.to_vec()),
            }
        })?,
    };
    if *as_json {
        return output::print(&[&result[..], b"\n"].concat());
    }
    output::print(&contents(&result, io::stdout().is_terminal())?)
}

/// The content of a resource: text, or decoded bytes.
fn contents(result: &[u8], is_terminal: bool) -> Result<Vec<u8>, Failure> {
    let result = items::readable(result)?;
    let mut all = Vec::new();
    for content in items::list_in(&result, "contents")? {
        if let Some(text) = content["text"].as_str() {
            let text = if is_terminal { escape::multi_line(text) } else { text.into() };
            all.extend_from_slice(text.as_bytes());
            if is_terminal && !text.ends_with('\n') {
                all.push(b'\n');
            }
        } else if let Some(blob) = content["blob"].as_str() {
            let bytes = STANDARD.decode(blob).map_err(|error| {
                Failure::new(format!("the content is not valid base64: {error}")).with_hint("--json prints it")
            })?;
            if is_terminal {
                return Err(Failure::new(format!(
                    "the content is {} bytes of {}",
                    bytes.len(),
                    text(content, "mimeType")
                ))
                .with_hint("redirect the output to a file, or print JSON with --json"));
            }
            all.extend_from_slice(&bytes);
        } else {
            return Err(Failure::new("the content is neither text nor bytes").with_hint("--json prints it"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_a_blob_is_the_bytes_it_is() {
        let result = json!({"contents": [{"uri": "a", "text": "no end"}, {"uri": "b", "blob": "AAEC"}]}).to_string();
        assert_eq!(contents(result.as_bytes(), false).unwrap(), b"no end\x00\x01\x02");
        assert!(contents(result.as_bytes(), true).is_err(), "bytes do not steer a terminal");
        for odd in [r#"{"contents": [{"blob": "?"}]}"#, r#"{"contents": [{"uri": "a"}]}"#, "{}"] {
            assert!(contents(odd.as_bytes(), false).is_err(), "{odd}");
        }
    }
}
