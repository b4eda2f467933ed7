//! Where documents are read, mapped and changed: on few threads beside the runtime's.

use std::sync::LazyLock;
use std::time::Duration;

use offload::{Interrupt, NotDone, Pool, PoolCounts, PoolLimits};

/// How long one piece of work may wait for others. It is bounded by the length of a document, so it has no deadline.
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(30);
const NO_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let slots = PoolLimits::half_of_the_processors();
    Pool::new(PoolLimits { slots, deadline: NO_DEADLINE, longest_wait: MAX_QUEUE_WAIT })
});

/// What runs beside the runtime: schema checks, and work on documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkCounts {
    /// Checks of arguments against schemas.
    pub schema_checks: PoolCounts,
    /// Documents that are read, mapped or changed.
    pub documents: PoolCounts,
}

/// What runs now, and how much was given up since the start.
pub fn work_counts() -> WorkCounts {
    WorkCounts { schema_checks: crate::schema::check_counts(), documents: POOL.counts() }
}

/// Does work on a document away from the threads that move calls. It must not wait for other work of this kind.
pub async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, NotDone> {
    interruptible(|_| work()).await
}

/// The same for work that ends early when nobody waits for it any more: dropping the future sets its interrupt.
pub async fn interruptible<T: Send + 'static>(
    work: impl FnOnce(&Interrupt) -> T + Send + 'static,
) -> Result<T, NotDone> {
    POOL.run(work).await
}
