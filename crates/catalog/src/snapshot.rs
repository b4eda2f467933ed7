//! A catalog snapshot: the servers, their states, their items and all names at one point in time.
//!
//! A snapshot never changes. After an event a new one is built and swapped in, so a reader sees all of a change or none
//! of it. Costly parts are built on first use: while fifty servers start, most snapshots are replaced before anyone
//! reads them.
//!
//! # Layout
//!
//! - `names`: names of tools and prompts in the merged list, and which of two equal ones is hidden
//! - `missing`: why a name does not resolve
//! - `resources`: which server has a URI
//! - `pages`: the serialized lists
//! - `capabilities`: our capabilities, merged from those of the servers

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
use crate::profile::Profile;
use crate::server::ServerName;
use names::{Change, Names};
use pages::Pages;

/// The state of a server as far as the catalog needs it: whether its items are listed, and whether calls reach it.
///
/// The service has a finer `ServerStatus` (why a server is not connected, and when it is retried), and publishes it here
/// as [`ServerState::Down`]. Programs without a service, such as `stdio`, have only this state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// Started, not yet ready, and its items are unknown.
    Initializing,
    /// It answers calls.
    Running,
    /// Not started, but its items are known: the first use starts it.
    Asleep,
    /// Starting, and its items are known from before.
    Starting,
    /// Failed to start, or exited; with the reason.
    Failed(Arc<str>),
    /// Stopped by us.
    Stopped,
    /// Not connected, as its supervisor reports it.
    Unavailable(Arc<Unavailable>),
    /// Removed. Its slot is never reused.
    Removed,
}

/// The status of a server that waits until a person signs in to it, and the reason why calls to it fail.
pub const SIGN_IN_REQUIRED: &str = "sign_in_required";

/// A server that is not connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// A stable word for the status.
    pub status: &'static str,
    /// The reason, unless it is intended.
    pub why: Option<Arc<str>>,
    /// The command that ends it, if it is not the usual one for that status.
    pub command: Option<Arc<str>>,
    /// Since when, as time since 1970.
    pub since: Duration,
    /// When the next attempt is made, if any, as time since 1970.
    pub retry_at: Option<Duration>,
}

impl ServerState {
    /// Whether the items of the server are listed.
    pub fn offers(&self) -> bool {
        matches!(self, Self::Running | Self::Asleep | Self::Starting)
    }

    /// Why it is not connected, if it failed or waits for a person.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Unavailable(unavailable) => unavailable.why.as_deref(),
            _ => None,
        }
    }

    /// Whether its outcome will be known soon, so that a call can wait for it.
    pub fn is_starting_or_asleep(&self) -> bool {
        matches!(self, Self::Initializing | Self::Asleep | Self::Starting)
    }
}

impl fmt::Display for ServerState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Initializing => out.write_str("initializing"),
            Self::Running => out.write_str("running"),
            Self::Asleep => out.write_str("asleep"),
            Self::Starting => out.write_str("starting"),
            Self::Failed(how) => write!(out, "failed: {how}"),
            Self::Stopped => out.write_str("stopped"),
            Self::Unavailable(unavailable) => match &unavailable.why {
                Some(why) => write!(out, "{}: {why}", unavailable.status),
                None => out.write_str(unavailable.status),
            },
            Self::Removed => out.write_str("removed"),
        }
    }
}

/// A server and its current items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    /// Its key in the config.
    pub name: ServerName,
    /// Its state.
    pub state: ServerState,
    /// Its items; empty if it is down.
    pub offer: Arc<Offer>,
}

/// Which servers a client sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All of them, merged.
    All,
    /// Only this one, by its position in the config, with the server's own names.
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

    /// The only server in it, if there is exactly one.
    pub fn only(self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::One(only) => Some(only),
        }
    }
}

/// The target of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Index of the server, in configuration order.
    pub server: usize,
    /// Index among the server's items of that kind.
    pub item: usize,
}

/// All servers and their items at one point in time.
#[derive(Debug)]
pub struct Snapshot {
    servers: Vec<ServerEntry>,
    separator: Separator,
    /// Whether servers may be added at any time.
    servers_can_change: bool,
    /// The profile whose clients see this, if it is not everything.
    profile: Option<Arc<Profile>>,
    /// By kind. Shared with the previous snapshot if nothing of that kind changed.
    names: [Arc<OnceLock<Names>>; 4],
    pages_of_all: Pages,
    /// By server. Rarely used.
    pages_of_one: Box<[OnceLock<Box<Pages>>]>,
}

impl Snapshot {
    /// The snapshot of `servers`, in the order of the config.
    pub fn new(servers: Vec<ServerEntry>, separator: Separator) -> Self {
        Self {
            pages_of_one: servers.iter().map(|_| OnceLock::new()).collect(),
            servers,
            separator,
            servers_can_change: false,
            profile: None,
            names: Default::default(),
            pages_of_all: Pages::default(),
        }
    }

    /// What clients of a profile see: `servers` are those of this snapshot, narrowed to the profile.
    ///
    /// Names are those of what they see: a hidden item neither takes a name away from a visible one nor changes it.
    #[must_use]
    pub fn narrowed_to(&self, profile: &Arc<Profile>, servers: Vec<ServerEntry>) -> Self {
        Self {
            profile: Some(Arc::clone(profile)),
            servers_can_change: self.servers_can_change,
            ..Self::new(servers, self.separator.clone())
        }
    }

