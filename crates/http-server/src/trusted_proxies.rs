//! Proxies in front of the service: whose word about the client and its scheme counts.

use std::net::IpAddr;
use std::str::FromStr;

use hyper::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The addresses of one proxy, or of several: `10.0.0.7`, or `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedProxy {
    address: IpAddr,
    /// How many of its first bits count.
    bits: u8,
}

/// The text is neither an address nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address of a proxy; write `10.0.0.7` or, for a network, `10.0.0.0/8`")]
pub struct NotAProxy(String);

impl FromStr for TrustedProxy {
    type Err = NotAProxy;

    fn from_str(text: &str) -> Result<Self, NotAProxy> {
        let unusable = || NotAProxy(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address = address.parse::<IpAddr>().map_err(|_| unusable())?.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| unusable()))?;
        if bits > most { Err(unusable()) } else { Ok(Self { address, bits }) }
    }
}

impl TrustedProxy {
    fn covers(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                is_same_start(u128::from(ours.to_bits()), u128::from(other.to_bits()), 32, self.bits)
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => is_same_start(ours.to_bits(), other.to_bits(), 128, self.bits),
            _ => false,
        }
    }
}

fn is_same_start(one: u128, other: u128, length: u8, bits: u8) -> bool {
    (one ^ other).checked_shr(u32::from(length - bits)).unwrap_or_default() == 0
}

/// All proxies that are believed. Without any, every client is what its connection says.
#[derive(Debug, Default)]
pub(crate) struct TrustedProxies(pub(crate) Vec<TrustedProxy>);

impl TrustedProxies {
    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|proxy| proxy.covers(address))
    }

    /// The address of the client that sent a request over a connection from `peer`.
    pub(crate) fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.trusts(peer) {
            return peer;
        }
        // Each proxy appends who connected to it. What stands before the first unknown one is the client's own word.
        let mut client = peer;
        for address in forwarded_for(headers).into_iter().rev() {
            let Some(address) = address else { break };
            client = address;
            if !self.trusts(address) {
                break;
            }
        }
        client
    }

    /// Leaves of a request's headers about forwarding what is true. `is_tls` is whether its connection is encrypted.
    pub(crate) fn clean(&self, peer: IpAddr, is_tls: bool, headers: &mut HeaderMap) {
        if !self.trusts(peer) {
            for name in [FORWARDED, FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST] {
                headers.remove(name);
            }
        } else if !headers.contains_key(FORWARDED_PROTO)
            && forwarded_value(headers, "proto").as_deref() == Some("https")
        {
            headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
        }
        if is_tls && !headers.contains_key(FORWARDED_PROTO) {
            headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
        }
    }
}

/// The addresses that proxies report, the nearest one last; `None` for what is no address.
fn forwarded_for(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let values = |name| headers.get_all(name).iter().filter_map(|value: &HeaderValue| value.to_str().ok());
    if headers.contains_key(FORWARDED_FOR) {
        return values(FORWARDED_FOR).flat_map(|value| value.split(',')).map(|text| address_in(text.trim())).collect();
    }
    let elements = values(FORWARDED).flat_map(|value| value.split(','));
    elements.map(|element| address_in(&parameter(element, "for")?)).collect()
}

/// A parameter of the nearest proxy's element of `Forwarded`.
fn forwarded_value(headers: &HeaderMap, name: &str) -> Option<String> {
    let last = headers.get_all(FORWARDED).iter().next_back()?.to_str().ok()?;
    parameter(last.rsplit(',').next()?, name)
}

fn parameter(element: &str, name: &str) -> Option<String> {
    let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.trim_matches('"').to_ascii_lowercase())
}

/// An address that may have a port: `1.2.3.4`, `1.2.3.4:5`, `2001:db8::1`, `[2001:db8::1]:5`.
fn address_in(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches('"');
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None if text.matches(':').count() == 1 => text.split(':').next().unwrap_or(text),
        None => text,
    };
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(texts: &[&str]) -> TrustedProxies {
        TrustedProxies(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    fn client(trusted: &[&str], peer: &str, pairs: &[(&'static str, &str)]) -> String {
        proxies(trusted).client_address(peer.parse().unwrap(), &headers(pairs)).to_string()
    }

    #[test]
    fn networks_and_addresses_are_read() {
        for (text, inside, outside) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
            ("10.0.0.0/8", "10.255.1.1", "11.0.0.1"),
            ("0.0.0.0/0", "1.2.3.4", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
            ("::/0", "::1", "127.0.0.1"),
            ("127.0.0.1", "::ffff:127.0.0.1", "127.0.0.2"),
        ] {
            let proxy: TrustedProxy = text.parse().unwrap();
            assert!(proxy.covers(inside.parse().unwrap()), "{text} {inside}");
            assert!(!proxy.covers(outside.parse().unwrap()), "{text} {outside}");
        }
        for text in ["", "proxy", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "::/129"] {
            let error = text.parse::<TrustedProxy>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("10.0.0.0/8"), "{error}");
        }
    }

    #[test]
    fn only_trusted_proxies_say_who_the_client_is() {
        let said = [("x-forwarded-for", "1.1.1.1, 203.0.113.9")];
        assert_eq!(client(&[], "10.0.0.7", &said), "10.0.0.7");
        assert_eq!(client(&["10.0.0.7"], "10.0.0.8", &said), "10.0.0.8");
        assert_eq!(client(&["10.0.0.7"], "10.0.0.7", &said), "203.0.113.9", "1.1.1.1 is what the client claims");
        let chain = [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "10.0.0.3, 10.0.0.4")];
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.7", &chain), "203.0.113.9");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.7", &[]), "10.0.0.7");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.7", &[("x-forwarded-for", "nonsense")]), "10.0.0.7");
        let standard = [("forwarded", "for=1.1.1.1, for=\"[2001:db8::9]:4711\";proto=https")];
        assert_eq!(client(&["10.0.0.7"], "10.0.0.7", &standard), "2001:db8::9");
        assert_eq!(client(&["10.0.0.7"], "10.0.0.7", &[("x-forwarded-for", "203.0.113.9:1234")]), "203.0.113.9");
    }

    #[test]
    fn headers_of_others_are_removed_and_the_scheme_is_what_it_is() {
        let scheme = |trusted: &[&str], is_tls, pairs: &[(&'static str, &str)]| {
            let mut headers = headers(pairs);
            proxies(trusted).clean("10.0.0.7".parse().unwrap(), is_tls, &mut headers);
            headers.get(FORWARDED_PROTO).map(|scheme| scheme.to_str().unwrap().to_owned())
        };
        let https = Some("https".to_owned());
        assert_eq!(scheme(&[], false, &[("x-forwarded-proto", "https")]), None);
        assert_eq!(scheme(&[], true, &[("x-forwarded-proto", "http")]), https);
        assert_eq!(scheme(&["10.0.0.7"], false, &[("x-forwarded-proto", "https")]), https);
        assert_eq!(scheme(&["10.0.0.7"], false, &[("forwarded", "for=1.1.1.1;proto=https")]), https);
        assert_eq!(scheme(&["10.0.0.7"], true, &[("x-forwarded-proto", "http")]), Some("http".to_owned()));
        assert_eq!(scheme(&["10.0.0.7"], false, &[]), None);
    }
}
