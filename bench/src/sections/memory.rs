//! How much memory a relay holds with many servers, and how much more while a large result passes.

use anyhow::{Context, Result};

use crate::contestant::{Contestant, Kind, Servers};
use crate::processes::{Memory, forget_peak, memory};
use crate::report::{Measure, Table};
use crate::run::Run;
use crate::session::Session;
use crate::statistics::{show_bytes, show_ratio};

/// Servers, and what the design promises for that many, in megabytes.
const SERVER_COUNTS: [(usize, Option<f64>); 3] = [(1, None), (10, Some(6.0)), (50, Some(12.0))];
const CALLS: usize = 1_000;
/// Each is started so often, and the median counts: where the system happens to put a program decides over some hundred
/// kilobytes of its libraries.
const STARTS: usize = 5;

/// Large results, and whether their growth is promised.
const LARGE: [(&str, &str, bool); 2] = [("1 MB", "text_1m", false), ("50 MB", "text_50m", true)];
const PASSES: usize = 3;
const PROMISED_GROWTH: Measure = Measure::Ratio(2.0);

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    held(run)?;
    growth(run)
}

fn held(run: &mut Run) -> Result<()> {
    run.report.heading("Memory after the list and 1,000 calls")?;
    let mut table = Table::new(["servers", "through", "processes", "RSS", "PSS"]);
    let mut promises = Vec::new();
    for (count, promised) in SERVER_COUNTS {
        eprintln!("  {count} server(s) ...");
        let takes_part = |contestant: &Contestant| is_relay(contestant) && (count == 1 || contestant.aggregates());
        for contestant in run.contestants.iter().filter(|contestant| takes_part(contestant)) {
            let Some((processes, memory)) = run.judge(contestant, held_by(run, contestant, count))? else {
                continue;
            };
            table.row([
                count.to_string(),
                contestant.name.clone(),
                processes.to_string(),
                show_bytes(memory.resident),
                show_bytes(memory.proportional),
            ]);
            if contestant.kind == Kind::Us {
                promises.extend(promised.map(|limit| (count, limit, memory.resident as f64 / 1e6)));
            }
        }
    }
    run.report.table(&table)?;
    run.report.note("Of the relay's own processes together, without the servers; the median of some starts.")?;
    for (count, limit, measured) in promises {
        let what = format!("RSS with {count} servers");
        run.report.promise(what, Measure::Megabytes(limit), Some(Measure::Megabytes(measured)));
    }
    Ok(())
}

fn is_relay(contestant: &Contestant) -> bool {
    contestant.kind != Kind::Direct
}

/// How many processes it takes, and their memory: the median of some starts.
fn held_by(run: &Run, contestant: &Contestant, servers: usize) -> Result<(usize, Memory)> {
    let mut seen = Vec::new();
    for _ in 0..run.effort.of(STARTS, 1) {
        let mut session = contestant.start(&run.programs, Servers::plain(servers))?;
        seen.push((session.relay.len(), use_all(&mut session, servers)?));
    }
    seen.sort_by_key(|(_, memory)| memory.resident);
    Ok(seen[seen.len() / 2])
}

fn use_all(session: &mut Session, servers: usize) -> Result<Memory> {
    for server in 0..servers {
        let call = session.call(server, "text_100")?;
        session.calls(&call, CALLS / servers)?;
    }
    memory(&session.relay).context("could not read its memory from /proc")
}

fn growth(run: &mut Run) -> Result<()> {
    run.report.heading("Memory while a large result passes")?;
    let mut table = Table::new(["result", "through", "RSS before", "highest growth", "of the message", "RSS after"]);
    let mut promised_growth = None;
    for (shown, tool, promised) in LARGE {
        eprintln!("  {shown} ...");
        for (contestant, mut session) in run.start(Servers::plain(1), is_relay)? {
            let Some(grown) = run.judge(contestant, watch_growth(&mut session, tool))? else {
                continue;
            };
            let multiple = grown.highest as f64 / grown.message as f64;
            table.row([
                shown.to_owned(),
                contestant.name.clone(),
                show_bytes(grown.before),
                show_bytes(grown.highest),
                show_ratio(Some(multiple)),
                show_bytes(grown.after),
            ]);
            if promised && contestant.kind == Kind::Us {
                promised_growth = Some(Measure::Ratio(multiple));
            }
        }
    }
    run.report.table(&table)?;
    run.report.promise("memory growth while 50 MB pass, of the message", PROMISED_GROWTH, promised_growth);
    Ok(())
}

struct Growth {
    message: usize,
    before: u64,
    highest: u64,
    after: u64,
}

fn watch_growth(session: &mut Session, tool: &str) -> Result<Growth> {
    let small = session.call(0, "text_100")?;
    session.calls(&small, 100)?;
    let large = session.call(0, tool)?;
    forget_peak(&session.relay).context("could not reset the peak of its memory")?;
    let read = |session: &Session| memory(&session.relay).context("could not read its memory from /proc");
    let before = read(session)?.resident;
    session.calls(&large, PASSES)?;
    let peak = read(session)?.peak;
    // A small call shows that it went on, and gives it the occasion to let go.
    session.calls(&small, 10)?;
    Ok(Growth {
        message: large.result_size(),
        before,
        highest: peak.saturating_sub(before),
        after: read(session)?.resident,
    })
}
