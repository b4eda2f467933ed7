//! Requests to an address that is no MCP server and responds in pieces, such as the API of a language model.

use bytes::Bytes;
use catalog::Remote;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Response};

use crate::body::Body;
use crate::http::Http;
use crate::request::{NoResponse, no_response};

/// An address, and the headers of every request. It has no `Debug`, because its headers may contain a key.
#[derive(Clone)]
pub struct StreamingRequest {
    http: Http,
    headers: HeaderMap,
}

/// A response whose head has arrived. Dropping it before its end closes the connection.
#[derive(Debug)]
pub struct Reply(Response<Body>);

impl StreamingRequest {
    /// Requests with JSON for that address. The error is why that cannot work.
    pub fn new(url: &str, headers: Vec<(String, String)>) -> Result<Self, String> {
        let http = Http::new(&Remote::at(url, headers));
        let http = http.map_err(|error| error.to_string())?;
        let headers = http.headers_for(HeaderValue::from_static("application/json"));
        Ok(Self { http, headers })
    }

    /// Sends a request once, and waits for the head of its response without a time limit.
    pub async fn send(&self, body: Bytes) -> Result<Reply, NoResponse> {
        self.http.post_once(&self.headers, body).await.map(Reply).map_err(no_response)
    }

    /// Requests the address with GET, and waits for the head of the response without a time limit.
    pub async fn listen(&self) -> Result<Reply, NoResponse> {
        self.http.once(Method::GET, Bytes::new()).await.map(Reply).map_err(no_response)
    }
}

impl Reply {
    /// The status.
    pub fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// A header of the response.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers().get(name)?.to_str().ok()
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, NoResponse>> {
        Some(self.0.body_mut().next().await?.map_err(no_response))
    }

    /// The complete body, within bounds.
    pub async fn whole(self) -> Result<Bytes, NoResponse> {
        self.0.into_body().whole().await.map_err(no_response)
    }
}
