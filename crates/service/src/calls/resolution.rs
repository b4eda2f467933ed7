//! Which tool is meant: by `server.tool`, by its own name at a given server, or by its own name alone.

use std::sync::Arc;

use aggregator::fleet::View;
use catalog::{Kind, Missing, NameStyle, Route, Scope, ServerState, Snapshot};
use protocol::scan::member;
use protocol::{Lifecycle, Span};
use registry::{Page, ServerId, ToolFilter};

use super::Call;
use crate::Error;
use crate::executions::Executions;

/// The tool that is meant.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// The place of its server.
    pub(super) place: usize,
    /// That server's id and name.
    pub(super) server: (Option<ServerId>, Arc<str>),
    /// What that server calls it.
    pub(super) tool: String,
    /// How it was found.
    pub(super) strategy: &'static str,
    /// Making the call twice does no harm, as its server says.
    pub(super) is_repeatable: bool,
    /// How its server is talked to.
    pub(super) lifecycle: Lifecycle,
}

/// Why nothing is meant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// There is no such server.
    NoServer(String),
    /// There is no such tool, as far as is known.
    NoTool,
    /// The server in that place will be there soon.
    Starting(usize),
    /// The server in that place is not there.
    Down(usize),
    /// Several have it.
    Several(Vec<String>),
}

/// In how many ways a full name is cut into server and tool. Real names have a handful of dots.
const MAX_CUTS: usize = 64;

impl Executions {
    /// The tool that a call means.
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
            place: route.server,
            server: (entry.map(|entry| entry.id), name),
            tool: item.id.to_string(),
            strategy,
            is_repeatable: is_repeatable(&item.definition),
            lifecycle: server.offer.lifecycle,
        })
    }

    /// The place of the server with that id or name.
    fn place_of(&self, snapshot: &Snapshot, id_or_name: &str) -> Option<usize> {
        self.server_table().find(id_or_name).map(|entry| entry.place).or_else(|| snapshot.server_named(id_or_name))
    }

    fn at_server(&self, snapshot: &Snapshot, server: &str, name: &str) -> Result<Route, Miss> {
        let Some(place) = self.place_of(snapshot, server) else { return Err(Miss::NoServer(server.to_owned())) };
        let own = || snapshot.resolve(Scope::One(place), Kind::Tool, name);
        let full = || snapshot.resolve(Scope::All, Kind::Tool, name).filter(|route| route.server == place);
        let dotted = || {
            let rest = name.strip_prefix(snapshot.servers().get(place)?.name.as_str())?.strip_prefix('.')?;
            snapshot.resolve(Scope::One(place), Kind::Tool, rest)
        };
        own().or_else(full).or_else(dotted).ok_or_else(|| missing_at(snapshot, place))
    }

    /// The tool with that full name. The name of a server may be the beginning of another's, and tools have dots in their
    /// names too, so every way to cut it is tried, the longest server first.
    fn by_full_name(&self, snapshot: &Snapshot, name: &str) -> Result<Option<Route>, Miss> {
        if let Some(route) = snapshot.resolve(Scope::All, Kind::Tool, name) {
            return Ok(Some(route));
        }
        let mut owner = None;
        // Each way costs a look at everything; a name of dots alone would be many.
        for (at, _) in name.rmatch_indices('.').take(MAX_CUTS) {
            let Some(place) = self.place_of(snapshot, &name[..at]) else { continue };
            if let Some(route) = snapshot.resolve(Scope::One(place), Kind::Tool, &name[at + 1..]) {
                return Ok(Some(route));
            }
            owner = owner.or(Some(place));
        }
        let missing = match owner {
            Some(place) => missing_at(snapshot, place),
            None => match snapshot.why_missing(Scope::All, Kind::Tool, name, NameStyle::Canonical) {
                Missing::Starting(place) => Miss::Starting(place),
                Missing::Down(place) => Miss::Down(place),
                Missing::NoPrefix | Missing::UnknownServer | Missing::UnknownItem(_) => Miss::NoTool,
            },
        };
        // Some other server may have a tool that is called so.
        match by_own_name(snapshot, name) {
            Err(Miss::NoTool) if missing != Miss::NoTool => Err(missing),
            _ => Ok(None),
        }
    }

    /// What to say of a tool that no connected server has: if one that is not connected had it, that is why.
    pub(super) async fn missing(&self, call: &Call) -> Error {
        let filter = ToolFilter { original_name: Some(call.name.clone()), ..ToolFilter::default() };
        // Without a database it is a tool that nobody knows.
        let known = self.store().tools(&filter, Page::first(10)).await.map(|listed| listed.items).unwrap_or_default();
        let entry = |id: ServerId| self.server_table().find(&id.to_string());
        let down = known.iter().filter_map(|tool| entry(tool.source_server_id)).find(|server| !server.status.is_up());
        match down {
            Some(server) if call.server.is_none() => self.unavailable(server.place),
            _ => Error::ToolNotFound { name: call.name.clone() },
        }
    }

    /// What to say.
    pub(super) fn explain(&self, miss: Miss, call: &Call) -> Error {
        let name = call.name.clone();
        match miss {
            Miss::NoServer(key) => Error::ServerNotFound { key },
            Miss::NoTool => Error::ToolNotFound { name },
            Miss::Starting(place) | Miss::Down(place) => self.unavailable(place),
            Miss::Several(candidates) => Error::ToolAmbiguous { name, candidates },
        }
    }
}

/// The only tool that its server calls so.
fn by_own_name(snapshot: &Snapshot, name: &str) -> Result<Route, Miss> {
    let places = snapshot.servers().iter().enumerate().filter(|(_, server)| server.state.offers());
    let found: Vec<_> = places.filter_map(|(place, _)| snapshot.resolve(Scope::One(place), Kind::Tool, name)).collect();
    match found[..] {
        [] => Err(Miss::NoTool),
        [only] => Ok(only),
        _ => Err(Miss::Several(
            found.iter().map(|&route| snapshot.listed_name(Kind::Tool, route, NameStyle::Canonical)).collect(),
        )),
    }
}

/// Why a server has no such tool.
fn missing_at(snapshot: &Snapshot, place: usize) -> Miss {
    match snapshot.servers()[place].state {
        // What it offers is known, and that is not among it.
        ServerState::Running | ServerState::Dormant => Miss::NoTool,
        ServerState::Initializing | ServerState::Waking => Miss::Starting(place),
        ServerState::Failed(_) | ServerState::Stopped | ServerState::Down(_) => Miss::Down(place),
        ServerState::Removed => Miss::NoServer(snapshot.servers()[place].name.as_str().to_owned()),
    }
}

/// Whether the definition of a tool says that calling it twice does no harm.
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
    fn only_a_tool_that_says_so_may_be_called_twice() {
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
