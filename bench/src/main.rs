//! `cargo run --release -p bench`: the side-by-side benchmark. See README.md beside this package.
//!
//! # Layout
//! - `options` → `run` → `sections/*`: what was asked, who takes part, one file per table
//! - `contestant`, `connection`, `call`, `listing`: the client side, blocking and cheap
//! - `machine`, `processes`, `stall`, `statistics`, `report`: what is read from the system, and how it is shown
//!
//! Exit code 0: every answer was right, whatever the numbers. 1: a wrong answer, or something could not be started.

mod call;
mod connection;
mod contestant;
mod listing;
mod machine;
mod options;
mod processes;
mod report;
mod run;
mod sections;
mod stall;
mod statistics;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::contestant::{Contestant, Kind, Programs};
use crate::options::{Effort, Options, Section, USAGE};
use crate::report::{Report, say};
use crate::run::Run;

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
    if let Some(program) = &options.program {
        // No table of a stand-in may pass for ours.
        let name = program.file_name().unwrap_or_default();
        say(&format!("\n**`us` is `{}`** (`--program`).", name.display()))?;
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
    }
}

fn contestants(options: &Options) -> Vec<Contestant> {
    let ours = [("direct", Kind::Direct), ("floor", Kind::Floor), ("us", Kind::Us)];
    let ours = ours.into_iter().map(|(name, kind)| (name.to_owned(), kind));
    let others = options.others.iter().cloned();
    let others = others.map(|(name, command)| (name, Kind::Other(command)));
    ours.chain(others).map(|(name, kind)| Contestant { name, kind }).collect()
}

/// The programs lie beside this one, in the same target directory and profile.
fn find_programs(options: &Options) -> Result<Programs> {
    let runner = std::env::current_exe().context("could not find this program's own path")?;
    let beside = runner.parent().context("this program lies in a directory")?;
    let optimised = beside.ends_with("release");
    if !optimised {
        eprintln!("warning: this is not a release build; the numbers say little. Use `cargo run --release -p bench`");
    }
    if options.build {
        build(beside, optimised, options.program.is_none())?;
    }
    let programs = Programs {
        server: beside.join("bench-server"),
        floor: beside.join("floor"),
        us: options.program.clone().unwrap_or_else(|| beside.join("mcp-simple-aggregator")),
        scratch: tempfile::tempdir().context("could not make a directory for config files")?,
    };
    for program in [&programs.server, &programs.floor, &programs.us] {
        ensure!(
            program.exists(),
            "the program `{}` was not found\nhint: run without --no-build, or set --program",
            program.display()
        );
    }
    Ok(programs)
}

fn build(beside: &Path, optimised: bool, ours_too: bool) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "bench", "--bins"]);
    if ours_too {
        command.args(["-p", "mcp-simple-aggregator"]);
    }
    if optimised {
        command.arg("--release");
    }
    if let Some(target) = beside.parent() {
        command.arg("--target-dir").arg(target);
    }
    eprintln!("building the programs ...");
    let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status().context("could not run cargo")?;
    ensure!(status.success(), "the programs could not be built");
    Ok(())
}
