//! The last searches of a client, so that a use of what they found can be counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use protocol::Span;
use protocol::scan::member;
use protocol::trace::SpanContext;

use super::{Found, ToolFinder};
use crate::client::{CallOrigin, Client};
use crate::connected_clients::ConnectedClient;
use crate::dispatch::Aggregator;
use crate::interceptor::{CallEnd, CallTracker, PermitFuture, Refusal};

/// So many searches are remembered, of each so many tools, and so much of its text.
const MAX_SEARCHES: usize = 4;
const MAX_TOOLS: usize = 16;
const MAX_QUERY_BYTES: usize = 512;

/// The last searches of one client, newest last.
#[derive(Debug, Default)]
pub(crate) struct RecentSearches {
    /// Whether there are any: a call of a client that never searched looks at nothing else.
    has_any: AtomicBool,
    searches: Mutex<VecDeque<RecentSearch>>,
}

#[derive(Debug)]
struct RecentSearch {
    query: Box<str>,
    /// What it found and the client has not used since.
    unused: Vec<Found>,
}

impl RecentSearches {
    /// Remembers a search.
    pub(crate) fn add(&self, query: &str, found: &[Found]) {
        let query = &query[..query.floor_char_boundary(MAX_QUERY_BYTES)];
        let mut searches = self.lock();
        searches.retain(|search| *search.query != *query);
        searches
            .push_back(RecentSearch { query: query.into(), unused: found.iter().take(MAX_TOOLS).cloned().collect() });
        let surplus = searches.len().saturating_sub(MAX_SEARCHES);
        searches.drain(..surplus);
        self.has_any.store(true, Ordering::Release);
    }

    fn has_found(&self, server: usize, tool: &str) -> bool {
        self.has_any.load(Ordering::Acquire)
            && self.lock().iter().any(|search| search.unused.iter().any(|found| is(found, server, tool)))
    }

    /// The newest search that found this tool. Each tool is counted once for each search.
    fn take(&self, server: usize, tool: &str) -> Option<Box<str>> {
        let mut searches = self.lock();
        searches.iter_mut().rev().find_map(|search| {
            let place = search.unused.iter().position(|found| is(found, server, tool))?;
            search.unused.remove(place);
            Some(search.query.clone())
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RecentSearch>> {
        self.searches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is(found: &Found, server: usize, tool: &str) -> bool {
    found.server == server && found.tool == tool
}

/// The tracker of a call, which also counts it as a use of the tool if the client has searched for that and the call
/// succeeds.
pub(crate) fn use_tracker(
    aggregator: &Aggregator,
    client: &Client,
    server: usize,
    tool: &Arc<str>,
    tracker: Arc<dyn CallTracker>,
) -> Arc<dyn CallTracker> {
    let Some(tool_finder) = aggregator.tool_finder().filter(|_| matches!(client.call_origin(), CallOrigin::Client))
    else {
        return tracker;
    };
    let Some(connected) = client.connected().filter(|connected| connected.searches.has_found(server, tool)) else {
        return tracker;
    };
    let (tool_finder, tool) = (Arc::clone(tool_finder), Arc::clone(tool));
    Arc::new(UseTracker { tracker, tool_finder, connected, server, tool })
}

/// A call of a tool that its client has searched for.
struct UseTracker {
    tracker: Arc<dyn CallTracker>,
    tool_finder: Arc<dyn ToolFinder>,
    connected: Arc<ConnectedClient>,
    server: usize,
    tool: Arc<str>,
}

impl CallTracker for UseTracker {
    fn permit(&self) -> Option<PermitFuture> {
        self.tracker.permit()
    }

    fn on_sent(&self) -> Option<SpanContext> {
        self.tracker.on_sent()
    }

    fn on_held(&self) {
        self.tracker.on_held();
    }

    fn on_released(&self) {
        self.tracker.on_released();
    }

    fn on_end(&self, end: CallEnd<'_>) {
        if let CallEnd::Response(line, Ok(result)) = end
            && !has_failed(line, result)
            && let Some(query) = self.connected.searches.take(self.server, &self.tool)
        {
            self.tool_finder.used(self.connected.principal().id(), &query, self.server, &self.tool);
        }
        self.tracker.on_end(end);
    }

    fn cancel_reason(&self) -> Option<Refusal> {
        self.tracker.cancel_reason()
    }
}

/// Whether the tool reports in its result that it failed.
fn has_failed(line: &Bytes, result: Span) -> bool {
    member(line, result, "isError").is_some_and(|is_error| is_error.of(line) == b"true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tools: std::ops::Range<usize>) -> Vec<Found> {
        tools.map(|tool| Found { server: 0, tool: format!("t{tool}"), score: 1.0 }).collect()
    }

    #[test]
    fn a_tool_counts_once_for_the_newest_search_that_found_it() {
        let searches = RecentSearches::default();
        assert!(!searches.has_found(0, "t1"));
        searches.add("first", &found(0..3));
        searches.add("second", &found(1..2));
        assert!(searches.has_found(0, "t1") && !searches.has_found(1, "t1") && !searches.has_found(0, "t3"));
        assert_eq!(searches.take(0, "t1").as_deref(), Some("second"));
        assert_eq!(searches.take(0, "t1").as_deref(), Some("first"));
        assert_eq!(searches.take(0, "t1"), None);
    }

    #[test]
    fn few_searches_are_remembered_and_of_each_only_so_much() {
        let searches = RecentSearches::default();
        searches.add("old", &found(0..1));
        for number in 1..=MAX_SEARCHES {
            searches.add(&format!("{number}{}", "é".repeat(MAX_QUERY_BYTES)), &found(number..number + 100));
        }
        assert!(!searches.has_found(0, "t0") && !searches.has_found(0, "t50"));
        assert!(searches.take(0, "t4").is_some_and(|query| query.len() <= MAX_QUERY_BYTES));
        assert_eq!(searches.lock().len(), MAX_SEARCHES);
    }
}
