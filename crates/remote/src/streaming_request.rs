//! Requests to an address where nobody speaks MCP and answers come piece by piece, such as the API of a language model.

use bytes::Bytes;
use catalog::{Dialect, Remote};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Response};

use crate::body::Body;
use crate::http::Http;
use crate::request::{NoResponse, no_response};

/// An address, and what is sent along with every request. It has no `Debug`, for its headers may hold a key.
#[derive(Clone)]
pub struct StreamingRequest {
    http: Http,
    headers: HeaderMap,
}

/// An answer whose head is here. To drop it before its end tells the other side that nobody listens.
#[derive(Debug)]
pub struct Reply(Response<Body>);

impl StreamingRequest {
    /// Requests with JSON in them for that address. If that cannot work: why.
    pub fn new(url: &str, headers: Vec<(String, String)>) -> Result<Self, String> {
        let http = Http::new(&Remote { url: url.into(), headers, dialect: Dialect::Unknown });
        let http = http.map_err(|error| error.to_string())?;
        let headers = http.headers_for(HeaderValue::from_static("application/json"));
        Ok(Self { http, headers })
    }

    /// Sends a request once, and waits for the head of its answer for as long as it takes.
    pub async fn send(&self, body: Bytes) -> Result<Reply, NoResponse> {
        self.http.post_once(&self.headers, body).await.map(Reply).map_err(no_response)
    }

    /// Asks for what is there, and waits for the head of the answer for as long as it takes.
    pub async fn listen(&self) -> Result<Reply, NoResponse> {
        self.http.once(Method::GET, Bytes::new()).await.map(Reply).map_err(no_response)
    }
}

impl Reply {
    /// How it went.
    pub fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// What was said beside it.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers().get(name)?.to_str().ok()
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, NoResponse>> {
        Some(self.0.body_mut().next().await?.map_err(no_response))
    }

    /// Everything, within bounds.
    pub async fn whole(self) -> Result<Bytes, NoResponse> {
        self.0.into_body().whole().await.map_err(no_response)
    }
}
