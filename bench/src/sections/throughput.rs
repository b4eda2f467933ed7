//! Many calls in flight: how many are answered per second, at one server and over ten. Nothing is pinned.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::call::{Call, answer_id};
use crate::connection::Connection;
use crate::contestant::{Contestant, Kind, Servers};
use crate::report::Table;
use crate::run::{Run, turns};
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
        let direct = results.iter().find(|(contestant, _)| contestant.kind == Kind::Direct);
        let direct = direct.map_or(0.0, |(_, rate)| *rate);
        for (contestant, rate) in results {
            table.row([
                servers.to_string(),
                in_flight.to_string(),
                contestant.name.clone(),
                format!("{rate:.0}"),
                show_ratio(ratio(rate, direct)),
            ]);
        }
    }
    run.report.table(&table)
}

/// Calls per second of each contestant: the median of its blocks.
fn measure_case(run: &Run, servers: usize, in_flight: usize) -> Result<Vec<(&Contestant, f64)>> {
    let mut entrants = Vec::new();
    for contestant in &run.contestants {
        // One pipe of the floor leads to one server; and directly, the client holds ten connections.
        if contestant.kind == Kind::Floor && servers > 1 {
            continue;
        }
        let lanes = run.judge(contestant, open_lanes(run, contestant, servers, in_flight))?;
        entrants.extend(lanes.map(|lanes| (contestant, lanes, Vec::new())));
    }
    let calls = run.effort.of(CALLS_PER_BLOCK, 1_000) / if in_flight == 1 { 4 } else { 1 };
    for round in 0..run.effort.of(ROUNDS, 3) {
        for turn in turns(round, entrants.len()) {
            let (contestant, lanes, rates) = &mut entrants[turn];
            if let Some(elapsed) = run.judge(contestant, answer_all(lanes, calls))? {
                rates.push(calls as f64 / elapsed.as_secs_f64());
            } else {
                lanes.clear();
            }
        }
        entrants.retain(|(_, lanes, _)| !lanes.is_empty());
    }
    let median = |mut rates: Vec<f64>| {
        rates.sort_unstable_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    };
    Ok(entrants.into_iter().filter_map(|(contestant, _, rates)| Some((contestant, median(rates)?))).collect())
}

/// One connection with its share of the calls in flight.
struct Lane {
    connection: Connection,
    /// Called in turn; several when one connection leads to several servers.
    calls: Vec<Call>,
    window: usize,
    progress: Progress,
}

/// The calls of one block on one lane.
#[derive(Default)]
struct Progress {
    first_id: u64,
    sent: usize,
    total: usize,
    answered: Vec<bool>,
    done: usize,
}

fn open_lanes(run: &Run, contestant: &Contestant, servers: usize, in_flight: usize) -> Result<Vec<Lane>> {
    let (connections, servers_each) = if contestant.aggregates() { (1, servers) } else { (servers, 1) };
    let mut lanes = Vec::new();
    for lane in 0..connections {
        let session = contestant.start(&run.programs, Servers::plain(servers_each))?;
        let calls: Result<Vec<Call>> = (0..servers_each).map(|server| session.call(server, TOOL)).collect();
        lanes.push(Lane {
            calls: calls?,
            connection: session.connection,
            window: share(in_flight, connections, lane),
            progress: Progress::default(),
        });
    }
    Ok(lanes)
}

/// The part of `whole` that falls to one of `parts`; together they are the whole.
fn share(whole: usize, parts: usize, index: usize) -> usize {
    whole / parts + usize::from(index < whole % parts)
}

fn answer_all(lanes: &mut [Lane], calls: usize) -> Result<Duration> {
    let count = lanes.len();
    let mut requests = Vec::new();
    let start = Instant::now();
    for (index, lane) in lanes.iter_mut().enumerate() {
        lane.begin(share(calls, count, index), &mut requests)?;
    }
    if let [lane] = lanes {
        while !lane.is_done() {
            lane.connection.fill()?;
            lane.advance(&mut requests)?;
        }
        return Ok(start.elapsed());
    }
    while lanes.iter().any(|lane| !lane.is_done()) {
        for index in readable(lanes)? {
            lanes[index].connection.fill()?;
            lanes[index].advance(&mut requests)?;
        }
    }
    Ok(start.elapsed())
}

fn readable(lanes: &[Lane]) -> Result<Vec<usize>> {
    const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut polled: Vec<PollFd<'_>> = lanes.iter().map(|lane| PollFd::new(&lane.connection, PollFlags::IN)).collect();
    if poll(&mut polled, Some(&LIMIT)).context("could not wait for the servers")? == 0 {
        bail!("no server answered for {} s", LIMIT.tv_sec);
    }
    let ready = polled.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
    Ok(ready.map(|(index, _)| index).collect())
}

impl Lane {
    fn begin(&mut self, total: usize, requests: &mut Vec<u8>) -> Result<()> {
        self.progress =
            Progress { first_id: self.connection.next_id(), sent: 0, total, answered: vec![false; total], done: 0 };
        requests.clear();
        for _ in 0..self.window {
            self.write_next(requests);
        }
        self.connection.send(requests)
    }

    fn is_done(&self) -> bool {
        self.progress.done == self.progress.total
    }

    fn write_next(&mut self, requests: &mut Vec<u8>) {
        let progress = &mut self.progress;
        if progress.sent == progress.total {
            return;
        }
        // The first id was taken when the block began.
        let id = if progress.sent == 0 { progress.first_id } else { self.connection.next_id() };
        self.calls[progress.sent % self.calls.len()].write(id, requests);
        progress.sent += 1;
    }

    /// Takes all answers that have arrived, and sends as many new requests in one write.
    fn advance(&mut self, requests: &mut Vec<u8>) -> Result<()> {
        requests.clear();
        while let Some(line) = self.connection.buffered_answer() {
            let id = answer_id(line)?;
            let progress = &mut self.progress;
            let index = id.checked_sub(progress.first_id).and_then(|index| usize::try_from(index).ok());
            let index = index.filter(|index| *index < progress.sent);
            let index = index.with_context(|| format!("wrong answer: nobody asked with id {id}"))?;
            ensure!(!progress.answered[index], "wrong answer: id {id} was answered twice");
            self.calls[index % self.calls.len()].verify_result(line)?;
            progress.answered[index] = true;
            progress.done += 1;
            self.write_next(requests);
        }
        if requests.is_empty() {
            return Ok(());
        }
        self.connection.send(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_up_the_whole() {
        for (whole, parts) in [(64, 10), (64, 1), (3, 10)] {
            let sum: usize = (0..parts).map(|index| share(whole, parts, index)).sum();
            assert_eq!(sum, whole);
        }
    }
}
