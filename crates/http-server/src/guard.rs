//! Checks the `Host` and the `Origin` of a request, each alone.
//!
//! A web page can make a browser send requests to this machine. What it cannot do is choose the `Host` (it is the name
//! the page was loaded from, even if that name now points here) or the `Origin` the browser sends along.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use catalog::Principal;
use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{Method, StatusCode, Uri};

use crate::identity::{Connected, Full, Identities, Identity};

/// The accepted hosts and origins.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    hosts: Vec<HostPort>,
    origins: Vec<Origin>,
}

/// One connection with the guard's state.
#[derive(Debug)]
pub(crate) struct GuardedConnection {
    /// Our local address of the connection.
    local: IpAddr,
    /// The first accepted host. Clients send the same one every time, so it need not be checked every time.
    let_in: OnceLock<HeaderValue>,
    /// The identity of the connection, once a request has authenticated.
    connected: Mutex<Option<Connected>>,
}

impl GuardedConnection {
    pub(crate) fn new(local: IpAddr) -> Self {
        Self { local, let_in: OnceLock::new(), connected: Mutex::default() }
    }

    /// Assigns the connection to the identity of a principal, which then counts one more connection.
    pub(crate) fn identify(&self, identities: &Identities, principal: &Arc<Principal>) -> Result<Arc<Identity>, Full> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = connected.as_ref().filter(|known| known.identity().principal == *principal) {
            return Ok(Arc::clone(known.identity()));
        }
        let now = connected.insert(identities.of(principal).connect()?);
        Ok(Arc::clone(now.identity()))
    }

    /// The identity of the connection, if it is known.
    pub(crate) fn identity(&self) -> Option<Arc<Identity>> {
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.as_ref().map(|connected| Arc::clone(connected.identity()))
    }

    /// The principal of the connection, if it is known.
    pub(crate) fn owner_of(&self) -> Option<Arc<Principal>> {
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.as_ref().map(|connected| Arc::clone(&connected.identity().principal))
    }

    /// Whether a request equals one that was accepted, and comes from no web page.
    fn knows(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let Some(known) = self.let_in.get() else { return false };
        let mut hosts = headers.get_all(HOST).iter();
        hosts.next() == Some(known)
            && hosts.next().is_none()
            && uri.authority().is_none()
            && !headers.contains_key(ORIGIN)
    }
}

/// A host, and a port if that matters.
#[derive(Debug, PartialEq, Eq)]
struct HostPort {
    host: String,
    port: Option<u16>,
}

#[derive(Debug, PartialEq, Eq)]
struct Origin {
    scheme: String,
    host_port: HostPort,
}

/// The web page that a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'h> {
    pub(crate) origin: &'h HeaderValue,
    pub(crate) kind: PageKind,
}

/// Which origin a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Our own: it has the host and the port of the request.
    Own,
    /// An origin that the user allowed.
    Allowed,
    /// Another program on this machine, which another user may have started.
    Machine,
}

/// Why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) why: &'static str,
}

/// An allowed host or origin is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// It is no valid host.
    #[error("`{0}` is not a host name; write `example.com` or `example.com:8443`")]
    Host(String),
    /// It is no valid origin.
    #[error("`{0}` is not an origin; write `https://example.com` or `http://example.com:3000`")]
    Origin(String),
}

impl Guard {
    /// A guard that accepts loopback names, our own address, and what the user allows besides.
    pub(crate) fn new(hosts: &[String], origins: &[String]) -> Result<Self, GuardError> {
        let host = |text: &String| HostPort::parse(text).ok_or_else(|| GuardError::Host(text.clone()));
        let origin = |text: &String| Origin::parse(text).ok_or_else(|| GuardError::Origin(text.clone()));
        Ok(Self {
            hosts: hosts.iter().map(host).collect::<Result<_, _>>()?,
            origins: origins.iter().map(origin).collect::<Result<_, _>>()?,
        })
    }

