//! Redirect addresses on the machine of the browser: who listens there.

/// A redirect address at a loopback interface, such as `http://127.0.0.1:8808/oauth/callback`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopbackRedirect<'a> {
    host: Host,
    /// Its port.
    pub port: u16,
    path: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    V4,
    V6,
    /// `localhost`, which may be either.
    Name,
}

impl<'a> LoopbackRedirect<'a> {
    /// `None` if the address is elsewhere, or not of this form.
    pub fn parse(address: &'a str) -> Option<Self> {
        let (scheme, rest) = address.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let at_port = authority.rfind(':').filter(|at| !authority[*at..].contains(']'));
        let (host, port) = authority.split_at(at_port.unwrap_or(authority.len()));
        let host = match host.to_ascii_lowercase().as_str() {
            "127.0.0.1" => Host::V4,
            "[::1]" => Host::V6,
            "localhost" => Host::Name,
            _ => return None,
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None => 80,
        };
        let path = path.split(['?', '#']).next().filter(|path| !path.is_empty()).unwrap_or("/");
        scheme.eq_ignore_ascii_case("http").then_some(Self { host, port, path })
    }

    /// Whether a redirect to this address arrives at whoever listens at the other one.
    pub fn leads_to(&self, other: &Self) -> bool {
        let is_same_host = self.host == other.host || [self.host, other.host].contains(&Host::Name);
        is_same_host && (self.port, self.path) == (other.port, other.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_on_this_machine() {
        let port = |address| LoopbackRedirect::parse(address).map(|redirect| redirect.port);
        assert_eq!(port("http://127.0.0.1:8808/oauth/callback"), Some(8808));
        assert_eq!(port("HTTP://LocalHost/callback?x=:9"), Some(80));
        assert_eq!(port("http://[::1]:9"), Some(9));
        for elsewhere in
            ["https://127.0.0.1:1/", "http://127.0.0.1.example:1/", "http://a@127.0.0.1:1/", "http://x:y", ""]
        {
            assert_eq!(port(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn two_addresses_may_lead_to_one_listener() {
        let leads_to = |one, other| {
            let parsed = [one, other].map(|address| LoopbackRedirect::parse(address).expect("it is loopback"));
            parsed[0].leads_to(&parsed[1])
        };
        let service = "http://127.0.0.1:8808/oauth/callback";
        assert!(leads_to("http://localhost:8808/oauth/callback", service));
        assert!(!leads_to("http://[::1]:8808/oauth/callback", service));
        assert!(!leads_to("http://localhost:8808/callback", service));
        assert!(!leads_to("http://localhost:8809/oauth/callback", service));
    }
}
