//! Events about a document on disk, for pages that show it: sent when the content changes, no matter who wrote it.

use std::sync::Arc;
use std::time::Duration;

use notebook::{Folder, Stamp};
use serde_json::json;
use service::Error;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::{not_found, run_blocking};
use crate::sse_job::{EventSender, MAX_UNREAD, SseJob};

/// How often a file is checked while its page is open.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(700);

/// Sends `document.changed` each time the file changes, until nobody listens or `closing` becomes true.
pub(crate) async fn change_events(
    folder: Arc<Folder>,
    path: String,
    mut closing: watch::Receiver<bool>,
) -> Result<SseJob, Error> {
    // A client that follows a missing document gets the error at once.
    let looked = (Arc::clone(&folder), path.clone());
    let first = run_blocking(move || looked.0.stamp(&looked.1).map_err(|error| not_found(&looked.1, &error))).await?;
    Ok(SseJob::of(MAX_UNREAD, |event_sender| async move {
        tokio::select! {
            // The sender is dropped only when the program ends.
            _ = closing.wait_for(|is_closing| *is_closing) => {}
            () = watch_file(&folder, &path, first, &event_sender) => {}
        }
    }))
}

async fn watch_file(folder: &Arc<Folder>, path: &str, first: Stamp, event_sender: &EventSender) {
    let mut last = Some(first);
    let mut looks = interval(FILE_POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let (folder, looked) = (Arc::clone(folder), path.to_owned());
        // A file that disappears is a change, too.
        let Ok(now) = run_blocking(move || Ok(folder.stamp(&looked).ok())).await else { return };
        if now != last {
            last = now;
            event_sender.event("document.changed", &json!({ "path": path, "is_there": now.is_some() }));
        }
    }
}
