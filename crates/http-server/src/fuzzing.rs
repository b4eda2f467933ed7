//! Request processing up to the handler, for the fuzz target `http_body` and the test that replays its corpus.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use catalog::Principal;
use hyper::Request;
use hyper::body::{Body, Frame};
use hyper::http::request::Parts;
use protocol::{Envelope, Kind, text};

use crate::accept::{Accepts, sends_json};
use crate::guard::{Guard, GuardedConnection};
use crate::identity::Identities;
use crate::limits::Limits;
use crate::path::{PathTarget, query};
use crate::sse_frame::EventId;
use crate::tokens::Tokens;
use crate::{cors, legacy, modern, post, read_body};

/// Bytes of one chunk of a body.
const STRETCH: usize = 4096;

/// Processes a raw request: a line with a method and a path, headers, an empty line, and a body. Panics if an
/// invariant is violated.
pub fn check_request(data: &[u8]) {
    let Some(parts) = head_of(data) else { return };
    let body = body_of(data);
    let limits = Limits { body: 1 << 20, ..Limits::default() };
    let identities = Identities::new(&limits, true);
    let guarded = GuardedConnection::new(Ipv4Addr::LOCALHOST.into());
    let guard = Guard::new(&["example.com".to_owned()], &["https://example.com".to_owned()]).expect("both make sense");
    let origin = guard.check(&parts.uri, &parts.headers, &guarded).ok().flatten();
    if origin.is_some() && cors::is_preflight(&parts.headers) {
        cors::preflight(&parts.headers);
    }
    let target = PathTarget::at(parts.uri.path());
    if let Some(surface) = query(parts.uri.query(), "surface") {
        drop(surface.parse::<aggregator::Surface>());
    }
    drop(query(parts.uri.query(), "sessionId"));
    let tokens = Tokens::read("one:0123456789abcdef\ntwo:fedcba9876543210").expect("both make sense");
    let principal =
        tokens.admit(&parts.headers).map_or_else(|_| Principal::local(), |admitted| Arc::clone(admitted.principal()));
    let identity = guarded.identify(&identities, &principal).expect("it is the first connection");
    let accepts = Accepts::read(&parts.headers);
    drop((target, sends_json(&parts.headers), accepts));
    legacy::last_event(&parts.headers).map(|EventId { stream, number }| (stream, number));
    legacy::refusal_of_revision(&parts.headers);

    let length = body.len();
    let stretches = body.chunks(STRETCH).map(Bytes::copy_from_slice).collect();
    let read = pin!(read_body::read(Stretches(stretches), &limits, &identity));
    // All of it is present, so the future is ready.
    let Poll::Ready(read) = read.poll(&mut Context::from_waker(Waker::noop())) else { panic!("a body at hand waits") };
    match read {
        Ok(line) => check_line(&parts, &line, length),
        Err(_) => assert!(length > limits.body, "a body within the limit is refused"),
    }
}

fn check_line(parts: &Parts, line: &Bytes, length: usize) {
    assert!(line.len() <= length, "a line is no longer than its body");
    let scanned = Envelope::scan(line);
    // A line break inside a string is kept, and is invalid JSON.
    let is_one_line = memchr::memchr2(b'\n', b'\r', line).is_none();
    assert!(is_one_line || scanned.is_err(), "a message has no line break in it");
    post::is_modern(&scanned, &parts.headers);
    legacy::batch_wants_answer(line);
    match scanned {
        Ok(Envelope { kind: Kind::Request { id, method }, params }) => {
            assert!(id.end <= line.len() && method.end <= line.len());
            let method = text::decode(method.of(line)).unwrap_or_default();
            if let Err(problem) = modern::check_headers(line, &parts.headers, &method, &params) {
                assert!(Envelope::scan(&problem.answer(id.of(line))).is_ok(), "a refusal is a message");
            }
        }
        Ok(_) => {}
        Err(fault) => drop(post::refuse_invalid(fault, line)),
    }
}

/// The head, if there is one that hyper would accept.
fn head_of(data: &[u8]) -> Option<Parts> {
    let head = std::str::from_utf8(&data[..end_of_head(data)]).ok()?;
    let mut lines = head.lines();
    let (method, path) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(path.split(' ').next()?);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        request = request.header(name, value.trim());
    }
    Some(request.body(()).ok()?.into_parts().0)
}

fn body_of(data: &[u8]) -> &[u8] {
    data.get(end_of_head(data) + 2..).unwrap_or_default()
}

fn end_of_head(data: &[u8]) -> usize {
    memchr::memmem::find(data, b"\n\n").unwrap_or(data.len())
}

/// A complete body, in several chunks.
struct Stretches(VecDeque<Bytes>);

impl Body for Stretches {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|stretch| Ok(Frame::data(stretch))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_of_the_fuzz_corpus_is_taken_in() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/http_body");
        let mut with_head = 0;
        for file in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
            let data = std::fs::read(file.unwrap().path()).unwrap();
            with_head += usize::from(head_of(&data).is_some());
            check_request(&data);
        }
        assert!(with_head >= 20, "only {with_head} requests have a head");
    }
}
