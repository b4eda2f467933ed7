//! Turns a panic in a request handler into a response and a log line, instead of a closed connection.
//!
//! This is the last line of defence: a panic is a bug, and nothing a client or a server sends should cause one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The message of a panic.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Panicked(pub(crate) String);

/// The output of a future, unless it panics. It is not polled again then.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        // What the future shares is behind locks that recover from a panic of their holder.
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
