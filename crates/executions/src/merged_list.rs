//! Merges calls in memory and stored calls into one list.

use std::collections::HashSet;

use registry::{ExecutionFilter, ExecutionRecord, ExecutionStatus, Listed, Page};

/// Calls in memory: running, or not written yet.
#[derive(Debug, Default)]
pub(super) struct InMemory {
    /// Those that match the filter.
    wanted: Vec<ExecutionRecord>,
    /// Those that are also stored, as running: their stored records are out of date.
    outdated: Vec<ExecutionRecord>,
    wanted_status: Vec<ExecutionStatus>,
}

impl InMemory {
    /// Selects the calls in memory that match the filter; each with whether it was stored while running.
    pub(super) fn new(filter: &ExecutionFilter, all: impl IntoIterator<Item = (ExecutionRecord, bool)>) -> Self {
        let any_status = ExecutionFilter { status: Vec::new(), ..filter.clone() };
        let mut made = Self { wanted_status: filter.status.clone(), ..Self::default() };
        let mut seen = HashSet::new();
        for (record, is_kept) in all {
            if !seen.insert(record.id) || !matches(&any_status, &record) {
                continue;
            }
            if is_kept {
                made.outdated.push(record.clone());
            }
            if made.wants(record.status) {
                made.wanted.push(record);
            }
        }
        made.wanted.sort_by_key(|record| std::cmp::Reverse(order(record)));
        made
    }

    fn wants(&self, status: ExecutionStatus) -> bool {
        self.wanted_status.is_empty() || self.wanted_status.contains(&status)
    }

    /// The part of the stored calls that a page of the merged list needs.
    pub(super) fn part_to_read(&self, page: Page) -> Page {
        let in_memory = self.wanted.len() as u64;
        let offset = page.offset.saturating_sub(in_memory);
        let found_twice = self.outdated.len() as u64 + in_memory;
        let limit = u64::from(page.limit) + (page.offset - offset) + found_twice;
        Page { limit: u32::try_from(limit).unwrap_or(u32::MAX), offset }
    }

    /// The page of the merged list, given that part.
    pub(super) fn merge(self, page: Page, part: Page, kept: Listed<ExecutionRecord>) -> Listed<ExecutionRecord> {
        // The stored record of a running call may or may not be written yet; where it occurs, it is recognised. What
        // was not written when memory was read may be by now.
        let in_memory: HashSet<_> = self.outdated.iter().chain(&self.wanted).map(|record| record.id).collect();
        let is_outdated = |record: &ExecutionRecord| in_memory.contains(&record.id);
        let first = kept.items.first().map(order);
        // Calls before this part that are in memory too.
        let skipped = self.outdated.iter().filter(|record| first.is_some_and(|first| order(record) > first));
        let skipped =
            if part.offset > 0 && self.wants(ExecutionStatus::Executing) { skipped.count() as u64 } else { 0 };
        let before = part.offset.min(kept.total) - skipped.min(part.offset.min(kept.total));
        let found_twice = kept.items.iter().filter(|record| is_outdated(record)).count() as u64 + skipped;
        let total = kept.total.saturating_sub(found_twice) + self.wanted.len() as u64;
        let fresh: Vec<_> = kept.items.into_iter().filter(|record| !is_outdated(record)).collect();
        let mut all: Vec<_> = self.wanted.into_iter().chain(fresh).collect();
        all.sort_by_key(|record| std::cmp::Reverse(order(record)));
        let skip = usize::try_from(page.offset.saturating_sub(before)).unwrap_or(usize::MAX);
        let items = all.into_iter().skip(skip).take(page.limit as usize).collect();
        Listed { items, total }
    }
}

/// The newest has the highest.
fn order(record: &ExecutionRecord) -> (registry::Timestamp, registry::ExecutionId) {
    (record.submitted_at, record.id)
}

/// Whether a record matches a filter, as in the database.
fn matches(filter: &ExecutionFilter, record: &ExecutionRecord) -> bool {
    let ExecutionFilter { server_id, server_name, tool_name, status, source, document_path, since, until } = filter;
    server_id.is_none_or(|id| record.server_id == Some(id))
        && server_name.as_ref().is_none_or(|name| *record.server_name == **name)
        && tool_name.as_ref().is_none_or(|name| *record.tool_name == **name)
        && (status.is_empty() || status.contains(&record.status))
        && source.is_none_or(|source| record.source == source)
        && document_path.as_ref().is_none_or(|path| record.document_path.as_ref() == Some(path))
        && since.is_none_or(|since| record.submitted_at >= since)
        && until.is_none_or(|until| record.submitted_at < until)
}

