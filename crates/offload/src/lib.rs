//! Runs CPU-bound work on a bounded number of threads outside the async runtime.
//!
//! Work whose cost is not proportional to its size would block everything else on a runtime thread. A [`Pool`] runs it
//! on another thread: at most as many at a time as the pool has slots, each until its deadline. Dropping the future
//! sets the [`Interrupt`], which asks the work to stop.
//!
//! Work must not wait for other work of the same pool: it would hold the slot that the other needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A pool for work of one kind.
#[derive(Debug)]
pub struct Pool {
    slots: Arc<Semaphore>,
    limits: PoolLimits,
    running: Arc<AtomicUsize>,
    cancelled: AtomicU64,
}

/// Counters of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCounts {
    /// The number of running work items.
    pub running: usize,
    /// How much work was cancelled since the start because nobody waited for it.
    pub cancelled: u64,
}

/// The limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// How much work runs at the same time.
    pub slots: usize,
    /// How long work may run before its interrupt is set.
    pub deadline: Duration,
    /// How long work may wait for a slot.
    pub longest_wait: Duration,
}

impl PoolLimits {
    /// Half of the CPUs, at least one: the other half stays free for calls.
    pub fn half_of_the_processors() -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (processors / 2).max(1)
    }
}

/// Asks work to stop.
#[derive(Debug, Clone)]
pub struct Interrupt {
    is_abandoned: Arc<AtomicBool>,
    deadline: Instant,
}

impl Interrupt {
    /// Whether nobody waits for the work any more, or its deadline passed.
    pub fn is_set(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

/// Why work was not finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    /// All slots are taken by other work.
    #[error("too much work of this kind is queued; none of it finished within {0:?}")]
    Busy(Duration),
    /// The work panicked, or the runtime is shutting down.
    #[error("the work did not finish: {0}")]
    Failed(String),
}

/// A waiter. Dropping it before the work is done sets the flag and counts.
struct Waiting<'a> {
    is_abandoned: Arc<AtomicBool>,
    cancelled: &'a AtomicU64,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.is_abandoned.store(true, Ordering::Relaxed);
            self.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Counts running work until it ends, also by a panic.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn begin(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// A pool. Its threads are those of Tokio for blocking work.
    pub fn new(limits: PoolLimits) -> Self {
        let slots = Arc::new(Semaphore::new(limits.slots.max(1)));
        Self { slots, limits, running: Arc::default(), cancelled: AtomicU64::new(0) }
    }

    /// The current counters.
    pub fn counts(&self) -> PoolCounts {
        let (running, cancelled) = (self.running.load(Ordering::Relaxed), self.cancelled.load(Ordering::Relaxed));
        PoolCounts { running, cancelled }
    }

    /// Runs work when a slot is free. Dropping the future removes it from the queue, or interrupts it.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Interrupt) -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        self.slot().await?.run(work).await
    }

    /// Waits for a slot, for work whose data is loaded first: what waits for a slot then holds no data. Dropping the
    /// slot frees it.
    pub async fn slot(&self) -> Result<Slot<'_>, NotDone> {
        let mut waiting = Waiting { is_abandoned: Arc::default(), cancelled: &self.cancelled, is_over: false };
        let acquired = tokio::time::timeout(self.limits.longest_wait, Arc::clone(&self.slots).acquire_owned());
        let permit = match acquired.await {
            Ok(permit) => permit.map_err(|error| NotDone::Failed(error.to_string())),
            Err(_) => Err(NotDone::Busy(self.limits.longest_wait)),
        };
        waiting.is_over = true;
        Ok(Slot { pool: self, permit: permit? })
    }
}

/// A slot of a pool.
#[derive(Debug)]
pub struct Slot<'p> {
    pool: &'p Pool,
    permit: OwnedSemaphorePermit,
}

