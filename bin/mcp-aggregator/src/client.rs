//! The client of a running service's REST API.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use protocol::events::{Event, Events};
use remote::StreamingRequest;
use serde_json::Value;

use crate::cli::shared::UNIX_PREFIX;
use crate::failure::Failure;
use crate::service_file::LocalSecret;
use crate::table::printable;
use crate::{api_error, progress, suggestion};

/// The path of the API.
const PREFIX: &str = "/api/v1/aggregator";
/// The timeout of requests; longer than any timeout of the service.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
/// The timeout of requests that only check the service, which answers them immediately.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The hint about a service that accepts a request and does not answer.
const STREAM_IDLE_TIMEOUT: &str = "it may hang, or another program may listen there: read its log, or restart it";
/// The hint for a whole line of the token file.
const NAMED_TOKEN: &str = "the token contains a `:`, like a line `name:token`: send only the part after it; \
                           --token-file accepts the whole file";
/// The timeout of requests whose progress is displayed separately: the service may have to pull an image first.
const LONG_REQUEST_TIMEOUT: Duration = Duration::from_secs(6 * 3600);

/// A running service. Not `Debug`, because it contains the token.
#[derive(Clone)]
pub(crate) struct Client {
    url: String,
    token: Option<Token>,
}

/// The credential for a service. Not `Debug`, because it contains the secret.
#[derive(Clone)]
pub(crate) enum Token {
    /// A token from the user, sent to whatever listens at the address.
    Given(String),
    /// The local token of the service, sent to that service only.
    Local(LocalSecret),
}

impl Token {
    fn to_send(&self) -> Option<&str> {
        match self {
            Self::Given(secret) => Some(secret),
            Self::Local(secret) => secret.to_send(),
        }
    }
}

/// Why a request failed.
pub(crate) enum RequestError {
    /// The service is unreachable.
    Absent(Failure),
    /// It did not answer.
    Lost(Failure),
    /// It returned an error, or the cause is unknown.
    Other(Failure),
}

impl From<RequestError> for Failure {
    fn from(denial: RequestError) -> Self {
        match denial {
            RequestError::Absent(failure) | RequestError::Lost(failure) | RequestError::Other(failure) => failure,
        }
    }
}

/// A path is below [`PREFIX`], unless it is a whole one.
fn whole(path: &str) -> String {
    if path.starts_with("/api/") { path.to_owned() } else { format!("{PREFIX}{path}") }
}

impl Client {
    /// The service at an address as users write it: the scheme may be missing, and it may contain one of our paths.
    pub(crate) fn new(url: &str, token: Option<Token>) -> Self {
        if url.starts_with(UNIX_PREFIX) {
            return Self { url: url.to_owned(), token };
        }
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let url = url.trim_end_matches('/');
        let url = ["/mcp", "/sse", PREFIX].iter().find_map(|path| url.strip_suffix(path)).unwrap_or(url);
        Self { url: url.to_owned(), token }
    }

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, RequestError> {
        let what = format!("waiting for the service at {}", self.url);
        progress::with_spinner(&what, Box::pin(self.value_within(PROBE_TIMEOUT, Method::GET, path, None))).await
    }

