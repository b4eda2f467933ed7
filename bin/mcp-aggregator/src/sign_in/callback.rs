//! The loopback listener that the browser is sent back to after a sign-in.
//!
//! It answers one request per connection and knows one path. Connections are read side by side: a browser opens some in
//! advance, and says nothing on them. Everything else on it is refused, so that pages that the
//! user visits meanwhile learn nothing.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The path, unless the redirect address is configured.
const PATH: &str = "/callback";
/// The maximum length of the head of a request. A redirect has a code and a state, both short.
const MAX_HEAD: usize = 16 * 1024;
/// How long a request may take to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections are read at once. Further ones wait.
const MAX_CONNECTIONS: usize = 32;

/// The listener.
#[derive(Debug)]
pub(crate) struct CallbackListener {
    listener: TcpListener,
    /// The redirect address, as the authorization server gets it.
    redirect_uri: String,
    path: String,
    /// The connections that are being read. They end with the listener.
    connections: Mutex<JoinSet<Option<Redirect>>>,
}

/// A redirect that has arrived. The browser waits for its page.
#[derive(Debug)]
pub(crate) struct Redirect {
    stream: TcpStream,
    /// The query, without the question mark.
    pub(crate) query: String,
}

/// The result of a redirect, for the person in front of the browser.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Page<'a> {
    /// The sign-in is complete.
    SignedIn { server: &'a str },
    /// It is not.
    Failed { why: &'a str },
}

impl CallbackListener {
    /// Listens at an address that was used or configured before, `http://127.0.0.1:PORT/PATH` or with `localhost`.
    pub(crate) async fn at(redirect_uri: &str) -> io::Result<Self> {
        let unusable = || {
            let message = format!(
                "`{redirect_uri}` is not a loopback address with a port, such as http://127.0.0.1:8976/callback"
            );
            io::Error::new(io::ErrorKind::InvalidInput, message)
        };
        let address: http::Uri = redirect_uri.parse().map_err(|_| unusable())?;
        let is_loopback = matches!(address.host(), Some("127.0.0.1" | "localhost" | "[::1]"));
        let port = address.port_u16().filter(|_| is_loopback && address.scheme_str() == Some("http"));
        let port = port.ok_or_else(unusable)?;
        let listener = match address.host() {
            Some("[::1]") => TcpListener::bind((std::net::Ipv6Addr::LOCALHOST, port)).await?,
            _ => TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?,
        };
        Ok(Self::new(listener, redirect_uri.to_owned(), address.path().to_owned()))
    }

    /// Listens at a free port.
    pub(crate) async fn anywhere() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self::new(listener, format!("http://127.0.0.1:{port}{PATH}"), PATH.to_owned()))
    }

    fn new(listener: TcpListener, redirect_uri: String, path: String) -> Self {
        Self { listener, redirect_uri, path, connections: Mutex::default() }
    }

    /// The redirect address.
    pub(crate) fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    /// Waits for the next request to the redirect address. Others are answered with 404.
    pub(crate) async fn next(&self) -> io::Result<Redirect> {
        let mut connections = self.connections.lock().await;
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(read_redirect(accepted?.0, self.path.clone()));
                }
                Some(read) = connections.join_next() => {
                    if let Ok(Some(redirect)) = read {
                        return Ok(redirect);
                    }
                }
            }
        }
    }
}

/// Reads the request of a connection. One to another path is answered.
async fn read_redirect(mut stream: TcpStream, expected_path: String) -> Option<Redirect> {
    // Not a request, or too slow: nobody who matters waits.
    let target = timeout(HEAD_TIMEOUT, read_target(&mut stream)).await.ok()?.ok()??;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    if path == expected_path {
        return Some(Redirect { stream, query: query.to_owned() });
    }
    answer(stream, "404 Not Found", "Not found", "Nothing is here.").await;
    None
}

impl Redirect {
    /// Shows the person how it went.
    pub(crate) async fn answer(self, page: Page<'_>) {
        match page {
            Page::SignedIn { server } => {
                let text = format!("You are signed in to “{server}”. You can close this page.");
                answer(self.stream, "200 OK", "Signed in", &text).await;
            }
            Page::Failed { why } => answer(self.stream, "400 Bad Request", "Not signed in", why).await,
        }
    }
}

/// The target of a GET request; `None` if it is something else.
async fn read_target(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut buffer = [0; 2048];
        let length = stream.read(&mut buffer).await?;
        if length == 0 || head.len() + length > MAX_HEAD {
            return Ok(None);
        }
        head.extend_from_slice(&buffer[..length]);
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    Ok(match (words.next(), words.next()) {
        (Some("GET"), Some(target)) => Some(target.to_owned()),
        _ => None,
    })
}

/// Sends a small page and closes the connection.
async fn answer(mut stream: TcpStream, status: &str, title: &str, text: &str) {
    let [title, text] = [title, text].map(escaped);
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>body{{font:18px/1.5 system-ui,sans-serif;max-width:36em;margin:4em auto;padding:0 1em;\
         color-scheme:light dark}}</style><h1>{title}</h1><p>{text}</p></html>\n"
    );
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    let sent = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await
    };
    // The browser may be gone; the sign-in is decided anyway.
    drop(timeout(HEAD_TIMEOUT, sent).await);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(port: u16, target: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_the_redirect_address_is_answered_with_its_result() {
        let listener = CallbackListener::anywhere().await.unwrap();
        let port = listener.listener.local_addr().unwrap().port();
        assert_eq!(listener.redirect_uri(), format!("http://127.0.0.1:{port}/callback"));
        let browser = tokio::spawn(async move {
            let elsewhere = get(port, "/favicon.ico").await;
            (elsewhere, get(port, "/callback?code=a&state=b").await)
        });
        let redirect = listener.next().await.unwrap();
        assert_eq!(redirect.query, "code=a&state=b");
        redirect.answer(Page::Failed { why: "<script>" }).await;
        let (elsewhere, page) = browser.await.unwrap();
        assert!(elsewhere.starts_with("HTTP/1.1 404"), "{elsewhere}");
        assert!(page.starts_with("HTTP/1.1 400") && page.contains("&lt;script&gt;"), "{page}");
        assert!(!page.contains("code=a"), "{page}");
    }

    #[tokio::test]
    async fn connections_that_say_nothing_delay_nobody() {
        let listener = CallbackListener::anywhere().await.unwrap();
        let port = listener.listener.local_addr().unwrap().port();
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS - 1 {
            silent.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap());
        }
        let browser = tokio::spawn(async move { get(port, "/callback?code=a").await });
        let redirect = listener.next().await.unwrap();
        redirect.answer(Page::SignedIn { server: "docs" }).await;
        assert!(browser.await.unwrap().contains("docs"));
        // They may still be used: it did not wait until they were given up.
        let mut late = silent.remove(0);
        late.write_all(b"GET /callback?code=b HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(listener.next().await.unwrap().query, "code=b");
    }

    #[tokio::test]
    async fn a_redirect_address_elsewhere_is_refused() {
        for elsewhere in ["https://example.org/callback", "http://example.org:80/x", "http://127.0.0.1/callback", "x"] {
            let error = CallbackListener::at(elsewhere).await.unwrap_err();
            assert!(error.to_string().contains(elsewhere), "{error}");
        }
    }
}
