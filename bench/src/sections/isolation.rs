//! Small calls to server A while another server misbehaves: does A's caller notice?
//!
//! A relay has one pipe to its client, and lines cannot be interleaved: while the 50 MB line of server B is written,
//! every other answer waits. That wait is inherent; what a relay can avoid is holding A's answers back for longer.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::call::{Call, Check, answer_id};
use crate::client_connection::ClientConnection;
use crate::connection::Connection;
use crate::contestant::{Contestant, Kind, Servers};
use crate::report::Table;
use crate::run::Run;
use crate::session::{Session, handshake};
use crate::statistics::{Samples, show_time};

const SMALL: &str = "text_100";
const LARGE: &str = "text_50m";
const CALLS: usize = 20_000;
const LARGE_RESULTS: usize = 20;
/// More than a pipe holds: the relay cannot hand it to a server that reads nothing.
const MORE_THAN_A_PIPE: usize = 256 * 1024;

/// The servers by index.
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

#[derive(Debug, Clone, Copy)]
enum Disturbance {
    None,
    LargeResults,
    Hanging,
    Flooding,
}

impl Disturbance {
    const ALL: [Self; 4] = [Self::None, Self::LargeResults, Self::Hanging, Self::Flooding];

    fn shown(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::LargeResults => "B sends 50 MB results",
            Self::Hanging => "C hangs, its pipe full",
            Self::Flooding => "C floods stderr",
        }
    }
}

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    run.report.heading("Isolation: 100 B calls to server A while ...")?;
    let mut table = Table::new(["meanwhile", "through", "calls", "p50", "p99", "max", "50 MB takes"]);
    for disturbance in Disturbance::ALL {
        eprintln!("  {} ...", disturbance.shown());
        for contestant in run.contestants.iter().filter(|contestant| contestant.kind != Kind::Floor) {
            let outcome = if contestant.kind == Kind::Direct {
                directly(run, disturbance)
            } else {
                through_relay(run, contestant, disturbance)
            };
            let Some((small, large)) = run.judge(contestant, outcome)? else {
                continue;
            };
            let Some(summary) = small.summary() else {
                continue;
            };
            table.row([
                disturbance.shown().to_owned(),
                contestant.name.clone(),
                summary.count.to_string(),
                show_time(summary.p50),
                show_time(summary.p99),
                show_time(summary.max),
                large.summary().map_or_else(|| "–".to_owned(), |large| show_time(large.p50)),
            ]);
        }
    }
    run.report.table(&table)?;
    run.report.note(
        "Directly, each server has its own pipe. Through a relay all answers share one, and lines cannot be \
         interleaved: an answer waits while a 50 MB line is being written.",
    )
}

/// Times of the small calls and of the large results.
type Times = (Samples, Samples);

fn through_relay(run: &Run, contestant: &Contestant, disturbance: Disturbance) -> Result<Times> {
    let mut session = contestant.start(&run.programs, Servers::plain(3))?;
    let small = session.call(A, SMALL)?;
    session.calls(&small, 100)?;
    match disturbance {
        Disturbance::None => {}
        Disturbance::LargeResults => {
            let large = session.call(B, LARGE)?;
            session.calls(&large, 1)?;
            return beside_large_results(run, &mut session, &small, &large);
        }
        Disturbance::Hanging => {
            let hang = session.call(C, "hang")?;
            let blocked = session.call(C, SMALL)?.padded(MORE_THAN_A_PIPE);
            send(&mut session.connection, &hang)?;
            send(&mut session.connection, &blocked)?;
        }
        Disturbance::Flooding => {
            let flood = session.call(C, "flood_stderr")?;
            session.calls(&flood, 1)?;
        }
    }
    let mut times = Times::default();
    let mut request = Vec::new();
    for _ in 0..run.effort.of(CALLS, 200) {
        times.0.add(session.timed_call(&small, &mut request)?);
    }
    Ok(times)
}

fn send(connection: &mut Connection, call: &Call) -> Result<u64> {
    let id = connection.next_id();
    let mut request = Vec::new();
    call.write(id, &mut request);
    connection.send(&request)?;
    Ok(id)
}

