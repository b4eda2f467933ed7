//! Requests to one server: its address, our headers, and retries where they are requested and safe.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::Remote;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode, Uri};
use protocol::{Envelope, Kind, text};
use tokio::sync::watch;
use tokio::time::sleep;
use upstream::loop_detection::{self, LoopDetector};

use crate::authorization::{Authorization, challenges};
use crate::body::Body;
use crate::error::RequestError;
use crate::pool::Pool;

/// How many attempts a busy server gets, including the first one.
const MAX_ATTEMPTS: u32 = 4;
/// The minimum delay before a retry at a busy server, whatever it requests.
const MIN_BUSY_DELAY: Duration = Duration::from_secs(1);
/// The maximum delay that a busy server can request.
const MAX_BUSY_DELAY: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 3;

const LOOP_HEADER: HeaderName = HeaderName::from_static(loop_detection::HEADER);

/// One server's address and our headers.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pool: Arc<Pool>,
    pub(crate) url: Uri,
    headers: HeaderMap,
    /// The sign-in of the server, if it can have one.
    authorization: Option<Authorization>,
    /// Sent to MCP servers only.
    loop_detector: Option<Arc<LoopDetector>>,
    /// Why the server must not be one of ours, once that is detected.
    detected_loop: Arc<watch::Sender<Option<&'static str>>>,
}

/// A request, to be sent as often as needed.
#[derive(Debug, Clone)]
pub(crate) struct OutgoingRequest<'e> {
    pub(crate) method: Method,
    pub(crate) url: &'e Uri,
    /// The headers of all requests of this kind.
    pub(crate) headers: &'e HeaderMap,
    /// The headers of this request alone.
    pub(crate) own_headers: &'e [(HeaderName, HeaderValue)],
    pub(crate) body: Bytes,
}

