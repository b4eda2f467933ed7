//! Polls a future that wakes itself again at once, without the scheduler.
//!
//! When a body is read, hyper's connection wakes its own task, from within its own poll, to request more. For tokio
//! that is a task that yields: it goes to the back of the queue, and another thread is woken to steal it. One client
//! would keep two threads busy, at every request. So the connection gets a waker of ours, which during a poll only
//! sets a flag.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// The maximum number of polls in a row, then other tasks get a turn.
const MAX_POLLS: usize = 8;

/// A poll is in progress.
const POLLING: u8 = 1;
/// The waker was called.
const WOKEN: u8 = 2;

/// Polls `future` again at once, a limited number of times, when it is woken while it is being polled.
pub(crate) fn self_wake<F: Future + Unpin>(future: F) -> SelfWake<F> {
    let flag = Arc::new(WakeFlag { state: AtomicU8::new(0), task: Mutex::new(Waker::noop().clone()) });
    SelfWake { future, waker: Waker::from(Arc::clone(&flag)), flag }
}

pub(crate) struct SelfWake<F> {
    future: F,
    flag: Arc<WakeFlag>,
    /// Sets the flag.
    waker: Waker,
}

impl<F: Future + Unpin> Future for SelfWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, flag, waker } = &mut *self;
        flag.set_task(context.waker());
        for _ in 0..MAX_POLLS {
            flag.mute();
            if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(output);
            }
            if flag.unmute_if_silent() {
                return Poll::Pending;
            }
        }
        flag.unmute();
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Wakes the task, unless the task is awake.
struct WakeFlag {
    /// Changed only by read-modify-write operations: a reader of the flag sees everything that happened before it was
    /// set.
    state: AtomicU8,
    task: Mutex<Waker>,
}

impl WakeFlag {
    /// Comes first in a poll: a wake that still went to the task's former waker happened before this, and its cause is
    /// seen by the poll that follows.
    fn set_task(&self, task: &Waker) {
        let mut known = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone_from(task);
    }

    /// A poll begins; it sees the cause of all earlier wakes.
    fn mute(&self) {
        self.state.swap(POLLING, Ordering::AcqRel);
    }

    /// A poll has ended. If there was no wake meanwhile, wakes reach the task again.
    fn unmute_if_silent(&self) -> bool {
        self.state.compare_exchange(POLLING, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn unmute(&self) {
        self.state.swap(0, Ordering::AcqRel);
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let was = self.state.fetch_or(WOKEN, Ordering::AcqRel);
        if was & POLLING == 0 {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Duration;

    /// A task that counts how often it is woken.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Task {
        fn times_woken(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn poll<F: Future + Unpin>(future: &mut SelfWake<F>, task: &Arc<Task>) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(task));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    /// Pending, with `wake` called in each poll, until it was polled `times`.
    fn ready_after(times: usize, mut wake: impl FnMut(&Waker) + Unpin) -> impl Future<Output = usize> + Unpin {
        let mut polls = 0;
        poll_fn(move |context| {
            polls += 1;
            if polls == times {
                return Poll::Ready(polls);
            }
            wake(context.waker());
            Poll::Pending
        })
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again_and_its_task_not_woken() {
        let task = Arc::new(Task::default());
        let mut future = self_wake(ready_after(3, Waker::wake_by_ref));
        assert_eq!(poll(&mut future, &task), Poll::Ready(3));
        assert_eq!(task.times_woken(), 0);
    }

    #[test]
    fn a_wake_from_another_thread_during_the_poll_counts_as_well() {
        let task = Arc::new(Task::default());
        let mut future = self_wake(ready_after(2, |waker| {
            let waker = waker.clone();
            thread::spawn(move || waker.wake()).join().unwrap();
        }));
        assert_eq!(poll(&mut future, &task), Poll::Ready(2));
        assert_eq!(task.times_woken(), 0);
    }

    #[test]
    fn a_wake_after_the_poll_wakes_the_task() {
        let (task, kept) = (Arc::new(Task::default()), Mutex::new(None));
        let mut future = self_wake(ready_after(2, |waker| *kept.lock().unwrap() = Some(waker.clone())));
        assert_eq!(poll(&mut future, &task), Poll::Pending);
        assert_eq!(task.times_woken(), 0);
        kept.lock().unwrap().take().unwrap().wake();
        assert_eq!(task.times_woken(), 1);
        assert_eq!(poll(&mut future, &task), Poll::Ready(2));
    }

    #[test]
    fn a_future_that_wakes_itself_without_end_gives_others_a_turn() {
        let (task, polls) = (Arc::new(Task::default()), AtomicUsize::new(0));
        let mut future = self_wake(ready_after(usize::MAX, |waker| {
            polls.fetch_add(1, Ordering::SeqCst);
            waker.wake_by_ref();
        }));
        assert_eq!(poll(&mut future, &task), Poll::Pending);
        assert_eq!((polls.load(Ordering::SeqCst), task.times_woken()), (MAX_POLLS, 1));
        // A wake between the polls still reaches the task.
        future.waker.wake_by_ref();
        assert_eq!(task.times_woken(), 2);
    }

    #[test]
    fn the_task_that_polled_last_is_the_one_that_is_woken() {
        let (former, latter) = (Arc::new(Task::default()), Arc::new(Task::default()));
        let mut future = self_wake(ready_after(usize::MAX, |_| {}));
        assert_eq!(poll(&mut future, &former), Poll::Pending);
        assert_eq!(poll(&mut future, &latter), Poll::Pending);
        future.waker.wake_by_ref();
        assert_eq!((former.times_woken(), latter.times_woken()), (0, 1));
    }

    #[tokio::test]
    async fn no_wake_is_lost_between_threads() {
        const ROUNDS: usize = 20_000;
        // One thread counts up and wakes; the future follows, and answers, so that the next wake may come at any moment.
        let shared = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(None::<Waker>)));
        let counting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let (counted, seen, waker) = &*shared;
                for round in 1..=ROUNDS {
                    counted.store(round, Ordering::Release);
                    let waker = waker.lock().unwrap().clone();
                    waker.inspect(Waker::wake_by_ref);
                    while seen.load(Ordering::Acquire) < round {
                        thread::yield_now();
                    }
                }
            }
        });
        let mut following = self_wake(poll_fn(|context| {
            let (counted, seen, waker) = &*shared;
            *waker.lock().unwrap() = Some(context.waker().clone());
            let count = counted.load(Ordering::Acquire);
            seen.store(count, Ordering::Release);
            if count == ROUNDS { Poll::Ready(()) } else { Poll::Pending }
        }));
        // On a busy machine every round may take long, but a lost wake ends all progress.
        let mut seen_before = 0;
        while tokio::time::timeout(Duration::from_secs(60), &mut following).await.is_err() {
            let seen = shared.1.load(Ordering::Acquire);
            assert!(seen > seen_before, "it hears of every count, not only of {seen}");
            seen_before = seen;
        }
        counting.join().unwrap();
    }
}
