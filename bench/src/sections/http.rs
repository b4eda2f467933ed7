//! Over HTTP: one call at a time on one CPU, then many clients at once, against a proxy that parses nothing.

use std::sync::Arc;

use anyhow::Result;

use crate::contestant::Kind;
use crate::http_connection::HttpConnection;
use crate::http_contestant::{HttpContestant, http_contestants, start_server};
use crate::lanes::{Entrant, Finish, Lane, race};
use crate::machine::OneCpu;
use crate::report::Table;
use crate::run::Run;
use crate::sections::latency::{Payload, compare};
use crate::service::Service;
use crate::session::handshake;
use crate::statistics::{ratio, show_micros, show_ratio};

const PAYLOADS: [Payload; 2] = [
    Payload { shown: "100 B", tool: "text_100", calls: 20_000, block: 100, latency_promised: false },
    Payload { shown: "10 KB", tool: "text_10k", calls: 10_000, block: 50, latency_promised: false },
];

const TOOL: &str = "text_100";
/// Each with a connection and a session of its own, and one call in flight.
const CLIENTS: [usize; 3] = [1, 16, 64];
const CALLS_PER_BLOCK: usize = 4_000;
const ROUNDS: usize = 20;

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    let contestants = http_contestants();
    latency(run, &contestants)?;
    throughput(run, &contestants)
}

fn latency(run: &mut Run, contestants: &[HttpContestant]) -> Result<()> {
    run.report.heading("HTTP, one call at a time")?;
    let pinned = OneCpu::pin();
    let server = start_server(&run.programs)?;
    let mut entrants = Vec::new();
    for entrant in contestants {
        entrants.push((&entrant.contestant, entrant.start(&run.programs, &server)?));
    }
    let comparison = compare(run, &mut entrants, &PAYLOADS)?;
    drop(entrants);
    comparison.print(&mut run.report, pinned, "HTTP: ")
}

fn throughput(run: &Run, contestants: &[HttpContestant]) -> Result<()> {
    run.report.heading("HTTP, many clients, 100 B calls")?;
    let mut table = Table::new(["clients", "through", "calls/s", "of direct", "vs floor", "CPU per call", "vs floor"]);
    for clients in CLIENTS {
        eprintln!("  {clients} client(s) ...");
        let server = start_server(&run.programs)?;
        let mut entrants = Vec::new();
        for contestant in contestants {
            entrants.push(open_lanes(run, contestant, &server, clients)?);
        }
        let calls = run.effort.of(CALLS_PER_BLOCK, 400);
        show(clients, &race(run, entrants, run.effort.of(ROUNDS, 3), calls)?, &mut table);
    }
    run.report.table(&table)
}

pub(crate) fn open_lanes<'a>(
    run: &Run,
    contestant: &'a HttpContestant,
    server: &Arc<Service>,
    clients: usize,
) -> Result<Entrant<'a, HttpConnection>> {
    let session = contestant.start(&run.programs, server)?;
    let mut entrant = Entrant::new(&contestant.contestant);
    entrant.relay.clone_from(&session.relay);
    for _ in 1..clients {
        let mut connection = HttpConnection::open_at(Arc::clone(&session.connection.service), contestant.path())?;
        handshake(&mut connection)?;
        entrant.lanes.push(Lane::new(connection, vec![session.call(0, TOOL)?], 1));
    }
    let call = session.call(0, TOOL)?;
    entrant.lanes.push(Lane::new(session.connection, vec![call], 1));
    Ok(entrant)
}

fn show(clients: usize, results: &[Finish<'_>], table: &mut Table) {
    let of = |kind: Kind| results.iter().find(|result| result.contestant.kind == kind);
    let (Some(direct), Some(floor)) = (of(Kind::Direct), of(Kind::Floor)) else {
        return;
    };
    for result in results {
        let measured = [
            clients.to_string(),
            result.contestant.name.clone(),
            format!("{:.0}", result.rate),
            show_ratio(ratio(result.rate, direct.rate)),
        ];
        let compared = if result.contestant.kind == Kind::Direct {
            ["–"; 3].map(str::to_owned)
        } else {
            [
                show_ratio(ratio(result.rate, floor.rate)),
                result.cpu.map_or_else(|| "–".to_owned(), show_micros),
                show_ratio(result.cpu.zip(floor.cpu).and_then(|(cpu, floor)| ratio(cpu, floor))),
            ]
        };
        table.row(measured.into_iter().chain(compared));
    }
}
