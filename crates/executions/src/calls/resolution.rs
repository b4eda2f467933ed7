//! Finds the tool that a name means: `server.tool`, its own name at a given server, or its own name alone.

use std::sync::Arc;

use aggregator::View;
use catalog::{Kind, Missing, NameStyle, Route, Scope, ServerState, Snapshot};
use protocol::scan::member;
use protocol::{Lifecycle, Span};
use registry::{Page, ServerId, ToolFilter, ToolRecord};

use super::Call;
use crate::{Error, Executions};

/// The tool that was found.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// The slot index of its server.
    pub(super) slot_index: usize,
    /// That server's id and name.
    pub(super) server: (Option<ServerId>, Arc<str>),
    /// The server's name of it.
    pub(super) tool: String,
    /// How it was found.
    pub(super) strategy: &'static str,
    /// A repeated call is harmless, according to its server.
    pub(super) is_repeatable: bool,
    /// The lifecycle of its server.
    pub(super) lifecycle: Lifecycle,
}

/// Why no tool was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// There is no such server.
    NoServer(String),
    /// There is no such tool, as far as is known.
    NoTool,
    /// The server in that slot will be ready soon.
    Starting(usize),
    /// The server in that slot is unavailable.
    Unavailable(usize),
    /// Several servers have it.
    Several(Vec<String>),
}

/// How many splits of a full name into server and tool are tried. Real names have a handful of dots.
const MAX_CUTS: usize = 64;

impl Executions {
    /// The tool that a call names.
    pub(super) fn resolve(&self, view: &View, call: &Call) -> Result<Target, Miss> {
        let snapshot = &view.snapshot;
        let (route, strategy) = match &call.server {
            Some(server) => (self.at_server(snapshot, server, &call.name)?, "server_specified"),
            None => match self.by_full_name(snapshot, &call.name)? {
                Some(route) => (route, "namespace_resolved"),
                None => (by_own_name(snapshot, &call.name)?, "original_name"),
            },
        };
        let (server, item) = (&snapshot.servers()[route.server], snapshot.item(Kind::Tool, route));
        let entry = self.server_table().at(route.server);
        let name = entry.as_ref().map_or_else(|| server.name.as_str().into(), |entry| Arc::clone(&entry.name));
        Ok(Target {
            slot_index: route.server,
            server: (entry.map(|entry| entry.id), name),
            tool: item.id.to_string(),
            strategy,
            is_repeatable: is_repeatable(&item.definition),
            lifecycle: server.offer.lifecycle,
        })
    }

    /// The slot index of the server with that id or name.
    fn slot_index_of(&self, snapshot: &Snapshot, id_or_name: &str) -> Option<usize> {
        let slot_index = self.server_table().find(id_or_name).map(|entry| entry.slot_index);
        let is_there = |&slot_index: &usize| {
            snapshot.servers().get(slot_index).is_some_and(|server| server.state != ServerState::Removed)
        };
        slot_index.filter(is_there).or_else(|| snapshot.server_named(id_or_name))
    }

    fn at_server(&self, snapshot: &Snapshot, server: &str, name: &str) -> Result<Route, Miss> {
        let Some(slot_index) = self.slot_index_of(snapshot, server) else {
            return Err(Miss::NoServer(server.to_owned()));
        };
        let own = || snapshot.resolve(Scope::One(slot_index), Kind::Tool, name);
        let full = || snapshot.resolve(Scope::All, Kind::Tool, name).filter(|route| route.server == slot_index);
        let dotted = || {
            let rest = name.strip_prefix(snapshot.servers().get(slot_index)?.name.as_str())?.strip_prefix('.')?;
            snapshot.resolve(Scope::One(slot_index), Kind::Tool, rest)
        };
        own().or_else(full).or_else(dotted).ok_or_else(|| missing_at(snapshot, slot_index))
    }

    /// The tool with that full name. The name of a server may be a prefix of another's, and tools have dots in their
    /// names too, so every split is tried, the longest server first.
    fn by_full_name(&self, snapshot: &Snapshot, name: &str) -> Result<Option<Route>, Miss> {
        if let Some(route) = snapshot.resolve(Scope::All, Kind::Tool, name) {
            return Ok(Some(route));
        }
        let mut owner = None;
        // Each split costs a search; a name that consists of dots would have many.
        for (at, _) in name.rmatch_indices('.').take(MAX_CUTS) {
            let Some(slot_index) = self.slot_index_of(snapshot, &name[..at]) else { continue };
            if let Some(route) = snapshot.resolve(Scope::One(slot_index), Kind::Tool, &name[at + 1..]) {
                return Ok(Some(route));
            }
            owner = owner.or(Some(slot_index));
        }
        let missing = match owner {
            Some(slot_index) => missing_at(snapshot, slot_index),
            None => match snapshot.why_missing(Scope::All, Kind::Tool, name, NameStyle::Canonical) {
                Missing::Starting(slot_index) => Miss::Starting(slot_index),
                Missing::Down(slot_index) => Miss::Unavailable(slot_index),
                Missing::NoPrefix | Missing::UnknownServer | Missing::UnknownItem(_) => Miss::NoTool,
            },
        };
        // Another server may have a tool of that very name.
        match by_own_name(snapshot, name) {
            Err(Miss::NoTool) if missing != Miss::NoTool => Err(missing),
            _ => Ok(None),
        }
    }

