//! The command line: verbs for an assistant that uses tools.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use models::Format;

use super::documents::ServersArguments;

/// Ask a language model, which may use your tools to answer.
///
/// The answer is written to stdout as it comes, every call of a tool to stderr. The running service makes the calls,
/// with its limits and its account of them; with a config, its servers are started for it instead. In a line of a
/// document that is bound to a server, only that server's tools may be used. A tool that may destroy something
/// (`destructiveHint`) is called only if you agree: on the terminal, or by --yes. Ctrl-C stops: calls are cancelled.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Where the model is:
  OPENAI_BASE_URL, OPENAI_API_KEY        one that speaks like OpenAI's: also Ollama, llama.cpp, vLLM and most others
  ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY  Anthropic's
  MCP_MODEL                              its name; `anthropic:NAME` and `openai:NAME` say whose it is
  MCP_MODEL_PROVIDER                     openai or anthropic, if both are set
  MCP_MODEL_TOOLS=text                   it cannot call tools by itself
  MCP_MODEL_IMAGES=true                  it sees pictures that tools return
Else `assistant` in the file of --config, which counts before these; else the model of the running service
(`serve --assistant-model`).

Examples:
  OPENAI_BASE_URL=http://localhost:11434/v1 mcp-aggregator ask --model qwen3 \"What time is it in Rome?\"
  mcp-aggregator ask --model anthropic:claude-sonnet-4-5 \"Which issues are urgent?\" --server github
  mcp-aggregator ask \"Summarise this section\" --doc notes.md --line 40
  git diff | mcp-aggregator ask - --config mcp.json --transcript review.json"
)]
pub(crate) struct AskArguments {
    /// What is asked; `-` reads it from stdin
    #[arg(value_name = "QUESTION")]
    pub(crate) question: String,
    #[command(flatten)]
    pub(crate) narrowing: NarrowingArguments,
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// Call tools that may destroy something without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Write all that was said to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) transcript: Option<PathBuf>,
    /// How often the model may be asked before it must have answered
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) max_rounds: u16,
    /// Print all that was said as JSON, as --transcript writes it, instead of the answer
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) servers: ServersArguments,
}

/// Print the tools that an assistant may use, in the form that its provider takes.
///
/// Those of enabled servers that can be called now, narrowed by the line of a document, by server and by skill.
/// Names are such that every provider accepts them.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator context
  mcp-aggregator context --doc notes.md --line 40
  mcp-aggregator context --server github --format anthropic    what stands under `tools` in a request"
)]
pub(crate) struct ContextArguments {
    #[command(flatten)]
    pub(crate) narrowing: NarrowingArguments,
    /// Print them as this provider wants them in a request: openai, openai-responses, anthropic or gemini
    #[arg(long, value_name = "FORMAT", value_parser = formats(), hide_possible_values = true)]
    pub(crate) format: Option<Format>,
    /// Print everything that is known about them, as REST answers
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) servers: ServersArguments,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::as_str)).try_map(|word| word.parse())
}

/// Which tools are left out.
#[derive(Debug, Args)]
pub(crate) struct NarrowingArguments {
    /// As in this document: only tools of the server that the line is bound to
    #[arg(long, value_name = "FILE")]
    pub(crate) doc: Option<PathBuf>,
    /// The line of the document, from 1
    #[arg(long, value_name = "N", requires = "doc", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) line: u32,
    /// Only tools of this server; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Vec<String>,
    /// Only tools with this skill, by its id or name; may be repeated
    #[arg(long, value_name = "SKILL", conflicts_with = "config")]
    pub(crate) skill: Vec<String>,
}

/// Which model.
#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// The model's name [default: the variable MCP_MODEL]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// How it is spoken to: openai or anthropic [default: as the environment tells]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
    /// Where it is, such as http://localhost:11434/v1 [default: OPENAI_BASE_URL or ANTHROPIC_BASE_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// How it calls tools: `native` as its provider says, `text` in its words, for models that know no other way
    #[arg(long, value_name = "native|text")]
    pub(crate) tools: Option<ToolCallingWord>,
}

/// How a model calls tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolCallingWord {
    Native,
    Text,
}
