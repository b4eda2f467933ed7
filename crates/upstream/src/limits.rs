//! Limits on what one server, and all servers together, may make us hold in memory: lists, notifications, requests,
//! responses.
//!
//! Every limit has a setting of the service and an environment variable of the programs that serve over stdio. A limit
//! is read when it is needed, so a changed setting takes effect at once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use catalog::Kind;

/// Messages below this size are not counted individually: a pipe or a stream has at most one of them in transit.
pub(crate) const LARGE_MESSAGE: usize = 256 << 10;

/// The unit of all limits but the number of pages.
const KB: usize = 1 << 10;
const MB: usize = 1 << 20;

/// One thing that is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The answer to `initialize` or `server/discover`: instructions, name, version, capabilities.
    Handshake,
    /// The instructions of one server. All of them are sent to every client that connects.
    Instructions,
    /// The instructions of all servers.
    AllInstructions,
    /// Pages of one list.
    Pages,
    /// Everything one server lists: tools, prompts, resources and templates.
    Catalog,
    /// Everything all servers list.
    AllCatalogs,
    /// One notification: a log message, progress, an update.
    Notification,
    /// All requests of one server that wait for a client's answer: elicitation, sampling, roots.
    Requests,
    /// One message of a server, results of calls included.
    Message,
    /// Large messages of one server that are not delivered yet.
    Undelivered,
    /// The same of all servers.
    AllUndelivered,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 11] = [
        Self::Handshake,
        Self::Instructions,
        Self::AllInstructions,
        Self::Pages,
        Self::Catalog,
        Self::AllCatalogs,
        Self::Notification,
        Self::Requests,
        Self::Message,
        Self::Undelivered,
        Self::AllUndelivered,
    ];

    /// The name of the setting.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Handshake => "server_handshake_kb",
            Self::Instructions => "server_instructions_kb",
            Self::AllInstructions => "all_instructions_kb",
            Self::Pages => "server_list_pages",
            Self::Catalog => "server_catalog_kb",
            Self::AllCatalogs => "all_catalogs_kb",
            Self::Notification => "server_notification_kb",
            Self::Requests => "server_requests_kb",
            Self::Message => "server_message_kb",
            Self::Undelivered => "server_undelivered_kb",
            Self::AllUndelivered => "all_undelivered_kb",
        }
    }

    /// The name of the environment variable.
    pub fn variable(self) -> String {
        format!("MCP_AGGREGATOR_{}", self.setting().to_ascii_uppercase())
    }

    /// The default, as it is written in a setting.
    pub const fn default_value(self) -> u32 {
        match self {
            Self::Handshake | Self::AllInstructions => 1 << 10,
            Self::Instructions => 64,
            Self::Pages => 1_000,
            Self::Catalog | Self::Requests => 32 << 10,
            Self::AllCatalogs => 128 << 10,
            Self::Notification => 4 << 10,
            Self::Message | Self::Undelivered => 256 << 10,
            Self::AllUndelivered => 512 << 10,
        }
    }

    /// The minimum and maximum of a setting.
    pub const fn range(self) -> (u32, u32) {
        match self {
            Self::Pages => (1, 1_000_000),
            Self::Message | Self::Undelivered | Self::AllUndelivered => (1 << 10, 1 << 30),
            _ => (1, 1 << 30),
        }
    }

    /// The unit of the setting: a kB, or a page.
    const fn unit(self) -> usize {
        match self {
            Self::Pages => 1,
            _ => KB,
        }
    }
}

/// Where a user changes limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangedBy {
    Setting,
    Variable,
}

/// A server exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLimit {
    what: &'static str,
    limit: Limit,
    most: usize,
    by: ChangedBy,
}

impl OverLimit {
    /// Which limit it is.
    pub fn limit(&self) -> Limit {
        self.limit
    }
}

impl fmt::Display for OverLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} more than {}, which is the limit; ", self.what, Amount(self.limit, self.most))?;
        match self.by {
            ChangedBy::Setting => write!(out, "the setting `{}` raises it", self.limit.setting()),
            ChangedBy::Variable => write!(out, "{} raises it", self.limit.variable()),
        }
    }
}

impl std::error::Error for OverLimit {}

/// An amount in the unit of its limit, for people.
struct Amount(Limit, usize);

