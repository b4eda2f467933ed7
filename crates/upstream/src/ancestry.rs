//! Which aggregators our requests come from, so that one that would be a server of itself, directly or by way of others, is
//! recognised.
//!
//! Every request to a server over HTTP carries a header with our name and the names of those who use us. Whoever finds its
//! own name there refuses: the asker would be among its own servers. Those who use us are known from the same header in
//! their requests, so the link that would close a circle is refused whichever comes last; if two are made at the same
//! moment, the next request on one of them is refused instead. Messages are not touched.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::lineage::Lineage;

/// The header: names with a space between them, the sender's last. In a refusal, the name of who refuses.
pub const HEADER: &str = "mcp-aggregator-lineage";

/// Who was not heard of for so long does not use us any more. Aggregators look after their servers more often.
const MEMORY: Duration = Duration::from_secs(300);
/// More than this are no lineage.
const MOST_ANCESTORS: usize = 64;
/// And longer than this is no name.
const LONGEST_NAME: usize = 32;

/// Who we are, and who uses us.
#[derive(Debug)]
pub struct Ancestry {
    own: String,
    /// Those who started us, outermost first.
    above: Vec<String>,
    /// The header as long as nobody was heard of, which is usual: every call to a server over HTTP has it.
    alone: String,
    is_alone: AtomicBool,
    /// Those who were heard of, with the last time.
    heard: Mutex<Vec<(String, Instant)>>,
}

/// A request came from ourselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circle {
    /// At once.
    Direct,
    /// By way of others.
    Through,
}

impl Ancestry {
    /// Of the process with this lineage. The names are made of the marks, and do not give them away.
    pub fn new(lineage: &Lineage) -> Self {
        let (own, above) = lineage.processes();
        let (own, above) = (named(own), above.map(named).collect::<Vec<_>>());
        let alone = above.iter().chain([&own]).map(String::as_str).collect::<Vec<_>>().join(" ");
        Self { own, above, alone, is_alone: AtomicBool::new(true), heard: Mutex::default() }
    }

    /// What we are called.
    pub fn name(&self) -> &str {
        &self.own
    }

    /// The value of the header for our servers.
    pub fn value(&self) -> Cow<'_, str> {
        if self.is_alone.load(Ordering::Acquire) {
            return Cow::Borrowed(&self.alone);
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.retain(|(_, last)| last.elapsed() < MEMORY);
        let heard = heard.iter().map(|(name, _)| name.as_str());
        let above = self.above.iter().map(String::as_str);
        above.chain(heard).chain([self.own.as_str()]).collect::<Vec<_>>().join(" ").into()
    }

    /// Takes note of who sent a request with this header, unless it comes from ourselves.
    pub fn hear(&self, value: &str) -> Result<(), Circle> {
        let names: Vec<_> = value.split(' ').filter(|name| is_name(name)).take(4 * MOST_ANCESTORS).collect();
        if names.last() == Some(&self.own.as_str()) {
            return Err(Circle::Direct);
        }
        if names.contains(&self.own.as_str()) {
            return Err(Circle::Through);
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        for name in names {
            if let Some((_, last)) = heard.iter_mut().find(|(known, _)| known == name) {
                *last = now;
            } else if heard.len() < MOST_ANCESTORS {
                heard.push((name.to_owned(), now));
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
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ancestry(process: u32, above: Option<&Lineage>) -> Ancestry {
        Ancestry::new(&lineage(process, above))
    }

    fn lineage(process: u32, above: Option<&Lineage>) -> Lineage {
        Lineage::new(process, 7, above.map(|above| above.value_for(3)).as_deref())
    }

    #[test]
    fn a_request_of_our_own_is_recognised() {
        let us = ancestry(1, None);
        assert_eq!(us.hear(&us.value()), Err(Circle::Direct));
        assert_eq!(us.value(), us.name(), "nobody else was heard of");
    }

    #[test]
    fn the_link_that_would_close_a_circle_is_refused_whichever_it_is() {
        let [a, b, c] = [1, 2, 3].map(|process| ancestry(process, None));
        assert_eq!(b.hear(&a.value()), Ok(()));
        assert_eq!(c.hear(&b.value()), Ok(()));
        assert_eq!(a.hear(&c.value()), Err(Circle::Through));
        // Two links that are made at once are found out with the next request.
        let [a, b] = [4, 5].map(|process| ancestry(process, None));
        let (first, second) = (a.value(), b.value());
        assert_eq!((b.hear(&first), a.hear(&second)), (Ok(()), Ok(())));
        assert_eq!(b.hear(&a.value()), Err(Circle::Through));
    }

    #[test]
    fn one_that_was_started_by_us_and_reaches_us_again_is_recognised() {
        let us = lineage(1, None);
        let child = ancestry(2, Some(&us));
        assert_eq!(Ancestry::new(&us).hear(&child.value()), Err(Circle::Through));
        assert_eq!(ancestry(3, None).hear(&child.value()), Ok(()));
    }

    #[test]
    fn what_is_no_lineage_is_passed_over_and_there_is_a_bound() {
        let us = ancestry(1, None);
        assert_eq!(us.hear("a/b  ü,c \"x\""), Ok(()));
        assert_eq!(us.hear(&"x".repeat(LONGEST_NAME + 1)), Ok(()));
        assert_eq!(us.value(), us.name());
        let crowd: Vec<_> = (0..1000).map(|number| format!("n{number}")).collect();
        assert_eq!(us.hear(&crowd.join(" ")), Ok(()));
        assert_eq!(us.value().split(' ').count(), MOST_ANCESTORS + 1);
    }
}