    /// Checks a request that arrived through `guarded`. Returns the web page it comes from, if any.
    pub(crate) fn check<'h>(
        &self,
        uri: &Uri,
        headers: &'h HeaderMap,
        guarded: &GuardedConnection,
    ) -> Result<Option<Page<'h>>, Rejection> {
        if guarded.knows(uri, headers) {
            return Ok(None);
        }
        let rejection = |status, why| Rejection { status, why };
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(header), None) = (hosts.next(), hosts.next()) else {
            return Err(rejection(StatusCode::BAD_REQUEST, "a request must have one Host header"));
        };
        let Some(host) = header.to_str().ok().and_then(HostPort::parse) else {
            return Err(rejection(StatusCode::BAD_REQUEST, "the Host header is not valid"));
        };
        // The request line may contain the host as well, and then both are checked.
        let named = uri.authority().map(|authority| HostPort::parse(authority.as_str()));
        let is_known = self.knows(&host, guarded.local) && named.is_none_or(|named| named.as_ref() == Some(&host));
        if !is_known {
            return Err(rejection(StatusCode::FORBIDDEN, "this host is not allowed (allow it with --allow-host)"));
        }
        guarded.let_in.get_or_init(|| header.clone());

        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(value) = origins.next() else { return Ok(None) };
        let origin = value.to_str().ok().and_then(Origin::parse);
        let kind = origin.and_then(|origin| self.kind_of(&origin, &host)).filter(|_| origins.next().is_none());
        let Some(kind) = kind else {
            return Err(rejection(StatusCode::FORBIDDEN, "this origin is not allowed (allow it with --allow-origin)"));
        };
        Ok(Some(Page { origin: value, kind }))
    }

    fn knows(&self, host: &HostPort, local: IpAddr) -> bool {
        // An address cannot be rebound like a name, so our own is safe.
        let is_ours = || host.address().is_some_and(|address| address == local.to_canonical());
        host.is_loopback() || is_ours() || self.hosts.iter().any(|allowed| allowed.covers(host))
    }

    fn kind_of(&self, origin: &Origin, host: &HostPort) -> Option<PageKind> {
        let is_web = matches!(origin.scheme.as_str(), "http" | "https");
        let is_same = || origin.host_port.host == host.host && origin.port() == host.port.or(origin.default_port());
        if is_web && is_same() {
            return Some(PageKind::Own);
        }
        if self.origins.contains(origin) {
            return Some(PageKind::Allowed);
        }
        (is_web && origin.host_port.is_loopback()).then_some(PageKind::Machine)
    }
}

/// Whether a request for REST or the console may come from its origin: a page of ours, one of an origin that the user
/// allowed, or no page at all. Other pages of this machine are served MCP, and nothing else.
pub(crate) fn check_own_page(page: Option<Page<'_>>, method: &Method, headers: &HeaderMap) -> Result<(), Rejection> {
    let is_served = match page {
        Some(page) => page.kind != PageKind::Machine,
        None => !is_from_another_site(method, headers),
    };
    let why = "only pages of the console, and of origins allowed with --allow-origin, may request this";
    if is_served { Ok(()) } else { Err(Rejection { status: StatusCode::FORBIDDEN, why }) }
}

/// Whether a browser reports a page of another site as the initiator, although it sends no `Origin`: for an image, a
/// script or a frame. Navigation by a link is not meant: the page with the link cannot read the response.
fn is_from_another_site(method: &Method, headers: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|said| said == value);
    let is_link = matches!(*method, Method::GET | Method::HEAD)
        && says("sec-fetch-mode", "navigate")
        && says("sec-fetch-dest", "document");
    let mut sites = headers.get_all("sec-fetch-site").iter();
    sites.any(|site| site != "same-origin" && site != "none") && !is_link
}