impl fmt::Display for Amount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Limit::Pages, pages) => write!(out, "{pages} pages"),
            (_, bytes) if bytes >= MB && bytes % MB == 0 => write!(out, "{} MB", bytes / MB),
            (_, bytes) => write!(out, "{} kB", bytes / KB),
        }
    }
}

/// The current limits, and the usage that counts towards those of all servers.
#[derive(Debug)]
pub struct ServerLimits {
    /// In bytes or pages, in the order of [`Limit::ALL`].
    most: [AtomicUsize; Limit::ALL.len()],
    by: ChangedBy,
    /// Bytes that each server lists, by kind.
    catalogs: Mutex<BTreeMap<usize, [usize; 4]>>,
    /// Bytes of the instructions of each server that has any.
    instructions: Mutex<BTreeMap<usize, usize>>,
    undelivered: AtomicUsize,
}

impl ServerLimits {
    fn new(by: ChangedBy) -> Arc<Self> {
        let most = Limit::ALL.map(|limit| AtomicUsize::new(limit.default_value() as usize * limit.unit()));
        Arc::new(Self {
            most,
            by,
            catalogs: Mutex::default(),
            instructions: Mutex::default(),
            undelivered: AtomicUsize::new(0),
        })
    }

    /// The defaults, which settings of the service change.
    pub fn from_settings() -> Arc<Self> {
        Self::new(ChangedBy::Setting)
    }

    /// The limits from the environment, and the defaults for the rest.
    pub fn from_environment() -> Result<Arc<Self>, String> {
        let limits = Self::new(ChangedBy::Variable);
        for limit in Limit::ALL {
            let name = limit.variable();
            let Some(text) = std::env::var_os(&name) else { continue };
            // Text that is not UTF-8 is no number either.
            let text = text.to_string_lossy();
            let (least, most) = limit.range();
            let value = text.trim().parse().ok().filter(|value| (least..=most).contains(value));
            let value =
                value.ok_or_else(|| format!("{name} is {text:?}; it must be a whole number from {least} to {most}"))?;
            limits.set(limit, value);
        }
        Ok(limits)
    }

    /// The same limits for servers that are counted separately.
    #[must_use]
    pub fn apart(&self) -> Arc<Self> {
        let most = Limit::ALL.map(|limit| AtomicUsize::new(self.most(limit)));
        Arc::new(Self {
            most,
            by: self.by,
            catalogs: Mutex::default(),
            instructions: Mutex::default(),
            undelivered: AtomicUsize::new(0),
        })
    }

    /// Sets a limit.
    pub fn set(&self, limit: Limit, value: u32) {
        self.most[limit as usize].store((value as usize).saturating_mul(limit.unit()), Ordering::Relaxed);
    }

    /// The current value, in bytes or pages.
    pub fn most(&self, limit: Limit) -> usize {
        self.most[limit as usize].load(Ordering::Relaxed)
    }

    /// Fails if `amount` exceeds the limit.
    pub fn check(&self, limit: Limit, what: &'static str, amount: usize) -> Result<(), OverLimit> {
        if amount > self.most(limit) { Err(self.over(limit, what)) } else { Ok(()) }
    }

    /// The error for an exceeded limit.
    pub(crate) fn over(&self, limit: Limit, what: &'static str) -> OverLimit {
        OverLimit { what, limit, most: self.most(limit), by: self.by }
    }

    /// The largest message that a server can send while no client waits for a result.
    pub(crate) fn most_unasked(&self) -> usize {
        let limits = [Limit::Handshake, Limit::Catalog, Limit::Notification, Limit::Requests];
        limits.map(|limit| self.most(limit)).into_iter().max().unwrap_or_default().min(self.most(Limit::Message))
    }

    /// Counts the offer of a server that was not listed just now, or nothing (0 bytes).
    pub fn note_offer(&self, server: usize, bytes: impl FnOnce() -> usize) {
        let mut catalogs = self.catalogs();
        if catalogs.contains_key(&server) {
            return;
        }
        let bytes = bytes();
        if bytes > 0 {
            catalogs.insert(server, [bytes, 0, 0, 0]);
        }
    }

    /// Forgets the offer of a server.
    pub fn forget_offer(&self, server: usize) {
        self.catalogs().remove(&server);
    }

