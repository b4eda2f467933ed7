//! Prints the progress of preparations for a server, such as pulling an image, while a command waits.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Client, REQUEST_TIMEOUT};
use crate::failure::Failure;
use crate::output::print_message;
use crate::table::printable;

/// How often the progress is requested.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The last printed progress.
#[derive(Default)]
pub(super) struct ProgressPrinter(Value);

impl ProgressPrinter {
    /// Prints the progress if it changed. Returns whether it did.
    pub(super) fn print_progress(&mut self, server: &Value) -> bool {
        let Some(progress) = server["progress"].as_str().filter(|_| server["progress"] != self.0) else { return false };
        print_message(printable(progress));
        self.0 = server["progress"].clone();
        true
    }
}

/// Prints the progress of the server at `path` until dropped. Returns only if nothing changes for longer than any
/// timeout of the service.
pub(super) async fn print_progress(service: &Client, path: &str) -> Failure {
    let (mut printer, mut last_answer) = (ProgressPrinter::default(), Instant::now());
    while last_answer.elapsed() < REQUEST_TIMEOUT {
        tokio::time::sleep(POLL_INTERVAL).await;
        // The response to the command reports any problem.
        if let Ok(server) = service.get(path).await
            && printer.print_progress(&server)
        {
            last_answer = Instant::now();
        }
    }
    Failure::new(format!("the service at {} has not answered for {} s", service.url(), REQUEST_TIMEOUT.as_secs()))
}
