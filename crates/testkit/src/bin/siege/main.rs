//! Runs hostile servers and clients against a live service, and checks that a well-behaved neighbour is not affected.
//!
//! - [`hostile_server`]: servers that list, log and respond too much or wrongly
//! - [`hostile_lists`]: lists of these servers whose meaning costs more than their bytes
//! - [`hostile_client`]: clients, documents and bare sockets that ask for too much
//! - [`hostile_reader`]: clients that read the longest lists, several at once
//! - [`neighbour`]: a well-behaved client of a well-behaved server, and the same server without us for comparison
//! - [`report`]: compares the measurements with their limits

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

mod hostile_client;
mod hostile_lists;
mod hostile_reader;
mod hostile_server;
mod neighbour;
mod options;
mod report;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, ensure};
use testkit::http_client::HttpRequest;
use testkit::processes::{descendants, open_fds, peak_rss_kb, rss_kb};
use testkit::{Config, Serve, ServerEntry, Signal, fake};

use hostile_server::Kind;
use neighbour::Neighbour;
use options::{BYTE_BOUNDS, Options};
use report::{Memory, Report, SAMPLE_INTERVAL};

/// Set when the siege is over; every loop checks it.
static SIEGE_IS_OVER: AtomicBool = AtomicBool::new(false);

fn is_over() -> bool {
    SIEGE_IS_OVER.load(Ordering::Relaxed)
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

/// Runs the siege for the configured time; returns whether every limit was kept.
fn run(options: &Options) -> anyhow::Result<bool> {
    let folder = tempfile::TempDir::with_prefix("siege-").context("failed to create a folder")?;
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, format!("neighbour:{NEIGHBOUR_TOKEN}\nattacker:{ATTACKER_TOKEN}\n"))?;
    let operations = folder.path().join("operations");
    std::fs::create_dir(&operations)?;
    let mut service = start(options, &tokens, &operations)?;
    bound(&service)?;
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
    let begun = Instant::now();
    let mut sampled = begun;
    neighbour.measure_until(begun + options.duration, || {
        if sampled.elapsed() >= SAMPLE_INTERVAL {
            sampled = Instant::now();
            memory.note(rss_kb(pid));
            println!(
                "{:>4} s: memory {} MB, {} MB at most, {} files open",
                begun.elapsed().as_secs(),
                rss_kb(pid) / 1024,
                peak_rss_kb(pid) / 1024,
                open_fds(pid)
            );
        }
        true
    });
    let besieged = neighbour.take();
    memory.note(rss_kb(pid));
    memory.peak_kb = peak_rss_kb(pid);
    SIEGE_IS_OVER.store(true, Ordering::Relaxed);
    drop(neighbour);

    let children = descendants(pid);
    let asked = Instant::now();
    service.signal(Signal::TERM);
    let status = service.wait_exit();
    let stop = asked.elapsed();
    // Not before the service has ended, because an attack may wait for a response.
    let attacks = attackers.into_iter().map(|thread| thread.join().expect("an attack does not panic")).collect();
    for child in children {
        testkit::wait_gone_or_zombie(child);
    }
    ensure!(status.success(), "the service did not end well: {status}\n{}", service.stderr_text());
    let log = service.stderr_text();
    if let Some(file) = &options.log_file {
        std::fs::write(file, &log).with_context(|| format!("failed to write {}", file.display()))?;
    }
    let panics = log.lines().filter(|line| line.contains("panicked")).count();
    let idle_servers = if options.only.is_empty() { idle_servers(&operations, &log)? } else { Vec::new() };

    let report = Report { quiet, besieged, memory, stop, panics, attacks, idle_servers };
    println!("{report}");
    let exceeded = report.exceeded(options);
    for line in &exceeded {
        println!("EXCEEDED: {line}");
    }
    println!("{} passed, {} failed", report.checks().saturating_sub(exceeded.len()), exceeded.len());
    Ok(exceeded.is_empty())
}

const NEIGHBOUR_TOKEN: &str = "neighbour-0123456789abcdef0123456789abcdef";
const ATTACKER_TOKEN: &str = "attacker-0123456789abcdef0123456789abcdef";

/// The connection limit of the service, so that one attacker can exceed it.
const CONNECTIONS: usize = 300;

/// Starts a service with a good server and every hostile one.
fn start(options: &Options, tokens: &Path, operations: &Path) -> anyhow::Result<Serve> {
    let this = std::env::current_exe().context("failed to find this program")?;
    let mut config = Config::new().server("good", fake());
    for kind in Kind::ALL.into_iter().filter(|kind| options.wants(kind.name())) {
        let entry =
            ServerEntry::new(&this).arg(hostile_server::FLAG).arg(kind.name()).arg(operations.to_string_lossy());
        config = config.server(kind.name(), entry);
    }
    let limits = [
        format!("received-mb={}", BYTE_BOUNDS.received),
        format!("received-mb-per-token={}", BYTE_BOUNDS.received),
        format!("unread-mb={}", BYTE_BOUNDS.unread),
        format!("unread-mb-per-token={}", BYTE_BOUNDS.unread),
        format!("connections={CONNECTIONS}"),
    ];
    Ok(Serve::start_as(&config, |launch| {
        let launch = launch.arg("--token-file").arg(tokens);
        limits.iter().fold(launch, |launch, limit| launch.arg("--limit").arg(limit))
    }))
}

/// Sets the limits that are settings.
fn bound(service: &Serve) -> anyhow::Result<()> {
    let settings = serde_json::json!({
        "all_undelivered_kb": BYTE_BOUNDS.undelivered << 10,
        "server_undelivered_kb": BYTE_BOUNDS.undelivered << 10,
        "all_catalogs_kb": BYTE_BOUNDS.catalogs << 10,
    });
    let ask = HttpRequest::new("PATCH", "/api/v1/aggregator/settings")
        .header("Authorization", &format!("Bearer {NEIGHBOUR_TOKEN}"))
        .header("Content-Type", "application/json")
        .body(settings.to_string());
    let answer = service.fetch(&ask);
    ensure!(answer.status == 200, "the settings were not accepted: {} {}", answer.status, answer.body);
    Ok(())
}

/// Servers without proof of their misbehaviour: one line each.
fn idle_servers(operations: &Path, log: &str) -> anyhow::Result<Vec<String>> {
    let mut done = BTreeMap::new();
    for entry in std::fs::read_dir(operations)? {
        let entry = entry?;
        done.insert(entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len());
    }
    let mut idle = Vec::new();
    for kind in Kind::ALL {
        let (name, operations) = (kind.name(), done.get(kind.name()).copied().unwrap_or(0));
        println!("{name:<24} did it {operations} times");
        if operations == 0 {
            idle.push(format!("the server {name} proved nothing: it did not do what it is for"));
        }
        if let Some(bound) = kind.bound_in_log()
            && !log.lines().any(|line| line.contains(name) && line.contains(bound))
        {
            idle.push(format!("the server {name} proved nothing: no line of the log says `{bound}` of it"));
        }
    }
    Ok(idle)
}
