//! Reads the pages of one of a server's lists: each definition is checked, repaired or left out, and stored once.
//!
//! Pages of ordinary size are read where they arrive. A large one is read on a separate thread, so that no call of
//! another server waits for it; the next page is requested when it is done, so the order is kept.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use catalog::item::Page;
use catalog::{Hints, Item, Kind};
use protocol::scan::Span;

use crate::list_findings::{Action, ListFindings};
use crate::listing::Listing;
use crate::server::compute_beside_calls;

/// Larger pages are read on a separate thread. Reading this much takes about a millisecond.
pub(crate) const MAX_PARSED_IN_PLACE: usize = 64 * 1024;

/// The overhead of an item of a list besides its bytes, so that many small ones count too.
const ITEM_OVERHEAD_BYTES: usize = 256;

/// The result has no array of that kind.
pub(crate) struct NoList;

/// The rest of a page besides its definitions.
pub(crate) struct PageEnd {
    /// Bytes that are kept beside the page itself: a fixed number for each entry, repaired definitions, and what was
    /// derived from definitions.
    pub(crate) kept: usize,
    /// That was more than there is room for, so the rest of the page was not read.
    pub(crate) is_cut: bool,
    pub(crate) next_cursor: Option<Bytes>,
}

/// What was read of a list so far.
pub(crate) struct ListReader {
    kind: Kind,
    items: Vec<Item>,
    ids: HashSet<Arc<str>>,
    hints: Option<Hints>,
    notices: ListFindings,
}

impl ListReader {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, items: Vec::new(), ids: HashSet::new(), hints: None, notices: ListFindings::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Reads one page: returns the reader with it, and the end of the page. `None` if the program is stopping. `room` is
    /// how many bytes may be kept beside the page itself.
    pub(crate) async fn read_page(
        mut self,
        line: Bytes,
        result: Span,
        room: usize,
    ) -> Option<(Self, Result<PageEnd, NoList>)> {
        // A panic ends this server's task, as if the page had been read there.
        compute_beside_calls(line.len() > MAX_PARSED_IN_PLACE, move || {
            let end = self.read(&line, result, room);
            (self, end)
        })
        .await
    }

    fn read(&mut self, line: &Bytes, result: Span, room: usize) -> Result<PageEnd, NoList> {
        let page = Page::read(self.kind, line, result).ok_or(NoList)?;
        let here = page.hints.unwrap_or(Hints::NONE);
        self.hints = Some(self.hints.map_or(here, |before| before.and(here)));
        // Counted before anything is made of the entries: small ones take many times their bytes.
        let mut kept = ITEM_OVERHEAD_BYTES * page.entries;
        if kept <= room {
            for item in page.items() {
                kept += self.add(item, line);
                if kept > room {
                    break;
                }
            }
        }
        Ok(PageEnd { kept, is_cut: kept > room, next_cursor: page.next_cursor })
    }

    /// Adds an entry of a page, `None` if it is unusable. Returns the bytes that it keeps beside the page.
    fn add(&mut self, entry: Option<Item>, page: &Bytes) -> usize {
        let Some(item) = entry else {
            self.notices.note(Action::Omitted, "no usable name", None);
            return 0;
        };
        if !self.ids.insert(item.id.clone()) {
            self.notices.note(Action::Omitted, "a duplicate name", Some(&item.id));
            return 0;
        }
        let name = item.id.clone();
        // One server's mistake would make strict clients reject the whole merged list.
        let (item, flaws) = item.repaired(self.kind);
        let operation = if item.is_some() { Action::Repaired } else { Action::Omitted };
        flaws.iter().for_each(|flaw| self.notices.note(operation, flaw, Some(&name)));
        let kept = item.as_ref().map_or(0, |item| kept_beside(page, item));
        self.items.extend(item);
        kept
    }

    /// The whole list, once its last page is read.
    pub(crate) fn finish(self) -> Listing {
        let hints = self.hints.unwrap_or(Hints::NONE);
        Listing { items: self.items, hints, notices: self.notices.into_lines(self.kind) }
    }
}

