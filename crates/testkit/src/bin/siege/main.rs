//! Runs hostile servers and clients against a live service and checks that a neighbour does not notice.
//!
//! - [`hostile_server`]: servers that list, log and answer what no server should
//! - [`hostile_client`]: clients, documents and bare sockets that ask for too much
//! - [`neighbour`]: a well-behaved client of a well-behaved server, and the same server without us for comparison
//! - [`report`]: what was measured, held against the bounds

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

mod hostile_client;
mod hostile_server;
mod neighbour;
mod options;
mod report;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::processes::{descendants, peak_rss_kb, rss_kb};
use testkit::{Config, Serve, ServerEntry, Signal, fake};

use hostile_server::Kind;
use neighbour::Neighbour;
use options::Options;
use report::{Memory, Report};

/// Set when the siege is over; every loop looks at it.
static OVER: AtomicBool = AtomicBool::new(false);

fn is_over() -> bool {
    OVER.load(Ordering::Relaxed)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some(hostile_server::FLAG) => hostile_server::run(&arguments[1..]).map(|()| true),
        _ => Options::parse(&arguments).and_then(|options| run(&options)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Besieges a service for as long as the options say; whether every bound held.
fn run(options: &Options) -> anyhow::Result<bool> {
    let folder = tempfile::TempDir::with_prefix("siege-").context("failed to create a folder")?;
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, format!("neighbour:{NEIGHBOUR_TOKEN}\nattacker:{ATTACKER_TOKEN}\n"))?;
    let mut service = start(options, &tokens)?;
    let pid = service.pid();

    let mut neighbour = Neighbour::start(&service);
    neighbour.measure_until(Instant::now() + options.quiet_time(), || true);
    let quiet = neighbour.take();
    let rest = peak_rss_kb(pid);
    println!("quiet: {quiet}; memory {} MB", rest / 1024);

    let address = service.address();
    let attackers: Vec<_> = hostile_client::ATTACKS
        .iter()
        .filter(|attack| options.wants(attack.name))
        .map(|attack| thread::spawn(move || attack.repeat(address)))
        .collect();
    let mut memory = Memory::default();
    let mut said = Instant::now();
    neighbour.measure_until(Instant::now() + options.duration, || {
        memory.note(rss_kb(pid));
        if said.elapsed() > Duration::from_secs(30) {
            said = Instant::now();
            println!("memory {} MB now, {} MB at most", memory.now_kb / 1024, peak_rss_kb(pid) / 1024);
        }
        true
    });
    let besieged = neighbour.take();
    memory.peak_kb = peak_rss_kb(pid);
    OVER.store(true, Ordering::Relaxed);
    let attacks = attackers.into_iter().map(|thread| thread.join().expect("an attack does not panic")).collect();
    drop(neighbour);

    let children = descendants(pid);
    let asked = Instant::now();
    service.signal(Signal::TERM);
    let status = service.wait_exit();
    let stop = asked.elapsed();
    for child in children {
        testkit::wait_gone_or_zombie(child);
    }
    ensure!(status.success(), "the service did not end well: {status}\n{}", service.stderr_text());
    let panics = service.stderr_text().lines().filter(|line| line.contains("panicked")).count();

    let report = Report { quiet, besieged, memory, stop, panics, attacks };
    println!("{report}");
    let exceeded = report.exceeded(options);
    for line in &exceeded {
        println!("EXCEEDED: {line}");
    }
    println!("{} passed, {} failed", report::BOUNDS - exceeded.len(), exceeded.len());
    Ok(exceeded.is_empty())
}

const NEIGHBOUR_TOKEN: &str = "neighbour-0123456789abcdef0123456789abcdef";
const ATTACKER_TOKEN: &str = "attacker-0123456789abcdef0123456789abcdef";

/// Starts a service with a good server and every hostile one.
fn start(options: &Options, tokens: &Path) -> anyhow::Result<Serve> {
    let this = std::env::current_exe().context("failed to find this program")?;
    let mut config = Config::new().server("good", fake());
    for kind in Kind::ALL.into_iter().filter(|kind| options.wants(kind.name())) {
        let entry = ServerEntry::new(&this).arg(hostile_server::FLAG).arg(kind.name());
        config = config.server(kind.name(), entry);
    }
    Ok(Serve::start_as(&config, |launch| launch.arg("--token-file").arg(tokens)))
}
