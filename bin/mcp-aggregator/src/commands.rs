//! One file per command, with its arguments and its code. `enable.rs` also has `disable`, `demo.rs` also has
//! `demo-server`.

pub(crate) mod add;
pub(crate) mod ask;
pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod check;
pub(crate) mod client;
mod client_setup;
pub(crate) mod clients;
pub(crate) mod completions;
pub(crate) mod connect;
pub(crate) mod context;
pub(crate) mod demo;
pub(crate) mod disconnect;
pub(crate) mod doc;
pub(crate) mod doctor;
pub(crate) mod enable;
pub(crate) mod environment;
pub(crate) mod export;
pub(crate) mod history;
pub(crate) mod import;
mod items;
pub(crate) mod licenses;
pub(crate) mod limits;
pub(crate) mod list;
pub(crate) mod login;
pub(crate) mod logout;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod names;
pub(crate) mod profiles;
pub(crate) mod prompts;
pub(crate) mod remove;
pub(crate) mod resources;
pub(crate) mod restart;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod settings;
pub(crate) mod show;
pub(crate) mod skills;
mod startup_progress;
pub(crate) mod status;
pub(crate) mod stdio;
pub(crate) mod test;
pub(crate) mod tools;
pub(crate) mod top;

use crate::cli::Command;
use crate::failure::Failure;

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Stdio(arguments) => stdio::run(arguments),
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Tools(arguments) => tools::run(&arguments),
        Command::Call(arguments) => call::run(&arguments),
        Command::Calls(arguments) => calls::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Doc(arguments) => doc::run(&arguments),
        Command::Ask(arguments) => ask::run(&arguments),
        Command::Context(arguments) => context::run(&arguments),
        Command::Add(arguments) => add::run(&arguments),
        Command::Remove(arguments) => remove::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Enable(arguments) => enable::enable(&arguments),
        Command::Disable(arguments) => enable::disable(&arguments),
        Command::Connect(arguments) => connect::run(&arguments),
        Command::Disconnect(arguments) => disconnect::run(&arguments),
        Command::Restart(arguments) => restart::run(&arguments),
        Command::Login(arguments) => login::run(&arguments),
        Command::Logout(arguments) => logout::run(&arguments),
        Command::Logs(arguments) => logs::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::History(arguments) => history::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Search(arguments) => search::run(&arguments),
        Command::Skills(arguments) => skills::run(&arguments),
        Command::Profiles(arguments) => profiles::run(&arguments),
        Command::Prompts(arguments) => prompts::run(&arguments),
        Command::Resources(arguments) => resources::run(&arguments),
        Command::Settings(arguments) => settings::run(&arguments),
        Command::Limits(arguments) => limits::run(&arguments),
        Command::Client(arguments) => client::run(&arguments),
        Command::Clients(arguments) => clients::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::DemoServer(arguments) => demo::serve_one(&arguments),
        Command::Environment => environment::run(),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::Licenses(arguments) => licenses::run(&arguments),
        Command::Names(arguments) => names::run(&arguments),
    }
}