    /// The profile whose clients see this; `None` if it is everything.
    pub fn profile(&self) -> Option<&Arc<Profile>> {
        self.profile.as_ref()
    }

    /// Whether clients may use this URI, of a listed resource or not.
    pub fn has_uri(&self, uri: &str) -> bool {
        self.profile.as_ref().is_none_or(|profile| profile.has_uri(uri))
    }

    /// The successor of `before`. Only the names of servers that differ are built.
    #[must_use]
    pub fn following(mut self, before: &Self) -> Self {
        for kind in Kind::ALL {
            let is_same = |(index, server): &(usize, &ServerEntry)| match before.servers.get(*index) {
                Some(old) => old.name == server.name && Arc::ptr_eq(old.offer.items(kind), server.offer.items(kind)),
                None => server.offer.items(kind).is_empty(),
            };
            let differing = self.servers.iter().enumerate().filter(|server| !is_same(server));
            let changed: Vec<usize> = differing.map(|(index, _)| index).collect();
            let known = &before.names[kind as usize];
            if changed.is_empty() {
                self.names[kind as usize] = Arc::clone(known);
            } else if let Some(known) = known.get() {
                let change = Change { before: &before.servers, after: &self.servers, changed: &changed };
                let names = known.following(&change, &self.separator, kind);
                self.names[kind as usize] = Arc::new(OnceLock::from(names));
            }
        }
        self
    }

    /// How many items still need names.
    pub fn unnamed(&self) -> usize {
        let count = |kind: Kind| self.servers.iter().map(|server| server.offer.items(kind).len()).sum::<usize>();
        Kind::ALL.into_iter().filter(|&kind| self.names[kind as usize].get().is_none()).map(count).sum()
    }

    /// Builds all names now, so that lookups do not have to.
    pub fn make_names(&self) {
        for kind in Kind::ALL {
            self.names(kind);
        }
    }

    /// The same if servers may be added at any time, so that their capabilities are not known yet.
    pub fn with_changeable_servers(mut self) -> Self {
        self.servers_can_change = true;
        self
    }

    /// The index of a server.
    pub fn server_named(&self, name: &str) -> Option<usize> {
        self.servers.iter().position(|server| server.state != ServerState::Removed && server.name.as_ref() == name)
    }

    /// The servers in the order of the config.
    pub fn servers(&self) -> &[ServerEntry] {
        &self.servers
    }

    /// Whether every server has started or failed.
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

    /// The tool or prompt with `name`: canonical or alias among all servers, its own name within one server.
    pub fn resolve(&self, scope: Scope, kind: Kind, name: &str) -> Option<Route> {
        match scope {
            Scope::All => self.names(kind).route(name),
            Scope::One(server) => self.resolve_in(server, kind, name),
        }
    }

    fn resolve_in(&self, server: usize, kind: Kind, name: &str) -> Option<Route> {
        let entry = self.servers.get(server)?;
        // The merged names find it without a search, unless it does not exist or another item has its full name.
        let full = if kind.is_prefixed() { self.full_name(entry, name) } else { name.to_owned() };
        let known = self.names(kind).route(&full);
        let is_meant = |route: &Route| route.server == server && *self.item(kind, *route).id == *name;
        known.filter(is_meant).or_else(|| {
            let item = entry.offer.items(kind).iter().position(|item| *item.id == *name)?;
            Some(Route { server, item })
        })
    }

    /// The name of an item in the merged list.
    pub fn listed_name(&self, kind: Kind, route: Route, style: NameStyle) -> String {
        let (server, item) = (&self.servers[route.server], self.item(kind, route));
        match style {
            _ if !kind.is_prefixed() => item.id.to_string(),
            NameStyle::Canonical => self.full_name(server, &item.id),
            NameStyle::Safe => self.names(kind).alias(route, server, item),
        }
    }

    /// Every item in the merged list of a style, in order.
    pub fn listed(&self, kind: Kind, style: NameStyle) -> impl Iterator<Item = Route> + '_ {
        // A safe alias reaches a tool whose canonical name belongs to another; nothing reaches a second equal URI.
        let hidden = match style {
            NameStyle::Safe if kind.is_prefixed() => &[][..],
            _ => self.shadowed(kind),
        };
        names::every(&self.servers, kind)
            .map(|(route, _, _)| route)
            .filter(move |route| hidden.binary_search(route).is_err())
    }

    /// Items that cannot be listed because an earlier one has the same full name or URI, in order.
    pub fn shadowed(&self, kind: Kind) -> &Arc<Vec<Route>> {
        self.names(kind).shadowed()
    }

    /// How many names and URIs several items claim, as far as that is known already. A change of any of those items
    /// costs as much as all of them.
    pub fn contested(&self) -> usize {
        Kind::ALL.into_iter().filter_map(|kind| self.names[kind as usize].get()).map(Names::contested).sum()
    }

    /// The instructions of all servers, each under its name, or those of one server.
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

    /// The caching hints of a list for modern clients.
    pub fn hints(&self, scope: Scope, kind: Kind) -> Hints {
        let offers = self.running(scope).map(|(_, server)| server.offer.for_lifecycle(Lifecycle::SelfContained));
        let having = offers.filter(|offer| offer.has(kind.capability()));
        let merged = having.map(|offer| offer.hints[kind as usize]).reduce(Hints::and);
        match merged {
            // More may follow at any moment.
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

    /// The servers within `scope`, with their indexes.
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
