//! The requests that a sign-in makes: bounded in size, time and redirects, and limited to a network.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT,
};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, StatusCode, Uri};
use oauth::{
    Fetch, FetchError, HttpRequest, HttpResponse, MAX_REDIRECTS, MAX_RESPONSE_BYTES, Method, Redirects, Wanted,
};
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::authorization::challenges;
use crate::body::Body;
use crate::error::RequestError;
use crate::pool::Pool;

/// Some web application firewalls refuse requests without one.
const OUR_USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("mcp-aggregator/", env!("CARGO_PKG_VERSION")));

/// Makes the requests of sign-ins. Every request has its own connection, made to an address that was checked; so has
/// every redirect. A `POST` follows only redirects that repeat it (307 and 308), and nothing goes from HTTPS to HTTP.
#[derive(Debug, Clone, Copy, Default)]
pub struct HttpFetch;

impl Fetch for HttpFetch {
    fn fetch(
        &self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, FetchError>> + Send + '_>> {
        Box::pin(fetch(request))
    }
}

async fn fetch(request: HttpRequest) -> Result<HttpResponse, FetchError> {
    let limit = Limit { deadline: Instant::now() + request.timeout, of: request.timeout };
    let first = Url::parse(&request.url).map_err(|error| FetchError::Refused(format!("not a valid URL: {error}")))?;
    let mut headers = headers_of(&request)?;
    let mut url = first.clone();
    for redirects in 0.. {
        let fetched = fetch_once(&request, &url, &headers, &limit, redirects).await;
        let target = match fetched.map_err(|error| after_redirect(redirects, &url, error))? {
            Fetched::Response(response) => return Ok(response),
            Fetched::Redirect(target) => target,
        };
        if url.scheme() == "https" && target.scheme() != "https" {
            let problem = format!("it redirects from HTTPS to `{}`", shown(&target));
            return Err(after_redirect(redirects, &url, FetchError::Refused(problem)));
        }
        if target.origin() != url.origin() {
            headers.remove(AUTHORIZATION);
            headers.remove(COOKIE);
        }
        url = target;
    }
    unreachable!("the last redirect is returned as a response")
}

enum Fetched {
    Response(HttpResponse),
    Redirect(Url),
}

/// How long all of it may take.
struct Limit {
    deadline: Instant,
    of: Duration,
}

impl Limit {
    /// Waits for the connection, on which nothing was sent yet.
    async fn connection<T>(&self, waiting: impl Future<Output = Result<T, RequestError>>) -> Result<T, FetchError> {
        let in_time = timeout_at(self.deadline, waiting).await;
        in_time
            .map_err(|_| FetchError::Unsent(format!("no connection within {} s", self.of.as_secs_f32())))?
            .map_err(fetch_error)
    }

    /// Waits for a response, or a part of it.
    async fn response<T>(&self, waiting: impl Future<Output = Result<T, RequestError>>) -> Result<T, FetchError> {
        let in_time = timeout_at(self.deadline, waiting).await;
        in_time
            .map_err(|_| FetchError::Lost(format!("it did not answer within {} s", self.of.as_secs_f32())))?
            .map_err(fetch_error)
    }
}

async fn fetch_once(
    request: &HttpRequest,
    url: &Url,
    headers: &HeaderMap,
    limit: &Limit,
    redirects: usize,
) -> Result<Fetched, FetchError> {
    let response = send(request, url, headers, limit).await?;
    if request.redirects == Redirects::Follow
        && redirects < MAX_REDIRECTS
        && let Some(target) = redirect_target(request.method, url, &response)
    {
        return Ok(Fetched::Redirect(target));
    }
    let (head, body) = response.into_parts();
    let body = match request.wanted {
        Wanted::Whole => limit.response(body.within(MAX_RESPONSE_BYTES)).await?,
        Wanted::Head => Bytes::new(),
    };
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Ok(Fetched::Response(HttpResponse {
        status: head.status.as_u16(),
        content_type: head.headers.get(CONTENT_TYPE).map(text).unwrap_or_default(),
        www_authenticate: challenges(&head.headers),
        body,
    }))
}

async fn send(
    request: &HttpRequest,
    url: &Url,
    headers: &HeaderMap,
    limit: &Limit,
) -> Result<Response<Body>, FetchError> {
    let address = address_of(url)?;
    let pool = Arc::new(Pool::within(request.network, &address).map_err(fetch_error)?);
    let mut outgoing = Request::new(Full::new(request.body.clone()));
    *outgoing.method_mut() = match request.method {
        Method::Get => hyper::Method::GET,
        Method::Post => hyper::Method::POST,
    };
    *outgoing.uri_mut() = address.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")).into();
    outgoing.headers_mut().clone_from(headers);
    let authority = address.authority().map_or("", |authority| authority.as_str());
    outgoing.headers_mut().insert(HOST, HeaderValue::from_str(authority).map_err(|_| bad_address(url))?);
    let connection = limit.connection(pool.connect()).await?;
    limit.response(pool.send_first(connection, outgoing)).await
}

/// Where a redirect leads, if it may be followed. What cannot be followed is a response like any other.
fn redirect_target(method: Method, url: &Url, response: &Response<Body>) -> Option<Url> {
    let is_followed = match response.status() {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        // After these, a request with a body would be repeated without it.
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => method == Method::Get,
        _ => false,
    };
    let location = response.headers().get(LOCATION).filter(|_| is_followed)?;
    url.join(location.to_str().ok()?).ok()
}

/// The address without user name, password and fragment, which are not sent.
fn address_of(url: &Url) -> Result<Uri, FetchError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(FetchError::Refused(format!("`{}` is not an HTTP address", shown(url))));
    }
    let host = url.host_str().ok_or_else(|| bad_address(url))?;
    let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let query = url.query().map_or_else(String::new, |query| format!("?{query}"));
    let address = Uri::builder().scheme(url.scheme()).authority(authority);
    address.path_and_query(format!("{}{query}", url.path())).build().map_err(|_| bad_address(url))
}

fn headers_of(request: &HttpRequest) -> Result<HeaderMap, FetchError> {
    let mut headers = HeaderMap::from_iter([(USER_AGENT, OUR_USER_AGENT)]);
    for (name, value) in &request.headers {
        let bad = || FetchError::Refused(format!("the header `{name}` is not valid"));
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value.reveal()).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

fn bad_address(url: &Url) -> FetchError {
    FetchError::Refused(format!("`{}` is not a valid address", shown(url)))
}

/// An address without its query, user name and password.
fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// The error of a redirect names its address, because the request names only the first one.
fn after_redirect(redirects: usize, url: &Url, error: FetchError) -> FetchError {
    let after_redirect = |problem: String| format!("after a redirect to {}: {problem}", shown(url));
    match error {
        error if redirects == 0 => error,
        FetchError::Unsent(problem) => FetchError::Unsent(after_redirect(problem)),
        FetchError::Refused(problem) => FetchError::Refused(after_redirect(problem)),
        FetchError::Lost(problem) => FetchError::Lost(after_redirect(problem)),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape `map_err` asks for")]
fn fetch_error(error: RequestError) -> FetchError {
    match &error {
        RequestError::PrivateNetwork(_) => FetchError::Refused(error.to_string()),
        RequestError::Unreachable(_) | RequestError::NoCertificates(_) => FetchError::Unsent(error.to_string()),
        _ => FetchError::Lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
