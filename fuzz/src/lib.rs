//! What all fuzz targets share: a bound on the processor time of one case.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The longest time that one case may take on a processor. More is a finding, as a panic is.
const LONGEST_CASE: Duration = Duration::from_millis(100);

/// Runs a case and panics if it took too long. The time of other threads and processes does not count.
pub fn bounded<R>(case: impl FnOnce() -> R) -> R {
    let begun = thread_time();
    let result = case();
    let taken = thread_time().saturating_sub(begun);
    assert!(taken <= LONGEST_CASE, "the case took {taken:?}; {LONGEST_CASE:?} are allowed");
    result
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("a thread's time is positive");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("less than a second"))
}
