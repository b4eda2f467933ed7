//! Reads the body of a request within limits, as one line.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::{Response, StatusCode};
use protocol::replace_line_breaks;
use tokio::time::{Instant, timeout_at};

use crate::answer;
use crate::body;
use crate::identity::{Full, Identity, Receiving};
use crate::limits::Limits;

/// The capacity for a body of unknown length, and the maximum allocated in advance for a declared length.
const INITIAL_BODY_CAPACITY: usize = 64 << 10;

/// The maximum read from an unauthenticated client: enough to sign in.
const UNKNOWN_MOST: usize = 64 << 10;

/// Why a body could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BodyError {
    TooLarge {
        most: usize,
    },
    /// Too large without a token.
    TooLargeForUnknown,
    TooMuch(Full),
    TooSlow,
    Disconnected,
}

impl BodyError {
    pub(crate) fn response(self) -> Response<body::Body> {
        let (status, why) = self.status_and_message();
        closing(answer::refuse(status, &why))
    }

    /// The status and the message for it.
    pub(crate) fn status_and_message(self) -> (StatusCode, String) {
        match self {
            Self::TooLarge { most } => {
                let most = most >> 20;
                (StatusCode::PAYLOAD_TOO_LARGE, format!("Request too large: at most {most} MB (limit `body-mb`)"))
            }
            Self::TooLargeForUnknown => {
                let most = UNKNOWN_MOST >> 10;
                (StatusCode::PAYLOAD_TOO_LARGE, format!("Request too large: at most {most} kB without a token"))
            }
            Self::TooMuch(Full { is_own: true, why }) => (StatusCode::TOO_MANY_REQUESTS, why),
            Self::TooMuch(Full { is_own: false, why }) => (StatusCode::SERVICE_UNAVAILABLE, why),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "The request body arrived too slowly".to_owned()),
            Self::Disconnected => (StatusCode::BAD_REQUEST, "The request is incomplete".to_owned()),
        }
    }
}

/// Closes the connection: the rest of the body is useless, and would have to be read otherwise.
pub(crate) fn closing(mut response: Response<body::Body>) -> Response<body::Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Reads a body as one line. A body in one piece is not copied.
pub(crate) async fn read<B: Body<Data = Bytes> + Unpin>(
    body: B,
    limits: &Limits,
    identity: &Arc<Identity>,
) -> Result<Bytes, BodyError> {
    let (body, receiving) = gather(body, limits, limits.body, identity).await?;
    Ok(held(one_line(body), receiving))
}

/// Reads a body unchanged.
pub(crate) async fn whole<B: Body<Data = Bytes> + Unpin>(
    body: B,
    limits: &Limits,
    identity: &Arc<Identity>,
) -> Result<Bytes, BodyError> {
    let (body, receiving) = gather(body, limits, limits.body, identity).await?;
    Ok(held(body, receiving))
}

/// The same for an unauthenticated client.
pub(crate) async fn of_unknown<B: Body<Data = Bytes> + Unpin>(
    body: B,
    limits: &Limits,
    identity: &Arc<Identity>,
) -> Result<Bytes, BodyError> {
    match gather(body, limits, limits.body.min(UNKNOWN_MOST), identity).await {
        Ok((body, receiving)) => Ok(held(body, receiving)),
        Err(BodyError::TooLarge { .. }) => Err(BodyError::TooLargeForUnknown),
        Err(refused) => Err(refused),
    }
}

fn held(body: Bytes, receiving: Option<Receiving>) -> Bytes {
    match receiving {
        Some(receiving) => receiving.hold(body),
        None => body,
    }
}

/// The complete body, with the reservation of a large one.
async fn gather<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limits: &Limits,
    most: usize,
    identity: &Arc<Identity>,
) -> Result<(Bytes, Option<Receiving>), BodyError> {
    let promised = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let too_large = BodyError::TooLarge { most };
    if promised > most {
        return Err(too_large);
    }
    let mut pace = Pace::new(limits);
    let Some(first) = next(&mut body, &mut pace).await? else { return Ok((Bytes::new(), None)) };
    if first.len() > most {
        return Err(too_large);
    }
    let mut receiving = None;
    count(identity, &mut receiving, first.len())?;
    if body.is_end_stream() {
        return Ok((first, receiving));
    }
    let mut whole = BytesMut::with_capacity(promised.clamp(first.len(), INITIAL_BODY_CAPACITY.max(first.len())));
    whole.extend_from_slice(&first);
    while let Some(more) = next(&mut body, &mut pace).await? {
        if whole.len() + more.len() > most {
            return Err(too_large);
        }
        count(identity, &mut receiving, whole.len() + more.len())?;
        whole.extend_from_slice(&more);
    }
    Ok((whole.freeze(), receiving))
}

