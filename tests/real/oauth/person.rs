//! A person with a browser: opens the address of a sign-in, follows redirects, and fills in forms.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};

use testkit::http_client::{Connection, HttpRequest};
use url::Url;

/// A login, a consent, the callback and the redirects between them are fewer.
const MAX_STEPS: usize = 20;

/// What the person says to every question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Say {
    Yes,
    No,
}

/// The page that is shown in the end.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) url: Url,
}

/// Somebody with a name and with cookies.
pub(crate) struct Person {
    name: String,
    /// By host and port, unlike in a browser, in which all ports share them.
    cookies: BTreeMap<String, BTreeMap<String, String>>,
}

impl Person {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), cookies: BTreeMap::new() }
    }

    /// Opens an address and answers every form, until there is none.
    #[track_caller]
    pub(crate) fn open(&mut self, address: &str, say: Say) -> Page {
        self.follow(address, say, None)
    }

    /// The same, but stops before a path that it would be redirected to; returns the address.
    #[track_caller]
    pub(crate) fn open_until(&mut self, address: &str, path: &str) -> String {
        self.follow(address, Say::Yes, Some(path)).url.into()
    }

    #[track_caller]
    fn follow(&mut self, address: &str, say: Say, until: Option<&str>) -> Page {
        let mut url = Url::parse(address).unwrap_or_else(|error| panic!("{error}: {address}"));
        let mut form = None;
        for _ in 0..MAX_STEPS {
            if until == Some(url.path()) {
                return Page { status: 0, text: String::new(), url };
            }
            let (status, location, text) = self.fetch(&url, form.take());
            if let Some(location) = location {
                url = url.join(&location).unwrap_or_else(|error| panic!("{error}: {location}"));
            } else if text.contains(r#"<form method="post">"#) {
                let answer = if say == Say::Yes { "yes" } else { "no" };
                form = Some(format!("name={}&answer={answer}", self.name));
            } else {
                return Page { status, text, url };
            }
        }
        panic!("{address} leads nowhere; last {url}")
    }

    fn fetch(&mut self, url: &Url, form: Option<String>) -> (u16, Option<String>, String) {
        let host = url.host_str().expect("an address has a host");
        let port = url.port_or_known_default().expect("an address has a port");
        let authority = format!("{host}:{port}");
        let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let method = if form.is_some() { "POST" } else { "GET" };
        let mut request = HttpRequest::new(method, &path).header("Host", &authority).header("Accept", "text/html");
        if let Some(form) = form {
            let origin = format!("http://{authority}");
            request = request.header("Content-Type", "application/x-www-form-urlencoded").header("Origin", &origin);
            request = request.body(form);
        }
        let cookies = self.cookies.entry(authority).or_default();
        if !cookies.is_empty() {
            let all: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            request = request.header("Cookie", &all.join("; "));
        }
        let mut connection = connect(host, port);
        let mut answer = connection.ask(&request);
        if let Some(set) = answer.header("set-cookie") {
            keep(cookies, set);
        }
        let location = answer.header("location").filter(|_| (300..400).contains(&answer.status)).map(str::to_owned);
        let text = String::from_utf8_lossy(&answer.bytes()).into_owned();
        (answer.status, location, text)
    }
}

/// Keeps the cookies of a header, in which several are joined by `, `, as are the parts of a date.
fn keep(cookies: &mut BTreeMap<String, String>, header: &str) {
    for cookie in header.split(", ") {
        let pair = cookie.split(';').next().unwrap_or_default();
        match pair.split_once('=') {
            Some((name, "")) => drop(cookies.remove(name)),
            Some((name, value)) => drop(cookies.insert(name.to_owned(), value.to_owned())),
            None => {}
        }
    }
}

/// Connects to the first address of a host at which somebody listens, as `localhost` has two.
#[track_caller]
fn connect(host: &str, port: u16) -> Connection {
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().expect("the host is known").collect();
    let open = addresses.iter().find_map(|address| Connection::try_open(*address).ok());
    open.unwrap_or_else(|| panic!("nobody listens at {host}:{port}"))
}
