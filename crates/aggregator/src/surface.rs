//! Which tools a client sees: all of them, or a few meta tools with which it finds the rest.
//!
//! A list of hundreds of tools fills a model's context before its work has begun, and some clients truncate it. On the
//! small surface a client sees `search_tools`, `describe_tool` and `call_tool`, and the tools that the user has
//! pinned. The arguments and the result of a call through `call_tool` are the same bytes as without it.
//!
//! - here: which surface a client has, and the interface of the tool index ([`ToolFinder`])
//! - [`meta_tools`]: the meta tools: their names and descriptions
//! - [`discovered`]: the tools a client has found, where these are added to its list
//! - [`recent_searches`]: what clients have searched for, and which of it they use
//! - [`dispatch`]: calls of meta tools; [`render`]: the text about servers' tools; [`signature`]: a tool in one line

mod discovered;
mod dispatch;
mod meta_tools;
mod recent_searches;
mod render;
mod signature;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use catalog::{Kind, Scope};
use protocol::Lifecycle;

use crate::client::Client;
use crate::dispatch::Aggregator;
use crate::fleet::View;

pub(crate) use discovered::DiscoveredTools;
pub(crate) use dispatch::take;
pub(crate) use recent_searches::{RecentSearches, use_tracker};

/// Which tools a client sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Surface {
    /// Every tool of every server.
    #[default]
    Full,
    /// A few meta tools, with which all others are found and called.
    Search,
    /// The same, and found tools are added to the client's list, if it is notified of changes.
    Grow,
    /// `Full`, unless that is more than the client is known to handle.
    Auto,
}

/// Finds tools for a query.
pub trait ToolFinder: Send + Sync {
    /// The tools that match best, best first.
    fn find(&self, tool_query: ToolQuery) -> FoundTools;
    /// The skills of the tools of this server or of all, with the number of tools in each: the largest first.
    fn skills(&self, server: Option<usize>) -> Vec<(String, usize)>;
    /// The tools that are listed on every surface, by their full names.
    fn pinned(&self) -> Arc<[String]>;
    /// Whether uses of tools are counted.
    fn learns(&self) -> bool;
    /// A client has called a tool, by its server's slot index and name, that it had searched for. The call succeeded.
    /// Must not wait: it is called where responses pass.
    fn used(&self, principal: &Arc<str>, query: &str, server: usize, tool: &str);
}

/// A search in progress.
pub type FoundTools = Pin<Box<dyn Future<Output = Result<Findings, String>> + Send>>;

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Findings {
    /// The tools, best first.
    pub tools: Vec<Found>,
    /// A sentence about the search that the client should know.
    pub note: Option<&'static str>,
}

/// A search for tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolQuery {
    /// The text to search for.
    pub query: String,
    /// The id of the principal that searches.
    pub principal: Arc<str>,
    /// The maximum number of results.
    pub limit: usize,
    /// The minimum score, from 0 to 1.
    pub least: f32,
    /// Only tools of this server, by its slot index.
    pub server: Option<usize>,
    /// Only tools of this skill, by its id or name.
    pub skill: Option<String>,
}

/// A tool that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The slot index of its server.
    pub server: usize,
    /// The server's name of the tool.
    pub tool: String,
    /// How well it matches, from 0 to 1.
    pub score: f32,
}

/// Whether this client sees the small surface now.
fn is_small(aggregator: &Aggregator, client: &Client, view: &View) -> bool {
    if aggregator.tool_finder().is_none() {
        return false;
    }
    match client.surface() {
        Surface::Full => false,
        Surface::Search | Surface::Grow => true,
        Surface::Auto => count(view, client) > max_tools_for(&client.name()),
    }
}

/// How many tools this client could see.
fn count(view: &View, client: &Client) -> usize {
    match client.scope() {
        Scope::All => view.snapshot.listed(Kind::Tool, client.style()).count(),
        Scope::One(server) => view.snapshot.servers()[server].offer.items(Kind::Tool).len(),
    }
}

/// The list of tools for a client on the small surface: the JSON of a `result`.
pub(crate) fn page(aggregator: &Aggregator, client: &Client, lifecycle: Lifecycle) -> Option<Bytes> {
    let view = aggregator.fleet.view();
    let tool_finder = aggregator.tool_finder().filter(|_| is_small(aggregator, client, &view))?;
    Some(meta_tools::page(&view, client, &**tool_finder, lifecycle))
}

/// How many tools a client of this name handles, according to its vendor where that is documented.
fn max_tools_for(client_name: &str) -> usize {
    const KNOWN: [(&str, usize); 5] =
        [("cursor", 40), ("visual studio code", 128), ("github-copilot", 128), ("windsurf", 100), ("codex", 100)];
    /// About 15,000 tokens of ordinary definitions: less than a tenth of a usual context.
    const OTHERS: usize = 100;
    let client_name = client_name.to_ascii_lowercase();
    KNOWN.iter().find(|(start, _)| client_name.starts_with(start)).map_or(OTHERS, |&(_, max_tools)| max_tools)
}

/// A `--surface` value that is none of the four.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a surface; use `full`, `search`, `grow` or `auto`")]
pub struct UnknownSurface(String);

impl FromStr for Surface {
    type Err = UnknownSurface;

    fn from_str(text: &str) -> Result<Self, UnknownSurface> {
        match text {
            "full" => Ok(Self::Full),
            "search" => Ok(Self::Search),
            "grow" => Ok(Self::Grow),
            "auto" => Ok(Self::Auto),
            _ => Err(UnknownSurface(text.to_owned())),
        }
    }
}

impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Search => "search",
            Self::Grow => "grow",
            Self::Auto => "auto",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surface_round_trips_as_text() {
        for surface in [Surface::Full, Surface::Search, Surface::Grow, Surface::Auto] {
            assert_eq!(surface.to_string().parse(), Ok(surface));
        }
        let error = "Search".parse::<Surface>().unwrap_err().to_string();
        assert_eq!(error, "`Search` is not a surface; use `full`, `search`, `grow` or `auto`");
    }

    #[test]
    fn known_clients_have_their_documented_tool_limits() {
        assert_eq!(max_tools_for("cursor-vscode"), 40);
        assert_eq!(max_tools_for("Visual Studio Code - Insiders"), 128);
        assert_eq!(max_tools_for("my own agent"), 100);
    }
}
