//! `doc bind`, `doc unbind`, `doc bindings`: the bindings of documents in the registry.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::shared::{REST_JSON, SERVER};
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::text;
use crate::table::aligned;
use crate::target::{Target, TargetArguments};
use crate::{documents, local_registry, session};

/// List the bindings of documents in the registry.
///
/// Bindings inside documents are not listed; `doc map` shows both.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator doc bindings
  mcp-aggregator doc bindings --json | jq -r '.[].server_name'"
)]
pub(crate) struct BindingsArguments {
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Bind a part of a document, or of several documents, to a server.
///
/// Only tools of that server may run there. A binding inside the document takes precedence.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    group = clap::ArgGroup::new("part").required(true).args(["heading", "block_id", "lines"]),
    after_help = "\
Examples:
  mcp-aggregator doc bind notes.md github --heading Issues
  mcp-aggregator doc bind 'work/**/*.md' github --heading '## Issues' --no-inherit
  mcp-aggregator doc bind notes.md time --lines 10-20"
)]
pub(crate) struct BindArguments {
    /// The path of the document, or a pattern; a path that does not begin with `/` matches in any folder
    #[arg(value_name = "DOCUMENT")]
    pub(crate) document: String,
    #[arg(value_name = "SERVER", help = SERVER)]
    pub(crate) server: String,
    /// Bind the section with this heading: `Issues`, or `## Issues` for one of that level
    #[arg(long, value_name = "TEXT")]
    pub(crate) heading: Option<String>,
    /// Bind the block with this id
    #[arg(long, value_name = "ID")]
    pub(crate) block_id: Option<String>,
    /// Bind these lines, including the last; lines of results are not counted
    #[arg(long, value_name = "FIRST-LAST", value_parser = lines)]
    pub(crate) lines: Option<(u32, u32)>,
    /// Do not apply the binding to subsections
    #[arg(long)]
    pub(crate) no_inherit: bool,
    /// Print the binding as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

fn lines(text: &str) -> Result<(u32, u32), String> {
    let parsed = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let range = parsed.filter(|(first, last)| 0 < *first && first < last);
    range.ok_or_else(|| "expected a first line and a later last line, such as 10-20".to_owned())
}

/// Remove a binding from the registry.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator doc unbind 3")]
pub(crate) struct UnbindArguments {
    /// The id of the binding, as `doc bindings` prints it
    #[arg(value_name = "ID")]
    pub(crate) id: i64,
    /// Print JSON: {"removed"}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

pub(crate) fn list(arguments: &BindingsArguments) -> Result<(), Failure> {
    let bindings = session::block_on(async {
        match arguments.target.find_existing_or_none().await? {
            Some(target) => documents::all_bindings(&target).await,
            None => Ok(Vec::new()),
        }
    })?;
    if arguments.json {
        return output::print_json(&Value::Array(bindings));
    }
    if bindings.is_empty() {
        print_message("there are no bindings in the registry");
        return Ok(());
    }
    let row = |binding: &Value| {
        let inherit = if binding["inherit_to_children"] == true { "" } else { "not for subsections" };
        let part = part(binding);
        [text(binding, "id"), text(binding, "document"), part, text(binding, "server_name"), inherit.to_owned()]
    };
    output::print_lines(&aligned(&bindings.iter().map(row).collect::<Vec<_>>()))
}

pub(crate) fn add(arguments: &BindArguments) -> Result<(), Failure> {
    let BindArguments { document, server, heading, block_id, lines, no_inherit, json: as_json, target } = arguments;
    let binding = json!({
        "document": document,
        "server_id": server,
        "heading_text": heading,
        "block_id": block_id,
        "start_line": lines.map(|(first, _)| first),
        "end_line": lines.map(|(_, last)| last),
        "inherit_to_children": !no_inherit,
    });
    let made = session::block_on(async {
        match target.find_for_change().await? {
            Target::Service(service) => Ok(service.post("/bindings", Some(&binding)).await?),
            Target::Registry(store) => local_registry::bind(&store, &binding).await,
        }
    })?;
    if *as_json {
        return output::print_json(&made);
    }
    print_message(format_args!(
        "bound {} of {} to `{}`",
        part(&made),
        text(&made, "document"),
        text(&made, "server_name")
    ));
    Ok(())
}

pub(crate) fn remove(arguments: &UnbindArguments) -> Result<(), Failure> {
    session::block_on(async {
        match arguments.target.find_for_change().await? {
            Target::Service(service) => {
                service.delete(&format!("/bindings/{}", arguments.id)).await?;
                Ok(())
            }
            Target::Registry(store) => local_registry::unbind(&store, arguments.id).await,
        }
    })?;
    if arguments.json {
        return output::print_json(&json!({"removed": arguments.id}));
    }
    print_message(format_args!("removed binding {}", arguments.id));
    Ok(())
}

/// The bound part of a document, in words.
fn part(binding: &Value) -> String {
    match binding["section_type"].as_str() {
        Some("heading") => format!("heading `{}`", text(binding, "heading_text")),
        Some("block") => format!("block ^{}", text(binding, "block_id").trim_start_matches('^')),
        _ => format!("lines {}-{}", text(binding, "start_line"), text(binding, "end_line")),
    }
}
