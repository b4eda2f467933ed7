//! Why a name does not resolve.

use super::{Scope, ServerEntry, ServerState, Snapshot};
use crate::item::Kind;
use crate::names::{self, NameStyle};

/// Why a name does not resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The name has no server prefix.
    NoPrefix,
    /// No server of that name is configured; or, for a URI, no server has it.
    UnknownServer,
    /// The server is starting.
    Starting(usize),
    /// The server is down.
    Down(usize),
    /// The server is running and has no such item.
    UnknownItem(usize),
}

impl Snapshot {
    /// Why `name` does not resolve.
    pub fn why_missing(&self, scope: Scope, kind: Kind, name: &str, style: NameStyle) -> Missing {
        match scope {
            Scope::One(server) if server < self.servers.len() => self.why_not_from(server),
            Scope::One(_) => Missing::UnknownServer,
            Scope::All if kind.is_prefixed() => self.why_not_under(name, style),
            // URIs do not name a server; one that is still starting may have it.
            Scope::All => {
                let starting = |server: &ServerEntry| server.state == ServerState::Initializing;
                self.servers.iter().position(starting).map_or(Missing::UnknownServer, Missing::Starting)
            }
        }
    }

    fn why_not_under(&self, name: &str, style: NameStyle) -> Missing {
        // A call is accepted under either form, so an error considers both.
        let starts_with =
            |key: &str, separator: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with(separator));
        let is_under = |server: &ServerEntry| {
            let key = server.name.as_ref();
            starts_with(key, self.separator.as_ref()) || starts_with(&names::sanitised(key), "__")
        };
        // A key may be a prefix of another: the longest match counts.
        let owner = (0..self.servers.len())
            .filter(|&index| self.servers[index].state != ServerState::Removed && is_under(&self.servers[index]))
            .max_by_key(|&index| self.servers[index].name.as_ref().len());
        let has_prefix = name.contains(self.separator.as_ref()) || (style == NameStyle::Safe && name.contains("__"));
        match owner {
            None if has_prefix => Missing::UnknownServer,
            None => Missing::NoPrefix,
            Some(server) => self.why_not_from(server),
        }
    }

    /// A name without the prefix of a server: the name the server itself may use.
    pub fn without_prefix<'n>(&self, server: usize, name: &'n str) -> &'n str {
        let key = self.servers[server].name.as_ref();
        let under = |key: &str, separator: &str| name.strip_prefix(key)?.strip_prefix(separator);
        under(key, self.separator.as_ref()).or_else(|| under(&names::sanitised(key), "__")).unwrap_or(name)
    }

    /// Why an item is not available from the server at that index.
    pub fn why_not_from(&self, server: usize) -> Missing {
        match self.servers[server].state {
            ServerState::Initializing | ServerState::Starting | ServerState::Asleep => Missing::Starting(server),
            ServerState::Failed(_) | ServerState::Stopped | ServerState::Unavailable(_) => Missing::Down(server),
            ServerState::Running => Missing::UnknownItem(server),
            ServerState::Removed => Missing::UnknownServer,
        }
    }
}