    /// Counts the instructions of a server. They count until something else is recorded.
    pub(crate) fn add_instructions(&self, server: usize, bytes: usize) -> Result<(), OverLimit> {
        let mut known = self.instructions.lock().unwrap_or_else(PoisonError::into_inner);
        let others: usize = known.iter().filter(|(other, _)| **other != server).map(|(_, bytes)| bytes).sum();
        self.check(Limit::AllInstructions, "with it, the instructions of all servers are", others + bytes)?;
        known.insert(server, bytes);
        Ok(())
    }

    /// Records the size of a server's known instructions.
    pub fn note_instructions(&self, server: usize, bytes: usize) {
        let mut known = self.instructions.lock().unwrap_or_else(PoisonError::into_inner);
        match bytes {
            0 => known.remove(&server),
            bytes => known.insert(server, bytes),
        };
    }

    fn catalogs(&self) -> MutexGuard<'_, BTreeMap<usize, [usize; 4]>> {
        self.catalogs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a list that is being read. Unless it is completed, the list before it counts again.
pub(crate) struct ListBytes<'l> {
    limits: &'l ServerLimits,
    server: usize,
    kind: Kind,
    before: usize,
    bytes: usize,
    is_complete: bool,
}

impl<'l> ListBytes<'l> {
    pub(crate) fn new(limits: &'l ServerLimits, server: usize, kind: Kind) -> Self {
        let before = limits.catalogs().get(&server).map_or(0, |kinds| kinds[kind as usize]);
        Self { limits, server, kind, before, bytes: 0, is_complete: false }
    }

    /// Counts one more page.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), OverLimit> {
        self.bytes += bytes;
        let mut catalogs = self.limits.catalogs();
        let mut own = catalogs.get(&self.server).copied().unwrap_or_default();
        own[self.kind as usize] = self.bytes;
        let own_bytes: usize = own.iter().sum();
        self.limits.check(Limit::Catalog, "it lists", own_bytes)?;
        let others = catalogs.iter().filter(|(server, _)| **server != self.server);
        let others: usize = others.flat_map(|(_, kinds)| kinds).sum();
        self.limits.check(Limit::AllCatalogs, "with it, all servers together list", others + own_bytes)?;
        catalogs.insert(self.server, own);
        Ok(())
    }

    /// How many more bytes the server may list.
    pub(crate) fn room(&self) -> usize {
        let own = self.limits.catalogs().get(&self.server).map_or(0, |kinds| kinds.iter().sum());
        self.limits.most(Limit::Catalog).saturating_sub(own)
    }

    pub(crate) fn complete(mut self) {
        self.is_complete = true;
        self.set(self.bytes);
    }

    fn set(&self, bytes: usize) {
        let mut catalogs = self.limits.catalogs();
        catalogs.entry(self.server).or_default()[self.kind as usize] = bytes;
    }
}

impl Drop for ListBytes<'_> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.set(self.before);
        }
    }
}

/// Large messages of one server that are not delivered yet.
#[derive(Debug)]
pub(crate) struct Undelivered {
    limits: Arc<ServerLimits>,
    bytes: AtomicUsize,
}

impl Undelivered {
    pub(crate) fn new(limits: &Arc<ServerLimits>) -> Arc<Self> {
        Arc::new(Self { limits: Arc::clone(limits), bytes: AtomicUsize::new(0) })
    }
}

/// Memory reserved for one message that is being read.
#[derive(Debug)]
pub(crate) struct Room {
    undelivered: Arc<Undelivered>,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(undelivered: &Arc<Undelivered>) -> Self {
        Self { undelivered: Arc::clone(undelivered), bytes: 0 }
    }

    /// Grows the reservation to the current length of the message.
    pub(crate) fn grow(&mut self, bytes: usize, most: Limit, most_bytes: usize) -> Result<(), OverLimit> {
        let limits = &self.undelivered.limits;
        if bytes > most_bytes {
            return Err(OverLimit { most: most_bytes, ..limits.over(most, "it is") });
        }
        let more = bytes.saturating_sub(self.bytes);
        let own = self.undelivered.bytes.fetch_add(more, Ordering::Relaxed) + more;
        let all = limits.undelivered.fetch_add(more, Ordering::Relaxed) + more;
        self.bytes += more;
        limits.check(Limit::Undelivered, "with it, the unread messages of this server are", own)?;
        limits.check(Limit::AllUndelivered, "with it, the unread messages of all servers are", all)
    }