#[cfg(test)]
mod tests {
    use registry::{Source, Timestamp};

    use super::*;

    fn record(at: i64, status: ExecutionStatus) -> ExecutionRecord {
        let mut record = ExecutionRecord::submitted("s", format!("t{at}"), Source::Rest);
        record.submitted_at = Timestamp::from_micros(at);
        record.status = status;
        record
    }

    /// Checks every page of the merged list, for every page size, given the stored calls (newest first) and those in
    /// memory.
    fn check(filter: &ExecutionFilter, kept: &[ExecutionRecord], memory: &[(ExecutionRecord, bool)], expected: &[i64]) {
        for limit in 1..=expected.len() as u32 + 1 {
            let mut seen = Vec::new();
            for offset in (0..expected.len() as u64 + 1).step_by(limit as usize) {
                let page = Page { limit, offset };
                let in_memory = InMemory::new(filter, memory.to_vec());
                let part = in_memory.part_to_read(page);
                let wanted: Vec<_> = kept.iter().filter(|record| matches(filter, record)).cloned().collect();
                let read = wanted.iter().skip(part.offset as usize).take(part.limit as usize).cloned().collect();
                let merged = in_memory.merge(page, part, Listed { items: read, total: wanted.len() as u64 });
                assert!(merged.items.len() <= limit as usize);
                seen.extend(merged.items.iter().map(|record| record.submitted_at.as_micros()));
            }
            assert_eq!(seen, expected, "in pages of {limit}");
        }
    }

    #[test]
    fn what_is_written_down_between_two_looks_is_listed_once() {
        let over = record(5, ExecutionStatus::Cancelled);
        let older = record(3, ExecutionStatus::Success);
        let in_memory = InMemory::new(&ExecutionFilter::default(), [(over.clone(), false)]);
        let page = Page::default();
        let part = in_memory.part_to_read(page);
        let merged = in_memory.merge(page, part, Listed { items: vec![over.clone(), older.clone()], total: 2 });
        assert_eq!((merged.items, merged.total), (vec![over, older], 2));
    }

    #[test]
    fn running_calls_keep_their_position_across_pages() {
        use ExecutionStatus::{Executing, Success};
        let kept: Vec<_> = [90, 70, 50, 30, 10].map(|at| record(at, Success)).into();
        let memory = [(record(60, Executing), false), (record(95, Success), false), (record(5, Executing), false)];
        check(&ExecutionFilter::default(), &kept, &memory, &[95, 90, 70, 60, 50, 30, 10, 5]);
    }

    #[test]
    fn a_call_recorded_as_running_is_listed_once_in_its_current_state() {
        use ExecutionStatus::{Executing, Success};
        let mut kept: Vec<_> = [90, 70, 50, 30, 10].map(|at| record(at, Success)).into();
        let (mut ended, mut running) = (record(60, Executing), record(20, Executing));
        kept.insert(2, ended.clone());
        kept.insert(5, running.clone());
        ended.status = Success;
        running.retries = 1;
        let memory = [(ended, true), (running, true)];
        check(&ExecutionFilter::default(), &kept, &memory, &[90, 70, 60, 50, 30, 20, 10]);
        let only = |status| ExecutionFilter { status: vec![status], ..ExecutionFilter::default() };
        check(&only(Executing), &kept, &memory, &[20]);
        check(&only(Success), &kept, &memory, &[90, 70, 60, 50, 30, 10]);
    }

    #[test]
    fn a_filter_means_the_same_in_memory_and_in_the_database() {
        let filter = ExecutionFilter { tool_name: Some("t7".into()), source: Some(Source::Rest), ..Default::default() };
        assert!(matches(&filter, &record(7, ExecutionStatus::Pending)));
        assert!(!matches(&filter, &record(8, ExecutionStatus::Pending)));
        let filter = ExecutionFilter { until: Some(Timestamp::from_micros(7)), ..Default::default() };
        assert!(!matches(&filter, &record(7, ExecutionStatus::Pending)));
    }
}
