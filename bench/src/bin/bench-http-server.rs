//! `bench-http-server [--tools N]`: the test server over Streamable HTTP, with the answers of `bench-server`.
//!
//! Every answer is one `application/json` body, never a stream. `initialize` hands out a session id, and nobody is
//! refused for not sending it. The path `/protected` wants a token (see `bench::protected`). Ends when its stdin does.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bench::answers::Answers;
use bench::listener::serve;
use bench::protected;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};

const SESSION_HEADER: &str = "mcp-session-id";

fn main() -> Result<()> {
    let server = Arc::new(Server { answers: Mutex::new(Answers::from_command_line()?), sessions: AtomicU64::new(0) });
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { server.respond(request).await }
    });
    serve(service)
}

struct Server {
    answers: Mutex<Answers>,
    /// How many have begun.
    sessions: AtomicU64,
}

impl Server {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        if let Some(answer) = protected::answer(&request) {
            return Ok(answer);
        }
        Ok(match *request.method() {
            Method::POST => match request.into_body().collect().await {
                Ok(body) => self.answer(&body.to_bytes()),
                Err(_) => empty(StatusCode::BAD_REQUEST),
            },
            Method::DELETE => empty(StatusCode::NO_CONTENT),
            // There is nothing to listen to.
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        })
    }

    fn answer(&self, message: &[u8]) -> Response<Full<Bytes>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(answer) = answers.to(message) else {
            return empty(StatusCode::ACCEPTED);
        };
        let mut body = Vec::with_capacity(answer.rest.len() + 64);
        answer.write_start(&mut body);
        body.extend_from_slice(answer.rest.strip_suffix(b"\n").unwrap_or(&answer.rest));
        let mut response = Response::new(Full::from(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if memchr::memmem::find(message, br#""method":"initialize""#).is_some() {
            let session = HeaderValue::from(self.sessions.fetch_add(1, Ordering::Relaxed));
            response.headers_mut().insert(SESSION_HEADER, session);
        }
        response
    }
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
