//! `mcp-aggregator`: many MCP servers in, one endpoint out; and the commands to look at them and use them by hand.
//!
//! # Layout
//! - [`arguments`]: the command line; [`commands`]: one file per verb, words and wiring only
//! - [`session`]: the servers of a config, running for the length of one command
//! - [`lives`]: how servers live that are no programs of ours
//! - [`conversation`]: questions to them, asked the way every client asks
//! - [`own_path`]: the path under which this program was started
//! - [`owners`], [`suggestion`]: from what a user typed to the servers, or the names, that may be meant
//! - [`tool_arguments`], [`answer`]: what goes into a call and what comes out of it; [`tool_cost`]: what tools cost a model
//! - [`access`]: who can reach the service, by tokens ([`admission`]) or without ([`local_token`]); [`rest`]: the REST API beside it; [`storage`]: where the registry is
//! - [`target`]: where a command about registered servers is carried out: by a running service ([`client`], [`refusal`]),
//!   found by its [`service_file`], or on the registry itself ([`local`]); [`shown`]: its answers in columns
//! - [`documents`]: Markdown documents that run tools
//! - [`mod@assistant`]: a model that may use tools
//! - [`import`]: the servers of other programs; [`mcp_servers`]: an export as they read it
//! - [`advisers`]: models elsewhere that help to find tools
//! - [`client_config`]: the configs of other programs, changed so that they use us, and back
//! - [`traces`]: where traces of calls are sent
//! - [`doctor`]: what can be wrong, and what to do about it
//! - [`top`]: the live view
//! - [`pasted`]: commands in what is said, so that they can be pasted
//! - [`environment`]: its variables
//! - [`table`], [`output`], [`colour`], [`progress`], [`words`], [`failure`], [`exit`]: data to stdout, words to stderr, a number to the shell

mod access;
mod admission;
mod api_error;
mod arguments;
mod assistant;
mod client;
mod client_config;
mod colour;
mod command_hint;
mod commands;
mod config;
mod connectors;
mod database_wait;
mod doctor;
mod documents;
mod environment;
mod exit;
mod failure;
mod http_routes;
mod import;
mod in_process_client;
mod instance_lock;
mod local_registry;
mod local_token;
mod mcp_servers;
mod model_args;
mod model_folder;
mod output;
mod own_path;
mod owners;
mod progress;
mod result_text;
#[cfg(test)]
mod security_page;
mod server_view;
mod service_file;
mod session;
mod stderr_log;
mod storage;
mod suggestion;
mod table;
mod target;
mod tool_arguments;
mod tool_cost;
mod top;
mod traces;
mod vector_store_args;

use std::process::ExitCode;

use arguments::{Arguments, Command, help};

fn main() -> ExitCode {
    aggregator::become_watchdog_if_asked();
    if std::env::args_os().len() <= 1 {
        output::print_message(help::OVERVIEW);
        return ExitCode::from(exit::USAGE);
    }
    let Arguments { command, as_json } = Arguments::of_process();
    let done = match command {
        Command::Stdio(arguments) => commands::stdio::run(arguments),
        Command::Serve(arguments) => commands::serve::run(*arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Tools(arguments) => commands::tools::run(&arguments),
        Command::Call(arguments) => commands::call::run(&arguments),
        Command::Calls(arguments) => commands::calls::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Doc(arguments) => commands::doc::run(&arguments),
        Command::Ask(arguments) => commands::ask::run(&arguments),
        Command::Context(arguments) => commands::context::run(&arguments),
        Command::Add(arguments) => commands::add::run(&arguments),
        Command::Remove(arguments) => commands::remove::run(&arguments),
        Command::List(arguments) => commands::list::run(&arguments),
        Command::Show(arguments) => commands::show::run(&arguments),
        Command::Enable(arguments) => commands::enable::enable(&arguments.one),
        Command::Disable(arguments) => commands::enable::disable(&arguments.one),
        Command::Connect(arguments) => commands::connect::connect(&arguments),
        Command::Disconnect(arguments) => commands::connect::disconnect(&arguments.one, arguments.force),
        Command::Restart(arguments) => commands::connect::restart(&arguments.one, arguments.force),
        Command::Logs(arguments) => commands::logs::run(&arguments),
        Command::Test(arguments) => commands::test::run(&arguments),
        Command::History(arguments) => commands::history::run(&arguments),
        Command::Status(arguments) => commands::status::run(&arguments),
        Command::Search(arguments) => commands::search::run(&arguments),
        Command::Skills(arguments) => commands::skills::run(&arguments),
        Command::Prompts(arguments) => commands::prompts::run(&arguments),
        Command::Resources(arguments) => commands::resources::run(&arguments),
        Command::Settings(arguments) => commands::settings::run(&arguments),
        Command::Client(arguments) => commands::client::run(&arguments),
        Command::Clients(arguments) => commands::clients::run(&arguments),
        Command::Import(arguments) => commands::import::run(&arguments),
        Command::Export(arguments) => commands::export::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Top(arguments) => commands::top::run(&arguments),
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::DemoServer(arguments) => commands::demo::serve_one(&arguments),
        Command::Environment => commands::environment::run(),
        Command::Completions(arguments) => commands::completions::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments),
        Command::Names(arguments) => commands::names::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failure) => {
            output::print_message(&failure);
            // Who wants JSON gets some, also then. A verb that has told all it knows has told why.
            if as_json
                && !output::has_printed()
                && let Err(failure) = output::print_json(&failure.to_json())
            {
                output::print_message(failure);
            }
            ExitCode::from(failure.code)
        }
    }
}
