//! `run --watch`: runs changed blocks again whenever the document is saved.
//!
//! The file is read a few times per second, like the config file: that works on every file system, also over a network,
//! and with editors that replace the file.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use notebook::{Document, Server};
use tokio::time::sleep;

/// How often the file is read.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long it must stay unchanged, because some editors write in several steps.
const WRITE_SETTLE_TIME: Duration = Duration::from_millis(200);

/// A document that others edit, too.
pub(super) struct Watched<'p> {
    path: &'p Path,
    seen: Option<(SystemTime, u64)>,
    /// Its last known content.
    text: String,
}

/// The contents of blocks, and how many blocks have each.
pub(super) struct Known(HashMap<(String, String), usize>);

impl<'p> Watched<'p> {
    /// Starts watching; `text` is the current content.
    pub(super) fn new(path: &'p Path, text: &str) -> Self {
        Self { path, seen: None, text: text.to_owned() }
    }

    /// Records what we wrote ourselves, which is not an edit.
    pub(super) fn set_text(&mut self, text: &str) {
        text.clone_into(&mut self.text);
    }

    /// Waits until somebody else edited the file; returns its content.
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

    /// The numbers of the blocks whose content is not among these.
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
    fn a_block_runs_again_if_its_content_changed_but_not_if_it_only_moved() {
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
