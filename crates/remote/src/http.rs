//! Requests to one server: its address, our headers, and what can go wrong.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use catalog::Remote;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::http::uri::Scheme;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use protocol::lines::LONGEST_LINE;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a server that says it is busy is asked again.
const MOST_TRIES: usize = 4;
/// The longest a busy server can make us wait for one more try.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const MOST_REDIRECTS: usize = 3;
/// How much of an unwelcome answer is shown.
const EXCERPT: usize = 200;

/// The connections of all servers that are reached in the same way. Without TLS no certificates are needed, and not
/// every machine has some.
#[derive(Debug, Clone)]
enum Pool {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

/// One server's address and what we send along.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pool: Pool,
    pub(crate) url: Uri,
    headers: HeaderMap,
}

/// What can go wrong with a request.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("`{0}` is no address that can be reached over HTTP")]
    BadAddress(String),
    #[error("its header `{0}` cannot be sent")]
    BadHeader(String),
    #[error("no certificates to check it with: {0}")]
    NoCertificates(String),
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it wants other credentials (HTTP {status}{challenge})")]
    Unauthorized { status: StatusCode, challenge: String },
    #[error("it answered HTTP {status}{excerpt}")]
    Status { status: StatusCode, excerpt: String },
    #[error("it redirects to another place ({0}), which is not followed")]
    RedirectedAway(String),
    #[error("it is busy (HTTP {0}), and stayed so")]
    Busy(StatusCode),
    #[error("it answered with {0} instead of JSON or an event stream")]
    ForeignAnswer(String),
    #[error("its answer broke off: {0}")]
    BrokeOff(String),
    #[error("it did not answer the request")]
    NoAnswer,
}

impl Trouble {
    /// Whether this is how a server answers that speaks another dialect.
    pub(crate) fn is_foreign(&self) -> bool {
        match self {
            Self::Status { status, .. } => status.is_client_error(),
            Self::ForeignAnswer(_) => true,
            _ => false,
        }
    }

    /// Whether the server certainly did not do what it was asked.
    pub(crate) fn left_untouched(&self) -> bool {
        !matches!(self, Self::BrokeOff(_) | Self::NoAnswer | Self::Status { .. } | Self::ForeignAnswer(_))
    }
}

impl Http {
    pub(crate) fn new(remote: &Remote) -> Result<Self, Trouble> {
        let bad = || Trouble::BadAddress(remote.place().to_owned());
        // What is behind `#` is not sent.
        let address: Uri = remote.url.value.split('#').next().unwrap_or_default().parse().map_err(|_| bad())?;
        if address.host().is_none() {
            return Err(bad());
        }
        let mut map = HeaderMap::new();
        for (name, value) in &remote.headers {
            let bad = |_| Trouble::BadHeader(name.clone());
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Trouble::BadHeader(name.clone()))?;
            let mut value = HeaderValue::from_str(value).map_err(bad)?;
            value.set_sensitive(true);
            map.append(key, value);
        }
        let pool = if address.scheme() == Some(&Scheme::HTTPS) { tls_pool()? } else { plain_pool() };
        Ok(Self { pool, url: address, headers: map })
    }

    /// Another address of the same server, as it names it itself. Other places are not gone to.
    pub(crate) fn relative(&self, reference: &str) -> Result<Uri, Trouble> {
        let away = || Trouble::RedirectedAway(reference.split(['?', '#']).next().unwrap_or_default().to_owned());
        let reference = reference.split('#').next().unwrap_or_default();
        let has_scheme = reference.split(['/', '?']).next().is_some_and(|start| start.contains(':'));
        if has_scheme {
            let target: Uri = reference.parse().map_err(|_| away())?;
            let is_same = target.scheme() == self.url.scheme() && target.authority() == self.url.authority();
            return if is_same { Ok(target) } else { Err(away()) };
        }
        let path = match reference.as_bytes() {
            // Nothing at all, or the name of another host.
            [] | [b'/', b'/', ..] => return Err(away()),
            [b'/', ..] => reference.to_owned(),
            [b'?', ..] => format!("{}{reference}", self.url.path()),
            // A name beside our own address.
            _ => format!("{}/{reference}", self.url.path().rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        let mut parts = self.url.clone().into_parts();
        parts.path_and_query = Some(path.parse().map_err(|_| away())?);
        Uri::from_parts(parts).map_err(|_| away())
    }

    /// Sends a request until it gets an answer that means something: a busy server is asked again after the pause it
    /// wants, a redirect within the same origin is followed. Statuses other than success are trouble.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &Uri,
        own_headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Trouble> {
        let (mut url, mut redirects, mut tries) = (url.clone(), 0, 0);
        loop {
            let response = self.send_once(method.clone(), &url, own_headers, body.clone()).await?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            match status {
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT if redirects < MOST_REDIRECTS => {
                    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
                    url = self.relative(location.unwrap_or_default())?;
                    redirects += 1;
                }
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    tries += 1;
                    let pause = pause_wanted(response.headers()).unwrap_or(Duration::from_millis(500 << tries));
                    if tries == MOST_TRIES || pause > LONGEST_WAIT {
                        return Err(Trouble::Busy(status));
                    }
                    tokio::time::sleep(pause).await;
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
                    let challenge = challenge.map_or_else(String::new, |challenge| format!(", {challenge}"));
                    return Err(Trouble::Unauthorized { status, challenge });
                }
                _ => return Ok(response),
            }
        }
    }

    async fn send_once(
        &self,
        method: Method,
        url: &Uri,
        own_headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Trouble> {
        let mut request = Request::new(Full::new(body));
        *request.uri_mut() = url.clone();
        *request.method_mut() = method.clone();
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let accepted = if method == Method::GET { "text/event-stream" } else { "application/json, text/event-stream" };
        headers.insert(ACCEPT, HeaderValue::from_static(accepted));
        headers.extend(own_headers.clone());
        self.pool.request(request).await.map_err(|error| request_trouble(&error))
    }
}

/// An answer that is no success, as trouble that shows the beginning of what the server said.
pub(crate) fn status_trouble(status: StatusCode, body: &[u8]) -> Trouble {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT)]);
    let excerpt: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect();
    Trouble::Status { status, excerpt: if excerpt.is_empty() { excerpt } else { format!(": {excerpt}") } }
}

