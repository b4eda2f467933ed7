//! Everything that exists at one moment: the servers, their states, what they offer and every name it answers to.
//!
//! A snapshot never changes. When something happens a new one is built beside it and swapped in, so a reader sees all
//! of a change or none of it. What is costly is made when somebody first asks for it: while fifty servers start, most
//! snapshots are replaced before anybody looks.
//!
//! # Layout
//!
//! - `names`: what tools and prompts are called in the merged list, and which of two of the same name is hidden
//! - `missing`: why a name leads nowhere
//! - `resources`: whose a URI is
//! - `pages`: the lists, written and kept ready
//! - `capabilities`: what we say we can do, made of what the servers say

mod capabilities;
mod missing;
mod names;
mod pages;
mod resources;
#[cfg(test)]
mod tests;

pub use missing::Missing;
pub use pages::ITEMS_PER_PAGE;
pub use resources::{Collision, UriBudget};

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use protocol::Lifecycle;

use crate::item::{Item, Kind};
use crate::names::{NameStyle, Separator};
use crate::offer::{Hints, Offer};
use crate::server::ServerName;
use names::Names;
use pages::Pages;

/// How a server is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// Started, not yet ready, and nothing is known of it.
    Initializing,
    /// Answers calls.
    Running,
    /// Not started, but what it offers is known: whoever needs it makes it start.
    Dormant,
    /// Being started, and what it offers is known from before.
    Waking,
    /// Could not start, or ended by itself; says how.
    Failed(Arc<str>),
    /// Ended because we asked it to.
    Stopped,
    /// Not connected, as somebody sees it who keeps it connected.
    Down(Arc<Downtime>),
    /// No longer there. Its place is never given to another.
    Removed,
}

/// A server that is not connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downtime {
    /// A stable word for it.
    pub status: &'static str,
    /// What happened, if it is not what somebody wanted.
    pub why: Option<Arc<str>>,
    /// Since when, counted from 1970.
    pub since: Duration,
    /// When the next attempt is made, if one is, counted the same way.
    pub retry_at: Option<Duration>,
}

impl ServerState {
    /// Whether what the server offers is on offer.
    pub fn offers(&self) -> bool {
        matches!(self, Self::Running | Self::Dormant | Self::Waking)
    }

    /// Whether it will soon be known what becomes of it, so that a call can wait for it.
    pub fn is_on_its_way(&self) -> bool {
        matches!(self, Self::Initializing | Self::Dormant | Self::Waking)
    }
}

impl fmt::Display for ServerState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Initializing => out.write_str("initializing"),
            Self::Running => out.write_str("running"),
            Self::Dormant => out.write_str("dormant"),
            Self::Waking => out.write_str("waking"),
            Self::Failed(how) => write!(out, "failed: {how}"),
            Self::Stopped => out.write_str("stopped"),
            Self::Down(downtime) => match &downtime.why {
                Some(why) => write!(out, "{}: {why}", downtime.status),
                None => out.write_str(downtime.status),
            },
            Self::Removed => out.write_str("removed"),
        }
    }
}

/// A server and what it offers right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    /// Its key in the configuration.
    pub name: ServerName,
    /// How it is doing.
    pub state: ServerState,
    /// What it offers; nothing if it is down.
    pub offer: Arc<Offer>,
}

/// Which servers a client sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All of them, merged.
    All,
    /// This one alone, by its place in the configuration, and everything under the name its server gave it.
    One(usize),
}

impl Scope {
    /// Whether the server at `index` is in it.
    pub fn sees(self, index: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(only) => only == index,
        }
    }

    /// The only server in it, if there is only one.
    pub fn only(self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::One(only) => Some(only),
        }
    }
}

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Index of the server, in configuration order.
    pub server: usize,
    /// Index among the server's items of the kind in question.
    pub item: usize,
}

/// All servers and what they offer at one moment.
#[derive(Debug)]
pub struct Snapshot {
    servers: Vec<ServerEntry>,
    separator: Separator,
    /// Servers may join at any time.
    is_growing: bool,
    /// By kind. Shared with the snapshot before if nothing of that kind is different.
    names: [Arc<OnceLock<Names>>; 4],
    pages_of_all: Pages,
    /// By server. Few are ever asked for alone.
    pages_of_one: Box<[OnceLock<Box<Pages>>]>,
}

impl Snapshot {
    /// The snapshot of `servers`, which are in configuration order.
    pub fn new(servers: Vec<ServerEntry>, separator: Separator) -> Self {
        Self {
            pages_of_one: servers.iter().map(|_| OnceLock::new()).collect(),
            servers,
            separator,
            is_growing: false,
            names: Default::default(),
            pages_of_all: Pages::default(),
        }
    }

    /// The snapshot that comes after `before`. Names that are the same are not made again.
    #[must_use]
    pub fn following(mut self, before: &Self) -> Self {
        let has_same_names = |kind: Kind| {
            let is_same = |(one, other): (&ServerEntry, &ServerEntry)| {
                one.name == other.name && Arc::ptr_eq(one.offer.items(kind), other.offer.items(kind))
            };
            self.servers.len() == before.servers.len() && self.servers.iter().zip(&before.servers).all(is_same)
        };
        for kind in Kind::ALL.into_iter().filter(|&kind| has_same_names(kind)).collect::<Vec<_>>() {
            self.names[kind as usize] = Arc::clone(&before.names[kind as usize]);
        }
        self
    }

    /// How many items must be named that are not named yet.
    pub fn unnamed(&self) -> usize {
        let count = |kind: Kind| self.servers.iter().map(|server| server.offer.items(kind).len()).sum::<usize>();
        Kind::ALL.into_iter().filter(|&kind| self.names[kind as usize].get().is_none()).map(count).sum()
    }

