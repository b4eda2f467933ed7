//! Signs that nobody is there any more: whoever watches a server looks at it when there is one, and not only when it is
//! time to.

use std::sync::Arc;

use tokio::sync::watch;

/// What has made somebody doubt that a server is still there.
#[derive(Debug, Default)]
pub struct Liveness(watch::Sender<LivenessFailures>);

/// How often there was reason to doubt, and how often of that nobody took a message at all.
#[derive(Debug, Clone, Default)]
pub struct LivenessFailures {
    /// A message got no answer because the connection to the server broke off, or there was none.
    pub times: u64,
    /// There was no connection, so the server has certainly not seen the message.
    pub unreached: u64,
    /// Why, the last time.
    pub why: Option<Arc<str>>,
}

impl Liveness {
    /// The server was spoken to and broke off.
    pub fn note_disconnected(&self, why: &str) {
        self.note(why, false);
    }

    /// Nobody was there to be spoken to.
    pub fn note_unreachable(&self, why: &str) {
        self.note(why, true);
    }

    /// What there was until now.
    pub fn failures(&self) -> LivenessFailures {
        self.0.borrow().clone()
    }

    /// Waits until there is more reason to doubt than so many times.
    pub async fn failures_beyond(&self, times: u64) {
        let mut news = self.0.subscribe();
        // It cannot fail: we hold the sender ourselves.
        drop(news.wait_for(|doubted| doubted.times > times).await);
    }

    fn note(&self, why: &str, is_unreached: bool) {
        self.0.send_modify(|doubted| {
            doubted.times += 1;
            doubted.unreached += u64::from(is_unreached);
            doubted.why = Some(why.into());
        });
    }
}