impl HostPort {
    fn parse(text: &str) -> Option<Self> {
        if text.contains('@') {
            return None;
        }
        let authority: Authority = text.parse().ok()?;
        let name = authority.host();
        let host = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let has_port = authority.as_str().len() > name.len();
        // `host:` and `host:99999` are invalid.
        let is_whole = !host.is_empty() && has_port == authority.port_u16().is_some();
        is_whole.then(|| Self { host, port: authority.port_u16() })
    }

    fn address(&self) -> Option<IpAddr> {
        let bare = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&self.host);
        bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
    }

    fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.address().is_some_and(|address| address.is_loopback())
    }

    fn covers(&self, other: &Self) -> bool {
        self.host == other.host && (self.port.is_none() || self.port == other.port)
    }
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, host_port) = text.trim_end_matches('/').split_once("://")?;
        let is_scheme =
            !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        let mut host_port = is_scheme.then(|| HostPort::parse(host_port))??;
        let scheme = scheme.to_ascii_lowercase();
        if host_port.port == default_port(&scheme) {
            host_port.port = None;
        }
        Some(Self { scheme, host_port })
    }

    fn port(&self) -> Option<u16> {
        self.host_port.port.or(self.default_port())
    }

    fn default_port(&self) -> Option<u16> {
        default_port(&self.scheme)
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, host: &str, origin: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        let guarded = GuardedConnection::new("192.168.1.5".parse().unwrap());
        let ask = || {
            let checked = guard.check(&Uri::from_static("/mcp"), &headers, &guarded);
            checked.map_or_else(|rejection| rejection.status.as_u16(), |_| 200)
        };
        let first = ask();
        assert_eq!(ask(), first, "the second time is like the first");
        first
    }

    #[test]
    fn loopback_names_and_our_own_address_are_served() {
        let guard = Guard::default();
        for host in
            ["localhost", "LOCALHOST:8808", "127.0.0.1:1", "127.9.9.9", "[::1]:8808", "192.168.1.5:8808", "localhost."]
        {
            assert_eq!(check(&guard, host, None), 200, "{host}");
        }
    }

    #[test]
    fn other_names_are_not_served_even_if_they_look_alike() {
        let guard = Guard::default();
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.1.6", "xlocalhost", "[::2]"]
        {
            assert_eq!(check(&guard, host, None), 403, "{host}");
        }
        for host in ["", "a@localhost", "localhost:", "localhost:99999", "local host"] {
            assert_eq!(check(&guard, host, None), 400, "{host}");
        }
    }

    #[test]
    fn an_origin_is_checked_even_if_the_host_is_fine() {
        let guard = Guard::default();
        for origin in [
            "http://evil.example",
            "null",
            "https://localhost.evil.example",
            "file://",
            "chrome-extension://abc",
            "localhost",
        ] {
            assert_eq!(check(&guard, "localhost:8808", Some(origin)), 403, "{origin}");
        }
        for origin in ["http://localhost:6274", "http://127.0.0.1", "https://[::1]:3"] {
            assert_eq!(check(&guard, "localhost:8808", Some(origin)), 200, "{origin}");
        }
    }

    #[test]
    fn a_page_from_the_same_place_is_welcome() {
        let guard = Guard::new(&["mcp.example".to_owned()], &[]).unwrap();
        assert_eq!(check(&guard, "mcp.example", Some("https://mcp.example")), 200);
        assert_eq!(check(&guard, "mcp.example:8808", Some("http://mcp.example:8808")), 200);
        assert_eq!(check(&guard, "mcp.example:8808", Some("http://mcp.example")), 403);
        assert_eq!(check(&guard, "mcp.example", Some("https://other.example")), 403);
    }

    #[test]
    fn what_the_user_allows_is_let_in() {
        let hosts = ["mcp.example".to_owned(), "one.example:8443".to_owned()];
        let origins = ["https://App.example:443/".to_owned(), "vscode-webview://abc".to_owned()];
        let guard = Guard::new(&hosts, &origins).unwrap();
        assert_eq!(check(&guard, "MCP.example:99", None), 200);
        assert_eq!(check(&guard, "one.example:8443", None), 200);
        assert_eq!(check(&guard, "one.example", None), 403);
        assert_eq!(check(&guard, "localhost", Some("https://app.example")), 200);
        assert_eq!(check(&guard, "localhost", Some("vscode-webview://abc")), 200);
        assert_eq!(check(&guard, "localhost", Some("http://app.example")), 403);
    }

    #[test]
    fn rest_and_console_are_for_our_own_pages_and_for_allowed_origins() {
        let guard = Guard::new(&[], &["https://app.example".to_owned()]).unwrap();
        let guarded = GuardedConnection::new("127.0.0.1".parse().unwrap());
        let is_served = |method: Method, said: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost:8808".parse().unwrap());
            for &(name, value) in said {
                headers.append(name, value.parse().unwrap());
            }
            let page = guard.check(&Uri::from_static("/"), &headers, &guarded).unwrap();
            check_own_page(page, &method, &headers).is_ok()
        };
        let site = "sec-fetch-site";
        assert!(is_served(Method::POST, &[]), "a program");
        assert!(is_served(Method::POST, &[("origin", "http://localhost:8808"), (site, "same-origin")]));
        assert!(is_served(Method::POST, &[("origin", "https://app.example"), (site, "cross-site")]));
        assert!(is_served(Method::GET, &[(site, "none")]), "an address was typed");
        for other in ["http://localhost:3000", "http://127.0.0.1:8808", "http://[::1]:8808", "https://localhost:9"] {
            assert!(!is_served(Method::GET, &[("origin", other)]), "{other}");
            assert!(!is_served(Method::POST, &[("origin", other), (site, "same-origin")]), "{other}");
        }
        let link = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let frame = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
        for from in ["same-site", "cross-site"] {
            assert!(!is_served(Method::GET, &[(site, from)]), "a picture or a script");
            assert!(is_served(Method::GET, &[(site, from), link[0], link[1]]), "a link");
            assert!(!is_served(Method::POST, &[(site, from), link[0], link[1]]), "a form");
            assert!(!is_served(Method::GET, &[(site, from), frame[0], frame[1]]), "a frame");
            assert!(!is_served(Method::GET, &[(site, "same-origin"), (site, from)]), "said twice");
        }
    }

    #[test]
    fn two_hosts_are_one_too_many() {
        let guard = Guard::default();
        let mut headers = HeaderMap::new();
        headers.append(HOST, "localhost".parse().unwrap());
        headers.append(HOST, "localhost".parse().unwrap());
        let guarded = GuardedConnection::new("127.0.0.1".parse().unwrap());
        assert_eq!(
            guard.check(&Uri::from_static("/"), &headers, &guarded).unwrap_err().status,
            StatusCode::BAD_REQUEST
        );
        let mut headers = HeaderMap::new();
        headers.append(HOST, "localhost".parse().unwrap());
        let elsewhere = Uri::from_static("http://evil.example/mcp");
        assert_eq!(guard.check(&elsewhere, &headers, &guarded).unwrap_err().status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn host_and_origin_are_checked_again_when_they_change() {
        let (guard, guarded) = (Guard::default(), GuardedConnection::new("127.0.0.1".parse().unwrap()));
        let ask = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
            guard.check(&Uri::from_static("/mcp"), &headers, &guarded).is_ok()
        };
        assert!(ask("localhost", None));
        assert!(!ask("evil.example", None));
        assert!(!ask("localhost", Some("http://evil.example")));
        assert!(ask("127.0.0.1", None) && ask("localhost", Some("http://localhost")));
    }

    #[test]
    fn nonsense_that_a_user_allows_is_pointed_out() {
        assert!(matches!(Guard::new(&["http://x".to_owned()], &[]), Err(GuardError::Host(_))));
        assert!(matches!(Guard::new(&[], &["example.com".to_owned()]), Err(GuardError::Origin(_))));
    }
}
