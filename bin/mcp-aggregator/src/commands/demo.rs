//! `demo`: runs a service with two small servers, which are part of this program.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::{fs, io};

use aggregator::Signals;
use clap::{Args, Parser, ValueEnum};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::serve;
use crate::access::Access;
use crate::admission::{TOKEN_VARIABLE, check_exposure};
use crate::cli::shared::listen_address;
use crate::cli::{Arguments, Command};
use crate::commands::serve::ServeArguments;
use crate::failure::Failure;
use crate::output::print_message;

/// Start a demo service with two small servers.
///
/// The servers are part of this program, so nothing else is needed. The service listens on port 8808, or on another
/// one if that is in use, and prints what to try. Its data is in a temporary folder, which it removes on Ctrl-C.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator demo
  mcp-aggregator demo --listen 9000"
)]
pub(crate) struct DemoArguments {
    /// The address to listen on: ADDRESS:PORT, or a port on localhost [default: 8808, or a free port]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,
    #[arg(long, help = serve::JSON_HELP)]
    pub(crate) json: bool,
}

/// Run one of the servers of the demo over stdio.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct DemoServerArguments {
    /// The server
    #[arg(value_enum)]
    pub(crate) server: DemoServer,
    /// The folder of the notes
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: PathBuf,
}

/// A server of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoServer {
    Calc,
    Notes,
}

/// The default address of a service.
const DEFAULT_PORT: u16 = 8808;
/// An example note.
const FIRST_NOTE: &str = "# Welcome\n\n`mcp-aggregator demo` wrote this note, and removes it when it ends.\n";

pub(crate) fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    let listen = match arguments.listen {
        Some(listen) => listen,
        None => free_address().map_err(|error| failed(&error))?,
    };
    let is_guarded = std::env::var_os(TOKEN_VARIABLE).is_some();
    check_exposure(listen, is_guarded).map_err(|failure| {
        failure.with_hint(format!("set {TOKEN_VARIABLE}, or listen on 127.0.0.1:{}", listen.port()))
    })?;
    // Before any file is created: from now on signals are received, and take effect when the service runs.
    let early = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(|error| failed(&error))?;
    let signals = early.block_on(async { Signals::respecting_nohup() }).map_err(|error| failed(&error))?;
    let folder = TempDir::with_prefix("mcp-aggregator-demo-").map_err(|error| failed(&error))?;
    let served = install_demo_servers(folder.path()).map_err(|error| failed(&error)).and_then(|config| {
        let typed = as_typed(listen, &config, folder.path())?;
        serve::run_announced(
            typed,
            || Ok(signals),
            |addresses, access| match arguments.json {
                true => serve::print_location(addresses, access),
                false => announce(addresses.tcp().unwrap_or(listen), access),
            },
        )
    });
    // Removed explicitly, so that a failure is reported.
    let path = folder.path().to_owned();
    if let Err(error) = folder.close() {
        print_message(format_args!("warning: could not remove {}: {error}", path.display()));
    }
    served
}

/// One of the two servers, started by the service.
pub(crate) fn serve_one(arguments: &DemoServerArguments) -> Result<(), Failure> {
    let server = match arguments.server {
        DemoServer::Calc => example_servers::calc::server(),
        DemoServer::Notes => example_servers::notes::server(arguments.dir.clone()),
    };
    server.serve().map_err(|error| Failure::new(format!("the demo server failed: {error}")))
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(format!("could not prepare the demo: {error}"))
}

/// The default address, or another one if it is in use.
fn free_address() -> io::Result<SocketAddr> {
    let at = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr());
    at(DEFAULT_PORT).or_else(|_| at(0))
}

/// Writes a config and a note into the folder.
fn install_demo_servers(folder: &Path) -> io::Result<std::path::PathBuf> {
    let program = std::env::current_exe()?;
    let notes = folder.join("notes");
    fs::create_dir(&notes)?;
    fs::write(notes.join("welcome.md"), FIRST_NOTE)?;
    let server = |name: &str| -> Value {
        json!({"command": program.display().to_string(), "args": ["demo-server", name, "--dir", notes.display().to_string()]})
    };
    let config = folder.join("servers.json");
    fs::write(&config, json!({"mcpServers": {"calc": server("calc"), "notes": server("notes")}}).to_string())?;
    Ok(config)
}

/// A command for users to try.
fn as_typed(listen: SocketAddr, config: &Path, folder: &Path) -> Result<ServeArguments, Failure> {
    let (listen, data) = (listen.to_string(), folder.join("data"));
    let typed = [
        "mcp-aggregator".as_ref(),
        "serve".as_ref(),
        "--listen".as_ref(),
        listen.as_ref(),
        "--config".as_ref(),
        config.as_os_str(),
        "--data-dir".as_ref(),
        data.as_os_str(),
    ];
    match Arguments::try_parse_from(typed).map(|arguments| arguments.command) {
        Ok(Command::Serve(arguments)) => Ok(*arguments),
        Ok(_) => Err(Failure::new("could not prepare the demo")),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}

fn announce(address: SocketAddr, access: &Access) {
    let url = format!("http://{address}");
    let token = access.local_token.as_ref().filter(|_| access.needs_token());
    let token = token.map(|token| format!(" --token-file {}", token.file.display())).unwrap_or_default();
    let console = access.console_address(&url);
    print_message(format_args!("listening on {url}"));
    print_message(format_args!("reachable by: {}", access.reachable_by()));
    print_message(format_args!(
        "This is a service with two small servers, `calc` and `notes`. Ctrl-C ends it and removes its data.

Try, in another terminal:
  mcp-aggregator call --url {url}{token} calc.evaluate expression='0.1 + 0.2'
  mcp-aggregator call --url {url}{token} notes.search query=demo
  mcp-aggregator top --url {url}{token}

In a browser: {console}
For MCP clients: {url}/mcp; for the REST API: {url}/api/docs"
    ));
}
