//! Many calls in flight: how many are answered per second, at one server and over ten. Nothing is pinned.

use anyhow::Result;

use crate::call::Call;
use crate::connection::Connection;
use crate::contestant::{Contestant, Kind, Servers};
use crate::lanes::{Entrant, Finish, Lane, race, share};
use crate::report::Table;
use crate::run::Run;
use crate::statistics::{ratio, show_ratio};

const TOOL: &str = "text_100";
/// Servers and calls in flight.
const CASES: [(usize, usize); 4] = [(1, 1), (1, 16), (1, 64), (10, 64)];
const CALLS_PER_BLOCK: usize = 10_000;
const ROUNDS: usize = 20;

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    run.report.heading("Throughput, 100 B calls")?;
    let mut table = Table::new(["servers", "in flight", "through", "calls/s", "of direct"]);
    for (servers, in_flight) in CASES {
        eprintln!("  {in_flight} in flight, {servers} server(s) ...");
        let results = measure_case(run, servers, in_flight)?;
        let direct = results.iter().find(|result| result.contestant.kind == Kind::Direct);
        let direct = direct.map_or(0.0, |direct| direct.rate);
        for result in results {
            table.row([
                servers.to_string(),
                in_flight.to_string(),
                result.contestant.name.clone(),
                format!("{:.0}", result.rate),
                show_ratio(ratio(result.rate, direct)),
            ]);
        }
    }
    run.report.table(&table)
}

fn measure_case(run: &Run, servers: usize, in_flight: usize) -> Result<Vec<Finish<'_>>> {
    let mut entrants = Vec::new();
    for contestant in &run.contestants {
        // One pipe of the floor leads to one server; and directly, the client holds ten connections.
        if contestant.kind == Kind::Floor && servers > 1 {
            continue;
        }
        entrants.extend(run.judge(contestant, open_lanes(run, contestant, servers, in_flight))?);
    }
    let calls = run.effort.of(CALLS_PER_BLOCK, 1_000) / if in_flight == 1 { 4 } else { 1 };
    race(run, entrants, run.effort.of(ROUNDS, 3), calls)
}

fn open_lanes<'a>(
    run: &Run,
    contestant: &'a Contestant,
    servers: usize,
    in_flight: usize,
) -> Result<Entrant<'a, Connection>> {
    let (connections, servers_each) = if contestant.aggregates() { (1, servers) } else { (servers, 1) };
    let mut entrant = Entrant::new(contestant);
    for lane in 0..connections {
        let session = contestant.start(&run.programs, Servers::plain(servers_each))?;
        let calls: Result<Vec<Call>> = (0..servers_each).map(|server| session.call(server, TOOL)).collect();
        entrant.relay.extend(session.relay);
        entrant.lanes.push(Lane::new(session.connection, calls?, share(in_flight, connections, lane)));
    }
    Ok(entrant)
}
