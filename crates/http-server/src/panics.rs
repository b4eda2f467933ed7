//! A panic while a request is answered becomes a response and a line in the log, instead of a connection that just closes.
//!
//! This is a net below everything else: a panic is a defect, and nothing a client or a server sends should cause one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// What a panic said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Panicked(pub(crate) String);

/// The output of a future, unless it panics. It is not polled again then.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        // What the future shares with others is behind locks that expect a panic of their holder.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(Panicked(message(&*payload)))),
        }
    })
    .await
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported_and_anything_else_passes() {
        assert_eq!(caught(async { 5 }).await, Ok(5));
        let late = caught(async {
            tokio::task::yield_now().await;
            let nothing: Vec<u8> = Vec::new();
            nothing[usize::from(nothing.is_empty())]
        });
        let Panicked(why) = late.await.unwrap_err();
        assert!(why.contains("index out of bounds"), "{why}");
        let plain = caught(async { panic!("plain words") });
        assert_eq!(plain.await, Err::<(), _>(Panicked("plain words".to_owned())));
    }
}
