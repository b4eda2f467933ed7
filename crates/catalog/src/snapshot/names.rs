//! Names of items in the merged list, and which of two equal ones is hidden.
//!
//! The table of one snapshot is made from the table before it. A change costs what the changed server lists, not what all
//! servers list: the table consists of shards, and both tables share the shards that are the same.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Route, ServerEntry};
use crate::item::{Item, Kind};
use crate::names::{self, Separator};

/// How many parts the table has. With more, a change copies less; with fewer, a small table takes less memory.
const SHARDS: usize = 256;

/// Every name that an item of one kind answers to.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// Who claims a name. Each name is in the shard that [`shard_of`] says.
    shards: Box<[Arc<Shard>]>,
    /// Names with more than one claim. Usually there are none.
    contested: Arc<BTreeSet<Arc<str>>>,
    /// Items whose name an earlier one has, in order. Follows from `contested`.
    shadowed: Arc<Vec<Route>>,
    /// The items whose short alias belongs to another, by their long alias. Follows from `contested`.
    long_aliases: Arc<HashMap<String, Route>>,
}

/// Who claims each name of a shard.
type Shard = HashMap<Arc<str>, Claims>;

/// Who claims one name, in order: the first one has it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Claims {
    One(Claim),
    /// Two or more.
    Several(Vec<Claim>),
}

/// The order decides who has a name: an alias takes no canonical name away from its item, and of equals the first item in
/// the order of the configuration wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    rank: Rank,
    route: Route,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Canonical,
    Alias,
}

/// The servers of two snapshots in a row, and which of them differ.
pub(super) struct Change<'a> {
    pub(super) before: &'a [ServerEntry],
    pub(super) after: &'a [ServerEntry],
    pub(super) changed: &'a [usize],
}

impl Names {
    pub(super) fn of(servers: &[ServerEntry], separator: &Separator, kind: Kind) -> Self {
        let mut made = Self::empty();
        for (index, server) in servers.iter().enumerate() {
            made.insert_server(index, server, separator, kind);
        }
        made.resolve_contests(servers, kind);
        made
    }

    /// The table that comes after this one.
    pub(super) fn following(&self, change: &Change<'_>, separator: &Separator, kind: Kind) -> Self {
        let Change { before, after, changed } = change;
        let count = |servers: &[ServerEntry]| -> usize {
            changed.iter().filter_map(|&index| servers.get(index)).map(|server| server.offer.items(kind).len()).sum()
        };
        let all: usize = after.iter().map(|server| server.offer.items(kind).len()).sum();
        if count(before) + count(after) > all {
            return Self::of(after, separator, kind);
        }
        let mut made = self.clone();
        let mut is_contested = false;
        for &index in *changed {
            if let Some(server) = before.get(index) {
                is_contested |= made.remove_server(index, server, separator, kind);
            }
        }
        for &index in *changed {
            is_contested |= made.insert_server(index, &after[index], separator, kind);
        }
        if is_contested {
            made.resolve_contests(after, kind);
        }
        made
    }

    fn empty() -> Self {
        Self {
            shards: vec![Arc::default(); SHARDS].into_boxed_slice(),
            contested: Arc::default(),
            shadowed: Arc::default(),
            long_aliases: Arc::default(),
        }
    }

    /// The item with `name`.
    pub(super) fn route(&self, name: &str) -> Option<Route> {
        let claims = self.claims(name);
        claims.map(|claims| claims[0].route).or_else(|| self.long_aliases.get(name).copied())
    }

    /// Items whose name an earlier one has, in order. The same allocation as in the table before, if nobody claims
    /// another contested name.
    pub(super) fn shadowed(&self) -> &Arc<Vec<Route>> {
        &self.shadowed
    }

    /// How many names have more than one claim.
    pub(super) fn contested(&self) -> usize {
        self.contested.len()
    }

    /// The servers that have an item of that name in vain, because an earlier one has it.
    pub(super) fn hidden_servers(&self, name: &str) -> impl Iterator<Item = usize> {
        let claims = self.claims(name).unwrap_or_default();
        claims.iter().skip(1).filter(|claim| claim.rank == Rank::Canonical).map(|claim| claim.route.server)
    }