    /// The message, which counts until all parts of it are dropped.
    pub(crate) fn hold(self, message: Bytes) -> Bytes {
        Bytes::from_owner(Held { message, _room: self })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.undelivered.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.undelivered.limits.undelivered.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct Held {
    message: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(limit: Limit, value: u32) -> Arc<ServerLimits> {
        let limits = ServerLimits::from_settings();
        limits.set(limit, value);
        limits
    }

    #[test]
    fn a_list_counts_towards_its_server_and_towards_all() {
        let limits = limits(Limit::Catalog, 10);
        limits.set(Limit::AllCatalogs, 15);
        let mut tools = ListBytes::new(&limits, 0, Kind::Tool);
        tools.add(6 << 10).unwrap();
        tools.complete();
        let mut prompts = ListBytes::new(&limits, 0, Kind::Prompt);
        let over = prompts.add(5 << 10).unwrap_err();
        assert_eq!(
            over.to_string(),
            "it lists more than 10 kB, which is the limit; the setting `server_catalog_kb` raises it"
        );
        drop(prompts);
        let mut other = ListBytes::new(&limits, 1, Kind::Tool);
        other.add(9 << 10).unwrap();
        assert_eq!(other.add(1 << 10).unwrap_err().limit(), Limit::AllCatalogs);
        drop(other);
        assert_eq!(limits.catalogs().get(&1), Some(&[0; 4]), "a list that failed does not count");
        limits.forget_offer(0);
        ListBytes::new(&limits, 1, Kind::Tool).add(10 << 10).unwrap();
    }

    #[test]
    fn a_list_that_is_read_again_replaces_the_one_before() {
        let limits = limits(Limit::Catalog, 10);
        for _ in 0..3 {
            let mut tools = ListBytes::new(&limits, 0, Kind::Tool);
            tools.add(9 << 10).unwrap();
            tools.complete();
        }
        assert!(ListBytes::new(&limits, 0, Kind::Tool).add(11 << 10).is_err());
        assert_eq!(limits.catalogs()[&0], [9 << 10, 0, 0, 0], "the one before still counts");
        limits.note_offer(0, || unreachable!("what was listed is known"));
        limits.note_offer(1, || 7);
        assert_eq!(limits.catalogs()[&1], [7, 0, 0, 0]);
    }

    #[test]
    fn instructions_count_towards_those_of_all_servers() {
        let limits = limits(Limit::AllInstructions, 10);
        limits.add_instructions(0, 6 << 10).unwrap();
        limits.add_instructions(0, 7 << 10).unwrap();
        let over = limits.add_instructions(1, 4 << 10).unwrap_err();
        assert_eq!(
            over.to_string(),
            "with it, the instructions of all servers are more than 10 kB, which is the limit; the setting \
             `all_instructions_kb` raises it"
        );
        limits.note_instructions(0, 0);
        limits.add_instructions(1, 4 << 10).unwrap();
    }

    #[test]
    fn a_large_message_counts_until_its_last_part_is_dropped() {
        let limits = limits(Limit::Undelivered, 1 << 10);
        let undelivered = Undelivered::new(&limits);
        let mut room = Room::new(&undelivered);
        room.grow(300 << 10, Limit::Message, usize::MAX).unwrap();
        room.grow(700 << 10, Limit::Message, usize::MAX).unwrap();
        let message = room.hold(Bytes::from(vec![b'x'; 700 << 10]));
        let part = message.slice(5..10);
        drop(message);
        let mut next = Room::new(&undelivered);
        let over = next.grow(400 << 10, Limit::Message, usize::MAX).unwrap_err();
        assert_eq!(over.limit(), Limit::Undelivered);
        drop((next, part));
        assert_eq!((undelivered.bytes.load(Ordering::Relaxed), limits.undelivered.load(Ordering::Relaxed)), (0, 0));
        Room::new(&undelivered).grow(400 << 10, Limit::Message, usize::MAX).unwrap();
        let over = Room::new(&undelivered).grow(2 << 20, Limit::Message, 1 << 20).unwrap_err();
        assert!(over.to_string().starts_with("it is more than 1 MB, which is the limit"), "{over}");
    }

    #[test]
    fn every_default_can_be_set() {
        for limit in Limit::ALL {
            let (least, most) = limit.range();
            assert!((least..=most).contains(&limit.default_value()), "{limit:?}");
        }
    }
}