/// One small call after the other, with always one large result on its way in the same pipe.
fn beside_large_results(run: &Run, session: &mut Session, small: &Call, large: &Call) -> Result<Times> {
    let connection = &mut session.connection;
    let mut times = Times::default();
    for _ in 0..run.effort.of(LARGE_RESULTS, 3) {
        let large_start = Instant::now();
        let large_id = send(connection, large)?;
        let mut large_arrived = false;
        while !large_arrived {
            let mut small_start = Instant::now();
            let small_id = send(connection, small)?;
            loop {
                let line = connection.answer()?;
                if answer_id(line)? != large_id {
                    times.0.add(small_start.elapsed());
                    small.verify(line, small_id)?;
                    break;
                }
                times.1.add(large_start.elapsed());
                ensure!(!large_arrived, "wrong answer: the large result came twice");
                small_start += verify_aside(large, line, large_id)?;
                large_arrived = true;
            }
        }
    }
    Ok(times)
}

/// Comparing 50 MB takes the client a while that must not count as the small call's: returns how long it took.
fn verify_aside(large: &Call, line: &[u8], id: u64) -> Result<Duration> {
    let start = Instant::now();
    large.verify(line, id)?;
    Ok(start.elapsed())
}

fn directly(run: &Run, disturbance: Disturbance) -> Result<Times> {
    let open = || {
        let mut command = run.programs.server_command(Servers::plain(1));
        let mut connection = Connection::open(&mut command, Stdio::piped())?;
        handshake(&mut connection)?;
        Ok::<_, anyhow::Error>(connection)
    };
    let (mut a, mut other) = (open()?, open()?);
    let small = Call::new(SMALL, SMALL, Check::Exact)?;
    let mut times = Times::default();
    match disturbance {
        Disturbance::None => {}
        Disturbance::LargeResults => {
            let large = Call::new(LARGE, LARGE, Check::Exact)?;
            for round in 0..=run.effort.of(LARGE_RESULTS, 3) {
                let (small_times, large_time) = one_large_result(&mut a, &mut other, &small, &large)?;
                // The first one is built while we wait.
                if round > 0 {
                    small_times.into_iter().for_each(|time| times.0.add(time));
                    times.1.add(large_time);
                }
            }
            return Ok(times);
        }
        Disturbance::Hanging => {
            send(&mut other, &Call::new("hang", "hang", Check::Exact)?)?;
        }
        Disturbance::Flooding => {
            send(&mut other, &Call::new("flood_stderr", "flood_stderr", Check::Exact)?)?;
            other.answer()?;
        }
    }
    for _ in 0..run.effort.of(CALLS, 200) {
        let start = Instant::now();
        let id = send(&mut a, &small)?;
        let line = a.answer()?;
        times.0.add(start.elapsed());
        small.verify(line, id)?;
    }
    Ok(times)
}

/// The same with a pipe of its own for each server, read by one thread.
fn one_large_result(
    a: &mut Connection,
    b: &mut Connection,
    small: &Call,
    large: &Call,
) -> Result<(Vec<Duration>, Duration)> {
    const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut small_times = Vec::new();
    let large_start = Instant::now();
    let large_id = send(b, large)?;
    let mut large_time = None;
    while large_time.is_none() {
        let mut small_start = Instant::now();
        let small_id = send(a, small)?;
        loop {
            let mut polled = [PollFd::new(&*a, PollFlags::IN), PollFd::new(&*b, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&LIMIT)).context("could not wait for the servers")?;
            ensure!(ready > 0, "no server answered for {} s", LIMIT.tv_sec);
            let [a_ready, b_ready] = polled.map(|fd| !fd.revents().is_empty());
            let mut small_arrived = false;
            if a_ready {
                a.fill()?;
                if let Some(line) = a.buffered_answer()? {
                    small_times.push(small_start.elapsed());
                    small.verify(line, small_id)?;
                    small_arrived = true;
                }
            }
            if b_ready {
                b.fill()?;
                if let Some(line) = b.buffered_answer()? {
                    large_time = Some(large_start.elapsed());
                    small_start += verify_aside(large, line, large_id)?;
                }
            }
            if small_arrived {
                break;
            }
        }
    }
    Ok((small_times, large_time.context("the large result has arrived")?))
}
