//! The HTTP requests that a sign-in makes, and who makes them.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use crate::secret::Secret;

/// How long one request for metadata or a registration may take.
pub const METADATA_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a token request may take: providers are known that are slow now and then.
pub const TOKEN_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a response.
pub const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// How many redirects are followed, where any are.
pub const MAX_REDIRECTS: usize = 3;

/// Makes requests. An implementation observes the limits of a request, and every redirect it follows is checked like
/// the first address.
pub trait Fetch: Send + Sync + fmt::Debug {
    /// Sends the request, and waits for the complete response. Any status is a response.
    fn fetch(
        &self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, FetchError>> + Send + '_>>;
}

/// A request.
#[derive(Clone)]
pub struct HttpRequest {
    /// Its method.
    pub method: Method,
    /// An absolute address.
    pub url: String,
    /// Its headers. A value may be a secret.
    pub headers: Vec<(&'static str, Secret)>,
    /// Its body. It may contain secrets.
    pub body: Bytes,
    /// What happens if the response is a redirect.
    pub redirects: Redirects,
    /// Which addresses it may be sent to.
    pub network: Network,
    /// How long all of it may take.
    pub timeout: Duration,
    /// How much of the response is needed.
    pub wanted: Wanted,
}

/// How much of a response is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Status, headers and the complete body.
    Whole,
    /// Status and headers: the body may be a stream without an end.
    Head,
}

/// The methods that are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// To read something.
    Get,
    /// To send something.
    Post,
}

/// What happens if a response is a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// It is followed, at most [`MAX_REDIRECTS`] times.
    Follow,
    /// It is returned like any other response: the request contains secrets.
    Return,
}

/// The addresses that requests for one server may be sent to, checked after host names are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// Any.
    #[default]
    Any,
    /// No private, link-local or otherwise special ones, except for this machine's own loopback.
    PublicOrLoopback,
    /// No private, link-local, loopback or otherwise special ones.
    Public,
}

/// A response.
#[derive(Clone)]
pub struct HttpResponse {
    /// Its status.
    pub status: u16,
    /// Its media type with parameters; empty if there is none.
    pub content_type: String,
    /// Its `WWW-Authenticate` headers.
    pub www_authenticate: Vec<String>,
    /// Its complete body, if it was wanted.
    pub body: Bytes,
}

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Nothing was sent: the address is unreachable.
    #[error("{0}")]
    Unsent(String),
    /// It was not sent, because the address is not valid or not permitted; it never will be.
    #[error("{0}")]
    Refused(String),
    /// It was sent, and the response did not arrive or was too large. It may have been carried out.
    #[error("{0}")]
    Lost(String),
}

impl HttpResponse {
    /// Whether the status is a success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

// Requests and responses contain tokens, so neither headers nor bodies are shown.
impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRequest").field("method", &self.method).field("url", &self.url).finish_non_exhaustive()
    }
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse").field("status", &self.status).finish_non_exhaustive()
    }
}
