//! How far something is that a server needs before it can be connected, such as an image: told while it is waited for.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Client, PATIENCE};
use crate::failure::Failure;
use crate::output::say;
use crate::table::printable;

/// How often it is looked how far it is.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// What was told already.
#[derive(Default)]
pub(super) struct Told(Value);

impl Told {
    /// Says how far it is, if that is something new; whether it was.
    pub(super) fn tell(&mut self, server: &Value) -> bool {
        let Some(progress) = server["progress"].as_str().filter(|_| server["progress"] != self.0) else { return false };
        say(printable(progress));
        self.0 = server["progress"].clone();
        true
    }
}

/// Tells how far the server at `path` is, for ever. Returns only if there is nothing new for longer than the service would
/// wait for anything.
pub(super) async fn tell(service: &Client, path: &str) -> Failure {
    let (mut told, mut heard) = (Told::default(), Instant::now());
    while heard.elapsed() < PATIENCE {
        tokio::time::sleep(LOOK).await;
        // Whoever waits for the order itself hears what is wrong.
        if let Ok(server) = service.get(path).await
            && told.tell(&server)
        {
            heard = Instant::now();
        }
    }
    Failure::new(format!("the service at {} has not answered for {} s", service.url(), PATIENCE.as_secs()))
}
