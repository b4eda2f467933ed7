//! Long lists are read and described on few threads that serve no calls, each once it has a slot: what waits for a slot
//! holds no data. Short lists are described where they are requested.

use std::sync::LazyLock;
use std::time::Duration;

use executions::Error as CallError;
use offload::{NotDone, Pool, PoolLimits, Slot};

use crate::Error;

/// The limit for the size of all definitions in one list.
pub const MAX_LISTED_BYTES: u64 = 64 * 1024 * 1024;
/// How long describing one list may take.
pub const LIST_DEADLINE: Duration = Duration::from_secs(10);
/// How long a list may wait for a slot.
pub const LONGEST_LIST_WAIT: Duration = Duration::from_secs(30);

/// Lists with more items are described beside the calls.
const MOST_ITEMS_IN_PLACE: u64 = 500;
/// The same for the bytes of their definitions.
const MOST_BYTES_IN_PLACE: u64 = 256 * 1024;

static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let slots = PoolLimits::half_of_the_processors();
    Pool::new(PoolLimits { slots, deadline: LIST_DEADLINE, longest_wait: LONGEST_LIST_WAIT })
});

/// The size of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListSize {
    /// The number of its items.
    pub items: u64,
    /// The length of their definitions.
    pub bytes: u64,
}

impl ListSize {
    /// Whether it is described beside the calls.
    fn is_long(self) -> bool {
        self.items > MOST_ITEMS_IN_PLACE || self.bytes > MOST_BYTES_IN_PLACE
    }

    /// The size of so many of its items, if all have the same size.
    pub(crate) fn of_some(self, items: u64) -> Self {
        let items = items.min(self.items);
        Self { items, bytes: self.bytes / self.items.max(1) * items }
    }

    /// Adds an item.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes += bytes as u64;
    }

    /// Refuses a list that is too large. `hint` says how to get less.
    pub(crate) fn check(self, hint: &str) -> Result<(), Error> {
        if self.bytes <= MAX_LISTED_BYTES {
            return Ok(());
        }
        let Self { items, bytes } = self;
        let message =
            format!("the definitions of {items} items have {bytes} bytes; the limit is {MAX_LISTED_BYTES}: {hint}");
        Err(limit_reached(message))
    }
}

/// Where a list is described.
#[derive(Debug)]
pub struct ListPlace(Option<Slot<'static>>);

impl ListPlace {
    /// The place for a list of this size. Waits for a slot if it is long.
    pub async fn of(size: ListSize) -> Result<Self, Error> {
        if !size.is_long() {
            return Ok(Self(None));
        }
        POOL.slot().await.map(|slot| Self(Some(slot))).map_err(|error| not_done(&error))
    }

    /// The same once the list is loaded, if it turned out to be longer than expected.
    pub(crate) async fn or_of(self, size: ListSize) -> Result<Self, Error> {
        if self.is_beside() { Ok(self) } else { Self::of(size).await }
    }

    /// Whether it has a slot.
    pub fn is_beside(&self) -> bool {
        self.0.is_some()
    }

    /// Describes the list. The function that `work` gets returns true when nobody waits any more, or when it takes too
    /// long. Dropping the future frees the slot as soon as the work notices.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Some(slot) = self.0 else { return work(&|| false) };
        slot.run(move |interrupt| work(&|| interrupt.is_set())).await.unwrap_or_else(|error| Err(not_done(&error)))
    }
}

/// The error of a list that is not described within [`LIST_DEADLINE`].
pub fn took_too_long(what: &dyn std::fmt::Display) -> Error {
    limit_reached(format!("{what} (the limit is {LIST_DEADLINE:?})"))
}

fn limit_reached(message: String) -> Error {
    Error::Call(CallError::LimitReached { message, context: serde_json::Map::new() })
}

fn not_done(error: &NotDone) -> Error {
    match error {
        NotDone::Busy(_) => limit_reached(format!("the list cannot be read now: {error}; try again later")),
        NotDone::Failed(_) => Error::Internal { what: format!("failed to describe a list: {error}") },
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    async fn thread_of(size: ListSize) -> thread::ThreadId {
        ListPlace::of(size).await.unwrap().run(|_| Ok(thread::current().id())).await.unwrap()
    }

    #[tokio::test]
    async fn long_lists_are_described_beside_the_calls() {
        let here = thread::current().id();
        let short = ListSize { items: MOST_ITEMS_IN_PLACE, bytes: MOST_BYTES_IN_PLACE };
        assert_eq!(thread_of(short).await, here);
        for long in [ListSize { items: short.items + 1, ..short }, ListSize { bytes: short.bytes + 1, ..short }] {
            assert_ne!(thread_of(long).await, here, "{long:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_list_that_nobody_waits_for_ends_and_frees_its_slot() {
        let long = ListSize { items: u64::MAX, bytes: 0 };
        let (began, has_begun) = std::sync::mpsc::channel();
        let work = ListPlace::of(long).await.unwrap().run(move |is_over| {
            began.send(()).unwrap();
            while !is_over() {
                thread::yield_now();
            }
            Ok(())
        });
        let mut work = Box::pin(work);
        tokio::select! {
            _ = &mut work => panic!("it ends only when it is interrupted"),
            () = async { tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap() } => {}
        }
        drop(work);
        for _ in 0..PoolLimits::half_of_the_processors() {
            thread_of(long).await;
        }
    }

    #[test]
    fn a_page_has_its_share_of_a_list() {
        let list = ListSize { items: 1000, bytes: 500_000 };
        assert_eq!(list.of_some(10), ListSize { items: 10, bytes: 5000 });
        assert_eq!(list.of_some(5000), list);
        assert_eq!(ListSize::default().of_some(7), ListSize::default());
    }

    #[test]
    fn a_list_that_is_too_large_is_refused_with_what_to_do() {
        let large = ListSize { items: 2, bytes: MAX_LISTED_BYTES + 1 };
        let error = large.check("pass `limit`").unwrap_err();
        assert!(error.to_string().contains("67108865 bytes; the limit is 67108864: pass `limit`"), "{error}");
        ListSize { items: 2, bytes: MAX_LISTED_BYTES }.check("").unwrap();
    }
}
