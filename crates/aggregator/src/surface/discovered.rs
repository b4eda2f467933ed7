//! Tools that a client has found, which are added to its list.

use super::Found;

/// How many of them are listed; the newest stay. About what a task needs, and less than any client's limit.
const MAX_DISCOVERED: usize = 20;

/// The tools a client has found, newest last.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredTools(Vec<Found>);

impl DiscoveredTools {
    /// Adds found tools, best first. Returns whether the list has changed.
    pub(crate) fn add(&mut self, found: Vec<Found>) -> bool {
        let is_same = |one: &Found, other: &Found| one.server == other.server && one.tool == other.tool;
        let is_news = found.iter().take(MAX_DISCOVERED).any(|new| !self.0.iter().any(|known| is_same(known, new)));
        self.0.retain(|known| !found.iter().any(|new| is_same(known, new)));
        // The best of the new results is the last to be dropped.
        self.0.extend(found.into_iter().take(MAX_DISCOVERED).rev());
        self.0.drain(..self.0.len().saturating_sub(MAX_DISCOVERED));
        is_news
    }

    /// All of them, newest first.
    pub(crate) fn tools(&self) -> Vec<Found> {
        self.0.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tools: std::ops::Range<usize>) -> Vec<Found> {
        tools.map(|tool| Found { server: 0, tool: format!("t{tool}"), score: 1.0 }).collect()
    }

    #[test]
    fn the_newest_stay_and_rediscovered_tools_are_not_new() {
        let mut discovered = DiscoveredTools::default();
        assert!(discovered.add(found(0..15)));
        assert!(!discovered.add(found(0..3)), "they are there already");
        assert_eq!(discovered.tools()[0].tool, "t0", "found again, it stays longer");
        assert!(discovered.add(found(20..30)));
        let names: Vec<String> = discovered.tools().into_iter().map(|found| found.tool).collect();
        assert_eq!(names.len(), MAX_DISCOVERED);
        assert_eq!(names[0], "t20", "the best of the newest first");
        assert!(names.contains(&"t0".to_owned()) && !names.contains(&"t14".to_owned()), "{names:?}");
        discovered.add(found(100..200));
        assert_eq!(discovered.tools().len(), MAX_DISCOVERED);
    }
}