    /// The alias of an item: the short one, unless it belongs to another.
    pub(super) fn alias(&self, route: Route, server: &ServerEntry, item: &Item) -> String {
        let alias = names::safe_alias(server.name.as_ref(), &item.id);
        match self.claims(&alias) {
            Some(claims) if claims[0].route != route => names::safe_alias_long(server.name.as_ref(), &item.id),
            _ => alias,
        }
    }

    /// Who claims `name`; never an empty list.
    fn claims(&self, name: &str) -> Option<&[Claim]> {
        self.shards[shard_of(name)].get(name).map(Claims::as_slice)
    }

    /// Adds the names of a server. Returns whether somebody else claims one of them.
    fn insert_server(&mut self, index: usize, server: &ServerEntry, separator: &Separator, kind: Kind) -> bool {
        let mut is_contested = false;
        for (item, definition) in server.offer.items(kind).iter().enumerate() {
            let route = Route { server: index, item };
            for (name, rank) in names_of(server, definition, separator, kind) {
                is_contested |= self.insert(name, Claim { rank, route });
            }
        }
        is_contested
    }

    /// Removes the names of a server as it was. Returns whether somebody else claimed one of them.
    fn remove_server(&mut self, index: usize, server: &ServerEntry, separator: &Separator, kind: Kind) -> bool {
        let mut is_contested = false;
        for definition in server.offer.items(kind).iter() {
            for (name, _) in names_of(server, definition, separator, kind) {
                is_contested |= self.remove(&name, index);
            }
        }
        is_contested
    }

    fn insert(&mut self, name: Arc<str>, claim: Claim) -> bool {
        let shard = Arc::make_mut(&mut self.shards[shard_of(&name)]);
        match shard.entry(name) {
            Entry::Vacant(free) => {
                free.insert(Claims::One(claim));
                false
            }
            Entry::Occupied(mut claims) => {
                if !claims.get_mut().add(claim) {
                    return false;
                }
                Arc::make_mut(&mut self.contested).insert(Arc::clone(claims.key()));
                true
            }
        }
    }

    fn remove(&mut self, name: &str, server: usize) -> bool {
        let shard = &mut self.shards[shard_of(name)];
        // A server may list a name twice, and then everything is removed the first time.
        let Some(claims) = shard.get(name).filter(|claims| claims.has(server)) else { return false };
        let was_contested = matches!(claims, Claims::Several(_));
        let shard = Arc::make_mut(shard);
        let rest = shard.get_mut(name).and_then(|claims| claims.without(server));
        if !matches!(rest, Some(Claims::Several(_))) && was_contested {
            Arc::make_mut(&mut self.contested).remove(name);
        }
        match rest {
            Some(rest) => drop(shard.insert(Arc::from(name), rest)),
            None => drop(shard.remove(name)),
        }
        was_contested
    }

    /// Finds out who loses the contested names.
    fn resolve_contests(&mut self, servers: &[ServerEntry], kind: Kind) {
        let (mut shadowed, mut long_aliases) = (Vec::new(), HashMap::new());
        for name in self.contested.iter() {
            for loser in self.claims(name).unwrap_or_default().iter().skip(1) {
                match loser.rank {
                    Rank::Canonical => shadowed.push(loser.route),
                    Rank::Alias => {
                        let server = &servers[loser.route.server];
                        let item = &server.offer.items(kind)[loser.route.item];
                        let alias = names::safe_alias_long(server.name.as_ref(), &item.id);
                        long_aliases.entry(alias).or_insert(loser.route);
                    }
                }
            }
        }
        shadowed.sort_unstable();
        self.shadowed = Arc::new(shadowed);
        self.long_aliases = Arc::new(long_aliases);
    }
}

impl Claims {
    fn as_slice(&self) -> &[Claim] {
        match self {
            Self::One(claim) => std::slice::from_ref(claim),
            Self::Several(claims) => claims,
        }
    }