/// The bytes that an item keeps beside the page it came with. A repaired definition is a copy.
fn kept_beside(page: &Bytes, item: &Item) -> usize {
    let is_part = page.as_ptr_range().contains(&item.definition.as_ptr());
    item.derived_bytes() + if is_part { 0 } else { item.definition.len() }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    /// A page of tools with this input schema.
    fn page_with(count: usize, schema: &str) -> Bytes {
        let tools: Vec<_> = (0..count).map(|n| format!(r#"{{"name":"t{n}","inputSchema":{schema}}}"#)).collect();
        Bytes::from(format!(r#"{{"tools":[{}]}}"#, tools.join(",")))
    }

    fn read(line: &Bytes, room: usize) -> (ListReader, PageEnd) {
        let mut reader = ListReader::new(Kind::Tool);
        let Ok(end) = reader.read(line, Span { start: 0, end: line.len() }, room) else { panic!("it is a list") };
        (reader, end)
    }

    #[test]
    fn what_is_kept_beside_a_page_is_counted_and_bounded() {
        let edited = format!(r#"{{"type":"object","properties":{{{}"a":{{}}}}}}"#, r#""":true,"#.repeat(1_000));
        let repaired = format!(r#"{{"type":"object","enum":[{}1]}}"#, "1e400,".repeat(1_000));
        for (schema, factor) in [(edited, 4), (repaired, 3)] {
            let line = page_with(100, &schema);
            let (reader, end) = read(&line, usize::MAX);
            assert!(end.kept > factor * line.len(), "{} bytes are kept beside {}", end.kept, line.len());
            assert_eq!((reader.items.len(), end.is_cut), (100, false));
            let (reader, end) = read(&line, end.kept / 10);
            assert!(end.is_cut && reader.items.len() <= 11, "{} tools were read", reader.items.len());
        }
        let plain = page_with(100, r#"{"type":"object","properties":{"a":{"type":"string"}}}"#);
        assert_eq!(read(&plain, usize::MAX).1.kept, 100 * ITEM_OVERHEAD_BYTES);
    }

    #[test]
    fn a_page_of_more_entries_than_there_is_room_for_is_refused_before_any_is_read() {
        let line = page_with(100, r#"{"type":"object"}"#);
        for (room, read_items) in [(100 * ITEM_OVERHEAD_BYTES, 100), (100 * ITEM_OVERHEAD_BYTES - 1, 0)] {
            let (reader, end) = read(&line, room);
            assert_eq!((reader.items.len(), reader.ids.len(), end.is_cut), (read_items, read_items, read_items == 0));
        }
        // The entries that are no tools count too.
        let line = Bytes::from(format!(r#"{{"tools":[{}1]}}"#, "1,".repeat(99)));
        let (reader, end) = read(&line, 100 * ITEM_OVERHEAD_BYTES - 1);
        assert!(end.is_cut && reader.finish().notices.is_empty());
    }

    fn page(count: usize) -> Bytes {
        let tools: Vec<_> = (0..count).map(|n| format!(r#"{{"name":"t{n}","inputSchema":5}}"#)).collect();
        Bytes::from(format!(r#"{{"tools":[{}],"nextCursor":"c"}}"#, tools.join(",")))
    }

    #[test]
    fn a_large_page_leaves_the_thread_to_others_while_it_is_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            for (count, is_large) in [(10, false), (10_000, true)] {
                // The only other thread is blocked until it is released, so nothing can be read there yet.
                let (go_on, wait) = std::sync::mpsc::channel::<()>();
                let occupied = tokio::task::spawn_blocking(move || wait.recv());
                let line = page(count);
                let whole = Span { start: 0, end: line.len() };
                let mut reading = std::pin::pin!(ListReader::new(Kind::Tool).read_page(line, whole, usize::MAX));
                let first = std::future::poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await;
                assert_eq!(first.is_pending(), is_large, "{count} tools");
                go_on.send(()).unwrap();
                let read = match first {
                    Poll::Ready(read) => read,
                    Poll::Pending => reading.await,
                };
                let Some((reader, Ok(end))) = read else { panic!("a page with a cursor") };
                assert_eq!(end.next_cursor.as_deref(), Some(&b"\"c\""[..]));
                assert_eq!(reader.ids.len(), count);
                occupied.await.unwrap().unwrap();
            }
        });
    }
}