/// Counts the length of a body so far, unless it is small: there are no more small ones than connections.
fn count(identity: &Arc<Identity>, receiving: &mut Option<Receiving>, length: usize) -> Result<(), BodyError> {
    if length <= INITIAL_BODY_CAPACITY {
        return Ok(());
    }
    receiving.get_or_insert_with(|| identity.receive()).grow(length).map_err(BodyError::TooMuch)
}

/// The deadline of a body.
///
/// It has [`Limits::body_timeout`] from the first wait on. Every byte that arrives moves the deadline by the time it
/// may take at [`Limits::body_rate`], but never beyond the same timeout from now. So a body at a fair rate may take as
/// long as its size requires; one that stalls or trickles ends within the timeout.
struct Pace {
    timeout: Duration,
    /// Bytes per second.
    rate: u64,
    deadline: Option<Instant>,
}

impl Pace {
    fn new(limits: &Limits) -> Self {
        Self { timeout: limits.body_timeout, rate: (limits.body_rate as u64).max(1), deadline: None }
    }

    /// The current deadline. The clock is first read when there is something to wait for.
    fn deadline(&mut self) -> Instant {
        *self.deadline.get_or_insert_with(|| Instant::now() + self.timeout)
    }

    fn received(&mut self, bytes: usize) {
        let Some(deadline) = &mut self.deadline else { return };
        let earned = Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.rate);
        *deadline = (*deadline + earned).min(Instant::now() + self.timeout);
    }
}

