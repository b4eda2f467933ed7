//! What a feature costs per call: the same service without and with it, side by side.

use std::time::Duration;

use anyhow::Result;

use crate::http_contestant::{
    HttpContestant, credential_holders, limit_contestants, profile_contestants, recording_contestants, start_server,
};
use crate::lanes::race;
use crate::machine::OneCpu;
use crate::report::{Measure, Table};
use crate::run::Run;
use crate::sections::http::open_lanes;
use crate::statistics::{ratio, show_micros, show_ratio};

/// Each with a connection and a session of its own, and one call in flight.
const CLIENTS: [usize; 2] = [1, 16];
const CALLS_PER_BLOCK: usize = 10_000;
/// Longer than records are gathered before they are written.
const BATCH_WRITE_TIME: Duration = Duration::from_millis(1200);

/// A service without something, and with it.
pub(crate) struct Feature {
    heading: &'static str,
    /// What the one without it is called.
    versus: &'static str,
    contestants: [HttpContestant; 2],
    rounds: usize,
    /// How long each block waits for work that is done after the answers, which counts as well.
    afterwards: Duration,
    /// The name of the promise, and the limit of the CPU per call, compared with the service without it.
    promise: (&'static str, f64),
}

impl Feature {
    /// A token from a token endpoint instead of one in the config.
    pub(crate) fn sign_in() -> Self {
        Self {
            heading: "A server that is signed in to, 100 B calls, HTTP in, HTTP out",
            versus: "vs static header",
            contestants: credential_holders(),
            rounds: 20,
            afterwards: Duration::ZERO,
            promise: ("signed in", 1.05),
        }
    }

    /// Clients of a profile, instead of clients that see everything.
    pub(crate) fn profiles() -> Self {
        Self {
            heading: "Clients of a profile, 100 B calls, HTTP in, stdio out",
            versus: "vs everything",
            contestants: profile_contestants(),
            rounds: 20,
            afterwards: Duration::ZERO,
            promise: ("profile", 1.05),
        }
    }

    /// Limits of calls that are never reached.
    pub(crate) fn limits() -> Self {
        Self {
            heading: "Limits that are never reached, 100 B calls, HTTP in, stdio out",
            versus: "vs no limits",
            contestants: limit_contestants(),
            rounds: 20,
            afterwards: Duration::ZERO,
            promise: ("limits", 1.05),
        }
    }

    /// A record of every call. What is written after the answers counts as well.
    pub(crate) fn history() -> Self {
        Self {
            heading: "Recording every call, 100 B calls, HTTP in, stdio out",
            versus: "vs without",
            contestants: recording_contestants(),
            rounds: 10,
            afterwards: BATCH_WRITE_TIME,
            promise: ("recording a call", 1.2),
        }
    }
}

pub(crate) fn measure(run: &mut Run, feature: &Feature) -> Result<()> {
    run.report.heading(feature.heading)?;
    let mut table = Table::new(["clients", "", "calls/s", "CPU per call", feature.versus]);
    // Where the work is done decides over what waking somebody costs: on one CPU that is the same for both.
    let pinned = OneCpu::pin();
    for clients in CLIENTS {
        eprintln!("  {clients} client(s) ...");
        let server = start_server(&run.programs)?;
        let mut entrants = Vec::new();
        for contestant in &feature.contestants {
            let mut entrant = open_lanes(run, contestant, &server, clients)?;
            entrant.afterwards = feature.afterwards;
            entrants.push(entrant);
        }
        let calls = run.effort.of(CALLS_PER_BLOCK, 400);
        let results = race(run, entrants, run.effort.of(feature.rounds, 2), calls)?;
        let without = results.first().and_then(|result| result.cpu);
        for result in &results {
            let compared = result.cpu.zip(without).and_then(|(cpu, without)| ratio(cpu, without));
            table.row([
                clients.to_string(),
                result.contestant.name.clone(),
                format!("{:.0}", result.rate),
                result.cpu.map_or_else(|| "–".to_owned(), show_micros),
                show_ratio(compared),
            ]);
        }
        let cost = results.last().and_then(|result| result.cpu).zip(without);
        let cost = cost.and_then(|(cpu, without)| ratio(cpu, without)).map(Measure::Ratio);
        let (promise, limit) = feature.promise;
        run.report.promise(format!("{promise}: CPU, {clients} client(s)"), Measure::Ratio(limit), cost);
    }
    run.report.table(&table)?;
    let where_it_ran =
        pinned.map_or_else(|error| format!("on any CPU ({error:#})"), |pinned| format!("on CPU {}", pinned.cpu));
    run.report.note(&format!("Everything ran {where_it_ran}."))
}
