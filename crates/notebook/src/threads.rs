//! Runs work on documents on few threads outside the async runtime.

use std::sync::LazyLock;
use std::time::Duration;

use offload::{Interrupt, NotDone, Pool, PoolCounts, PoolLimits};

/// How long work may wait for other work. The size of a document bounds the work, so it has no deadline.
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(30);
const NO_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let slots = PoolLimits::half_of_the_processors();
    Pool::new(PoolLimits { slots, deadline: NO_DEADLINE, longest_wait: MAX_QUEUE_WAIT })
});

/// Counters of work outside the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkCounts {
    /// Checks of arguments against schemas.
    pub schema_checks: PoolCounts,
    /// Work on documents.
    pub documents: PoolCounts,
}

/// The current counters.
pub fn work_counts() -> WorkCounts {
    WorkCounts { schema_checks: crate::schema::check_counts(), documents: POOL.counts() }
}

/// Runs work on a document outside the threads that relay calls. It must not wait for other work of this kind.
pub async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, NotDone> {
    interruptible(|_| work()).await
}

/// The same for work that stops early: dropping the future sets its interrupt.
pub async fn interruptible<T: Send + 'static>(
    work: impl FnOnce(&Interrupt) -> T + Send + 'static,
) -> Result<T, NotDone> {
    POOL.run(work).await
}
