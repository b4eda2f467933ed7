//! Everything that exists at one moment: the servers, their states, their tools and every name a tool answers to.
//!
//! A snapshot never changes. When something happens a new one is built beside it and swapped in, so a reader sees all
//! of a change or none of it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use protocol::text;

use crate::names::{self, NameStyle, Separator};
use crate::server::ServerName;
use crate::tools::Tool;

/// Tools on one page of our `tools/list`. Clients that cannot page exist, and none of them copes with more tools.
pub const TOOLS_PER_PAGE: usize = 1000;

/// What starts a cursor of ours, so that one of somebody else's is recognised.
const CURSOR_PREFIX: &str = "mcpa-page-";

/// How a server is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// Started, not yet ready.
    Initializing,
    /// Answers calls.
    Running,
    /// Could not start, or ended by itself; says how.
    Failed(Arc<str>),
    /// Ended because we asked it to.
    Stopped,
}

impl fmt::Display for ServerState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Initializing => out.write_str("initializing"),
            Self::Running => out.write_str("running"),
            Self::Failed(how) => write!(out, "failed: {how}"),
            Self::Stopped => out.write_str("stopped"),
        }
    }
}

/// A server and what it offers right now.
#[derive(Debug, Clone)]
pub struct ServerEntry {
    /// Its key in the configuration.
    pub name: ServerName,
    /// How it is doing.
    pub state: ServerState,
    /// Its tools; empty unless it is running.
    pub tools: Arc<[Tool]>,
}

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Index of the server, in configuration order.
    pub server: usize,
    /// Index of the tool within the server.
    pub tool: usize,
}

/// Why a name leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The name has no server in front.
    NoPrefix,
    /// No server of that name is configured.
    UnknownServer,
    /// The server has not said yet what it offers.
    Starting(usize),
    /// The server is down.
    Down(usize),
    /// The server runs and has no such tool.
    UnknownTool(usize),
}

/// All servers and tools at one moment.
#[derive(Debug)]
pub struct Snapshot {
    servers: Vec<ServerEntry>,
    separator: Separator,
    /// Made when first asked for: while fifty servers start, most snapshots are replaced before anybody looks.
    names: OnceLock<Names>,
    /// The pages of `tools/list` in either style, each the JSON of a `result`, made when first asked for.
    pages: [OnceLock<Vec<Bytes>>; 2],
}

/// Every name a tool answers to.
#[derive(Debug)]
struct Names {
    routes: HashMap<Box<str>, Route>,
    /// Tools whose canonical name another one had already.
    shadowed: Vec<Route>,
}

impl Names {
    fn of(servers: &[ServerEntry], separator: &Separator) -> Self {
        let count: usize = servers.iter().map(|server| server.tools.len()).sum();
        let mut routes = HashMap::with_capacity(2 * count);
        let mut shadowed = Vec::new();
        for (route, server, tool) in every_tool(servers) {
            match routes.entry(names::canonical(server.name.as_ref(), separator, &tool.name).into_boxed_str()) {
                Entry::Vacant(free) => drop(free.insert(route)),
                Entry::Occupied(_) => shadowed.push(route),
            }
        }
        // Aliases come second: no alias may take a canonical name away from its tool.
        for (route, server, tool) in every_tool(servers) {
            let alias = alias_of(&routes, route, server, tool);
            routes.entry(alias.into_boxed_str()).or_insert(route);
        }
        Self { routes, shadowed }
    }
}