/// The next chunk of data, if there is one.
async fn next<B: Body<Data = Bytes> + Unpin>(body: &mut B, pace: &mut Pace) -> Result<Option<Bytes>, BodyError> {
    loop {
        // Usually it arrived together with the head, and the clock need not be read.
        let at_hand = poll_fn(|context| Poll::Ready(Pin::new(&mut *body).poll_frame(context))).await;
        let frame = match at_hand {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
                timeout_at(pace.deadline(), frame).await.map_err(|_| BodyError::TooSlow)?
            }
        };
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(BodyError::Disconnected),
            // Other frames are trailers, which are ignored.
            Some(Ok(frame)) => {
                if let Ok(data) = Frame::into_data(frame) {
                    pace.received(data.len());
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Servers over stdio are sent lines, so line breaks between tokens become spaces. One inside a string stays, and the
/// scanner rejects the message.
fn one_line(body: Bytes) -> Bytes {
    let inner = body.trim_ascii();
    let line = body.slice_ref(inner);
    if memchr::memchr2(b'\n', b'\r', &line).is_none() {
        return line;
    }
    drop(body);
    let mut line = line.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    replace_line_breaks(&mut line);
    line.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::task::Context;
    use tokio::time::Sleep;

    /// Chunks that arrive one after the other, each after a pause.
    struct Slow {
        stretches: VecDeque<&'static [u8]>,
        pause: Duration,
        sleep: Option<Pin<Box<Sleep>>>,
    }

    fn slow(stretches: &[&'static [u8]], pause: Duration) -> Slow {
        Slow { stretches: stretches.iter().copied().collect(), pause, sleep: None }
    }

    impl Body for Slow {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let pause = self.pause;
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            std::task::ready!(sleep.as_mut().poll(context));
            self.sleep = None;
            Poll::Ready(self.stretches.pop_front().map(|data| Ok(Frame::data(Bytes::from_static(data)))))
        }
    }

    fn limits() -> Limits {
        Limits { body: 10, body_timeout: Duration::from_secs(10), body_rate: 1, ..Limits::default() }
    }

    async fn read<B: Body<Data = Bytes> + Unpin>(body: B, limits: &Limits) -> Result<Bytes, BodyError> {
        super::read(body, limits, &Identity::alone(limits)).await
    }

    #[tokio::test]
    async fn a_large_body_counts_until_it_is_dropped() {
        let limits = Limits { body: 1 << 20, received: 300 << 10, ..Limits::default() };
        let identity = Identity::alone(&limits);
        let large = || body::Body::Whole(Bytes::from(vec![b'x'; 200 << 10]));
        let first = super::read(large(), &limits, &identity).await.unwrap();
        let refused = super::read(large(), &limits, &identity).await.unwrap_err();
        assert!(refused.clone().status_and_message().1.contains("the local user"), "{refused:?}");
        drop(first);
        super::read(large(), &limits, &identity).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_becomes_one_line_whatever_its_form() {
        let read = |stretches| async move { read(slow(stretches, Duration::from_secs(1)), &limits()).await.unwrap() };
        assert_eq!(read(&[b"{\r\n}", b"\n"]).await, "{  }");
        assert_eq!(read(&[b" {", b"", b"}\n"]).await, "{}");
        assert_eq!(read(&[]).await, "");
        assert_eq!(read(&[b"[\"a\n", b"\"\n]"]).await, "[\"a\n\" ]", "a break inside a string stays");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_beyond_the_limit_is_refused_as_soon_as_that_is_known() {
        let endless = slow(&[b"123456", b"7890", b"1", b"never looked at"], Duration::ZERO);
        assert_eq!(read(endless, &limits()).await, Err(BodyError::TooLarge { most: 10 }));
        let promised = body::Body::Whole(Bytes::from_static(b"12345678901"));
        assert_eq!(read(promised, &limits()).await, Err(BodyError::TooLarge { most: 10 }));
    }

    #[tokio::test]
    async fn unauthenticated_clients_may_send_little() {
        let limits = Limits::default();
        let of = |length| body::Body::Whole(Bytes::from(vec![b'x'; length]));
        let identity = Identity::alone(&limits);
        assert_eq!(of_unknown(of(UNKNOWN_MOST), &limits, &identity).await.unwrap().len(), 64 << 10);
        let refused = of_unknown(of(UNKNOWN_MOST + 1), &limits, &identity).await.unwrap_err();
        assert_eq!(refused.status_and_message().1, "Request too large: at most 64 kB without a token");
    }

    /// How it ended, and after how many seconds.
    async fn timed(body: Slow, limits: &Limits) -> (Result<usize, BodyError>, u64) {
        let began = Instant::now();
        let outcome = read(body, limits).await;
        (outcome.map(|body| body.len()), began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_or_trickles_ends_within_the_timeout() {
        let limits = Limits { body: 1000, body_rate: 100, ..limits() };
        assert_eq!(timed(slow(&[b"1"], Duration::from_secs(11)), &limits).await, (Err(BodyError::TooSlow), 10));
        let trickling = slow(&[b"1".as_slice(); 100], Duration::from_secs(1));
        assert_eq!(timed(trickling, &limits).await, (Err(BodyError::TooSlow), 10), "a second's worth is 100 bytes");
        let empty = slow(&[b"".as_slice(); 100], Duration::from_secs(1));
        assert_eq!(timed(empty, &limits).await, (Err(BodyError::TooSlow), 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_at_a_fair_rate_takes_as_long_as_it_needs() {
        const STRETCH: &[u8] = &[b'x'; 100];
        let limits = Limits { body: 10_000, body_rate: 100, ..limits() };
        let fair = slow(&[STRETCH; 60], Duration::from_secs(1));
        assert_eq!(timed(fair, &limits).await, (Ok(6000), 61));
        // An earlier fast rate does not permit a longer pause.
        let mut stretches = vec![STRETCH; 50];
        stretches.extend([b"1".as_slice(); 50]);
        let then_trickles = slow(&stretches, Duration::from_millis(500));
        let (outcome, seconds) = timed(then_trickles, &limits).await;
        assert_eq!(outcome, Err(BodyError::TooSlow));
        assert!((35..37).contains(&seconds), "25 s of data, then the timeout: {seconds} s");
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_not_copied() {
        let bytes = Bytes::from(vec![b'x'; 9]);
        let whole = body::Body::Whole(bytes.clone());
        assert_eq!(read(whole, &limits()).await.unwrap().as_ptr(), bytes.as_ptr());
    }
}
