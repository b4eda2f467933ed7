//! Parses the command line. Each command has its arguments and its code in one file of [`commands`](crate::commands).
//!
//! - `shared`: arguments of several commands
//! - `help`: the overview and `--help`; `help_wrap`: wraps them to the width of a terminal
//! - `usage_error`: the message about an invalid command line

pub(crate) mod help;
mod help_wrap;
pub(crate) mod shared;
mod usage_error;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::command_hint;
use crate::commands::add::AddArguments;
use crate::commands::ask::AskArguments;
use crate::commands::call::CallArguments;
use crate::commands::calls::CallsArguments;
use crate::commands::check::CheckArguments;
use crate::commands::client::ClientArguments;
use crate::commands::clients::ClientsArguments;
use crate::commands::completions::CompletionsArguments;
use crate::commands::connect::ConnectArguments;
use crate::commands::context::ContextArguments;
use crate::commands::demo::{DemoArguments, DemoServerArguments};
use crate::commands::disconnect::DisconnectArguments;
use crate::commands::doc::DocArguments;
use crate::commands::doctor::DoctorArguments;
use crate::commands::enable::{DisableArguments, EnableArguments};
use crate::commands::export::ExportArguments;
use crate::commands::history::HistoryArguments;
use crate::commands::import::ImportArguments;
use crate::commands::licenses::LicensesArguments;
use crate::commands::limits::LimitsArguments;
use crate::commands::list::ListArguments;
use crate::commands::login::LoginArguments;
use crate::commands::logout::LogoutArguments;
use crate::commands::logs::LogsArguments;
use crate::commands::man::ManArguments;
use crate::commands::names::NamesArguments;
use crate::commands::profiles::ProfilesArguments;
use crate::commands::prompts::PromptsArguments;
use crate::commands::remove::RemoveArguments;
use crate::commands::resources::ResourcesArguments;
use crate::commands::restart::RestartArguments;
use crate::commands::run::RunArguments;
use crate::commands::search::SearchArguments;
use crate::commands::serve::ServeArguments;
use crate::commands::settings::SettingsArguments;
use crate::commands::show::ShowArguments;
use crate::commands::skills::SkillsArguments;
use crate::commands::status::StatusArguments;
use crate::commands::stdio::StdioArguments;
use crate::commands::test::TestArguments;
use crate::commands::tools::ToolsArguments;
use crate::commands::top::TopArguments;
use usage_error::refuse;

/// Many MCP servers in, one endpoint out.
#[derive(Debug, Parser)]
#[command(version, subcommand_required = true, arg_required_else_help = false, after_help = help::after_help())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Whether the user asked for JSON, with any command.
    #[arg(skip)]
    pub(crate) as_json: bool,
}

impl Arguments {
    /// Parses the command line. Prints help or an error and exits, if there is nothing to run.
    pub(crate) fn of_process() -> Self {
        let matches = whole_command().try_get_matches().unwrap_or_else(|error| refuse(&error));
        let arguments = Self::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
        let verb = innermost(&matches);
        command_hint::remember(verb);
        Self { as_json: is_typed(verb, "json"), ..arguments }
    }
}

/// The matches of the command, or of its subcommand.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| innermost(below))
}

pub(crate) fn is_typed(verb: &ArgMatches, argument: &str) -> bool {
    // Some commands do not have it.
    let is_known = verb.try_contains_id(argument).is_ok();
    is_known && verb.value_source(argument) == Some(ValueSource::CommandLine)
}

/// The whole command line, as `--help` describes it.
pub(crate) fn whole_command() -> clap::Command {
    help::grouped(help::consistent(Arguments::command()))
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
    Login(LoginArguments),
    Logout(LogoutArguments),
    Logs(LogsArguments),
    Test(TestArguments),
    History(HistoryArguments),
    Status(StatusArguments),
    Search(SearchArguments),
    Skills(SkillsArguments),
    Profiles(ProfilesArguments),
    Prompts(PromptsArguments),
    Resources(ResourcesArguments),
    Settings(SettingsArguments),
    Limits(LimitsArguments),
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
    Licenses(LicensesArguments),
    Names(NamesArguments),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_may_be_anywhere_and_arguments_of_a_tool_may_look_odd() {
        let typed = ["x", "call", "a.b", "--config", "c", "n=-1", "--json", "-"];
        let Command::Call(call) = Arguments::try_parse_from(typed).unwrap().command else { panic!() };
        assert!(call.json);
        assert_eq!((call.tool.as_str(), call.arguments), ("a.b", vec!["n=-1".to_owned(), "-".to_owned()]));
        assert_eq!(call.separator.separator.as_str(), ".");
    }
}