impl Http {
    pub(crate) fn new(remote: &Remote) -> Result<Self, RequestError> {
        let bad = || RequestError::BadAddress(remote.place());
        // The part after `#` is not sent.
        let url: Uri = remote.url.value.split('#').next().unwrap_or_default().parse().map_err(|_| bad())?;
        let host = url.host().ok_or_else(bad)?;
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(&host).map_err(|_| bad())?);
        for (name, value) in &remote.headers {
            let bad = || RequestError::BadHeader(name.clone());
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            if key == HOST {
                headers.insert(key, value);
            } else {
                headers.append(key, value);
            }
        }
        let detected_loop = Arc::new(watch::Sender::new(None));
        let pool = Arc::new(Pool::new(&url)?);
        Ok(Self { pool, url, headers, authorization: None, loop_detector: None, detected_loop })
    }

    /// The same with the loop detection header in every request.
    pub(crate) fn of(self, loop_detector: Arc<LoopDetector>) -> Self {
        Self { loop_detector: Some(loop_detector), ..self }
    }

    /// The same with the token of a sign-in in every request.
    pub(crate) fn authorized(self, authorization: Option<Authorization>) -> Self {
        Self { authorization, ..self }
    }

    /// Is notified when the server turns out to be this aggregator, or one that uses it.
    pub(crate) fn detected_loop(&self) -> watch::Receiver<Option<&'static str>> {
        self.detected_loop.subscribe()
    }

    /// The headers of every request with a body.
    pub(crate) fn post_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers
    }

    /// The headers of every request for a stream.
    pub(crate) fn get_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers
    }

    /// Requests the address once, and returns the status.
    pub(crate) async fn look(&self) -> Result<StatusCode, RequestError> {
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let outgoing = OutgoingRequest {
            method: Method::GET,
            url: &self.url,
            headers: &headers,
            own_headers: &[],
            body: Bytes::new(),
        };
        let response = self.pool.send(outgoing.request(&self.url)).await?;
        let status = response.status();
        response.into_body().discard().await;
        Ok(status)
    }

    /// Sends a request with JSON, or without a body, once. Any status is a response.
    pub(crate) async fn once(&self, method: Method, body: Bytes) -> Result<Response<Body>, RequestError> {
        let mut headers = self.headers.clone();
        // A configured header takes precedence.
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let outgoing = OutgoingRequest { method, url: &self.url, headers: &headers, own_headers: &[], body };
        self.pool.send(outgoing.request(&self.url)).await
    }

    /// The headers of every request whose body is of that type.
    pub(crate) fn headers_for(&self, content_type: HeaderValue) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, content_type);
        headers
    }

    /// Sends a body once, whatever the status is.
    pub(crate) async fn post_once(&self, headers: &HeaderMap, body: Bytes) -> Result<Response<Body>, RequestError> {
        let outgoing = OutgoingRequest { method: Method::POST, url: &self.url, headers, own_headers: &[], body };
        self.pool.send(outgoing.request(&self.url)).await
    }

    /// Closes connections that were idle for too long.
    pub(crate) fn tidy(&self) {
        self.pool.tidy();
    }

    /// Another address of the same server, which the server itself names. Other hosts are refused.
    pub(crate) fn relative(&self, reference: &str) -> Result<Uri, RequestError> {
        let away = || RequestError::RedirectedAway(reference.split(['?', '#']).next().unwrap_or_default().to_owned());
        let reference = reference.split('#').next().unwrap_or_default();
        let has_scheme = reference.split(['/', '?']).next().is_some_and(|start| start.contains(':'));
        if has_scheme {
            let target: Uri = reference.parse().map_err(|_| away())?;
            let is_same = target.scheme() == self.url.scheme() && target.authority() == self.url.authority();
            return if is_same { Ok(target) } else { Err(away()) };
        }
        let path = match reference.as_bytes() {
            // Empty, or another host.
            [] | [b'/', b'/', ..] => return Err(away()),
            [b'/', ..] => reference.to_owned(),
            [b'?', ..] => format!("{}{reference}", self.url.path()),
            // Relative to our own address.
            _ => format!("{}/{reference}", self.url.path().rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        let mut parts = self.url.clone().into_parts();
        parts.path_and_query = Some(path.parse().map_err(|_| away())?);
        Uri::from_parts(parts).map_err(|_| away())
    }

    /// Sends a request until it gets a final response: a busy server is retried after the delay it requests, a
    /// redirect within the same origin is followed, and a server that refuses the token of its sign-in gets another one
    /// once. All of these mean that the request was not carried out; a request that may have been is never sent again.
    pub(crate) async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response<Body>, RequestError> {
        let (mut redirected, mut redirects, mut tries) = (None, 0, 0);
        let mut token = self.authorization.as_ref().map(Authorization::token);
        loop {
            let mut request = outgoing.request(redirected.as_ref().unwrap_or(outgoing.url));
            if let Some(header) = token.as_ref().and_then(|token| token.header.clone()) {
                request.headers_mut().insert(AUTHORIZATION, header);
            }
            if let Some(lineage) = self.loop_detector.as_ref().and_then(|it| HeaderValue::from_str(&it.value()).ok()) {
                request.headers_mut().insert(LOOP_HEADER, lineage);
            }
            let mut response = self.pool.send(request).await?;
            let status = response.status();
            if let Some(why) = self.refused_as_loop(&response) {
                self.detected_loop.send_replace(Some(why));
                return Err(RequestError::Loop(why));
            }
            if status.is_success() {
                return Ok(response);
            }
            match status {
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT if redirects < MAX_REDIRECTS => {
                    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
                    redirected = Some(self.relative(location.unwrap_or_default())?);
                    redirects += 1;
                    response.into_body().discard().await;
                }
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE if outgoing.may_follow(&response) => {
                    tries += 1;
                    let wanted = pause_wanted(&response);
                    if let Some(wanted) = wanted.filter(|&wanted| wanted > MAX_BUSY_DELAY) {
                        let wanted = wanted.as_secs();
                        return Err(RequestError::Busy(format!("{status}; it asks to retry after {wanted} s")));
                    }
                    if tries == MAX_ATTEMPTS {
                        return Err(RequestError::Busy(format!("{status}; {tries} attempts failed")));
                    }
                    response.into_body().discard().await;
                    sleep(wanted.unwrap_or(MIN_BUSY_DELAY * tries).max(MIN_BUSY_DELAY)).await;
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => match (&self.authorization, &token) {
                    // The end of a session is not worth a refresh.
                    (Some(authorization), Some(used)) if outgoing.method != Method::DELETE => {
                        // Boxed: it is rare, and large.
                        token = Some(Box::pin(authorization.after_refusal(used, response)).await?);
                    }
                    _ => return Err(RequestError::unauthorized(status, &challenges(response.headers()).join(", "))),
                },
                _ => {
                    // Its text may repeat the token.
                    token.and_then(|token| response.extensions_mut().insert(token));
                    return Ok(response);
                }
            }
        }
    }
}

impl Http {
    /// Whether an aggregator refuses because it found itself among the senders of the request, and what that means.
    fn refused_as_loop(&self, response: &Response<Body>) -> Option<&'static str> {
        let name = response.headers().get(LOOP_HEADER).filter(|_| response.status() == StatusCode::LOOP_DETECTED)?;
        let is_us =
            self.loop_detector.as_ref().is_some_and(|loop_detector| name.as_bytes() == loop_detector.name().as_bytes());
        Some(if is_us {
            "it is this aggregator itself, or leads back to it; an aggregator cannot be a server of itself"
        } else {
            "it is an aggregator that uses this one, so it cannot be one of its servers: that would be a loop"
        })
    }
}

impl OutgoingRequest<'_> {
    fn request(&self, url: &Uri) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = url.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")).into();
        let headers = request.headers_mut();
        headers.clone_from(self.headers);
        for (name, value) in self.own_headers {
            headers.insert(name, value.clone());
        }
        request
    }

    /// Whether it may be sent again after a server reported that it is busy. Without `Retry-After`, "unavailable" may
    /// also come from a proxy that lost the server during the request.
    fn may_follow(&self, busy: &Response<Body>) -> bool {
        let is_untouched = busy.status() == StatusCode::TOO_MANY_REQUESTS || busy.headers().contains_key(RETRY_AFTER);
        is_untouched || self.may_be_repeated()
    }

    /// Whether it may safely be carried out twice.
    fn may_be_repeated(&self) -> bool {
        let asks = || {
            let Envelope { kind: Kind::Request { method, .. }, .. } = Envelope::scan(&self.body).ok()? else {
                return None;
            };
            text::decode(method.of(&self.body))
        };
        let harmless = |method: &str| {
            matches!(method, "initialize" | "server/discover" | "ping" | "completion/complete" | "logging/setLevel")
                || ["/list", "/get", "/read", "/subscribe", "/unsubscribe"].iter().any(|end| method.ends_with(end))
        };
        self.method != Method::POST || asks().is_some_and(|method| harmless(&method))
    }
}

