//! How far something is that a server needs before it can be connected, such as an image: told while it is waited for.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Client, REQUEST_TIMEOUT};
use crate::failure::Failure;
use crate::output::print_message;
use crate::table::printable;

/// How often it is looked how far it is.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What was told already.
#[derive(Default)]
pub(super) struct ProgressPrinter(Value);

impl ProgressPrinter {
    /// Says how far it is, if that is something new; whether it was.
    pub(super) fn print_progress(&mut self, server: &Value) -> bool {
        let Some(progress) = server["progress"].as_str().filter(|_| server["progress"] != self.0) else { return false };
        print_message(printable(progress));
        self.0 = server["progress"].clone();
        true
    }
}

/// Tells how far the server at `path` is, for ever. Returns only if there is nothing new for longer than the service would
/// wait for anything.
pub(super) async fn print_progress(service: &Client, path: &str) -> Failure {
    let (mut told, mut heard) = (ProgressPrinter::default(), Instant::now());
    while heard.elapsed() < REQUEST_TIMEOUT {
        tokio::time::sleep(POLL_INTERVAL).await;
        // Whoever waits for the order itself hears what is wrong.
        if let Ok(server) = service.get(path).await
            && told.print_progress(&server)
        {
            heard = Instant::now();
        }
    }
    Failure::new(format!("the service at {} has not answered for {} s", service.url(), REQUEST_TIMEOUT.as_secs()))
}
