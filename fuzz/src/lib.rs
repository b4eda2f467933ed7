//! What all fuzz targets share: a bound on the processor time of one case.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The longest time that one case may take on a processor. More is a finding, as a panic is.
const LONGEST_CASE: Duration = Duration::from_millis(100);
/// How often a case is measured before it counts as too slow: on a busy machine even the time on a processor is longer now
/// and then, since its caches are shared.
const MAX_MEASUREMENTS: usize = 5;

/// Runs a case and panics if it takes too long, each time it is measured. The time of other threads and processes does not
/// count.
pub fn bounded(case: impl Fn()) {
    let mut fastest = Duration::MAX;
    for _ in 0..MAX_MEASUREMENTS {
        let begun = thread_time();
        case();
        fastest = fastest.min(thread_time().saturating_sub(begun));
        if fastest <= LONGEST_CASE {
            return;
        }
    }
    panic!("the case took at least {fastest:?}, measured {MAX_MEASUREMENTS} times; {LONGEST_CASE:?} are allowed");
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("a thread's time is positive");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("less than a second"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn spin(time: Duration) {
        let begun = thread_time();
        while thread_time() - begun < time {}
    }

    #[test]
    fn a_case_that_is_slow_once_is_no_finding() {
        let runs = Cell::new(0);
        bounded(|| {
            runs.set(runs.get() + 1);
            if runs.get() == 1 {
                spin(LONGEST_CASE * 2);
            }
        });
        assert_eq!(runs.get(), 2);
    }

    #[test]
    #[should_panic(expected = "the case took at least")]
    fn a_case_that_is_always_slow_is_a_finding() {
        bounded(|| spin(LONGEST_CASE * 2));
    }
}