    /// The error for a tool that no connected server has: if a disconnected one had it, that is the reason.
    pub(super) async fn missing(&self, call: &Call) -> Error {
        let filter = ToolFilter { original_name: Some(call.name.clone()), ..ToolFilter::default() };
        let known = match self.store().tools(&filter, Page::first(10)).await {
            Ok(listed) => listed.items,
            // Nobody knows whether the tool exists.
            Err(error) => return Error::Registry(error),
        };
        let entry = |id: ServerId| self.server_table().find(&id.to_string());
        let view = self.view_of(&call.actor);
        let profile = view.as_ref().and_then(|view| view.snapshot.profile());
        // A tool that the caller's profile hides does not exist.
        let is_visible = |tool: &&ToolRecord| {
            profile.is_none_or(|profile| {
                let definition = tool.definition.get().as_bytes();
                profile.has_server(&tool.server_name)
                    && profile.has_tool(&tool.server_name, &tool.original_name, definition)
            })
        };
        let down = known
            .iter()
            .filter(is_visible)
            .filter_map(|tool| entry(tool.source_server_id))
            .find(|server| !server.status.is_up());
        match down {
            Some(server) if call.server.is_none() => self.unavailable(server.slot_index),
            _ => Error::ToolNotFound { name: call.name.clone() },
        }
    }

    /// The error for a miss.
    pub(super) fn explain(&self, miss: Miss, call: &Call) -> Error {
        let name = call.name.clone();
        match miss {
            Miss::NoServer(key) => Error::ServerNotFound { key },
            Miss::NoTool => Error::ToolNotFound { name },
            Miss::Starting(slot_index) | Miss::Unavailable(slot_index) => self.unavailable(slot_index),
            Miss::Several(candidates) => Error::ToolAmbiguous { name, candidates },
        }
    }
}

/// The only tool with that name at its server.
fn by_own_name(snapshot: &Snapshot, name: &str) -> Result<Route, Miss> {
    let places = snapshot.servers().iter().enumerate().filter(|(_, server)| server.state.offers());
    let found: Vec<_> =
        places.filter_map(|(slot_index, _)| snapshot.resolve(Scope::One(slot_index), Kind::Tool, name)).collect();
    match found[..] {
        [] => Err(Miss::NoTool),
        [only] => Ok(only),
        _ => Err(Miss::Several(
            found.iter().map(|&route| snapshot.listed_name(Kind::Tool, route, NameStyle::Canonical)).collect(),
        )),
    }
}

/// Why a server has no such tool.
fn missing_at(snapshot: &Snapshot, slot_index: usize) -> Miss {
    match snapshot.servers()[slot_index].state {
        // Its offer is known, and the tool is not in it.
        ServerState::Running | ServerState::Asleep => Miss::NoTool,
        ServerState::Initializing | ServerState::Starting => Miss::Starting(slot_index),
        ServerState::Failed(_) | ServerState::Stopped | ServerState::Unavailable(_) => Miss::Unavailable(slot_index),
        ServerState::Removed => Miss::NoServer(snapshot.servers()[slot_index].name.as_str().to_owned()),
    }
}

/// Whether the definition of a tool declares repeated calls as harmless.
fn is_repeatable(definition: &[u8]) -> bool {
    let whole = Span { start: 0, end: definition.len() };
    let Some(annotations) = member(definition, whole, "annotations") else { return false };
    let says = |name| member(definition, annotations, name).is_some_and(|value| value.of(definition) == b"true");
    says("idempotentHint") || says("readOnlyHint")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idempotent_tool_may_be_called_twice() {
        for (definition, expected) in [
            (r#"{"name":"a"}"#, false),
            (r#"{"name":"a","annotations":{"title":"x"}}"#, false),
            (r#"{"name":"a","annotations":{"readOnlyHint":true}}"#, true),
            (r#"{"name":"a","annotations":{"readOnlyHint":false,"idempotentHint": true}}"#, true),
            (r#"{"name":"a","idempotentHint":true}"#, false),
        ] {
            assert_eq!(is_repeatable(definition.as_bytes()), expected, "{definition}");
        }
    }
}