impl Snapshot {
    /// The snapshot of `servers`, which are in configuration order.
    pub fn new(servers: Vec<ServerEntry>, separator: Separator) -> Self {
        Self { servers, separator, names: OnceLock::new(), pages: Default::default() }
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| Names::of(&self.servers, &self.separator))
    }

    /// The servers in configuration order.
    pub fn servers(&self) -> &[ServerEntry] {
        &self.servers
    }

    /// Whether every server has either come up or gone down.
    pub fn is_settled(&self) -> bool {
        self.servers.iter().all(|server| server.state != ServerState::Initializing)
    }

    /// The tool that answers to `name`, canonical or alias.
    pub fn resolve(&self, name: &str) -> Option<Route> {
        self.names().routes.get(name).copied()
    }

    /// The tool at `route`.
    pub fn tool(&self, route: Route) -> &Tool {
        &self.servers[route.server].tools[route.tool]
    }

    /// Tools that cannot be listed canonically because an earlier one has the same full name.
    pub fn shadowed(&self) -> &[Route] {
        &self.names().shadowed
    }

    /// The name `tool` is listed under.
    pub fn listed_name(&self, route: Route, style: NameStyle) -> String {
        let (server, tool) = (&self.servers[route.server], self.tool(route));
        match style {
            NameStyle::Canonical => names::canonical(server.name.as_ref(), &self.separator, &tool.name),
            NameStyle::Safe => alias_of(&self.names().routes, route, server, tool),
        }
    }

    /// Every tool that can be listed in `style`, in order.
    pub fn listed(&self, style: NameStyle) -> impl Iterator<Item = Route> + '_ {
        let hidden = match style {
            NameStyle::Canonical => self.shadowed(),
            NameStyle::Safe => &[],
        };
        every_tool(&self.servers).map(|(route, _, _)| route).filter(move |route| !hidden.contains(route))
    }

    /// Why `name`, which does not resolve, leads nowhere.
    pub fn why_missing(&self, name: &str, style: NameStyle) -> Missing {
        // A call is accepted under either form, so a refusal looks at both.
        let starts_with =
            |key: &str, separator: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with(separator));
        let is_under = |server: &ServerEntry| {
            let key = server.name.as_ref();
            starts_with(key, self.separator.as_ref()) || starts_with(&names::sanitised(key), "__")
        };
        // A key may be the beginning of another: the longest that fits is meant.
        let owner = (0..self.servers.len())
            .filter(|&index| is_under(&self.servers[index]))
            .max_by_key(|&index| self.servers[index].name.as_ref().len());
        let has_prefix = name.contains(self.separator.as_ref()) || (style == NameStyle::Safe && name.contains("__"));
        match owner {
            None if has_prefix => Missing::UnknownServer,
            None => Missing::NoPrefix,
            Some(index) => match self.servers[index].state {
                ServerState::Initializing => Missing::Starting(index),
                ServerState::Failed(_) | ServerState::Stopped => Missing::Down(index),
                ServerState::Running => Missing::UnknownTool(index),
            },
        }
    }

    /// The `result` of `tools/list` at `cursor`; `None` if the cursor is not one of ours or leads past the end.
    pub fn page(&self, style: NameStyle, cursor: Option<&str>) -> Option<&Bytes> {
        let index = match cursor {
            None => 0,
            Some(cursor) => {
                let number = cursor.strip_prefix(CURSOR_PREFIX).filter(|number| !number.starts_with(['0', '+']))?;
                number.parse().ok()?
            }
        };
        self.pages[style as usize].get_or_init(|| self.write_pages(style)).get(index)
    }

    fn write_pages(&self, style: NameStyle) -> Vec<Bytes> {
        let routes: Vec<_> = self.listed(style).collect();
        let page_count = routes.len().div_ceil(TOOLS_PER_PAGE).max(1);
        (0..page_count)
            .map(|index| {
                let start = index * TOOLS_PER_PAGE;
                let on_page = &routes[start..routes.len().min(start + TOOLS_PER_PAGE)];
                let next = (index + 1 < page_count).then_some(index + 1);
                self.write_page(style, on_page, next)
            })
            .collect()
    }

    fn write_page(&self, style: NameStyle, routes: &[Route], next: Option<usize>) -> Bytes {
        let weight: usize = routes.iter().map(|&route| self.tool(route).definition.len() + 64).sum();
        let mut page = Vec::with_capacity(weight + 64);
        page.extend_from_slice(b"{\"tools\":[");
        for (index, &route) in routes.iter().enumerate() {
            if index > 0 {
                page.push(b',');
            }
            let tool = self.tool(route);
            let mut name = Vec::new();
            match style {
                // The server's own spelling of its tool's name stays; only the prefix is ours.
                NameStyle::Canonical => {
                    text::encode_inner(self.servers[route.server].name.as_ref(), &mut name);
                    text::encode_inner(self.separator.as_ref(), &mut name);
                    name.extend_from_slice(tool.name_inner());
                }
                NameStyle::Safe => name.extend_from_slice(self.listed_name(route, style).as_bytes()),
            }
            tool.write_renamed(&name, &mut page);
        }
        page.push(b']');
        if let Some(next) = next {
            page.extend_from_slice(format!(",\"nextCursor\":\"{CURSOR_PREFIX}{next}\"").as_bytes());
        }
        page.push(b'}');
        Bytes::from(page)
    }
}

fn every_tool(servers: &[ServerEntry]) -> impl Iterator<Item = (Route, &ServerEntry, &Tool)> {
    servers.iter().enumerate().flat_map(|(index, server)| {
        server.tools.iter().enumerate().map(move |(tool, entry)| (Route { server: index, tool }, server, entry))
    })
}

