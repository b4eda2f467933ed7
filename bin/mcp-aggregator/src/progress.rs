//! Displays progress of work that takes long, for a waiting user.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::table::{cut, printable};

/// Work that takes less time displays nothing.
const SHOW_AFTER: Duration = Duration::from_millis(500);
/// How often the elapsed time is displayed.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// How often a line is written where a line cannot be cleared.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// The maximum length of the message, so that it fits on a line of any terminal with the time after it.
const MAX_MESSAGE_WIDTH: usize = 64;
/// Clears the current line.
const CLEAR_LINE: &str = "\r\u{1b}[K";

/// Whether a progress line is displayed.
static PROGRESS_SHOWN: AtomicBool = AtomicBool::new(false);
/// Whether some work displays progress.
static PROGRESS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether other output is being written, which a progress line would break.
static PROGRESS_PAUSED: AtomicBool = AtomicBool::new(false);

/// Hides the progress line while other output is written, or allows it again.
pub(crate) fn pause_progress(is_paused: bool) {
    PROGRESS_PAUSED.store(is_paused, Ordering::Relaxed);
    write(clear_line());
}

/// Waits for `work`. If it takes long, a terminal displays `what` and the elapsed time, and clears the line at the end.
pub(crate) async fn with_spinner<T>(what: &str, work: impl Future<Output = T>) -> T {
    with_spinner_text(|| what.to_owned(), work).await
}

/// The same with a description that changes.
pub(crate) async fn with_spinner_text<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    let Some(_turn) = Turn::take(is_interactive()) else { return work.await };
    let began = Instant::now();
    let mut work = std::pin::pin!(work);
    let mut wait = SHOW_AFTER;
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(wait) => {}
        }
        wait = REFRESH_INTERVAL;
        if PROGRESS_PAUSED.load(Ordering::Relaxed) {
            continue;
        }
        write(&format!("{}{}", clear_line(), line(&cut(&printable(&what()), MAX_MESSAGE_WIDTH), began.elapsed())));
        PROGRESS_SHOWN.store(true, Ordering::Relaxed);
    }
}

/// The same; without a terminal, a line is printed whenever `what` changes.
pub(crate) async fn with_reports<T>(what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    if is_interactive() {
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

/// Whether a progress line can be displayed and cleared.
fn is_interactive() -> bool {
    io::stderr().is_terminal() && !is_dumb()
}

/// Whether the terminal cannot clear a line (`TERM=dumb`).
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// The right to display progress: work within other work that displays progress displays none.
struct Turn;

impl Turn {
    fn take(is_terminal: bool) -> Option<Self> {
        (is_terminal && !PROGRESS_IN_USE.swap(true, Ordering::Relaxed)).then_some(Self)
    }
}

impl Drop for Turn {
    /// Clears the line in every case, also on Ctrl-C.
    fn drop(&mut self) {
        pause_progress(false);
        PROGRESS_IN_USE.store(false, Ordering::Relaxed);
    }
}

/// What to write before other output, so that it starts on a new line.
pub(crate) fn clear_line() -> &'static str {
    if PROGRESS_SHOWN.swap(false, Ordering::Relaxed) { CLEAR_LINE } else { "" }
}

fn line(what: &str, elapsed: Duration) -> String {
    match elapsed.as_secs() {
        0 => format!("{what} ..."),
        seconds => format!("{what} ... {seconds} s"),
    }
}

fn write(text: &str) {
    // If stderr cannot be written, nobody can read the message.
    io::stderr().write_all(text.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_outermost_work_displays_progress() {
        let whole = Turn::take(true);
        assert!(whole.is_some() && Turn::take(true).is_none());
        drop(whole);
        assert!(Turn::take(true).is_some() && Turn::take(false).is_none());
    }

    #[test]
    fn a_wait_displays_its_duration() {
        assert_eq!(line("calling `a.b`", Duration::from_millis(500)), "calling `a.b` ...");
        assert_eq!(line("calling `a.b`", Duration::from_millis(2700)), "calling `a.b` ... 2 s");
    }
}