fn pause_wanted(response: &Response<Body>) -> Option<Duration> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The media type of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Events,
    /// Its media type, without parameters.
    Other(String),
}

impl Media {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let value = value.split(';').next().unwrap_or_default().trim();
        if value.eq_ignore_ascii_case("application/json") {
            Self::Json
        } else if value.eq_ignore_ascii_case("text/event-stream") {
            Self::Events
        } else {
            Self::Other(value.to_ascii_lowercase())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str, headers: &[(&str, &str)]) -> Result<Http, RequestError> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Http::new(&Remote::at(url, headers))
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
    fn what_only_looks_may_be_repeated_and_what_acts_may_not() {
        let (url, headers) = (Uri::from_static("http://x/"), HeaderMap::new());
        let may_be_repeated = |method: &str| {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#).into();
            OutgoingRequest { method: Method::POST, url: &url, headers: &headers, own_headers: &[], body }
                .may_be_repeated()
        };
        for looks in ["initialize", "tools/list", "resources/read", "prompts/get", "tasks/get", "resources/subscribe"] {
            assert!(may_be_repeated(looks), "{looks}");
        }
        for acts in ["tools/call", "tasks/cancel", "tasks/update", "x/unknown"] {
            assert!(!may_be_repeated(acts), "{acts}");
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
