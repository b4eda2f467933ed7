//! From starting the process to the complete list of tools, against starting the same servers directly in parallel.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::client_connection::ClientConnection;
use crate::connection::Connection;
use crate::contestant::{Contestant, Kind, Programs, Servers};
use crate::listing::{count_tools, list_request};
use crate::report::{Measure, Table};
use crate::run::{Run, turns};
use crate::session::{finish_handshake, initialize_request};
use crate::statistics::{Samples, micros, ratio, show_ratio, show_time};

const SERVER_COUNTS: [usize; 3] = [1, 10, 50];
const ROUNDS: usize = 21;
/// With 50 servers.
const PROMISED: Measure = Measure::Ratio(1.3);

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    run.report.heading("Start-up, to the complete tools/list")?;
    let mut table = Table::new(["servers", "through", "p50", "max", "vs direct"]);
    let mut promised = None;
    for count in SERVER_COUNTS {
        eprintln!("  {count} server(s) ...");
        let results = measure_count(run, Servers::plain(count))?;
        let direct = results.iter().find(|(contestant, _)| contestant.kind == Kind::Direct);
        let direct = direct.and_then(|(_, samples)| samples.summary());
        for (contestant, samples) in &results {
            let Some(summary) = samples.summary() else {
                continue;
            };
            let against = direct.and_then(|direct| ratio(micros(summary.p50), micros(direct.p50)));
            table.row([
                count.to_string(),
                contestant.name.clone(),
                show_time(summary.p50),
                show_time(summary.max),
                show_ratio(against),
            ]);
            if contestant.kind == Kind::Us && count == 50 {
                promised = against;
            }
        }
    }
    run.report.table(&table)?;
    run.report.note("Direct: one process starts all servers at once, and asks each for its list.")?;
    let measured = promised.map(Measure::Ratio);
    run.report.promise("start of 50 servers to the complete list, against direct", PROMISED, measured);
    Ok(())
}

fn measure_count(run: &Run, servers: Servers) -> Result<Vec<(&Contestant, Samples)>> {
    let takes_part = |contestant: &&Contestant| contestant.kind != Kind::Floor || servers.count == 1;
    let entrants = run.contestants.iter().filter(takes_part);
    let mut entrants: Vec<_> = entrants.map(|contestant| (contestant, Samples::default(), true)).collect();
    // The first round only warms the page cache.
    for round in 0..=run.effort.of(ROUNDS, 3) {
        for turn in turns(round, entrants.len()) {
            let (contestant, samples, still_in) = &mut entrants[turn];
            if !*still_in {
                continue;
            }
            let outcome = if contestant.kind == Kind::Direct {
                start_directly(&run.programs, servers)
            } else {
                contestant.start(&run.programs, servers).map(|session| session.ready_after)
            };
            match run.judge(contestant, outcome)? {
                Some(elapsed) if round > 0 => samples.add(elapsed),
                Some(_) => {}
                None => *still_in = false,
            }
        }
    }
    Ok(entrants.into_iter().map(|(contestant, samples, _)| (contestant, samples)).collect())
}

/// What a client does that talks to each server itself: start all, then greet and ask each while the others boot.
fn start_directly(programs: &Programs, servers: Servers) -> Result<Duration> {
    let start = Instant::now();
    let mut connections = Vec::new();
    for _ in 0..servers.count {
        let mut connection = Connection::open(&mut programs.server_command(servers), Stdio::null())?;
        let id = connection.next_id();
        connection.send(initialize_request(id).as_bytes())?;
        connections.push(connection);
    }
    for connection in &mut connections {
        finish_handshake(connection)?;
        let id = connection.next_id();
        connection.send(list_request(id, None).as_bytes())?;
    }
    let mut count = 0;
    for connection in &mut connections {
        count += count_tools(connection.answer()?);
    }
    let elapsed = start.elapsed();
    ensure!(count == servers.tools_in_all(), "wrong answer: {count} tools listed");
    Ok(elapsed)
}