/// The alias of a tool: the short one, unless that already belongs to another tool.
fn alias_of(routes: &HashMap<Box<str>, Route>, route: Route, server: &ServerEntry, tool: &Tool) -> String {
    let alias = names::safe_alias(server.name.as_ref(), &tool.name);
    match routes.get(alias.as_str()) {
        Some(other) if *other != route => names::safe_alias_long(server.name.as_ref(), &tool.name),
        _ => alias,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, state: ServerState, tools: &[&str]) -> ServerEntry {
        let tools = tools
            .iter()
            .map(|tool| Tool::read(Bytes::from(format!("{{\"name\":\"{tool}\",\"n\":1.0}}"))).unwrap())
            .collect();
        ServerEntry { name: ServerName::new(name).unwrap(), state, tools }
    }

    fn snapshot(servers: Vec<ServerEntry>) -> Snapshot {
        Snapshot::new(servers, Separator::default())
    }

    #[test]
    fn a_tool_answers_to_both_its_names() {
        let snapshot = snapshot(vec![
            server("git", ServerState::Running, &["log", "show"]),
            server("my files", ServerState::Running, &["read"]),
        ]);
        assert_eq!(snapshot.resolve("git:show"), Some(Route { server: 0, tool: 1 }));
        assert_eq!(snapshot.resolve("git__show"), Some(Route { server: 0, tool: 1 }));
        assert_eq!(snapshot.resolve("my files:read"), Some(Route { server: 1, tool: 0 }));
        let alias = snapshot.listed_name(Route { server: 1, tool: 0 }, NameStyle::Safe);
        assert_eq!(snapshot.resolve(&alias), Some(Route { server: 1, tool: 0 }));
        assert_eq!(snapshot.resolve("show"), None);
    }

    #[test]
    fn separators_inside_keys_and_tools_do_not_confuse_routing() {
        let snapshot = snapshot(vec![
            server("a", ServerState::Running, &["b:c", "x"]),
            server("a:b", ServerState::Running, &["c", "d"]),
        ]);
        assert_eq!(snapshot.resolve("a:b:c"), Some(Route { server: 0, tool: 0 }), "the first in config order wins");
        assert_eq!(snapshot.resolve("a:b:d"), Some(Route { server: 1, tool: 1 }));
        assert_eq!(snapshot.shadowed(), [Route { server: 1, tool: 0 }]);
        let listed = String::from_utf8(snapshot.page(NameStyle::Canonical, None).unwrap().to_vec()).unwrap();
        assert_eq!(listed.matches("\"a:b:c\"").count(), 1);
        assert_eq!(snapshot.listed(NameStyle::Safe).count(), 4, "the alias still reaches the shadowed one");
    }

    #[test]
    fn a_list_is_written_in_order_with_only_names_changed() {
        let snapshot = snapshot(vec![
            server("k\"1", ServerState::Running, &["a\\u0062"]),
            server("z", ServerState::Running, &["t"]),
        ]);
        assert_eq!(
            snapshot.page(NameStyle::Canonical, None).unwrap(),
            r#"{"tools":[{"name":"k\"1:a\u0062","n":1.0},{"name":"z:t","n":1.0}]}"#
        );
    }

    #[test]
    fn a_large_list_comes_in_pages_and_foreign_cursors_are_refused() {
        let names: Vec<String> = (0..2500).map(|index| format!("t{index}")).collect();
        let tools: Vec<&str> = names.iter().map(String::as_str).collect();
        let snapshot = snapshot(vec![server("s", ServerState::Running, &tools)]);
        let (mut cursor, mut seen) = (None::<String>, 0);
        loop {
            let page = String::from_utf8(snapshot.page(NameStyle::Canonical, cursor.as_deref()).unwrap().to_vec());
            let page = page.unwrap();
            seen += page.matches("\"name\"").count();
            let Some((_, rest)) = page.split_once("\"nextCursor\":\"") else { break };
            cursor = Some(rest.trim_end_matches("\"}").to_owned());
        }
        assert_eq!(seen, 2500);
        for foreign in
            ["", "0", "mcpa-page-", "mcpa-page-0", "mcpa-page-9", "mcpa-page--1", "mcpa-page-+1", "mcpa-page-01", "abc"]
        {
            assert_eq!(snapshot.page(NameStyle::Canonical, Some(foreign)), None, "{foreign:?}");
        }
    }

    #[test]
    fn no_servers_is_an_empty_list() {
        assert_eq!(snapshot(vec![]).page(NameStyle::Canonical, None).unwrap(), r#"{"tools":[]}"#);
    }

    #[test]
    fn a_missing_name_is_explained() {
        let failed = ServerState::Failed("exit status 1".into());
        let snapshot = snapshot(vec![
            server("up", ServerState::Running, &["t"]),
            server("down", failed, &[]),
            server("soon", ServerState::Initializing, &[]),
            server("up:deep", ServerState::Initializing, &[]),
        ]);
        let why = |name| snapshot.why_missing(name, NameStyle::Canonical);
        assert_eq!(why("t"), Missing::NoPrefix);
        assert_eq!(why("other__x"), Missing::NoPrefix);
        assert_eq!(why("up__x"), Missing::UnknownTool(0), "the alias of a server counts, whatever was listed");
        assert_eq!(why("other:t"), Missing::UnknownServer);
        assert_eq!(why(":t"), Missing::UnknownServer);
        assert_eq!(why("up:x"), Missing::UnknownTool(0));
        assert_eq!(why("down:x"), Missing::Down(1));
        assert_eq!(why("soon:x"), Missing::Starting(2));
        assert_eq!(why("up:deep:x"), Missing::Starting(3));
        assert_eq!(snapshot.why_missing("other__x", NameStyle::Safe), Missing::UnknownServer);
        assert!(!snapshot.is_settled());
    }
}
