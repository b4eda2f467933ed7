//! Items that cannot be listed because another server has the same name: reported once, and again only for another
//! server.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use catalog::{Kind, NameStyle, Route, Snapshot};

/// How many are remembered; further ones are not reported.
pub const MAX_REPORTED: usize = 10_000;

/// Characters of a name or a URI in a report.
pub const LONGEST_REPORTED: usize = 200;

/// What was reported.
#[derive(Debug, Default)]
pub(super) struct NameConflicts(Mutex<Reported>, RandomState);

#[derive(Debug, Default)]
struct Reported {
    /// As hashes: URIs may be long.
    conflicts: HashSet<u64>,
    /// The hidden items of the last report, by kind. Most changes leave them as they are.
    last: [Option<Arc<Vec<Route>>>; 4],
    /// How many conflicts were looked at.
    #[cfg(test)]
    seen: usize,
}

impl NameConflicts {
    /// Reports what is new in `now`.
    pub(super) fn report_new(&self, now: &Snapshot) {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for kind in Kind::ALL {
            if reported.is_full() {
                return;
            }
            let hidden = now.shadowed(kind);
            if reported.last[kind as usize].as_ref().is_some_and(|last| Arc::ptr_eq(last, hidden)) {
                continue;
            }
            reported.last[kind as usize] = Some(Arc::clone(hidden));
            match kind {
                Kind::Tool | Kind::Prompt => self.report_names(&mut reported, now, kind),
                Kind::Resource | Kind::Template => self.report_uris(&mut reported, now, kind),
            }
        }
    }

    /// Two tools with the same full name can exist (`a` + `b:c`, `a:b` + `c`). The user should know which one is hidden.
    fn report_names(&self, reported: &mut Reported, now: &Snapshot, kind: Kind) {
        for &route in now.shadowed(kind).iter() {
            if reported.is_full() {
                return;
            }
            let name = now.listed_name(kind, route, NameStyle::Canonical);
            let server = &now.servers()[route.server].name;
            if reported.add(self.1.hash_one(format!("{} {server} {name}", kind.noun()))) {
                tracing::warn!(%server, name = shortened(&name), "hidden by a {} of another server that has the same full name", kind.noun());
            }
        }
    }

    fn report_uris(&self, reported: &mut Reported, now: &Snapshot, kind: Kind) {
        for collision in now.collisions(kind) {
            if reported.is_full() {
                return;
            }
            let (owner, hidden) = (&now.servers()[collision.owner].name, &now.servers()[collision.hidden].name);
            let key = format!("{} {owner} {hidden} {}", collision.kind.noun(), collision.uri);
            if reported.add(self.1.hash_one(key)) {
                tracing::warn!(uri = %shortened(&collision.uri), %owner, %hidden, "listed by two servers; the first one is used");
            }
        }
    }

    #[cfg(test)]
    pub(super) fn seen(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).seen
    }
}

impl Reported {
    fn is_full(&self) -> bool {
        self.conflicts.len() >= MAX_REPORTED
    }

    fn add(&mut self, key: u64) -> bool {
        #[cfg(test)]
        {
            self.seen += 1;
        }
        self.conflicts.insert(key)
    }
}

fn shortened(text: &str) -> &str {
    text.char_indices().nth(LONGEST_REPORTED).map_or(text, |(end, _)| &text[..end])
}
