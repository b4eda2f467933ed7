//! `mcp-simple-aggregator`: reads a Claude-style config, and serves the tools of all its servers over stdio.

mod arguments;

use std::process::ExitCode;

use aggregator::{Accepted, Aggregator, Fleet, Signals, escape, load, logging, stdio};
use arguments::{Action, Arguments};
use tokio::runtime::LocalOptions;

/// Success.
const OK: u8 = 0;
/// The config cannot be used, or the client cannot be served.
const FAILED: u8 = 1;
/// The command line is invalid.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    aggregator::become_watchdog_if_asked();
    let arguments = match arguments::parse(lexopt::Parser::from_env()) {
        Ok(Action::Serve(arguments)) => arguments,
        Ok(Action::Print(text)) => return print(&text),
        Err(message) => return fail(USAGE, &format!("{message}\n\n{}", arguments::USAGE)),
    };
    match run(*arguments) {
        Ok(()) => ExitCode::from(OK),
        Err(message) => fail(FAILED, &message),
    }
}

fn run(arguments: Arguments) -> Result<(), String> {
    let Arguments { config, options, debug, log_file } = arguments;
    logging::init(debug, log_file.as_deref()).map_err(|error| {
        let path = log_file.as_deref().unwrap_or("-".as_ref()).display();
        format!("could not open log file {path}: {error}")
    })?;
    let loaded = load::load(&config, Accepted::StdioOnly).map_err(|error| error.to_string())?;
    loaded.log_warnings();

    // One thread suffices to move bytes, and is fastest: no call ever changes threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|error| format!("could not start: {error}"))?;
    runtime.block_on(async {
        let signals = Signals::new().map_err(|error| format!("could not listen for signals: {error}"))?;
        let fleet = Fleet::start(loaded.config, options.clone(), &loaded.chain, None);
        stdio::serve(Aggregator::new(fleet, options), signals)
            .await
            .map_err(|error| format!("could not serve: {error}"))
    })
}

#[expect(clippy::print_stdout, reason = "--help and --version are data, and nothing is served then")]
fn print(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::from(OK)
}

fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("error: {}", escape::multi_line(message));
    ExitCode::from(code)
}
