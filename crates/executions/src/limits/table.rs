//! All limits, and what counts against each: a call is counted against all of its limits, or refused and counted
//! against none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use registry::{CallLimit, LimitCount, LimitKind, LimitRecord, Timestamp};

use super::excess::LimitExcess;
use super::usage::{Bound, Now, Usage};
use super::{LimitUse, LimitView, TOOL_SEPARATOR};

/// The name of a limit for each that has none of its own.
pub const EACH: &str = "*";

/// How many identities are remembered, and as many profiles, servers and tools.
const MAX_SUBJECTS: usize = 10_000;
/// When there are too many, so many of those that were used least recently are forgotten, so that this is rare.
const SLACK: usize = 1_000;
/// How many of the identities that a default counts are shown.
const MAX_SHOWN_USES: usize = 100;

const KINDS: usize = LimitKind::ALL.len();

/// What a call counts against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallSubjects<'c> {
    /// The identity that makes it.
    pub(crate) identity: &'c str,
    /// The profile, if there is one.
    pub(crate) profile: Option<&'c str>,
    /// The server.
    pub(crate) server: &'c str,
    /// The server's name of the tool.
    pub(crate) tool: &'c str,
}

/// Counts a call as in progress until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct RunningCall([Option<Arc<AtomicU32>>; KINDS]);