    /// A list from the service. A response that is not a list is an error, not an empty list.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Value>, RequestError> {
        self.listed(self.get(path).await?, path)
    }

    /// The same for a request with a body.
    pub(crate) async fn list_for(&self, path: &str, body: &Value) -> Result<Vec<Value>, RequestError> {
        self.listed(self.post(path, Some(body)).await?, path)
    }

    /// The tools that match a search, and what the service says about it.
    pub(crate) async fn search(&self, body: &Value) -> Result<(Vec<Value>, Option<String>), RequestError> {
        const PATH: &str = "/api/v1/search";
        let mut answer = self.post(PATH, Some(body)).await?;
        let note = answer["metadata"]["note"].as_str().map(str::to_owned);
        Ok((self.listed(answer["tools"].take(), PATH)?, note))
    }

    fn listed(&self, answer: Value, path: &str) -> Result<Vec<Value>, RequestError> {
        match answer {
            Value::Array(items) => Ok(items),
            _ => {
                let path = path.split('?').next().unwrap_or(path);
                Err(RequestError::Other(api_error::not_this_service(
                    &self.url,
                    &format!("its response to {} is not a list", whole(path)),
                )))
            }
        }
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, RequestError> {
        self.value(Method::POST, path, body).await
    }

    /// Sends a request that may take very long.
    pub(crate) async fn post_long(&self, path: &str) -> Result<Value, RequestError> {
        self.value_within(LONG_REQUEST_TIMEOUT, Method::POST, path, None).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        self.value(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        self.value(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value, RequestError> {
        self.value(Method::DELETE, path, None).await
    }

    async fn value(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, RequestError> {
        let what = format!("waiting for the service at {}", self.url);
        progress::with_spinner(&what, Box::pin(self.value_within(REQUEST_TIMEOUT, method, path, body))).await
    }

    async fn value_within(
        &self,
        limit: Duration,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, RequestError> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let answer = self.ask(method, path, body, limit).await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).map_err(|error| {
            let problem = match error.to_string() {
                // It is JSON, but nested deeper than this program parses.
                error if error.starts_with("recursion limit") => "its response is nested too deeply".to_owned(),
                error => format!("its response is not valid JSON: {error}"),
            };
            RequestError::Other(api_error::not_this_service(&self.url, &problem))
        })
    }

    /// Sends a request, and returns the unchanged body of a success response.
    pub(crate) async fn ask_bytes(&self, path: &str, body: &Value) -> Result<Bytes, RequestError> {
        let what = format!("waiting for the service at {}", self.url);
        let asking = self.ask(Method::POST, path, Bytes::from(body.to_string()), REQUEST_TIMEOUT);
        progress::with_spinner(&what, Box::pin(asking)).await
    }

    /// Sends a request, and returns the body of a success response.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Bytes, RequestError> {
        let response = self.send(method, path, body, limit).await?;
        if response.status.is_success() {
            return Ok(response.body);
        }
        let refused = api_error::describe(&self.url, response.status, &response.body);
        match refused.kind.as_deref() {
            Some("SERVER_NOT_FOUND") => Err(RequestError::Other(self.with_servers_like_it(refused).await)),
            Some("UNAUTHORIZED") if matches!(&self.token, Some(Token::Given(token)) if token.contains(':')) => {
                Err(RequestError::Other(refused.with_hint(NAMED_TOKEN)))
            }
            _ => Err(RequestError::Other(refused)),
        }
    }

    /// Adds a suggestion to the error about an unknown server, if the server list is available.
    async fn with_servers_like_it(&self, refused: Failure) -> Failure {
        let typed = refused.data.as_ref().and_then(|context| context["server"].as_str()).map(str::to_owned);
        let servers = self.send(Method::GET, "/servers?limit=1000", Bytes::new(), REQUEST_TIMEOUT).await;
        let servers = servers.ok().and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
        let servers = servers.unwrap_or_default();
        let names = servers.as_array().into_iter().flatten().filter_map(|server| server["name"].as_str());
        match suggestion::among(&typed.unwrap_or_default(), names) {
            Some(question) => refused.with_hint(question),
            None => refused,
        }
    }

    /// Sends a request, and returns the response, whatever its status.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<remote::Response, RequestError> {
        self.send_to(method, self.address(&whole(path)), body, limit).await
    }

    /// Requests a path that is not below the one of the REST API.
    pub(crate) async fn get_outside_api(&self, path: &str, limit: Duration) -> Result<remote::Response, RequestError> {
        self.send_to(Method::GET, self.address(path), Bytes::new(), limit).await
    }

    async fn send_to(
        &self,
        method: Method,
        url: String,
        body: Bytes,
        limit: Duration,
    ) -> Result<remote::Response, RequestError> {
        let request = remote::Request { method, url, headers: self.headers(), body };
        remote::request(request, limit).await.map_err(|error| {
            let failure = Failure::new(format!("could not reach the service at {}: {error}", self.url));
            match error {
                remote::NoResponse::Unreachable(_) => {
                    RequestError::Absent(failure.with_hint("check that it runs there"))
                }
                remote::NoResponse::Lost(_) => RequestError::Lost(failure.with_hint(STREAM_IDLE_TIMEOUT)),
            }
        })
    }

    /// Sends a request whose response is an event stream, and passes on its events. An error has its code.
    pub(crate) async fn stream(
        &self,
        path: &str,
        body: &Value,
        on_event: &mut (dyn FnMut(&str, &Value) + Send),
    ) -> Result<(), (Option<String>, RequestError)> {
        let failed = |why: &dyn std::fmt::Display| {
            (None, RequestError::Other(Failure::new(format!("could not reach the service at {}: {why}", self.url))))
        };
        let mut headers = self.headers();
        headers.push(("Accept".to_owned(), "text/event-stream".to_owned()));
        let exchange = StreamingRequest::new(&self.address(&format!("{PREFIX}{path}")), headers);
        let sent = exchange.map_err(|why| failed(&why))?.send(Bytes::from(body.to_string())).await;
        let mut reply = sent.map_err(|error| failed(&error))?;
        if !(200..300).contains(&reply.status()) {
            let status = StatusCode::from_u16(reply.status()).unwrap_or(StatusCode::BAD_GATEWAY);
            let body = reply.whole().await.map_err(|error| failed(&error))?;
            let said: Value = serde_json::from_slice(&body).unwrap_or_default();
            let code = said["error_code"].as_str().map(str::to_owned);
            return Err((code, RequestError::Other(api_error::describe(&self.url, status, &body))));
        }
        let mut events = Events::default();
        while let Some(bytes) = reply.next().await {
            events.push(&bytes.map_err(|error| failed(&error))?);
            while let Some(event) = next_with_data(&mut events) {
                on_event(&event.kind, &self.data_of(&event).map_err(|why| (None, RequestError::Other(why)))?);
            }
        }
        Ok(())
    }
}

impl Client {
    /// Reads events until the stream ends or `on_event` returns false.
    pub(crate) async fn follow(
        &self,
        path: &str,
        on_event: &mut (dyn FnMut(&str, &Value) -> Result<bool, Failure> + Send),
    ) -> Result<(), Failure> {
        let failed =
            |why: &dyn std::fmt::Display| Failure::new(format!("could not reach the service at {}: {why}", self.url));
        let mut headers = self.headers();
        headers.push(("Accept".to_owned(), "text/event-stream".to_owned()));
        let exchange =
            StreamingRequest::new(&self.address(&format!("{PREFIX}{path}")), headers).map_err(|why| failed(&why))?;
        let mut reply = exchange.listen().await.map_err(|error| failed(&error))?;
        if reply.status() != 200 {
            let status = StatusCode::from_u16(reply.status()).unwrap_or(StatusCode::BAD_GATEWAY);
            let body = reply.whole().await.map_err(|error| failed(&error))?;
            let refused = api_error::describe(&self.url, status, &body);
            return Err(match refused.kind.as_deref() {
                Some("SERVER_NOT_FOUND") => self.with_servers_like_it(refused).await,
                _ => refused,
            });
        }
        let mut events = Events::default();
        while let Some(bytes) = reply.next().await {
            events.push(&bytes.map_err(|error| failed(&error))?);
            while let Some(event) = next_with_data(&mut events) {
                if !on_event(&event.kind, &self.data_of(&event)?)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The data of an event. Without it, what follows would be incomplete.
    fn data_of(&self, event: &Event) -> Result<Value, Failure> {
        serde_json::from_slice(&event.data).map_err(|error| {
            let kind = printable(&event.kind);
            Failure::new(format!("the service at {} sent an event `{kind}` that cannot be read: {error}", self.url))
        })
    }

    /// The event stream of the service, from now on. On failure: why.
    pub(crate) async fn events(&self) -> Result<remote::Reply, String> {
        let exchange = remote::StreamingRequest::new(&self.address(&format!("{PREFIX}/events")), self.headers())?;
        let reply = exchange.listen().await.map_err(|error| error.to_string())?;
        match reply.status() {
            200 => Ok(reply),
            status => Err(format!("it returned HTTP {status}")),
        }
    }

    fn headers(&self) -> Vec<(String, String)> {
        let secret = self.token.as_ref().and_then(Token::to_send);
        let authorization = secret.map(|secret| ("Authorization".to_owned(), format!("Bearer {secret}")));
        // The path of a socket is no host.
        let host = self.url.starts_with(UNIX_PREFIX).then(|| ("Host".to_owned(), "localhost".to_owned()));
        authorization.into_iter().chain(host).collect()
    }

    /// The URL of a request.
    fn address(&self, path: &str) -> String {
        match self.url.strip_prefix(UNIX_PREFIX) {
            Some(socket) => format!("{}{path}", remote::unix_url(Path::new(socket))),
            None => format!("{}{path}", self.url),
        }
    }
}

/// Encodes a name as a path segment.
pub(crate) fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The next event that says anything. One without data only sets how to reconnect.
fn next_with_data(events: &mut Events) -> Option<Event> {
    loop {
        let event = events.next_event()?;
        if !event.data.is_empty() {
            return Some(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_written_in_short_or_be_that_of_mcp() {
        for (typed, url) in [
            ("http://127.0.0.1:8808", "http://127.0.0.1:8808"),
            ("127.0.0.1:8808/", "http://127.0.0.1:8808"),
            ("https://example.org/mcp", "https://example.org"),
            ("https://example.org/tools/api/v1/aggregator/", "https://example.org/tools"),
        ] {
            assert_eq!(Client::new(typed, None).url(), url);
        }
        let over_socket = Client::new("unix:/run/mcp", None);
        assert_eq!(over_socket.url(), "unix:/run/mcp");
        assert_eq!(over_socket.address("/x"), "http+unix://2f72756e2f6d6370/x");
    }

    #[test]
    fn a_name_of_any_kind_is_one_part_of_a_path() {
        assert_eq!(encoded("git-hub_1"), "git-hub_1");
        assert_eq!(encoded("my/ü ?"), "my%2F%C3%BC%20%3F");
    }

    /// A service that answers one request with an event stream.
    fn streaming(events: &'static str) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            std::io::Read::read(&mut socket, &mut head).unwrap();
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{events}");
            std::io::Write::write_all(&mut socket, answer.as_bytes()).unwrap();
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn an_event_that_cannot_be_read_is_an_error_and_not_left_out() {
        const EVENTS: &str = "event: good\ndata: {\"a\":1}\n\nevent: bad\ndata: {\n\nevent: later\ndata: {}\n\n";
        let mut seen = Vec::new();
        let service = Client::new(&streaming(EVENTS), None);
        let failed = service.stream("/x", &Value::Null, &mut |kind, _| seen.push(kind.to_owned())).await;
        let Err((None, RequestError::Other(failure))) = failed else { panic!("it is reported") };
        assert!(failure.message.contains("an event `bad` that cannot be read"), "{}", failure.message);
        let service = Client::new(&streaming(EVENTS), None);
        let mut on_event = |kind: &str, _: &Value| {
            seen.push(kind.to_owned());
            Ok(true)
        };
        let failure = service.follow("/x", &mut on_event).await.unwrap_err();
        assert!(failure.message.contains("an event `bad` that cannot be read"), "{}", failure.message);
        assert_eq!(seen, ["good", "good"]);
    }
}
