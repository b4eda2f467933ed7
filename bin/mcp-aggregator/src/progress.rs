//! A word on what takes long, for who sits in front of it.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::table::{cut, printable};

/// What is over sooner needs no word.
const SHOW_AFTER: Duration = Duration::from_millis(500);
/// How often is told how long it takes already.
const TICK: Duration = Duration::from_secs(1);
/// How often a line is written where a word cannot be taken back.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// As much of it as fits on a line of any terminal, with the time behind.
const WIDTH: usize = 64;
/// Takes away the line that the cursor is on.
const WIPE: &str = "\r\u{1b}[K";

/// There is a line of ours that does not stay.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);
/// Somebody tells what is being done.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Something else is being written, which a word of ours would break.
static IS_HUSHED: AtomicBool = AtomicBool::new(false);

/// Takes the word away while something else is written, or lets it come back.
pub(crate) fn hush(is_hushed: bool) {
    IS_HUSHED.store(is_hushed, Ordering::Relaxed);
    write(wiped());
}

/// Waits for `work`. If it takes long, a terminal is told `what` is being done and for how long already, and the word is
/// wiped out at the end.
pub(crate) async fn with_spinner<T>(what: &str, work: impl Future<Output = T>) -> T {
    with_spinner_text(|| what.to_owned(), work).await
}

/// The same, where `what` is being done changes meanwhile.
pub(crate) async fn with_spinner_text<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    let Some(_turn) = Turn::take(is_lively()) else { return work.await };
    let began = Instant::now();
    let mut work = std::pin::pin!(work);
    let mut wait = SHOW_AFTER;
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(wait) => {}
        }
        wait = TICK;
        if IS_HUSHED.load(Ordering::Relaxed) {
            continue;
        }
        write(&format!("{}{}", wiped(), line(&cut(&printable(&what()), WIDTH), began.elapsed())));
        IS_SHOWN.store(true, Ordering::Relaxed);
    }
}

/// The same, and what is no terminal gets a line whenever `what` has changed.
pub(crate) async fn with_reports<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    if is_lively() {
        return with_spinner_text(what, work).await;
    }
    let mut work = std::pin::pin!(work);
    let mut reported = String::new();
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(REPORT_INTERVAL) => {}
        }
        let now = printable(&what());
        if now != reported {
            write(&format!("{now}\n"));
            reported = now;
        }
    }
}

/// Whether a word can be shown and taken back.
fn is_lively() -> bool {
    io::stderr().is_terminal() && !is_dumb()
}

/// Whether a terminal cannot take anything back that was written.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// The right to tell: what is done within something else, of which is told already, says nothing.
struct Turn;

impl Turn {
    fn take(is_terminal: bool) -> Option<Self> {
        (is_terminal && !IS_TAKEN.swap(true, Ordering::Relaxed)).then_some(Self)
    }
}

impl Drop for Turn {
    /// However it ends, also by Ctrl-C, nothing of it stays.
    fn drop(&mut self) {
        hush(false);
        IS_TAKEN.store(false, Ordering::Relaxed);
    }
}

/// What has to be written before other words, so that they are on a line of their own.
pub(crate) fn wiped() -> &'static str {
    if IS_SHOWN.swap(false, Ordering::Relaxed) { WIPE } else { "" }
}

fn line(what: &str, elapsed: Duration) -> String {
    match elapsed.as_secs() {
        0 => format!("{what} ..."),
        seconds => format!("{what} ... {seconds} s"),
    }
}

fn write(text: &str) {
    // If stderr cannot be written, there is nobody left to be told.
    io::stderr().write_all(text.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_is_told_and_not_its_parts() {
        let whole = Turn::take(true);
        assert!(whole.is_some() && Turn::take(true).is_none());
        drop(whole);
        assert!(Turn::take(true).is_some() && Turn::take(false).is_none());
    }

    #[test]
    fn who_waits_is_told_for_how_long() {
        assert_eq!(line("calling `a.b`", Duration::from_millis(500)), "calling `a.b` ...");
        assert_eq!(line("calling `a.b`", Duration::from_millis(2700)), "calling `a.b` ... 2 s");
    }
}