impl Drop for RunningCall {
    fn drop(&mut self) {
        for running in self.0.iter().flatten() {
            running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// All limits.
#[derive(Debug, Default)]
pub(super) struct Table {
    kinds: [Limits; KINDS],
    /// What was counted and is not stored yet.
    unsaved: Vec<(LimitKind, Arc<str>)>,
    /// Refused calls, by kind and bound.
    refused: [[u64; Bound::NAMES.len()]; KINDS],
    last_turn: u64,
}

/// The limits of a kind.
#[derive(Debug, Default)]
struct Limits {
    default: Option<Active>,
    subjects: HashMap<Arc<str>, Subject>,
}

/// A limit in force.
#[derive(Debug)]
struct Active {
    limit: CallLimit,
    updated_at: Timestamp,
    refused: u64,
}

/// An identity, profile, server or tool.
#[derive(Debug, Default)]
struct Subject {
    /// Its own limit, in place of the default.
    own: Option<Active>,
    usage: Usage,
    /// Higher means more recently used.
    turn: u64,
    is_unsaved: bool,
}

impl Table {
    /// Counts a call against its limits, unless one refuses it, or `also` does.
    pub(super) fn admit<E>(
        &mut self,
        call: CallSubjects<'_>,
        now: Now,
        also: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<RunningCall, LimitExcess>, E> {
        let has_tools = !self.of(LimitKind::Tool).is_empty();
        let tool = has_tools.then(|| [call.server, TOOL_SEPARATOR, call.tool].concat());
        let names = [Some(call.identity), call.profile, Some(call.server), tool.as_deref()];
        self.last_turn += 1;
        let turn = self.last_turn;
        let mut counted = [const { None }; KINDS];
        for ((limits, name), counted) in self.kinds.iter_mut().zip(names).zip(&mut counted) {
            *counted = name.and_then(|name| limits.find(name, turn, now));
        }
        let excesses = LimitKind::ALL.iter().zip(&counted).filter_map(|(kind, counted)| {
            let (name, subject, limit) = counted.as_ref()?;
            let (bound, retry_after) = subject.usage.excess(limit, now)?;
            Some(LimitExcess { kind: *kind, name: Arc::clone(name), bound, retry_after })
        });
        // Whoever waits for the longest of them is not refused again by another.
        if let Some(excess) = excesses.max_by_key(|excess| excess.retry_after) {
            self.refused[excess.kind as usize][excess.bound.index()] += 1;
            self.of_mut(excess.kind).count_refusal(&excess.name);
            return Ok(Err(excess));
        }
        also()?;
        let mut running = RunningCall::default();
        for ((kind, counted), running) in LimitKind::ALL.iter().zip(&mut counted).zip(&mut running.0) {
            let Some((name, subject, limit)) = counted else { continue };
            *running = Some(subject.usage.count(limit, now));
            if limit.per_day.is_some() && !std::mem::replace(&mut subject.is_unsaved, true) {
                self.unsaved.push((*kind, Arc::clone(name)));
            }
        }
        Ok(Ok(running))
    }

    /// Sets a limit. What was counted still counts.
    pub(super) fn put(&mut self, record: &LimitRecord) {
        let active = |refused| Some(Active { limit: record.limit, updated_at: record.updated_at, refused });
        let limits = self.of_mut(record.kind);
        let own = match record.name.as_str() {
            EACH => &mut limits.default,
            name => &mut limits.subjects.entry(name.into()).or_default().own,
        };
        *own = active(own.as_ref().map_or(0, |before| before.refused));
    }

    /// Removes a limit. What has no limit any more is forgotten.
    pub(super) fn remove(&mut self, kind: LimitKind, name: &str) {
        let limits = self.of_mut(kind);
        if name == EACH {
            limits.default = None;
            limits.subjects.retain(|_, subject| subject.own.is_some());
        } else if limits.default.is_none() {
            limits.subjects.remove(name);
        } else if let Some(subject) = limits.subjects.get_mut(name) {
            subject.own = None;
        }
    }

    /// Renames a server and its tools. What the new names had is replaced.
    pub(super) fn rename_server(&mut self, before: &str, after: &str) {
        for kind in [LimitKind::Server, LimitKind::Tool] {
            let renamed = |name: &str| match kind {
                LimitKind::Server => (name == before).then(|| Arc::from(after)),
                _ => {
                    let tool = name.strip_prefix(before)?.strip_prefix(TOOL_SEPARATOR)?;
                    Some(Arc::<str>::from([after, TOOL_SEPARATOR, tool].concat()))
                }
            };
            let subjects = &mut self.of_mut(kind).subjects;
            let changes: Vec<_> = subjects.keys().filter_map(|name| Some((Arc::clone(name), renamed(name)?))).collect();
            let mut unsaved = Vec::new();
            for (old, new) in changes {
                let Some(subject) = subjects.remove(&old) else { continue };
                unsaved.extend(subject.is_unsaved.then(|| (kind, Arc::clone(&new))));
                subjects.insert(new, subject);
            }
            self.unsaved.extend(unsaved);
        }
    }

    /// Restores what was counted before a restart.
    pub(super) fn restore(&mut self, count: &LimitCount, now: Now) {
        let turn = self.last_turn;
        if let Some((_, subject, _)) = self.of_mut(count.kind).find(&count.name, turn, now) {
            subject.usage.restore(count.day, count.calls);
        }
    }

    /// Whether there are no limits.
    pub(super) fn is_empty(&self) -> bool {
        self.kinds.iter().all(Limits::is_empty)
    }

    /// Whether there is something to store.
    pub(super) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Takes what is to be stored.
    pub(super) fn take_unsaved(&mut self) -> Vec<LimitCount> {
        let unsaved = std::mem::take(&mut self.unsaved);
        let count = |(kind, name): (LimitKind, Arc<str>)| {
            let subject = self.of_mut(kind).subjects.get_mut(&name).filter(|subject| subject.is_unsaved)?;
            subject.is_unsaved = false;
            let (day, calls) = subject.usage.last_day();
            Some(LimitCount { kind, name: name.to_string(), day, calls })
        };
        unsaved.into_iter().filter_map(count).collect()
    }

    /// Returns what could not be stored.
    pub(super) fn put_back(&mut self, counts: &[LimitCount]) {
        for count in counts {
            let Some((name, _)) = self.of(count.kind).subjects.get_key_value(&*count.name) else { continue };
            let name = Arc::clone(name);
            let subject = self.of_mut(count.kind).subjects.get_mut(&name);
            if subject.is_some_and(|subject| !std::mem::replace(&mut subject.is_unsaved, true)) {
                self.unsaved.push((count.kind, name));
            }
        }
    }

    /// Every limit with what counts against it, by kind and name.
    pub(super) fn view(&self, now: Now) -> Vec<LimitView> {
        LimitKind::ALL.iter().flat_map(|&kind| self.of(kind).view(kind, now)).collect()
    }

    /// How many limits there are of each kind.
    pub(super) fn counts(&self) -> Vec<(LimitKind, u64)> {
        let count = |limits: &Limits| limits.own().count() as u64 + u64::from(limits.default.is_some());
        LimitKind::ALL.iter().map(|&kind| (kind, count(self.of(kind)))).collect()
    }

    /// How many calls were refused, by kind and by the name of the bound.
    pub(super) fn refused(&self) -> Vec<(LimitKind, &'static str, u64)> {
        let of_kind = |&kind: &LimitKind| {
            let refused = Bound::NAMES.iter().zip(self.refused[kind as usize]);
            refused.map(move |(bound, refused)| (kind, *bound, refused))
        };
        LimitKind::ALL.iter().flat_map(of_kind).collect()
    }

    fn of(&self, kind: LimitKind) -> &Limits {
        &self.kinds[kind as usize]
    }

    fn of_mut(&mut self, kind: LimitKind) -> &mut Limits {
        &mut self.kinds[kind as usize]
    }
}

impl Limits {
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.default.is_none() && self.own().next().is_none()
    }

    /// Own limits with their names.
    fn own(&self) -> impl Iterator<Item = (&Arc<str>, &Active, &Subject)> {
        self.subjects.iter().filter_map(|(name, subject)| Some((name, subject.own.as_ref()?, subject)))
    }

    /// What has that name, if it is limited; and its limit.
    fn find(&mut self, name: &str, turn: u64, now: Now) -> Option<(Arc<str>, &mut Subject, CallLimit)> {
        let default = self.default.as_ref().map(|default| default.limit);
        if !self.subjects.contains_key(name) {
            default?;
            self.make_room(now);
            self.subjects.insert(name.into(), Subject::default());
        }
        let name = self.subjects.get_key_value(name).map(|(name, _)| Arc::clone(name))?;
        let subject = self.subjects.get_mut(&name)?;
        let limit = subject.own.as_ref().map(|own| own.limit).or(default)?;
        subject.turn = turn;
        Some((name, subject, limit))
    }

    /// Forgets something if too much is remembered: first what has no effect, then what was used least recently.
    fn make_room(&mut self, now: Now) {
        if self.subjects.len() < MAX_SUBJECTS {
            return;
        }
        self.subjects.retain(|_, subject| subject.own.is_some() || !subject.usage.is_unused(now));
        if self.subjects.len() < MAX_SUBJECTS {
            return;
        }
        let others = self.subjects.iter().filter(|(_, subject)| subject.own.is_none());
        let mut others: Vec<_> =
            others.map(|(name, subject)| (subject.usage.running() > 0, subject.turn, Arc::clone(name))).collect();
        others.sort_unstable();
        for (.., name) in others.iter().take(SLACK) {
            self.subjects.remove(name);
        }
    }

    fn count_refusal(&mut self, name: &str) {
        let own = self.subjects.get_mut(name).and_then(|subject| subject.own.as_mut());
        if let Some(active) = own.or(self.default.as_mut()) {
            active.refused += 1;
        }
    }

    fn view(&self, kind: LimitKind, now: Now) -> Vec<LimitView> {
        let uses = |name: &Arc<str>, limit: &CallLimit, usage: &Usage| LimitUse {
            name: name.to_string(),
            running: usage.running(),
            today: usage.calls_of(now.day()),
            available: usage.available(limit, now),
        };
        let shown = |name: &str, active: &Active, uses: Vec<LimitUse>| LimitView {
            record: LimitRecord { kind, name: name.to_owned(), limit: active.limit, updated_at: active.updated_at },
            refused: active.refused,
            counted: uses.len() as u64,
            uses: uses.into_iter().take(MAX_SHOWN_USES).collect(),
        };
        let default = self.default.as_ref().map(|active| {
            let others = self.subjects.iter().filter(|(_, subject)| subject.own.is_none());
            let mut all: Vec<_> = others.map(|(name, subject)| uses(name, &active.limit, &subject.usage)).collect();
            all.sort_by(|one, other| {
                (other.running, other.today, &one.name).cmp(&(one.running, one.today, &other.name))
            });
            shown(EACH, active, all)
        });
        let own = self
            .own()
            .map(|(name, active, subject)| shown(name, active, vec![uses(name, &active.limit, &subject.usage)]));
        let mut own: Vec<_> = own.collect();
        own.sort_by(|one, other| one.record.name.cmp(&other.record.name));
        default.into_iter().chain(own).collect()
    }
}

#[cfg(test)]
mod tests;
