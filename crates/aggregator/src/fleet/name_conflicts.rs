//! Items that cannot be listed because another server has the same name: reported once, and again only for another
//! server.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use catalog::{Kind, NameStyle, Snapshot};

/// How many are remembered; further ones are not reported.
pub const MAX_REPORTED: usize = 10_000;

/// Characters of a name or a URI in a report.
pub const LONGEST_REPORTED: usize = 200;

/// What was reported, as hashes: URIs may be long.
#[derive(Debug, Default)]
pub(super) struct NameConflicts(Mutex<HashSet<u64>>, RandomState);

impl NameConflicts {
    /// Reports what is new in `now`.
    pub(super) fn report_new(&self, now: &Snapshot) {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_new = |key: String| reported.len() < MAX_REPORTED && reported.insert(self.1.hash_one(key));
        // Two tools with the same full name can exist (`a` + `b:c`, `a:b` + `c`). The user should know which one is hidden.
        for kind in [Kind::Tool, Kind::Prompt] {
            for &route in now.shadowed(kind) {
                let name = now.listed_name(kind, route, NameStyle::Canonical);
                let server = &now.servers()[route.server].name;
                if is_new(format!("{} {server} {name}", kind.noun())) {
                    tracing::warn!(%server, name = shortened(&name), "hidden by a {} of another server that has the same full name", kind.noun());
                }
            }
        }
        for collision in now.collisions() {
            let (owner, hidden) = (&now.servers()[collision.owner].name, &now.servers()[collision.hidden].name);
            if is_new(format!("{} {owner} {hidden} {}", collision.kind.noun(), collision.uri)) {
                tracing::warn!(uri = %shortened(&collision.uri), %owner, %hidden, "listed by two servers; the first one is used");
            }
        }
    }
}

fn shortened(text: &str) -> &str {
    text.char_indices().nth(LONGEST_REPORTED).map_or(text, |(end, _)| &text[..end])
}