    /// Whether a server claims the name.
    fn has(&self, server: usize) -> bool {
        [Rank::Canonical, Rank::Alias].into_iter().any(|rank| {
            let first = Claim { rank, route: Route { server, item: 0 } };
            let claims = self.as_slice();
            claims.get(claims.partition_point(|claim| *claim < first)).is_some_and(|claim| claim.route.server == server)
        })
    }

    /// Adds a claim, unless the item claims the name already: its alias may be its canonical name.
    fn add(&mut self, claim: Claim) -> bool {
        if let Self::One(first) = self {
            if first.route == claim.route {
                return false;
            }
            *self = Self::Several(vec![*first]);
        }
        let Self::Several(claims) = self else { return false };
        let canonical = Claim { rank: Rank::Canonical, ..claim };
        if claims.binary_search(&canonical).is_ok() {
            return false;
        }
        if let Err(position) = claims.binary_search(&claim) {
            claims.insert(position, claim);
        }
        true
    }

    /// What remains without the claims of a server.
    fn without(&self, server: usize) -> Option<Self> {
        let rest: Vec<Claim> = self.as_slice().iter().filter(|claim| claim.route.server != server).copied().collect();
        match rest.as_slice() {
            [] => None,
            [only] => Some(Self::One(*only)),
            _ => Some(Self::Several(rest)),
        }
    }
}

/// The names that an item claims.
fn names_of(
    server: &ServerEntry,
    item: &Item,
    separator: &Separator,
    kind: Kind,
) -> impl Iterator<Item = (Arc<str>, Rank)> {
    let own = match kind.is_prefixed() {
        true => names::canonical(server.name.as_ref(), separator, &item.id).into(),
        false => Arc::clone(&item.id),
    };
    let alias = kind.is_prefixed().then(|| names::safe_alias(server.name.as_ref(), &item.id).into());
    std::iter::once((own, Rank::Canonical)).chain(alias.map(|alias| (alias, Rank::Alias)))
}

/// The shard of a name. Names that servers choose may all be in the same one; then a change copies as much as if there
/// were no shards.
fn shard_of(name: &str) -> usize {
    let mut hash = 0_u64;
    for bytes in name.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    (hash >> 56) as usize % SHARDS
}

