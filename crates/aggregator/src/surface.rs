//! How much of the catalogue a client sees: all of it, or a few tools of our own with which it finds the rest.
//!
//! A list of hundreds of tools fills a model's context before its work has begun, and some clients cut it off. On the
//! small surface a client is offered `search_tools`, `describe_tool` and `call_tool`, and what the user has pinned. The
//! arguments and the result of a call through `call_tool` are the same bytes as without it.
//!
//! - here: which surface a client has, and who knows what fits a wish ([`ToolFinder`])
//! - [`meta_tools`]: our own tools: what they are called, how they are described
//! - [`discovered`]: what a client has found, where that is added to its list
//! - [`dispatch`]: calls of them; [`render`]: what is told of the tools of servers; [`signature`]: one, in a line

mod discovered;
mod dispatch;
mod meta_tools;
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

/// How much of the catalogue a client sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Surface {
    /// Every tool of every server.
    #[default]
    Full,
    /// A few tools of our own, with which all others are found and called.
    Search,
    /// The same, and what a client has found is on its list from then on, if it hears of changes.
    Grow,
    /// `Full`, unless that is more than the client copes with.
    Auto,
}

/// Who knows which tools fit a wish.
pub trait ToolFinder: Send + Sync {
    /// The tools that fit best, the best first.
    fn find(&self, tool_query: ToolQuery) -> FoundTools;
    /// What tools, of this server or of all, are good for, with how many are: the most first.
    fn skills(&self, server: Option<usize>) -> Vec<(String, usize)>;
    /// The tools that are listed on every surface, by the names they have in the merged list.
    fn pinned(&self) -> Arc<[String]>;
}

/// Something that is being looked for.
pub type FoundTools = Pin<Box<dyn Future<Output = Result<Vec<Found>, String>> + Send>>;

/// What somebody looks for.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolQuery {
    /// In their own words.
    pub query: String,
    /// So many at most.
    pub limit: usize,
    /// Only what fits at least so well, from 0 to 1.
    pub least: f32,
    /// Only of this server, by its place.
    pub server: Option<usize>,
    /// Only what is good for this, by the id or the name of a skill.
    pub skill: Option<String>,
}

/// A tool that fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The place of its server.
    pub server: usize,
    /// What its server calls it.
    pub tool: String,
    /// How well it fits, from 0 to 1.
    pub score: f32,
}

/// Whether this client is shown the small surface now.
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

/// How many tools there are for this client.
fn count(view: &View, client: &Client) -> usize {
    match client.scope() {
        Scope::All => view.snapshot.listed(Kind::Tool, client.style()).count(),
        Scope::One(server) => view.snapshot.servers()[server].offer.items(Kind::Tool).len(),
    }
}

/// The list of tools for a client that is shown the small surface: the JSON of a `result`.
pub(crate) fn page(aggregator: &Aggregator, client: &Client, lifecycle: Lifecycle) -> Option<Bytes> {
    let view = aggregator.fleet.view();
    let tool_finder = aggregator.tool_finder().filter(|_| is_small(aggregator, client, &view))?;
    Some(meta_tools::page(&view, client, &**tool_finder, lifecycle))
}

/// With how many tools a client gets along that calls itself so. Measured by what their makers say, where they do.
fn max_tools_for(client_name: &str) -> usize {
    const KNOWN: [(&str, usize); 5] =
        [("cursor", 40), ("visual studio code", 128), ("github-copilot", 128), ("windsurf", 100), ("codex", 100)];
    /// About 15,000 tokens of ordinary definitions: less than a tenth of a usual context.
    const OTHERS: usize = 100;
    let client_name = client_name.to_ascii_lowercase();
    KNOWN.iter().find(|(start, _)| client_name.starts_with(start)).map_or(OTHERS, |&(_, max_tools)| max_tools)
}

/// A `--surface` that is none of the four.
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
    fn a_surface_is_read_as_it_is_written() {
        for surface in [Surface::Full, Surface::Search, Surface::Grow, Surface::Auto] {
            assert_eq!(surface.to_string().parse(), Ok(surface));
        }
        let error = "Search".parse::<Surface>().unwrap_err().to_string();
        assert_eq!(error, "`Search` is not a surface; use `full`, `search`, `grow` or `auto`");
    }

    #[test]
    fn clients_cope_with_what_their_makers_say() {
        assert_eq!(max_tools_for("cursor-vscode"), 40);
        assert_eq!(max_tools_for("Visual Studio Code - Insiders"), 128);
        assert_eq!(max_tools_for("my own agent"), 100);
    }
}
