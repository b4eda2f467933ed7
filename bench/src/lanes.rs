//! Many calls in flight, over one or many connections, from one thread: who answers how many per second.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::call::{Call, answer_id};
use crate::client_connection::ClientConnection;
use crate::contestant::Contestant;
use crate::processes::cpu_time;
use crate::run::{Run, turns};
use crate::statistics::micros;

/// A contestant in the race.
pub(crate) struct Entrant<'a, W> {
    contestant: &'a Contestant,
    pub(crate) lanes: Vec<Lane<W>>,
    /// Its own processes, without the servers.
    pub(crate) relay: Vec<Pid>,
    /// How long it may go on working after the last answer of a block; that counts as well.
    pub(crate) afterwards: Duration,
    /// Calls per second, one number for each block.
    rates: Vec<f64>,
    /// Of the relay per call, in microseconds, one number for each block; none where that cannot be told.
    cpu: Vec<f64>,
}

impl<'a, W> Entrant<'a, W> {
    pub(crate) fn new(contestant: &'a Contestant) -> Self {
        Self {
            contestant,
            lanes: Vec::new(),
            relay: Vec::new(),
            afterwards: Duration::ZERO,
            rates: Vec::new(),
            cpu: Vec::new(),
        }
    }
}

/// How a contestant came out.
pub(crate) struct Finish<'a> {
    pub(crate) contestant: &'a Contestant,
    /// Calls per second: the median of its blocks.
    pub(crate) rate: f64,
    /// Of the relay per call, in microseconds: the mean of the middle half of its blocks.
    pub(crate) cpu: Option<f64>,
}

/// Everyone makes `calls` calls in each round, in turns.
pub(crate) fn race<'a, W: ClientConnection>(
    run: &Run,
    mut entrants: Vec<Entrant<'a, W>>,
    rounds: usize,
    calls: usize,
) -> Result<Vec<Finish<'a>>> {
    for round in 0..rounds {
        for turn in turns(round, entrants.len()) {
            let entrant = &mut entrants[turn];
            let outcome = entrant.block(calls);
            if run.judge(entrant.contestant, outcome)?.is_none() {
                entrant.lanes.clear();
            }
        }
        entrants.retain(|entrant| !entrant.lanes.is_empty());
    }
    Ok(entrants.into_iter().filter_map(Entrant::finish).collect())
}

impl<'a, W: ClientConnection> Entrant<'a, W> {
    fn block(&mut self, calls: usize) -> Result<()> {
        let before = cpu_time(&self.relay);
        let elapsed = answer_all(&mut self.lanes, calls)?;
        std::thread::sleep(self.afterwards);
        let after = cpu_time(&self.relay);
        let spent = before.zip(after).map(|(before, after)| micros(after.saturating_sub(before)) / calls as f64);
        self.cpu.extend(spent);
        self.rates.push(calls as f64 / elapsed.as_secs_f64());
        Ok(())
    }

    fn finish(mut self) -> Option<Finish<'a>> {
        self.rates.sort_unstable_by(f64::total_cmp);
        let rate = *self.rates.get(self.rates.len() / 2)?;
        Some(Finish { contestant: self.contestant, rate, cpu: middle(self.cpu) })
    }
}

/// The mean of the middle half: somebody else on the machine spoils a block now and then, and not all of them.
fn middle(mut all: Vec<f64>) -> Option<f64> {
    all.sort_unstable_by(f64::total_cmp);
    let cut = all.len() / 4;
    let kept = all.get(cut..all.len() - cut)?;
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

/// One connection with its share of the calls in flight.
pub(crate) struct Lane<W> {
    connection: W,
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

/// The part of `whole` that falls to one of `parts`; together they are the whole.
pub(crate) fn share(whole: usize, parts: usize, index: usize) -> usize {
    whole / parts + usize::from(index < whole % parts)
}

fn answer_all<W: ClientConnection>(lanes: &mut [Lane<W>], calls: usize) -> Result<Duration> {
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

fn readable<W: ClientConnection>(lanes: &[Lane<W>]) -> Result<Vec<usize>> {
    const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut polled: Vec<PollFd<'_>> = lanes.iter().map(|lane| PollFd::new(&lane.connection, PollFlags::IN)).collect();
    if poll(&mut polled, Some(&LIMIT)).context("could not wait for the servers")? == 0 {
        bail!("no server answered for {} s", LIMIT.tv_sec);
    }
    let ready = polled.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
    Ok(ready.map(|(index, _)| index).collect())
}

impl<W: ClientConnection> Lane<W> {
    /// `window` calls are kept in flight.
    pub(crate) fn new(connection: W, calls: Vec<Call>, window: usize) -> Self {
        Self { connection, calls, window, progress: Progress::default() }
    }

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
        while let Some(line) = self.connection.buffered_answer()? {
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
