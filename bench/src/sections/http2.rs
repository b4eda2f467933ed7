//! HTTP/2: 64 calls at once over one connection, against 64 connections of HTTP/1.1 with one call each.

use std::sync::Arc;

use anyhow::Result;

use crate::client_connection::ClientConnection;
use crate::http_connection::HttpConnection;
use crate::http_contestant::{HttpContestant, start_server, versions_of_http};
use crate::lanes::{Entrant, Lane, race};
use crate::report::{Measure, Table};
use crate::run::Run;
use crate::service::Service;
use crate::session::handshake;
use crate::statistics::{ratio, show_micros, show_ratio};

const TOOL: &str = "text_100";
const CALLS_AT_ONCE: usize = 64;
const CALLS_PER_BLOCK: usize = 4_000;
const ROUNDS: usize = 20;
/// Of the CPU that a call costs over HTTP/1.1.
const PROMISE: f64 = 0.5;

type AnyConnection = Box<dyn ClientConnection>;

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    run.report.heading("HTTP/2: 64 calls at once, 100 B")?;
    let contestants = versions_of_http();
    let server = start_server(&run.programs)?;
    let [http1, http2] = &contestants;
    let entrants = vec![many_connections(run, http1, &server)?, one_connection(run, http2, &server)?];
    let calls = run.effort.of(CALLS_PER_BLOCK, 400);
    let results = race(run, entrants, run.effort.of(ROUNDS, 2), calls)?;
    let of_http1 = results.first().and_then(|result| result.cpu);
    let mut table = Table::new(["", "calls/s", "CPU per call", "vs HTTP/1.1"]);
    for result in &results {
        table.row([
            result.contestant.name.clone(),
            format!("{:.0}", result.rate),
            result.cpu.map_or_else(|| "–".to_owned(), show_micros),
            show_ratio(result.cpu.zip(of_http1).and_then(|(cpu, other)| ratio(cpu, other))),
        ]);
    }
    let cost = results.last().and_then(|result| result.cpu).zip(of_http1);
    let cost = cost.and_then(|(cpu, other)| ratio(cpu, other)).map(Measure::Ratio);
    run.report.promise("HTTP/2: CPU, 64 calls at once".to_owned(), Measure::Ratio(PROMISE), cost);
    run.report.table(&table)
}

fn many_connections<'a>(
    run: &Run,
    contestant: &'a HttpContestant,
    server: &Arc<Service>,
) -> Result<Entrant<'a, AnyConnection>> {
    let session = contestant.start(&run.programs, server)?;
    let mut entrant = Entrant::new(&contestant.contestant);
    entrant.relay.clone_from(&session.relay);
    for _ in 0..CALLS_AT_ONCE {
        let mut connection = HttpConnection::open(Arc::clone(&session.connection.service))?;
        handshake(&mut connection)?;
        let connection: AnyConnection = Box::new(connection);
        entrant.lanes.push(Lane::new(connection, vec![session.call(0, TOOL)?], 1));
    }
    Ok(entrant)
}

fn one_connection<'a>(
    run: &Run,
    contestant: &'a HttpContestant,
    server: &Arc<Service>,
) -> Result<Entrant<'a, AnyConnection>> {
    let session = contestant.start(&run.programs, server)?;
    let mut entrant = Entrant::new(&contestant.contestant);
    entrant.relay.clone_from(&session.relay);
    let connection: AnyConnection = Box::new(session.connection.over_http2()?);
    entrant.lanes.push(Lane::new(connection, vec![session.call(0, TOOL)?], CALLS_AT_ONCE));
    Ok(entrant)
}
