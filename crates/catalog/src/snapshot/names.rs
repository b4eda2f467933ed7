//! What items are called in the merged list, and which of two of the same name is hidden.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::{Route, ServerEntry};
use crate::item::{Item, Kind};
use crate::names::{self, Separator};

/// Every name that an item of one kind answers to.
#[derive(Debug)]
pub(super) struct Names {
    routes: HashMap<Box<str>, Route>,
    /// Items whose name an earlier one has, in order.
    pub(super) shadowed: Vec<Route>,
    /// For kinds without a prefix: the servers of those, by name.
    hidden: HashMap<Arc<str>, Vec<usize>>,
}

impl Names {
    pub(super) fn of(servers: &[ServerEntry], separator: &Separator, kind: Kind) -> Self {
        let count: usize = servers.iter().map(|server| server.offer.items(kind).len()).sum();
        let names_each = if kind.is_prefixed() { 2 } else { 1 };
        let mut made =
            Self { routes: HashMap::with_capacity(names_each * count), shadowed: Vec::new(), hidden: HashMap::new() };
        for (route, server, item) in every(servers, kind) {
            let name = match kind.is_prefixed() {
                true => names::canonical(server.name.as_ref(), separator, &item.id),
                false => item.id.to_string(),
            };
            match made.routes.entry(name.into_boxed_str()) {
                Entry::Vacant(free) => drop(free.insert(route)),
                Entry::Occupied(_) => {
                    made.shadowed.push(route);
                    if !kind.is_prefixed() {
                        made.hidden.entry(Arc::clone(&item.id)).or_default().push(route.server);
                    }
                }
            }
        }
        if kind.is_prefixed() {
            made.add_aliases(servers, kind);
        }
        made
    }

    /// Aliases come second: none may take a canonical name away from its item.
    fn add_aliases(&mut self, servers: &[ServerEntry], kind: Kind) {
        for (route, server, item) in every(servers, kind) {
            let alias = self.alias(route, server, item);
            self.routes.entry(alias.into_boxed_str()).or_insert(route);
        }
    }

    /// The item that answers to `name`.
    pub(super) fn route(&self, name: &str) -> Option<Route> {
        self.routes.get(name).copied()
    }

    /// The servers that have an item of that name in vain, because an earlier one has it.
    pub(super) fn hidden_servers(&self, name: &str) -> &[usize] {
        self.hidden.get(name).map_or(&[], Vec::as_slice)
    }

    /// The alias of an item: the short one, unless that already belongs to another.
    pub(super) fn alias(&self, route: Route, server: &ServerEntry, item: &Item) -> String {
        let alias = names::safe_alias(server.name.as_ref(), &item.id);
        match self.route(&alias) {
            Some(other) if other != route => names::safe_alias_long(server.name.as_ref(), &item.id),
            _ => alias,
        }
    }
}

/// Every item of one kind, in the order of the configuration and then of its server.
pub(super) fn every(servers: &[ServerEntry], kind: Kind) -> impl Iterator<Item = (Route, &ServerEntry, &Item)> {
    servers.iter().enumerate().flat_map(move |(server, entry)| {
        let items = entry.offer.items(kind).iter().enumerate();
        items.map(move |(item, definition)| (Route { server, item }, entry, definition))
    })
}
