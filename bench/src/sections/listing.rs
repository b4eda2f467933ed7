//! The complete `tools/list` of one server with many tools: through a relay in its own pages, directly in one.

use anyhow::{Result, ensure};

use crate::contestant::{Kind, Servers};
use crate::listing::list_tools;
use crate::report::Table;
use crate::run::{Run, turns};
use crate::statistics::{Samples, micros, ratio, show_bytes, show_ratio, show_time};

const TOOL_COUNTS: [usize; 3] = [10, 1_000, 10_000];
const ROUNDS: usize = 60;

/// What one contestant has shown so far.
#[derive(Default)]
struct Tally {
    samples: Samples,
    bytes: u64,
    pages: usize,
    failed: bool,
}

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    run.report.heading("tools/list, complete")?;
    let mut table = Table::new(["tools", "through", "p50", "p99", "vs direct", "pages", "bytes"]);
    for tools in TOOL_COUNTS {
        eprintln!("  {tools} tools ...");
        let mut entrants = run.start(Servers { count: 1, tools }, |_| true)?;
        let mut tallies: Vec<Tally> = entrants.iter().map(|_| Tally::default()).collect();
        for round in 0..run.effort.of(ROUNDS, 3) {
            for turn in turns(round, entrants.len()) {
                let (contestant, session) = &mut entrants[turn];
                let tally = &mut tallies[turn];
                if tally.failed {
                    continue;
                }
                let outcome = list_tools(&mut session.connection).and_then(|listing| {
                    let count = listing.tool_count();
                    ensure!(count == tools, "wrong answer: {count} tools listed instead of {tools}");
                    Ok(listing)
                });
                let Some(listing) = run.judge(contestant, outcome)? else {
                    tally.failed = true;
                    continue;
                };
                tally.samples.add(listing.elapsed);
                tally.bytes = listing.bytes();
                tally.pages = listing.page_count();
            }
        }
        let results = || entrants.iter().zip(&tallies).filter(|(_, tally)| !tally.failed);
        let direct = results().find(|((contestant, _), _)| contestant.kind == Kind::Direct);
        let direct = direct.and_then(|(_, tally)| tally.samples.summary());
        for ((contestant, _), tally) in results() {
            let Some(summary) = tally.samples.summary() else {
                continue;
            };
            table.row([
                tools.to_string(),
                contestant.name.clone(),
                show_time(summary.p50),
                show_time(summary.p99),
                show_ratio(direct.and_then(|direct| ratio(micros(summary.p50), micros(direct.p50)))),
                tally.pages.to_string(),
                show_bytes(tally.bytes),
            ]);
        }
    }
    run.report.table(&table)
}
