//! Signs that a server has disconnected: the supervisor checks the server when there is one, and not only at its
//! interval.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts the signs that a server has disconnected.
#[derive(Debug, Default)]
pub struct Liveness(watch::Sender<LivenessFailures>);

/// How many signs there were, and how many of them were failed connections.
#[derive(Debug, Clone, Default)]
pub struct LivenessFailures {
    /// A message got no response because the connection broke, or there was none.
    pub times: u64,
    /// There was no connection, so the server has certainly not seen the message.
    pub unreached: u64,
    /// Why, the last time.
    pub why: Option<Arc<str>>,
}

impl Liveness {
    /// The connection broke after a message was sent.
    pub fn note_disconnected(&self, why: &str) {
        self.note(why, false);
    }

    /// No connection could be made.
    pub fn note_unreachable(&self, why: &str) {
        self.note(why, true);
    }

    /// The signs so far.
    pub fn failures(&self) -> LivenessFailures {
        self.0.borrow().clone()
    }

    /// Waits until there are more signs than `times`.
    pub async fn failures_beyond(&self, times: u64) {
        let mut failures = self.0.subscribe();
        // It cannot fail: we hold the sender ourselves.
        drop(failures.wait_for(|failures| failures.times > times).await);
    }

    fn note(&self, why: &str, is_unreached: bool) {
        self.0.send_modify(|failures| {
            failures.times += 1;
            failures.unreached += u64::from(is_unreached);
            failures.why = Some(why.into());
        });
    }
}
