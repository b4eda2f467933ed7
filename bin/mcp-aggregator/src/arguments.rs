//! The command line: what was typed, and which verb that is. The verbs are in files of their own:
//!
//! - `serving`, `demo`: what serves all servers as one; `trying`: what looks at tools and tries them
//! - `servers`: servers that are registered; `exchange`: what comes from elsewhere and goes there
//! - `items`: prompts and resources; `clients`: MCP clients
//! - `documents`, `assistant`: documents that run tools, and a model that may use them
//! - `care`: what looks after all of it; `manual`: what is about this program
//! - `help`: how all of it is explained; `wrapping`: at the width of a terminal;
//!   `mistyped`: what is said where it makes no sense

pub(crate) mod assistant;
pub(crate) mod clients;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod diagnostics;
pub(crate) mod documents;
pub(crate) mod help;
mod help_wrap;
pub(crate) mod import_export;
pub(crate) mod items;
pub(crate) mod serve;
pub(crate) mod servers;
pub(crate) mod tools;
mod usage_error;

use std::path::PathBuf;
use std::str::FromStr;

use aggregator::{NamePolicy, Separator};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::assistant::{AskArguments, ContextArguments};
use crate::command_hint;
use clients::{ClientArguments, ClientsArguments};
use completions::{CompletionsArguments, ManArguments, NamesArguments};
use demo::{DemoArguments, DemoServerArguments};
use diagnostics::{CallsArguments, DoctorArguments, SettingsArguments, TopArguments};
use documents::{DocArguments, RunArguments};
use import_export::{ExportArguments, ImportArguments};
use items::{PromptsArguments, ResourcesArguments};
use serve::{ServeArguments, StdioArguments};
use servers::{
    AddArguments, ConnectArguments, DisableArguments, DisconnectArguments, EnableArguments, HistoryArguments,
    ListArguments, LogsArguments, RemoveArguments, RestartArguments, ShowArguments, StatusArguments, TestArguments,
};
use tools::{CallArguments, CheckArguments, SearchArguments, SkillsArguments, ToolsArguments};
use usage_error::refuse;

/// What stands between server and tool, unless the user says otherwise.
const SEPARATOR: &str = ".";

/// What stands between server and tool where nobody sees it.
pub(crate) fn usual_separator() -> Separator {
    SEPARATOR.parse().expect("it is the default on the command line, too")
}

/// Many MCP servers in, one endpoint out.
#[derive(Debug, Parser)]
#[command(version, subcommand_required = true, arg_required_else_help = false, after_help = help::EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What is printed is for machines, whichever command it is.
    #[arg(skip)]
    pub(crate) as_json: bool,
}

impl Arguments {
    /// What was typed. Where that makes no sense, or asks for help, the program ends here.
    pub(crate) fn of_process() -> Self {
        let matches = whole_command().try_get_matches().unwrap_or_else(|error| refuse(&error));
        let arguments = Self::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
        let verb = innermost(&matches);
        command_hint::remember(verb);
        Self { as_json: is_typed(verb, "json"), ..arguments }
    }
}

/// The matches of the verb that was typed, or of the verb below it.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| innermost(below))
}

pub(crate) fn is_typed(verb: &ArgMatches, argument: &str) -> bool {
    // Not every verb has it.
    let is_known = verb.try_contains_id(argument).is_ok();
    is_known && verb.value_source(argument) == Some(ValueSource::CommandLine)
}

/// The whole command line, as it is explained.
pub(crate) fn whole_command() -> clap::Command {
    help::grouped(Arguments::command())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Stdio(StdioArguments),
    Serve(Box<ServeArguments>),
    Check(CheckArguments),
    Tools(ToolsArguments),
    Call(CallArguments),
    Calls(CallsArguments),
    Run(RunArguments),
    Doc(DocArguments),
    Ask(AskArguments),
    Context(ContextArguments),
    Add(AddArguments),
    Remove(RemoveArguments),
    List(ListArguments),
    Show(ShowArguments),
    Enable(EnableArguments),
    Disable(DisableArguments),
    Connect(ConnectArguments),
    Disconnect(DisconnectArguments),
    Restart(RestartArguments),
    Logs(LogsArguments),
    Test(TestArguments),
    History(HistoryArguments),
    Status(StatusArguments),
    Search(SearchArguments),
    Skills(SkillsArguments),
    Prompts(PromptsArguments),
    Resources(ResourcesArguments),
    Settings(SettingsArguments),
    Client(ClientArguments),
    Clients(ClientsArguments),
    Import(ImportArguments),
    Export(ExportArguments),
    Doctor(DoctorArguments),
    Top(TopArguments),
    Demo(DemoArguments),
    DemoServer(DemoServerArguments),
    /// Print the environment variables that the programs read, as JSON; for the documentation
    #[command(hide = true)]
    Environment,
    Completions(CompletionsArguments),
    Man(ManArguments),
    Names(NamesArguments),
}

/// A word that is one of these, so that shells can offer them.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgument {
    /// The servers, in the JSON that Claude Desktop and others use
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct SeparatorArgument {
    /// What stands between server and tool
    #[arg(long, value_name = "S", default_value = SEPARATOR)]
    pub(crate) separator: Separator,
}

#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    #[command(flatten)]
    pub(crate) separator: SeparatorArgument,
    /// How tools are named: `canonical` is server.tool, `safe` is server__tool, `auto` is safe but
    /// for clients known to accept canonical names; a call is accepted under either
    #[arg(long, verbatim_doc_comment, value_name = "auto|canonical|safe", default_value_t = NamePolicy::Auto,
        value_parser = one_of::<NamePolicy>(&["auto", "canonical", "safe"]), hide_possible_values = true)]
    pub(crate) names: NamePolicy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_may_stand_anywhere_and_arguments_of_a_tool_may_look_odd() {
        let typed = ["x", "call", "a.b", "--config", "c", "n=-1", "--json", "-"];
        let Command::Call(call) = Arguments::try_parse_from(typed).unwrap().command else { panic!() };
        assert!(call.json);
        assert_eq!((call.tool.as_str(), call.arguments), ("a.b", vec!["n=-1".to_owned(), "-".to_owned()]));
        assert_eq!(call.separator.separator.as_str(), ".");
    }
}
