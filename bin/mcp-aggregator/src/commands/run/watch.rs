//! `run --watch`: whenever the document is saved, the blocks that changed are run again.
//!
//! The file is looked at a few times a second, as the config file is: that works on every disk, also over a network, and
//! with editors that write a new file in the place of the old one.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use notebook::{Document, Server};
use tokio::time::sleep;

/// How often the file is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long it must stay the same: some editors write in several steps.
const WRITE_SETTLE_TIME: Duration = Duration::from_millis(200);

/// A document that others write, too.
pub(super) struct Watched<'p> {
    path: &'p Path,
    seen: Option<(SystemTime, u64)>,
    /// What it said when we last knew.
    text: String,
}

/// What blocks said, and how many of them said it.
pub(super) struct Known(HashMap<(String, String), usize>);

impl<'p> Watched<'p> {
    /// From now on; `text` is what the file says.
    pub(super) fn new(path: &'p Path, text: &str) -> Self {
        Self { path, seen: None, text: text.to_owned() }
    }

    /// We have written this ourselves: that is no news.
    pub(super) fn set_text(&mut self, text: &str) {
        text.clone_into(&mut self.text);
    }

    /// Waits until somebody else has written the file; what it says then.
    pub(super) async fn changed(&mut self) -> String {
        loop {
            sleep(POLL_INTERVAL).await;
            let Some(mut now) = signature(self.path).filter(|now| Some(*now) != self.seen) else { continue };
            loop {
                sleep(WRITE_SETTLE_TIME).await;
                match signature(self.path) {
                    Some(later) if later != now => now = later,
                    _ => break,
                }
            }
            // An editor may have moved it away for a moment.
            let Ok(text) = notebook::read(self.path) else { continue };
            self.seen = Some(now);
            if text != self.text {
                self.text.clone_from(&text);
                return text;
            }
        }
    }
}

fn signature(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

impl Known {
    /// The blocks of a document.
    pub(super) fn of(document: &Document, servers: &[Server]) -> Self {
        let mut known = HashMap::new();
        for block in notebook::blocks(document, servers).0 {
            *known.entry((block.fence.info.clone(), block.fence.content.clone())).or_insert(0) += 1;
        }
        Self(known)
    }

    /// The numbers of the blocks that say something else than any of these.
    pub(super) fn changed_in(&self, document: &Document, servers: &[Server]) -> Vec<usize> {
        let mut left = self.0.clone();
        let mut changed = Vec::new();
        for block in notebook::blocks(document, servers).0 {
            match left.get_mut(&(block.fence.info.clone(), block.fence.content.clone())) {
                Some(count) if *count > 0 => *count -= 1,
                _ => changed.push(block.number),
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_run_again_if_it_says_something_new_and_not_if_it_only_moved() {
        let servers = [Server { name: "one".to_owned(), is_enabled: true }];
        let block = |text: &str| format!("```one\ntool: echo\ntext: {text}\n```\n");
        let parsed = |texts: &[&str]| Document::parse(texts.iter().map(|text| block(text)).collect::<String>());
        let known = Known::of(&parsed(&["a", "b", "b"]), &servers);
        let changed = |texts: &[&str]| known.changed_in(&parsed(texts), &servers);
        assert_eq!(changed(&["a", "b", "b"]), Vec::<usize>::new());
        assert_eq!(changed(&["b", "a"]), Vec::<usize>::new());
        assert_eq!(changed(&["a", "c", "b", "b", "b"]), [2, 5]);
    }
}
