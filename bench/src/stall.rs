//! Ends a contestant that stopped answering, so that no run hangs for ever.
//!
//! The client side uses plain blocking reads and writes. Before it waits it says here for whom; a thread kills that
//! process when the wait gets too long, and the blocked read or write returns with an error.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::processes::{descendants, kill_now};

/// Nothing here takes this long, `npx` with a cold cache included.
const LIMIT: Duration = Duration::from_secs(60);

static WAITING_FOR: AtomicI32 = AtomicI32::new(0);
static SINCE_MILLIS: AtomicU64 = AtomicU64::new(0);
static START: OnceLock<Instant> = OnceLock::new();

pub(crate) fn start_watching() {
    START.get_or_init(Instant::now);
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let Some(pid) = Pid::from_raw(WAITING_FOR.load(Ordering::Relaxed)) else {
                continue;
            };
            let waited = now_millis().saturating_sub(SINCE_MILLIS.load(Ordering::Relaxed));
            if waited > LIMIT.as_millis() as u64 {
                eprintln!("warning: process {pid} did not answer for {} s; killing it", LIMIT.as_secs());
                // The servers below it too: they may hold the same pipe open.
                for below in descendants(pid) {
                    kill_now(below);
                }
                kill_now(pid);
            }
        }
    });
}

fn now_millis() -> u64 {
    START.get().map_or(0, |start| start.elapsed().as_millis() as u64)
}

pub(crate) fn waiting_for(pid: Pid) {
    SINCE_MILLIS.store(now_millis(), Ordering::Relaxed);
    WAITING_FOR.store(pid.as_raw_nonzero().get(), Ordering::Relaxed);
}

pub(crate) fn not_waiting() {
    WAITING_FOR.store(0, Ordering::Relaxed);
}
