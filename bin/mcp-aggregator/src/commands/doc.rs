//! `doc`: prints the structure of a document; its subcommands about bindings are in `bind`.

mod bind;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use notebook::{Addressee, Bindings, Document, Outline, OutlineBlock, OutlineSection, Server};
use serde_json::json;

use self::bind::{BindArguments, BindingsArguments, UnbindArguments};
use crate::cli::shared::{CONFIG_INSTEAD_OF_REGISTRY, ServersArguments};
use crate::commands::list;
use crate::documents::{self, file_failed};
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::table::{aligned, printable};
use crate::{config, session, stderr_log};

/// Show the structure of documents that run tools, and bind their parts to servers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator doc map notes.md
  mcp-aggregator doc bind notes.md github --heading Issues
  mcp-aggregator doc bindings
  mcp-aggregator doc unbind 3")]
pub(crate) struct DocArguments {
    #[command(subcommand)]
    pub(crate) verb: DocVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DocVerb {
    Map(MapArguments),
    Bindings(BindingsArguments),
    Bind(BindArguments),
    Unbind(UnbindArguments),
}

/// Print the headings and blocks of a document, and the server of each with the reason.
///
/// A comment under a heading, `<!-- mcp: SERVER -->`, or `mcp:` in the front matter binds the section to a server.
/// In such a section only tools of that server may run, and blocks with the language `mcp` run on it.
/// This command calls no tool and starts no server.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator doc map notes.md
  mcp-aggregator doc map notes.md --config mcp.json --json | jq -r '.sections[].server'",
    mut_arg("config", |config| config.help(CONFIG_INSTEAD_OF_REGISTRY))
)]
pub(crate) struct MapArguments {
    /// The document
    #[arg(value_name = "DOCUMENT")]
    pub(crate) document: PathBuf,
    /// Print JSON: {"sections": [..], "remarks": [..]}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) servers: ServersArguments,
}

pub(crate) fn run(arguments: &DocArguments) -> Result<(), Failure> {
    match &arguments.verb {
        DocVerb::Map(arguments) => map(arguments),
        DocVerb::Bindings(arguments) => bind::list(arguments),
        DocVerb::Bind(arguments) => bind::add(arguments),
        DocVerb::Unbind(arguments) => bind::remove(arguments),
    }
}

fn map(arguments: &MapArguments) -> Result<(), Failure> {
    stderr_log::init(arguments.servers.debug);
    let text = notebook::read(&arguments.document).map_err(file_failed)?;
    let document = Document::parse(&text);
    let (servers, registered) = surroundings(arguments)?;
    let outline = notebook::outline(&document, &servers, &Bindings::of(&document, &registered));
    if arguments.json {
        return output::print_json(&described(&outline));
    }
    output::print_lines(&lines(&outline))?;
    for remark in &outline.remarks {
        print_message(format_args!("warning: {}: {remark}", arguments.document.display()));
    }
    Ok(())
}

/// The servers, and the bindings of the document in the registry.
fn surroundings(arguments: &MapArguments) -> Result<(Vec<Server>, Vec<notebook::Binding>), Failure> {
    if let Some(config) = &arguments.servers.config {
        return Ok((documents::servers_of_config(&config::load(config)?.config), Vec::new()));
    }
    session::block_on(async {
        let Some(target) = arguments.servers.target.find_existing_or_none().await? else {
            return Ok((Vec::new(), Vec::new()));
        };
        let servers = documents::servers_of_service(&list::servers(&target).await?)?;
        Ok((servers, documents::registered(&target, &arguments.document).await?))
    })
}

/// The structure as JSON, with texts for people.
fn described(outline: &Outline) -> serde_json::Value {
    let mut map = json!(outline);
    for (place, section) in outline.sections.iter().enumerate() {
        map["sections"][place]["why"] = json!(section.why());
    }
    map
}

/// A line for every section, and below it a line for each of its blocks.
fn lines(outline: &Outline) -> Vec<String> {
    let mut rows = Vec::new();
    for section in &outline.sections {
        rows.push(section_row(section));
        rows.extend(section.blocks.iter().map(|block| block_row(section, block)));
    }
    aligned(&rows)
}

fn section_row(section: &OutlineSection) -> [String; 4] {
    let heading = match section.level {
        0 => "(before any heading)".to_owned(),
        level => format!("{} {}", "#".repeat(level), printable(&section.heading)),
    };
    let server = section.server.as_deref().map_or_else(|| "-".to_owned(), printable);
    [section.line.to_string(), heading, server, section.why()]
}

fn block_row(section: &OutlineSection, block: &OutlineBlock) -> [String; 4] {
    let bound = block.bound.as_ref().map(|bound| bound.binding.server.as_str());
    let any = || bound.or(section.server.as_deref());
    let (language, server) = match &block.addressee {
        Addressee::Server(name) => (name.as_str(), Some(name.as_str())),
        Addressee::AnyServer => ("mcp", any()),
        Addressee::Assistant => ("assistant", bound),
    };
    let is_refused = matches!((bound, &block.addressee), (Some(bound), Addressee::Server(name)) if name != bound);
    let why = match &block.bound {
        Some(bound) if is_refused => format!("refused: {bound}, to `{}`", printable(&bound.binding.server)),
        Some(bound) if block.bound != section.bound => bound.to_string(),
        _ => String::new(),
    };
    let title = format!("  block {}: {}", block.number, printable(language));
    [block.line.to_string(), title, server.map_or_else(|| "-".to_owned(), printable), why]
}
