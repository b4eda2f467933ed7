//! `cargo run --profile dist -p bench`: the side-by-side benchmark. See the README.md of this package.
//!
//! # Layout
//! - `options` → `run` → `sections/*`: what was asked, who takes part, one file per table
//! - `contestant`, `session`, `client_connection`, `connection`, `call`, `listing`, `lanes`: the client side, blocking and cheap
//! - `http_contestant`, `service`, `http_connection`, `http_answer`, `rest_client`: the same over HTTP
//! - `machine`, `processes`, `stall`, `statistics`, `report`: what is read from the system, and how it is shown
//!
//! Exit code 0: every answer was right, whatever the numbers. 1: a wrong answer, or something could not be started.

mod call;
mod client_connection;
mod connection;
mod contestant;
mod http2_connection;
mod http_answer;
mod http_connection;
mod http_contestant;
mod inbox;
mod lanes;
mod listing;
mod machine;
mod options;
mod processes;
mod report;
mod rest_client;
mod run;
mod sections;
mod service;
mod session;
mod stall;
mod statistics;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::contestant::{Contestant, Kind, Programs};
use crate::options::{Effort, Options, Section, USAGE};
use crate::report::{Report, say};
use crate::run::Run;
use crate::sections::features::{self, Feature};

fn main() -> ExitCode {
    let outcome = Options::parse(lexopt::Parser::from_env()).and_then(|options| run(&options));
    // Whatever a contestant left behind is below us now.
    processes::end_orphans(&processes::descendants(rustix::process::getpid()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    if options.help {
        return say(USAGE);
    }
    // Servers whose aggregator died come to us, and we end them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("could not become the parent of orphans")?;
    stall::start_watching();

    let mut run = Run {
        programs: find_programs(options)?,
        contestants: contestants(options),
        effort: options.effort,
        report: Report::default(),
    };
    say(&format!("Machine: {}.", machine::describe()))?;
    // No table of a stand-in may pass for ours.
    for (option, program) in [("--program", &options.program), ("--service", &options.service)] {
        if let Some(name) = program.as_ref().and_then(|program| program.file_name()) {
            say(&format!("\n**`us` is `{}`** (`{option}`).", name.display()))?;
        }
    }
    if options.effort == Effort::Quick {
        say("\n*A quick run: it shows that everything works; its numbers are noise.*")?;
    }
    let mut failed = Vec::new();
    for section in &options.sections {
        eprintln!("measuring {} ...", section.name());
        // The other sections are still worth having.
        if let Err(error) = measure(*section, &mut run) {
            run.report.note(&format!("**Failed:** {error:#}"))?;
            failed.push(section.name());
        }
    }
    run.report.print_promises()?;
    ensure!(failed.is_empty(), "these sections failed: {}", failed.join(", "));
    Ok(())
}

fn measure(section: Section, run: &mut Run) -> Result<()> {
    match section {
        Section::Latency => sections::latency::measure(run),
        Section::Throughput => sections::throughput::measure(run),
        Section::Startup => sections::startup::measure(run),
        Section::Memory => sections::memory::measure(run),
        Section::Listing => sections::listing::measure(run),
        Section::Isolation => sections::isolation::measure(run),
        Section::Http => sections::http::measure(run),
        Section::Http2 => sections::http2::measure(run),
        Section::SignIn => features::measure(run, &Feature::sign_in()),
        Section::Profiles => features::measure(run, &Feature::profiles()),
        Section::Limits => features::measure(run, &Feature::limits()),
        Section::History => features::measure(run, &Feature::history()),
        Section::Registry => sections::registry::measure(run),
    }
}

fn contestants(options: &Options) -> Vec<Contestant> {
    let ours = [("direct", Kind::Direct), ("floor", Kind::Floor), ("us", Kind::Us)];
    let ours = ours.into_iter().map(|(name, kind)| (name.to_owned(), kind));
    let others = options.others.iter().cloned();
    let others = others.map(|(name, command)| (name, Kind::Other(command)));
    ours.chain(others).map(|(name, kind)| Contestant { name, kind }).collect()
}

/// The programs are in the folder of this one, built with the same profile.
fn find_programs(options: &Options) -> Result<Programs> {
    let runner = std::env::current_exe().context("could not find this program's own path")?;
    let target_folder = runner.parent().context("this program lies in a directory")?;
    let profile =
        target_folder.file_name().and_then(|name| name.to_str()).context("this program lies in a profile's folder")?;
    if profile != "dist" {
        eprintln!(
            "warning: these programs are not what the packages contain; the numbers say little. Use `cargo run --profile \
             dist -p bench`"
        );
    }
    let mut ours = Vec::new();
    if options.measures_stdio() && options.program.is_none() {
        ours.push("mcp-simple-aggregator");
    }
    if options.measures_http() && options.service.is_none() {
        ours.push("mcp-aggregator");
    }
    if options.build {
        build(target_folder, profile, &ours)?;
    }
    let programs = Programs {
        server: target_folder.join("bench-server"),
        http_server: target_folder.join("bench-http-server"),
        floor: target_folder.join("floor"),
        floor_proxy: target_folder.join("floor-proxy"),
        us: options.program.clone().unwrap_or_else(|| target_folder.join("mcp-simple-aggregator")),
        service: options.service.clone().unwrap_or_else(|| target_folder.join("mcp-aggregator")),
        scratch: tempfile::tempdir().context("could not make a directory for config files")?,
    };
    let mut needed = vec![&programs.server, &programs.http_server, &programs.floor, &programs.floor_proxy];
    needed.extend(options.measures_stdio().then_some(&programs.us));
    needed.extend(options.measures_http().then_some(&programs.service));
    for program in needed {
        ensure!(
            program.exists(),
            "the program `{}` was not found\nhint: run without --no-build, or set --program or --service",
            program.display()
        );
    }
    Ok(programs)
}

fn build(target_folder: &Path, profile: &str, ours: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "bench", "--bins"]);
    command.args(ours.iter().flat_map(|package| ["-p", package]));
    // Cargo calls the profile of the folder `debug` `dev`.
    command.args(["--profile", if profile == "debug" { "dev" } else { profile }]);
    if let Some(target) = target_folder.parent() {
        command.arg("--target-dir").arg(target);
    }
    eprintln!("building the programs ...");
    let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status().context("could not run cargo")?;
    ensure!(status.success(), "the programs could not be built");
    Ok(())
}
