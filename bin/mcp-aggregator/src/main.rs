//! `mcp-aggregator`: many MCP servers in, one endpoint out; and the commands to inspect and use them by hand.
//!
//! # Layout
//! - [`cli`]: parses the command line and renders `--help`; [`commands`]: one file per verb, with its arguments
//! - [`session`]: runs the servers of a config for the duration of one command; [`in_process_client`]: sends requests
//!   to them the way every client does
//! - [`connectors`]: connects servers over HTTP and in containers; [`sign_in`]: signs in to them,
//!   [`service_sign_in`] through a running service
//! - [`access`]: who can reach the service, with tokens ([`admission`]), identity providers
//!   ([`identity_args`], [`console_sign_in`]) or without ([`local_token`]);
//!   [`http_routes`]: REST and console beside MCP; [`storage`], [`database_wait`], [`instance_lock`]: the registry
//! - [`target`]: where a command about registered servers is carried out: by a running service ([`client`],
//!   [`api_error`]), found by its [`service_file`], or on the registry itself ([`local_registry`]);
//!   [`server_view`]: its answers in columns
//! - [`owners`], [`suggestion`]: from what a user typed to the servers or names that may be meant
//! - [`tool_arguments`], [`result_text`]: what goes into a call and what comes out of it; [`tool_cost`]: what tools
//!   cost a model
//! - [`documents`]: Markdown documents that run tools; [`mod@assistant`]: a model that may use tools
//! - [`model_args`], [`model_folder`], [`vector_store_args`]: models and vector stores that help to find tools
//! - [`import`]: the servers of other programs; [`mcp_servers`]: an export in the format that they read;
//!   [`client_config`]: their configs, changed to use mcp-aggregator, and restored
//! - [`doctor`]: what can be wrong, and what to do about it; [`top`]: the live view; [`traces`]: the trace exporter
//! - [`command_hint`]: commands in hints, so that they can be pasted; [`program_path`]: the path of this program
//! - [`config`], [`environment`]: read the config file and environment variables
//! - [`table`], [`output`], [`colour`], [`progress`], [`stderr_log`], [`failure`], [`exit`]: data to stdout, messages to
//!   stderr, an exit status to the shell

mod access;
mod admission;
mod api_error;
mod assistant;
mod cli;
mod client;
mod client_config;
mod colour;
mod command_hint;
mod commands;
mod config;
mod config_profile;
mod connectors;
mod console_sign_in;
mod database_wait;
mod doctor;
mod documents;
mod environment;
mod exit;
mod failure;
mod http_routes;
mod identity_args;
mod import;
mod in_process_client;
mod instance_lock;
mod local_registry;
mod local_token;
mod mcp_servers;
mod model_args;
mod model_folder;
mod output;
mod owners;
mod program_path;
mod progress;
mod result_text;
#[cfg(test)]
mod security_page;
mod server_view;
mod service_file;
mod service_sign_in;
mod session;
mod sign_in;
mod socket_activation;
mod stderr_log;
mod storage;
mod suggestion;
mod table;
mod target;
mod tls_files;
mod tool_arguments;
mod tool_cost;
mod top;
mod traces;
mod unix_socket;
mod vector_store_args;

use std::process::ExitCode;

use cli::{Arguments, help};

fn main() -> ExitCode {
    aggregator::become_watchdog_if_asked();
    if std::env::args_os().len() <= 1 {
        output::print_message(help::OVERVIEW);
        return ExitCode::from(exit::USAGE);
    }
    let Arguments { command, as_json } = Arguments::of_process();
    match commands::run(command) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failure) => {
            output::print_message(&failure);
            // With `--json`, an error is JSON, too, unless the command has already printed its output, which says why.
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
