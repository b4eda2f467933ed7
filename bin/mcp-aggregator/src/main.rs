//! `mcp-aggregator`: many MCP servers in, one endpoint out; and the commands to look at them and use them by hand.
//!
//! # Layout
//! - [`arguments`]: the command line; [`commands`]: one file per verb, words and wiring only
//! - [`session`]: the servers of a config, running for the length of one command
//! - [`lives`]: how servers live that are no programs of ours
//! - [`conversation`]: questions to them, asked the way every client asks
//! - [`owners`], [`suggestion`]: from what a user typed to the servers, or the names, that may be meant
//! - [`tool_arguments`], [`answer`]: what goes into a call and what comes out of it
//! - [`admission`]: who may come in over HTTP; [`rest`]: the REST API beside it; [`storage`]: where the registry is
//! - [`table`], [`output`], [`words`], [`failure`], [`exit`]: data to stdout, words to stderr, a number to the shell

mod admission;
mod answer;
mod arguments;
mod commands;
mod config;
mod conversation;
mod exit;
mod failure;
mod lives;
mod output;
mod owners;
mod rest;
mod session;
mod storage;
mod suggestion;
mod table;
mod tool_arguments;
mod words;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;

fn main() -> ExitCode {
    aggregator::become_watchdog_if_asked();
    let done = match Arguments::parse().command {
        Command::Stdio(arguments) => commands::stdio::run(arguments),
        Command::Serve(arguments) => commands::serve::run(arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Tools(arguments) => commands::tools::run(&arguments),
        Command::Call(arguments) => commands::call::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failure) => {
            output::say(&failure);
            ExitCode::from(failure.code)
        }
    }
}
