//! Detects an aggregator that would be a server of itself, directly or through others, by the aggregators a request
//! comes from.
//!
//! Every request to a server over HTTP carries a header with our name and the names of the aggregators that use us.
//! One that finds its own name there refuses: the sender would be among its own servers. The aggregators that use us
//! are known from the same header in their requests, so the connection that would close a loop is refused whichever
//! comes last; if two are made at the same moment, the next request on one of them is refused instead. Messages are
//! not changed.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::process_mark::InstanceMark;

/// The header: names with a space between them, the sender's last. In a refusal, the name of the refusing aggregator.
pub const HEADER: &str = "mcp-aggregator-lineage";

/// A sender without requests for this long does not use us any more. Aggregators check their servers more often.
const SENDER_LIFETIME: Duration = Duration::from_secs(300);
/// More names than this are no valid header.
const MAX_ANCESTORS: usize = 64;
/// A longer name is not valid.
const MAX_INSTANCE_NAME_BYTES: usize = 32;

/// Our name, and the aggregators that use us.
#[derive(Debug)]
pub struct LoopDetector {
    own: String,
    /// The aggregators that started us, outermost first.
    above: Vec<String>,
    /// The header without any sender, which is usual: every call to a server over HTTP has it.
    alone: String,
    is_alone: AtomicBool,
    /// The known senders, with their last time.
    senders: Mutex<Vec<(String, Instant)>>,
}

/// A request came from ourselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loop {
    /// Directly.
    Direct,
    /// Through other aggregators.
    Through,
}

impl LoopDetector {
    /// For the process with this mark. The names are derived from the marks, and do not reveal them.
    pub fn new(instance_mark: &InstanceMark) -> Self {
        let (own, above) = instance_mark.processes();
        let (own, above) = (named(own), above.map(named).collect::<Vec<_>>());
        let alone = above.iter().chain([&own]).map(String::as_str).collect::<Vec<_>>().join(" ");
        Self { own, above, alone, is_alone: AtomicBool::new(true), senders: Mutex::default() }
    }

    /// Our name.
    pub fn name(&self) -> &str {
        &self.own
    }

    /// The value of the header for our servers.
    pub fn value(&self) -> Cow<'_, str> {
        if self.is_alone.load(Ordering::Acquire) {
            return Cow::Borrowed(&self.alone);
        }
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.retain(|(_, last)| last.elapsed() < SENDER_LIFETIME);
        let senders = senders.iter().map(|(name, _)| name.as_str());
        let above = self.above.iter().map(String::as_str);
        above.chain(senders).chain([self.own.as_str()]).collect::<Vec<_>>().join(" ").into()
    }

    /// Records the senders in this header, unless the request comes from ourselves.
    pub fn note_sender(&self, value: &str) -> Result<(), Loop> {
        let names: Vec<_> = value.split(' ').filter(|name| is_name(name)).take(4 * MAX_ANCESTORS).collect();
        if names.last() == Some(&self.own.as_str()) {
            return Err(Loop::Direct);
        }
        if names.contains(&self.own.as_str()) {
            return Err(Loop::Through);
        }
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        for name in names {
            if let Some((_, last)) = senders.iter_mut().find(|(known, _)| known == name) {
                *last = now;
            } else if senders.len() < MAX_ANCESTORS {
                senders.push((name.to_owned(), now));
                self.is_alone.store(false, Ordering::Release);
            }
        }
        Ok(())
    }
}

fn named(process: &str) -> String {
    let mut hasher = DefaultHasher::new();
    process.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn is_name(text: &str) -> bool {
    (1..=MAX_INSTANCE_NAME_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loop_detector(process: u32, above: Option<&InstanceMark>) -> LoopDetector {
        LoopDetector::new(&instance_mark(process, above))
    }

    fn instance_mark(process: u32, above: Option<&InstanceMark>) -> InstanceMark {
        InstanceMark::new(process, 7, above.map(|above| above.value_for(3)).as_deref())
    }

    #[test]
    fn a_request_of_our_own_is_recognised() {
        let us = loop_detector(1, None);
        assert_eq!(us.note_sender(&us.value()), Err(Loop::Direct));
        assert_eq!(us.value(), us.name(), "nobody else was heard of");
    }

    #[test]
    fn the_connection_that_would_close_a_loop_is_refused() {
        let [a, b, c] = [1, 2, 3].map(|process| loop_detector(process, None));
        assert_eq!(b.note_sender(&a.value()), Ok(()));
        assert_eq!(c.note_sender(&b.value()), Ok(()));
        assert_eq!(a.note_sender(&c.value()), Err(Loop::Through));
        // Two connections that are made at once are detected with the next request.
        let [a, b] = [4, 5].map(|process| loop_detector(process, None));
        let (first, second) = (a.value(), b.value());
        assert_eq!((b.note_sender(&first), a.note_sender(&second)), (Ok(()), Ok(())));
        assert_eq!(b.note_sender(&a.value()), Err(Loop::Through));
    }

    #[test]
    fn one_that_was_started_by_us_and_reaches_us_again_is_recognised() {
        let us = instance_mark(1, None);
        let child = loop_detector(2, Some(&us));
        assert_eq!(LoopDetector::new(&us).note_sender(&child.value()), Err(Loop::Through));
        assert_eq!(loop_detector(3, None).note_sender(&child.value()), Ok(()));
    }

    #[test]
    fn invalid_loop_headers_are_ignored_and_names_are_bounded() {
        let us = loop_detector(1, None);
        assert_eq!(us.note_sender("a/b  ü,c \"x\""), Ok(()));
        assert_eq!(us.note_sender(&"x".repeat(MAX_INSTANCE_NAME_BYTES + 1)), Ok(()));
        assert_eq!(us.value(), us.name());
        let crowd: Vec<_> = (0..1000).map(|number| format!("n{number}")).collect();
        assert_eq!(us.note_sender(&crowd.join(" ")), Ok(()));
        assert_eq!(us.value().split(' ').count(), MAX_ANCESTORS + 1);
    }
}
