//! The command line: verbs for documents.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use notebook::Selection;

use super::assistant::ModelArguments;
use crate::target::TargetArguments;

/// Run the tools that a Markdown document names, and put each result under its block.
///
/// A fenced block whose language is a server's name is a call: `tool: NAME` first, then its parameters in YAML.
/// The running service makes the calls; with a config, its servers are started for them instead. A second run
/// replaces the results of the first; nothing else of the document is touched. A result that somebody edited is
/// kept, and its block is not run, unless --force is given. Ctrl-C stops: what is over by then is written.
/// The exit status is 1 if a block failed or was refused.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
A document that can be run:
  ```time
  tool: get_current_time
  timezone: Europe/Rome
  ```

Examples:
  mcp-aggregator run notes.md
  mcp-aggregator run notes.md --dry-run               what would be called, and what is wrong?
  mcp-aggregator run notes.md --block 2 --block 3
  mcp-aggregator run notes.md --section \"## Weather\" --jobs 4
  mcp-aggregator run notes.md --watch                 again whenever it is saved: write, save, look
  mcp-aggregator run notes.md --config mcp.json --output - | less"
)]
pub(crate) struct RunArguments {
    /// The document
    #[arg(value_name = "DOCUMENT")]
    pub(crate) document: PathBuf,
    /// Only this block, by its number in the document from 1; may be repeated
    #[arg(long, value_name = "N")]
    pub(crate) block: Vec<usize>,
    /// Only the blocks under this heading: `Tools`, or `## Tools` for one of that level
    #[arg(long, value_name = "HEADING")]
    pub(crate) section: Option<String>,
    /// Only the block that is in this line
    #[arg(long, value_name = "N")]
    pub(crate) line: Option<usize>,
    /// Look tools up and check parameters, but call nothing and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Leave the document as it is, and write it with its results to a file, or to stdout if this is `-`
    #[arg(long, value_name = "FILE | -", conflicts_with = "dry_run")]
    pub(crate) output: Option<PathBuf>,
    /// How many blocks may run at once; one after the other, unless this is more than 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// Go on: whenever the document is saved, run the blocks that changed, until Ctrl-C
    #[arg(long, conflicts_with_all = ["block", "section", "line", "dry_run", "output", "json"])]
    pub(crate) watch: bool,
    /// Replace results even if somebody edited them
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what became of every block as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Let `assistant` blocks call tools that may destroy something, without asking
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    #[command(flatten)]
    pub(crate) servers: ServersArguments,
}

impl RunArguments {
    /// The blocks that are meant.
    pub(crate) fn selection(&self) -> Selection {
        Selection { blocks: self.block.clone(), section: self.section.clone(), line: self.line }
    }
}

/// Look at documents that run tools.
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

/// List what documents are bound to in the registry.
///
/// What documents say themselves is not here; `doc map` shows both.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator doc bindings
  mcp-aggregator doc bindings --json | jq -r '.[].server_name'"
)]
pub(crate) struct BindingsArguments {
    /// Print what REST answers
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Bind a part of a document, or of several, to a server.
///
/// Only tools of that server may run there. What a document says itself about the same part counts first.
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
    /// The document's path, or a pattern for several; where it does not begin with `/`, in any folder
    #[arg(value_name = "DOCUMENT")]
    pub(crate) document: String,
    /// The server, by name or id
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// What stands under this heading: `Issues`, or `## Issues` of that level only
    #[arg(long, value_name = "TEXT")]
    pub(crate) heading: Option<String>,
    /// The block with this id
    #[arg(long, value_name = "ID")]
    pub(crate) block_id: Option<String>,
    /// These lines, the last included; lines of results are not counted
    #[arg(long, value_name = "FIRST-LAST", value_parser = lines)]
    pub(crate) lines: Option<(u32, u32)>,
    /// Not for the sections inside
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
    range.ok_or_else(|| "expected a first and a later last line, like 10-20".to_owned())
}

/// Remove a binding from the registry.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator doc unbind 3")]
pub(crate) struct UnbindArguments {
    /// Its number, as `doc bindings` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: i64,
    /// Print {"removed"}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Print a document's headings and blocks, the server of each, and why it is that one.
///
/// A heading is bound to a server by a comment under it, `<!-- mcp: SERVER -->`, or by `mcp:` in the front matter.
/// Inside only tools of that server may run, and blocks that name `mcp` instead of a server run there.
/// Nothing is called and no server is started.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator doc map notes.md
  mcp-aggregator doc map notes.md --config mcp.json --json | jq -r '.sections[].server'"
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

/// Whose tools a document may use.
#[derive(Debug, Args)]
pub(crate) struct ServersArguments {
    /// The servers of this config, instead of those of the running service
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "token_file", "data_dir", "database"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Tell everything that happens, on stderr
    #[arg(long)]
    pub(crate) debug: bool,
}
