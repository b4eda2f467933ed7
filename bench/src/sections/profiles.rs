//! What a profile costs per call: the same service for clients that see everything, and for those of a profile.

use anyhow::Result;

use crate::http_contestant::{profile_contestants, start_server};
use crate::lanes::race;
use crate::machine::OneCpu;
use crate::report::{Measure, Table};
use crate::run::Run;
use crate::sections::http::open_lanes;
use crate::statistics::{ratio, show_micros, show_ratio};

/// Each with a connection and a session of its own, and one call in flight.
const CLIENTS: [usize; 2] = [1, 16];
const CALLS_PER_BLOCK: usize = 10_000;
const ROUNDS: usize = 20;

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    run.report.heading("Clients of a profile, 100 B calls, HTTP in, stdio out")?;
    let mut table = Table::new(["clients", "", "calls/s", "CPU per call", "vs everything"]);
    // As in the section `history`: on one CPU, waking somebody costs the same for both.
    let pinned = OneCpu::pin();
    let contestants = profile_contestants();
    for clients in CLIENTS {
        eprintln!("  {clients} client(s) ...");
        let server = start_server(&run.programs)?;
        let mut entrants = Vec::new();
        for contestant in &contestants {
            entrants.push(open_lanes(run, contestant, &server, clients)?);
        }
        let calls = run.effort.of(CALLS_PER_BLOCK, 400);
        let results = race(run, entrants, run.effort.of(ROUNDS, 2), calls)?;
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
        run.report.promise(format!("profile: CPU, {clients} client(s)"), Measure::Ratio(1.05), cost);
    }
    run.report.table(&table)?;
    let where_it_ran =
        pinned.map_or_else(|error| format!("on any CPU ({error:#})"), |pinned| format!("on CPU {}", pinned.cpu));
    run.report.note(&format!("Everything ran {where_it_ran}."))
}