    /// Makes all names now, so that nobody who looks one up has to wait for it.
    pub fn make_names(&self) {
        for kind in Kind::ALL {
            self.names(kind);
        }
    }

    /// The same where servers may join at any time, so that what they will turn out to have is not known.
    pub fn growing(mut self) -> Self {
        self.is_growing = true;
        self
    }

    /// The server of that name.
    pub fn server_named(&self, name: &str) -> Option<usize> {
        self.servers.iter().position(|server| server.state != ServerState::Removed && server.name.as_ref() == name)
    }

    /// The servers in configuration order.
    pub fn servers(&self) -> &[ServerEntry] {
        &self.servers
    }

    /// Whether every server has either come up or gone down.
    pub fn is_settled(&self) -> bool {
        self.is_settled_in(Scope::All)
    }

    /// The item at `route`.
    pub fn item(&self, kind: Kind, route: Route) -> &Item {
        &self.servers[route.server].offer.items(kind)[route.item]
    }

    /// The item at `route` as clients of `lifecycle` see it.
    pub fn item_for(&self, lifecycle: Lifecycle, kind: Kind, route: Route) -> &Item {
        let items = self.servers[route.server].offer.for_lifecycle(lifecycle).items(kind);
        items.get(route.item).unwrap_or_else(|| self.item(kind, route))
    }

    /// The tool or prompt that answers to `name`: canonical or alias among all, its own name in a server alone.
    pub fn resolve(&self, scope: Scope, kind: Kind, name: &str) -> Option<Route> {
        match scope {
            Scope::All => self.names(kind).route(name),
            Scope::One(server) => self.resolve_in(server, kind, name),
        }
    }

    fn resolve_in(&self, server: usize, kind: Kind, name: &str) -> Option<Route> {
        let entry = self.servers.get(server)?;
        // The merged names find it without a walk, unless it is not there or somebody else has its full name.
        let full = if kind.is_prefixed() { self.full_name(entry, name) } else { name.to_owned() };
        let known = self.names(kind).route(&full);
        let is_meant = |route: &Route| route.server == server && *self.item(kind, *route).id == *name;
        known.filter(is_meant).or_else(|| {
            let item = entry.offer.items(kind).iter().position(|item| *item.id == *name)?;
            Some(Route { server, item })
        })
    }

    /// What an item is called in the merged list.
    pub fn listed_name(&self, kind: Kind, route: Route, style: NameStyle) -> String {
        let (server, item) = (&self.servers[route.server], self.item(kind, route));
        match style {
            _ if !kind.is_prefixed() => item.id.to_string(),
            NameStyle::Canonical => self.full_name(server, &item.id),
            NameStyle::Safe => self.names(kind).alias(route, server, item),
        }
    }

    /// Every item that is in the merged list in `style`, in order.
    pub fn listed(&self, kind: Kind, style: NameStyle) -> impl Iterator<Item = Route> + '_ {
        // A safe alias reaches the tool whose canonical name another one has; nothing reaches a second address.
        let hidden = match style {
            NameStyle::Safe if kind.is_prefixed() => &[],
            _ => self.shadowed(kind),
        };
        names::every(&self.servers, kind)
            .map(|(route, _, _)| route)
            .filter(move |route| hidden.binary_search(route).is_err())
    }

    /// Items that cannot be listed because an earlier one has the same full name or address, in order.
    pub fn shadowed(&self, kind: Kind) -> &[Route] {
        &self.names(kind).shadowed
    }

    /// What the servers tell a model about their use, each under its name; or what one of them tells.
    pub fn instructions(&self, scope: Scope) -> Option<String> {
        if let Scope::One(server) = scope {
            return self.servers.get(server)?.offer.instructions.as_deref().map(str::to_owned);
        }
        let with_text = |server: &ServerEntry| {
            let text = server.offer.instructions.as_deref()?.trim();
            (!text.is_empty()).then(|| format!("## {}\n\n{text}", server.name))
        };
        let all: Vec<_> = self.servers.iter().filter_map(with_text).collect();
        (!all.is_empty()).then(|| all.join("\n\n"))
    }

    /// How long a list may be kept and by whom, as modern clients are told.
    pub fn hints(&self, scope: Scope, kind: Kind) -> Hints {
        let offers = self.running(scope).map(|(_, server)| server.offer.for_lifecycle(Lifecycle::SelfContained));
        let having = offers.filter(|offer| offer.has(kind.capability()));
        let merged = having.map(|offer| offer.hints[kind as usize]).reduce(Hints::and);
        match merged {
            // More may come any moment.
            Some(hints) if !self.is_settled_in(scope) => Hints { ttl_ms: 0, ..hints },
            Some(hints) => hints,
            None => Hints::NONE,
        }
    }

    fn names(&self, kind: Kind) -> &Names {
        self.names[kind as usize].get_or_init(|| Names::of(&self.servers, &self.separator, kind))
    }

    fn full_name(&self, server: &ServerEntry, name: &str) -> String {
        crate::names::canonical(server.name.as_ref(), &self.separator, name)
    }

    /// The servers within `scope`, with their places.
    fn within(&self, scope: Scope) -> impl Iterator<Item = (usize, &ServerEntry)> {
        let servers = self.servers.iter().enumerate();
        servers.filter(move |(index, _)| scope == Scope::All || scope == Scope::One(*index))
    }

    fn running(&self, scope: Scope) -> impl Iterator<Item = (usize, &ServerEntry)> {
        self.within(scope).filter(|(_, server)| server.state.offers())
    }

    fn is_settled_in(&self, scope: Scope) -> bool {
        self.within(scope).all(|(_, server)| server.state != ServerState::Initializing)
    }
}
