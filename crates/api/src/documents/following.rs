//! News of a document on disk, for pages that show it: told when the file is another than before, whoever wrote it.

use std::sync::Arc;
use std::time::Duration;

use notebook::{Folder, Stamp};
use serde_json::json;
use service::Error;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::{away, not_found};
use crate::work::{Telling, WorkStream};

/// How often a file is looked at while somebody looks at its page.
const PERIOD: Duration = Duration::from_millis(700);

/// An event `document.changed` each time the file is another, until nobody listens or `closing` turns true.
pub(crate) async fn news(
    folder: Arc<Folder>,
    path: String,
    mut closing: watch::Receiver<bool>,
) -> Result<WorkStream, Error> {
    // Whoever asks for news of nothing is told so at once.
    let looked = (Arc::clone(&folder), path.clone());
    let first = away(move || looked.0.stamp(&looked.1).map_err(|error| not_found(&looked.1, &error))).await?;
    Ok(WorkStream::of(|telling| async move {
        tokio::select! {
            // The sender goes away only when everything does.
            _ = closing.wait_for(|is_closing| *is_closing) => {}
            () = follow(&folder, &path, first, &telling) => {}
        }
    }))
}

async fn follow(folder: &Arc<Folder>, path: &str, first: Stamp, telling: &Telling) {
    let mut last = Some(first);
    let mut looks = interval(PERIOD);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let (folder, looked) = (Arc::clone(folder), path.to_owned());
        // A file that is gone for a moment, or for good, is news as well.
        let Ok(now) = away(move || Ok(folder.stamp(&looked).ok())).await else { return };
        if now != last {
            last = now;
            telling.event("document.changed", &json!({ "path": path, "is_there": now.is_some() }));
        }
    }
}
