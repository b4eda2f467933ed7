//! The body of a response, read as it arrives; its connection is reused once it is read to the end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use protocol::lines::LONGEST_LINE;
use tokio::time::timeout;
use upstream::IncomingMessage;

use crate::error::RequestError;
use crate::pool::{Pool, PooledConnection};

/// How much of an unwanted response is read nevertheless, to reuse its connection.
const WORTH_READING: usize = 64 << 10;
const WORTH_WAITING: Duration = Duration::from_secs(1);
/// How much memory is reserved for a length that a server declares.
const WORTH_RESERVING: usize = 8 << 20;

/// The body of a response. Dropping it before its end closes the connection, which shows the server that it is not
/// read.
#[derive(Debug)]
pub(crate) struct Body {
    incoming: Incoming,
    connection: Option<PooledConnection>,
    pool: Arc<Pool>,
}

impl Body {
    pub(crate) fn new(incoming: Incoming, connection: PooledConnection, pool: Arc<Pool>) -> Self {
        Self { incoming, connection: Some(connection), pool }
    }

    /// The next bytes; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, RequestError>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RequestError>>> {
        // More data arrives only when the connection is polled after it was requested.
        let mut was_moved = false;
        // Without its connection, all of it was read.
        while self.connection.is_some() {
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        if self.incoming.is_end_stream() {
                            self.release(cx);
                        }
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    self.connection = None;
                    return Poll::Ready(Some(Err(RequestError::broke_off(&error))));
                }
                Poll::Ready(None) => {
                    self.release(cx);
                    return Poll::Ready(None);
                }
                Poll::Pending if was_moved => return Poll::Pending,
                Poll::Pending => {
                    self.connection.iter_mut().for_each(|connection| connection.move_along(cx));
                    was_moved = true;
                }
            }
        }
        Poll::Ready(None)
    }

    /// The complete body, within the limits of its server.
    pub(crate) async fn message(self, incoming: &mut IncomingMessage) -> Result<Bytes, RequestError> {
        let whole = self.gather(|length| incoming.grow(length).map_err(RequestError::TooLarge)).await?;
        incoming.whole(whole).map_err(RequestError::TooLarge)
    }

    /// The complete body, within bounds.
    pub(crate) async fn whole(self) -> Result<Bytes, RequestError> {
        self.within(LONGEST_LINE).await
    }

    /// The complete body, if it is no longer than that.
    pub(crate) async fn within(self, most: usize) -> Result<Bytes, RequestError> {
        let too_long = || RequestError::BrokeOff(format!("it is longer than {} MB", most >> 20));
        let whole = self.gather(|length| if length > most { Err(too_long()) } else { Ok(()) }).await?;
        // Its first parts are gathered unchecked.
        if whole.len() > most { Err(too_long()) } else { Ok(whole) }
    }

    async fn gather(mut self, mut check: impl FnMut(usize) -> Result<(), RequestError>) -> Result<Bytes, RequestError> {
        let Some(first) = self.next().await.transpose()? else { return Ok(Bytes::new()) };
        let Some(second) = self.next().await.transpose()? else { return Ok(first) };
        let announced = usize::try_from(self.incoming.size_hint().lower()).unwrap_or(usize::MAX);
        let mut whole = BytesMut::with_capacity(first.len() + second.len() + announced.min(WORTH_RESERVING));
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(more) = self.next().await.transpose()? {
            check(whole.len() + more.len())?;
            whole.extend_from_slice(&more);
        }
        Ok(whole.freeze())
    }

    /// Discards a response whose body is irrelevant. If it is short, its connection is reused.
    pub(crate) async fn discard(mut self) {
        let reading = async {
            let mut length = 0;
            while let Some(Ok(data)) = self.next().await {
                length += data.len();
                if length > WORTH_READING {
                    return;
                }
            }
        };
        drop(timeout(WORTH_WAITING, reading).await);
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = self.connection.take() {
            self.pool.keep(connection, cx);
        }
    }
}
