//! What a sign-in costs per call: the same service with a token in its config and with one from a token endpoint.

use anyhow::Result;

use crate::http_contestant::{credential_holders, start_server};
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
    run.report.heading("A server that is signed in to, 100 B calls, HTTP in, HTTP out")?;
    let mut table = Table::new(["clients", "", "calls/s", "CPU per call", "vs static header"]);
    // As in the section `history`: on one CPU, waking somebody costs the same for both.
    let pinned = OneCpu::pin();
    let contestants = credential_holders();
    for clients in CLIENTS {
        eprintln!("  {clients} client(s) ...");
        let server = start_server(&run.programs)?;
        let mut entrants = Vec::new();
        for contestant in &contestants {
            entrants.push(open_lanes(run, contestant, &server, clients)?);
        }
        let calls = run.effort.of(CALLS_PER_BLOCK, 400);
        let results = race(run, entrants, run.effort.of(ROUNDS, 2), calls)?;
        let header = results.first().and_then(|result| result.cpu);
        for result in &results {
            let compared = result.cpu.zip(header).and_then(|(cpu, header)| ratio(cpu, header));
            table.row([
                clients.to_string(),
                result.contestant.name.clone(),
                format!("{:.0}", result.rate),
                result.cpu.map_or_else(|| "–".to_owned(), show_micros),
                show_ratio(compared),
            ]);
        }
        let cost = results.last().and_then(|result| result.cpu).zip(header);
        let cost = cost.and_then(|(cpu, header)| ratio(cpu, header)).map(Measure::Ratio);
        run.report.promise(format!("signed in: CPU, {clients} client(s)"), Measure::Ratio(1.05), cost);
    }
    run.report.table(&table)?;
    let where_it_ran =
        pinned.map_or_else(|error| format!("on any CPU ({error:#})"), |pinned| format!("on CPU {}", pinned.cpu));
    run.report.note(&format!("Everything ran {where_it_ran}."))
}