impl Slot<'_> {
    /// Runs work in this slot. Dropping the future interrupts it.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&Interrupt) -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        let Self { pool, permit } = self;
        let mut waiting = Waiting { is_abandoned: Arc::default(), cancelled: &pool.cancelled, is_over: false };
        let (is_abandoned, running) = (Arc::clone(&waiting.is_abandoned), Arc::clone(&pool.running));
        let deadline = pool.limits.deadline;
        let done = tokio::task::spawn_blocking(move || {
            let running = Running::begin(running);
            let interrupt = Interrupt { is_abandoned, deadline: Instant::now() + deadline };
            let done = work(&interrupt);
            // The slot is free when the work has ended, not when its future is dropped.
            drop((running, permit));
            done
        });
        let done = done.await.map_err(|error| NotDone::Failed(error.to_string()));
        waiting.is_over = true;
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn limits(slots: usize) -> PoolLimits {
        PoolLimits { slots, deadline: Duration::from_secs(600), longest_wait: Duration::from_secs(600) }
    }

    fn spin_until_interrupted(interrupt: &Interrupt) {
        while !interrupt.is_set() {
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn work_runs_on_another_thread_and_returns_its_result() {
        let here = std::thread::current().id();
        let there = Pool::new(limits(1)).run(|_| std::thread::current().id()).await.unwrap();
        assert_ne!(here, there);
    }

    #[tokio::test]
    async fn work_ends_at_its_deadline() {
        let pool = Pool::new(PoolLimits { deadline: Duration::from_millis(20), ..limits(1) });
        pool.run(spin_until_interrupted).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn dropping_the_future_interrupts_the_work_and_frees_its_slot() {
        let pool = Pool::new(limits(1));
        let (began, has_begun) = mpsc::channel();
        let mut running = Box::pin(pool.run(move |interrupt| {
            began.send(()).unwrap();
            spin_until_interrupted(interrupt);
        }));
        tokio::select! {
            _ = &mut running => panic!("it ends only when it is interrupted"),
            () = async { tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap() } => {}
        }
        assert_eq!(pool.counts(), PoolCounts { running: 1, cancelled: 0 });
        drop(running);
        assert_eq!(pool.run(|_| 7).await, Ok(7), "the slot is free again");
        assert_eq!(pool.counts(), PoolCounts { running: 0, cancelled: 1 });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_more_work_runs_at_once_than_there_are_slots() {
        let pool = Arc::new(Pool::new(limits(2)));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let all: Vec<_> = (0..20)
            .map(|_| {
                let (pool, running, most) = (Arc::clone(&pool), Arc::clone(&running), Arc::clone(&most));
                tokio::spawn(async move {
                    pool.run(move |_| {
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(1));
                        running.fetch_sub(1, Ordering::SeqCst);
                    })
                    .await
                })
            })
            .collect();
        for one in all {
            one.await.unwrap().unwrap();
        }
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn waiting_too_long_for_a_slot_is_an_error() {
        let pool = Arc::new(Pool::new(PoolLimits { longest_wait: Duration::from_millis(20), ..limits(1) }));
        let (began, has_begun) = mpsc::channel();
        let first = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move {
                pool.run(move |interrupt| {
                    began.send(()).unwrap();
                    spin_until_interrupted(interrupt);
                })
                .await
            }
        });
        tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
        assert_eq!(pool.run(|_| ()).await, Err(NotDone::Busy(Duration::from_millis(20))));
        first.abort();
    }

    #[tokio::test]
    async fn a_slot_that_is_held_or_dropped_counts_without_any_work() {
        let pool = Pool::new(PoolLimits { longest_wait: Duration::from_millis(20), ..limits(1) });
        let slot = pool.slot().await.unwrap();
        assert_eq!(pool.run(|_| ()).await, Err(NotDone::Busy(Duration::from_millis(20))));
        assert_eq!(slot.run(|_| 7).await, Ok(7));
        drop(pool.slot().await.unwrap());
        assert_eq!(pool.run(|_| 8).await, Ok(8), "both slots are free again");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_frees_the_slot() {
        let pool = Pool::new(limits(1));
        assert!(matches!(pool.run(|_| panic!("boom")).await, Err(NotDone::Failed(_))));
        assert_eq!(pool.run(|_| 1).await, Ok(1));
    }
}
