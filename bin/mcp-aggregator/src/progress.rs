//! A word on what takes long, for who sits in front of it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tokio::time::sleep;

/// What is over sooner needs no word.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits for `work`. If it takes long, a terminal is told `what` is being done, and the word is wiped out at the end.
pub(crate) async fn shown<T>(what: &str, work: impl Future<Output = T>) -> T {
    if !io::stderr().is_terminal() {
        return work.await;
    }
    let mut work = std::pin::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = sleep(PATIENCE) => {}
    }
    write(&format!("{what} ..."));
    let done = work.await;
    write("\r\u{1b}[K");
    done
}

fn write(text: &str) {
    // If stderr cannot be written, there is nobody left to be told.
    io::stderr().write_all(text.as_bytes()).ok();
}