/// Every item of one kind, in the order of the config and then of its server.
pub(super) fn every(servers: &[ServerEntry], kind: Kind) -> impl Iterator<Item = (Route, &ServerEntry, &Item)> {
    servers.iter().enumerate().flat_map(move |(server, entry)| {
        let items = entry.offer.items(kind).iter().enumerate();
        items.map(move |(item, definition)| (Route { server, item }, entry, definition))
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::ServerState;
    use super::super::tests::{idle, server, with};
    use super::*;
    use protocol::Lifecycle;

    fn separator(text: &str) -> Separator {
        text.parse().expect("a separator")
    }

    fn contents(names: &Names) -> Vec<(Arc<str>, Vec<Claim>)> {
        let all = names.shards.iter().flat_map(|shard| shard.iter());
        let mut all: Vec<_> = all.map(|(name, claims)| (Arc::clone(name), claims.as_slice().to_vec())).collect();
        all.sort();
        all
    }

    fn assert_same(one: &Names, other: &Names) {
        assert_eq!(contents(one), contents(other));
        assert_eq!(one.contested, other.contested);
        assert_eq!(one.shadowed, other.shadowed);
        assert_eq!(one.long_aliases, other.long_aliases);
    }

    fn entry(name: &str, kind: Kind, ids: &[String]) -> ServerEntry {
        if kind == Kind::Tool {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            return server(name, ServerState::Running, &ids);
        }
        let definitions: Vec<String> = ids.iter().map(|id| format!(r#"{{"uri":"{id}"}}"#)).collect();
        with(idle(name, Lifecycle::Session), kind, &definitions)
    }

    #[test]
    fn a_change_of_one_server_leaves_the_names_of_others_where_they_are() {
        let tools: Vec<String> = (0..5000).map(|number| format!("tool_{number}")).collect();
        let small = |tool: &str| entry("small", Kind::Tool, &[tool.to_owned()]);
        let before = vec![entry("large", Kind::Tool, &tools), small("one")];
        let after = vec![before[0].clone(), small("two")];
        let separator = separator(".");
        let names = Names::of(&before, &separator, Kind::Tool);
        let change = Change { before: &before, after: &after, changed: &[1] };
        let next = names.following(&change, &separator, Kind::Tool);
        let copied = names.shards.iter().zip(&next.shards).filter(|(one, other)| !Arc::ptr_eq(one, other)).count();
        assert!(copied <= 4, "{copied} shards were copied for two names that went and two that came");
        assert!(Arc::ptr_eq(&names.shadowed, &next.shadowed));
        assert_same(&next, &Names::of(&after, &separator, Kind::Tool));
    }

    #[test]
    fn names_are_spread_over_the_shards() {
        let tools: Vec<String> = (0..25_600).map(|number| format!("tool_{number}")).collect();
        let names = Names::of(&[entry("s", Kind::Tool, &tools)], &separator("."), Kind::Tool);
        let largest = names.shards.iter().map(|shard| shard.len()).max().unwrap_or_default();
        assert!(largest < 600, "{largest} of 51,200 names are in one shard");
    }

    #[test]
    fn two_tools_with_the_same_short_alias_have_both_an_alias() {
        // Both names have the same 32 bits of FNV-1a.
        let (one, other) = colliding_tools();
        let servers =
            vec![entry("s", Kind::Tool, std::slice::from_ref(&one)), entry("s2", Kind::Tool, &["x".to_owned()])];
        let both = vec![entry("s", Kind::Tool, &[one, other]), servers[1].clone()];
        let separator = separator(".");
        let names = Names::of(&both, &separator, Kind::Tool);
        let alias =
            |item: usize| names.alias(Route { server: 0, item }, &both[0], &both[0].offer.items(Kind::Tool)[item]);
        assert_ne!(alias(0), alias(1));
        for item in [0, 1] {
            assert_eq!(names.route(&alias(item)), Some(Route { server: 0, item }));
        }
        let change = Change { before: &both, after: &servers, changed: &[0] };
        assert!(names.following(&change, &separator, Kind::Tool).long_aliases.is_empty());
    }

    /// Two names of tools of the server `s` that differ only in characters that aliases do not have, with one alias.
    fn colliding_tools() -> (String, String) {
        let mut seen = HashMap::new();
        let unsafe_characters = ['.', ' ', ':', '/', '!', '?', ';', ',', '+', '*', '~', '#', '%', '&', '=', '@'];
        for number in 0_u64.. {
            let name: String = (0..8).map(|digit| unsafe_characters[(number >> (4 * digit) & 15) as usize]).collect();
            if let Some(other) = seen.insert(names::safe_alias("s", &name), name.clone()) {
                return (other, name);
            }
        }
        unreachable!("there are more names than aliases")
    }

    /// Names that collide often: two servers may be called `a` and `a.b`, with tools `b.c` and `c`.
    fn ids() -> impl Strategy<Value = Vec<String>> {
        vec("[ab._]{1,3}", 0..6)
    }

    proptest! {
        #[test]
        fn a_table_made_step_by_step_is_the_table_made_at_once(
            kind in prop_oneof![Just(Kind::Tool), Just(Kind::Resource)],
            separator in prop_oneof![Just("."), Just("__"), Just("_")],
            steps in vec((0..4_usize, prop_oneof!["a", "a.", "a.b", "b"], ids()), 1..12),
        ) {
            let separator = self::separator(separator);
            let mut servers: Vec<ServerEntry> = Vec::new();
            let mut names = Names::of(&servers, &separator, kind);
            for (index, name, ids) in steps {
                let mut after = servers.clone();
                let index = index.min(after.len());
                match after.get_mut(index) {
                    Some(known) => *known = entry(&name, kind, &ids),
                    None => after.push(entry(&name, kind, &ids)),
                }
                let change = Change { before: &servers, after: &after, changed: &[index] };
                names = names.following(&change, &separator, kind);
                assert_same(&names, &Names::of(&after, &separator, kind));
                servers = after;
            }
        }
    }
}
