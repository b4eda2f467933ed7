//! One call at a time: how long it takes, what a relay adds to that, and how much CPU the relay spends on it.
//!
//! Everything runs on one CPU: the differences are then work and context switches, not the luck of the scheduler.

use std::time::Duration;

use anyhow::Result;

use crate::client_connection::ClientConnection;
use crate::contestant::{Contestant, Kind, Servers};
use crate::machine::OneCpu;
use crate::processes::cpu_time;
use crate::report::{Measure, Report, Table};
use crate::run::{Run, turns};
use crate::session::Session;
use crate::statistics::{Samples, Summary, added_micros, micros, ratio, show_micros, show_ratio, show_time};

pub(crate) struct Payload {
    pub(crate) shown: &'static str,
    pub(crate) tool: &'static str,
    /// Calls per contestant in a full run, and how many of them in a row.
    pub(crate) calls: usize,
    pub(crate) block: usize,
    /// The design promises added latency for small messages over stdio only.
    pub(crate) latency_promised: bool,
}

const PAYLOADS: [Payload; 4] = [
    Payload { shown: "100 B", tool: "text_100", calls: 40_000, block: 100, latency_promised: true },
    Payload { shown: "10 KB", tool: "text_10k", calls: 20_000, block: 50, latency_promised: true },
    Payload { shown: "1 MB text", tool: "text_1m", calls: 1_000, block: 10, latency_promised: false },
    Payload { shown: "1 MB JSON", tool: "json_1m", calls: 1_000, block: 10, latency_promised: false },
];

/// Added latency and CPU per call against the floor's.
const PROMISED: Measure = Measure::Ratio(1.5);

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    run.report.heading("Latency, one call at a time")?;
    let pinned = OneCpu::pin();
    let mut entrants = run.start(Servers::plain(1), |_| true)?;
    let comparison = compare(run, &mut entrants, &PAYLOADS)?;
    drop(entrants);
    comparison.print(&mut run.report, pinned, "")
}

/// The table of all payloads, and what can be said about promises.
pub(crate) struct Comparison {
    table: Table,
    promises: Vec<(String, Option<f64>)>,
}

/// Measures one payload after the other.
pub(crate) fn compare<W: ClientConnection>(
    run: &Run,
    entrants: &mut [(&Contestant, Session<W>)],
    payloads: &[Payload],
) -> Result<Comparison> {
    let mut table = Table::new([
        "payload",
        "through",
        "p50",
        "p99",
        "added p50",
        "added p99",
        "vs floor",
        "CPU per call",
        "vs floor",
    ]);
    let mut promises = Vec::new();
    for payload in payloads {
        eprintln!("  {} ...", payload.shown);
        let results = measure_payload(run, entrants, payload)?;
        show(payload, &results, &mut table, &mut promises);
    }
    Ok(Comparison { table, promises })
}

impl Comparison {
    /// `measured_over` stands before each promise.
    pub(crate) fn print(self, report: &mut Report, pinned: Result<OneCpu>, measured_over: &str) -> Result<()> {
        report.table(&self.table)?;
        report.note(&match pinned {
            Ok(pinned) => format!("Client, relay and server all pinned to CPU {}.", pinned.cpu),
            Err(error) => format!("**Not pinned to one CPU** ({error:#}): expect noise."),
        })?;
        for (what, measured) in self.promises {
            report.promise(format!("{measured_over}{what}"), PROMISED, measured.map(Measure::Ratio));
        }
        Ok(())
    }
}

struct Measured {
    name: String,
    kind: Kind,
    summary: Summary,
    /// Per call, in microseconds.
    cpu: Option<f64>,
}

/// What one contestant has gathered so far; `None` once it failed.
struct Tally {
    samples: Samples,
    cpu: Option<Duration>,
}

fn measure_payload<W: ClientConnection>(
    run: &Run,
    entrants: &mut [(&Contestant, Session<W>)],
    payload: &Payload,
) -> Result<Vec<Measured>> {
    let mut tallies: Vec<Option<Tally>> = Vec::new();
    for (contestant, session) in entrants.iter_mut() {
        let warm_up = session.call(0, payload.tool).and_then(|call| session.calls(&call, payload.block));
        tallies.push(
            run.judge(contestant, warm_up)?.map(|()| Tally { samples: Samples::default(), cpu: Some(Duration::ZERO) }),
        );
    }
    let rounds = run.effort.of(payload.calls, payload.block * 3) / payload.block;
    for round in 0..rounds {
        for turn in turns(round, entrants.len()) {
            let (contestant, session) = &mut entrants[turn];
            let Some(tally) = &mut tallies[turn] else {
                continue;
            };
            let outcome = block(session, payload, tally);
            if run.judge(contestant, outcome)?.is_none() {
                tallies[turn] = None;
            }
        }
    }
    let measured = entrants.iter().zip(tallies).filter_map(|((contestant, _), tally)| {
        let tally = tally?;
        let summary = tally.samples.summary()?;
        Some(Measured {
            name: contestant.name.clone(),
            kind: contestant.kind.clone(),
            summary,
            cpu: tally.cpu.map(|cpu| micros(cpu) / summary.count as f64),
        })
    });
    Ok(measured.collect())
}

fn block<W: ClientConnection>(session: &mut Session<W>, payload: &Payload, tally: &mut Tally) -> Result<()> {
    let call = session.call(0, payload.tool)?;
    let mut request = Vec::new();
    let before = cpu_time(&session.relay);
    for _ in 0..payload.block {
        tally.samples.add(session.timed_call(&call, &mut request)?);
    }
    let after = cpu_time(&session.relay);
    tally.cpu = tally.cpu.zip(before.zip(after)).map(|(sum, (before, after))| sum + after.saturating_sub(before));
    Ok(())
}

fn show(payload: &Payload, results: &[Measured], table: &mut Table, promises: &mut Vec<(String, Option<f64>)>) {
    let of = |kind: Kind| results.iter().find(|result| result.kind == kind);
    let (Some(direct), Some(floor)) = (of(Kind::Direct), of(Kind::Floor)) else {
        return;
    };
    let added = |result: &Measured| added_micros(result.summary.p50, direct.summary.p50);
    for result in results {
        let summary = result.summary;
        let measured = [payload.shown.to_owned(), result.name.clone(), show_time(summary.p50), show_time(summary.p99)];
        let compared = if result.kind == Kind::Direct {
            ["–"; 5].map(str::to_owned)
        } else {
            let latency = ratio(added(result), added(floor));
            let cpu = result.cpu.zip(floor.cpu).and_then(|(cpu, floor)| ratio(cpu, floor));
            if result.kind == Kind::Us {
                if payload.latency_promised {
                    promises.push((
                        format!("added latency p50, {}, {} against the floor", payload.shown, result.name),
                        latency,
                    ));
                }
                promises.push((format!("CPU per call, {}, {} against the floor", payload.shown, result.name), cpu));
            }
            [
                show_micros(added(result)),
                show_micros(added_micros(summary.p99, direct.summary.p99)),
                show_ratio(latency),
                result.cpu.map_or_else(|| "–".to_owned(), show_micros),
                show_ratio(cpu),
            ]
        };
        table.row(measured.into_iter().chain(compared));
    }
}