/// The whole body, within bounds.
pub(crate) async fn read_all(response: Response<Incoming>) -> Result<Bytes, Trouble> {
    let body = Limited::new(response.into_body(), LONGEST_LINE).collect().await;
    Ok(body.map_err(|error| Trouble::BrokeOff(error.to_string()))?.to_bytes())
}

/// The media type of an answer, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn pause_wanted(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

impl Pool {
    fn request(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
        }
    }
}

fn plain_pool() -> Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::Plain(pool_builder().build(connector()))).clone()
}

fn tls_pool() -> Result<Pool, Trouble> {
    static POOL: OnceLock<Result<Pool, Trouble>> = OnceLock::new();
    let made = POOL.get_or_init(|| {
        let mut tcp = connector();
        tcp.enforce_http(false);
        let tls = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(|error| Trouble::NoCertificates(error.to_string()))?
            .https_only()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(Pool::Tls(pool_builder().build(tls)))
    });
    made.clone()
}

fn pool_builder() -> legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_idle_timeout(Duration::from_secs(30));
    builder
}

fn connector() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp
}

/// Only while there is no connection is it certain that the server has seen nothing of the request.
fn request_trouble(error: &legacy::Error) -> Trouble {
    let cause = root_cause(error);
    if error.is_connect() { Trouble::Unreachable(cause) } else { Trouble::BrokeOff(cause) }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str, headers: &[(&str, &str)]) -> Result<Http, Trouble> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Http::new(&Remote { url: url.into(), headers, dialect: catalog::Dialect::Unknown })
    }

    #[test]
    fn a_server_may_name_other_addresses_of_its_own_only() {
        let http = at("https://example.org:8443/a/mcp?key=1#x", &[]).unwrap();
        let relative = |reference| http.relative(reference).map(|uri| uri.to_string());
        assert_eq!(relative("/message?s=1").unwrap(), "https://example.org:8443/message?s=1");
        assert_eq!(relative("/?to=http://x#y").unwrap(), "https://example.org:8443/?to=http://x");
        assert_eq!(relative("message").unwrap(), "https://example.org:8443/a/message");
        assert_eq!(relative("message?s=1").unwrap(), "https://example.org:8443/a/message?s=1");
        assert_eq!(relative("?s=1").unwrap(), "https://example.org:8443/a/mcp?s=1");
        assert_eq!(relative("https://example.org:8443/b").unwrap(), "https://example.org:8443/b");
        for away in [
            "http://example.org:8443/b",
            "https://example.org/b",
            "https://evil.example/b",
            "//evil.example/b",
            "data:x",
            "",
        ] {
            assert!(relative(away).is_err(), "{away}");
        }
    }

    #[test]
    fn bad_addresses_and_headers_are_refused_without_their_secrets() {
        let error = at("http:///x?token=hunter2", &[]).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        let error = at("http://x", &[("A", "hunter2\n")]).unwrap_err().to_string();
        assert!(error.contains("`A`") && !error.contains("hunter2"), "{error}");
    }
}
