//! Limits on where connections may go, checked on the addresses that they are made to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use oauth::Network;
use tower_service::Service;

/// Resolves host names to the addresses that connections may be made to. The connection is made to one of these, so
/// that a name cannot resolve to another address after the check.
#[derive(Debug, Clone)]
pub(crate) struct Resolver {
    system: GaiResolver,
    network: Network,
}

/// Connections to a host are not permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrivateNetwork {
    host: String,
}

impl Resolver {
    pub(crate) fn new(network: Network) -> Self {
        Self { system: GaiResolver::new(), network }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.system.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (host, network) = (name.to_string(), self.network);
        let resolving = self.system.call(name);
        Box::pin(async move {
            let mut addresses: Vec<_> = resolving.await?.collect();
            if network == Network::Any || addresses.is_empty() {
                return Ok(addresses.into_iter());
            }
            addresses.retain(|address| is_permitted(network, address.ip()));
            if addresses.is_empty() { Err(PrivateNetwork { host }.into()) } else { Ok(addresses.into_iter()) }
        })
    }
}

/// Checks an address whose host is an IP address: no resolver sees it.
pub(crate) fn check_literal(network: Network, url: &Uri) -> Result<(), PrivateNetwork> {
    let host = url.host().unwrap_or_default();
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match literal.parse() {
        Ok(ip) if !is_permitted(network, ip) => Err(PrivateNetwork { host: host.to_owned() }),
        _ => Ok(()),
    }
}

impl std::error::Error for PrivateNetwork {}

impl fmt::Display for PrivateNetwork {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` is in a private network, which --deny-private-networks excludes", self.host)
    }
}

fn is_permitted(network: Network, ip: IpAddr) -> bool {
    match (network, scope(ip)) {
        (Network::Any, _) | (Network::PublicOrLoopback, Scope::Loopback) | (_, Scope::Public) => true,
        (Network::PublicOrLoopback | Network::Public, Scope::Loopback | Scope::Special) => false,
    }
}

/// Who can be reached at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Public,
    /// This machine.
    Loopback,
    /// A private or local network, a group, nobody, or what cannot be known.
    Special,
}

fn scope(ip: IpAddr) -> Scope {
    match ip {
        IpAddr::V4(ip) => scope_v4(ip),
        IpAddr::V6(ip) => scope_v6(ip),
    }
}

/// After the special-purpose registry of IANA (RFC 6890).
fn scope_v4(ip: Ipv4Addr) -> Scope {
    let octets = ip.octets();
    let is_special = ip.is_private()
        || ip.is_link_local()
        || ip.is_documentation()
        // Multicast, reserved and broadcast.
        || octets[0] >= 224
        // "This network"; 0.0.0.0 also reaches this machine.
        || octets[0] == 0
        // Shared by the customers of a provider.
        || octets[0] == 100 && octets[1] & 0xc0 == 64
        || octets[..3] == [192, 0, 0]
        // The relays of 6to4.
        || octets[..3] == [192, 88, 99]
        // Benchmarks.
        || octets[0] == 198 && octets[1] & 0xfe == 18;
    match ip.is_loopback() {
        true => Scope::Loopback,
        false if is_special => Scope::Special,
        false => Scope::Public,
    }
}

/// Of the IPv6 addresses only 2000::/3 is public, without its special parts. Addresses that contain an IPv4 address
/// reach that one.
fn scope_v6(ip: Ipv6Addr) -> Scope {
    let within = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        scope_v4(Ipv4Addr::new(a, b, c, d))
    };
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Scope::Loopback,
        // ::ffff:0:0/96, the same as IPv4.
        [0, 0, 0, 0, 0, 0xffff, high, low] => within(high, low),
        // 64:ff9b::/96 and 2002::/16, which a router translates. Its loopback is not ours.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => match within(high, low) {
            Scope::Public => Scope::Public,
            Scope::Loopback | Scope::Special => Scope::Special,
        },
        // Protocols such as Teredo, documentation (twice).
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Scope::Special,
        [0x2000..=0x3fff, ..] => Scope::Public,
        _ => Scope::Special,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_special_addresses_are_recognised_in_every_form() {
        let is = |expected: Scope, addresses: &[&str]| {
            for address in addresses {
                assert_eq!(scope(address.parse().unwrap()), expected, "{address}");
            }
        };
        is(Scope::Public, &["1.1.1.1", "100.63.0.1", "172.32.0.1", "198.20.0.1", "::ffff:8.8.8.8", "2606:4700::1111"]);
        is(Scope::Public, &["64:ff9b::808:808", "2002:808:808::1", "2001:4860:4860::8888"]);
        is(Scope::Loopback, &["127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"]);
        is(Scope::Special, &["0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"]);
        is(Scope::Special, &["192.0.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"]);
        is(Scope::Special, &["::", "::7f00:1", "fe80::1", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1"]);
        is(Scope::Special, &["::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1"]);
        is(Scope::Special, &["64:ff9b:1::1", "100::1", "5f00::1", "3fff::1"]);
    }

    #[test]
    fn loopback_addresses_may_be_permitted_apart_from_private_ones() {
        let permitted = |network, url: &'static str| check_literal(network, &Uri::from_static(url)).is_ok();
        assert!(permitted(Network::Any, "http://10.0.0.1/"));
        assert!(permitted(Network::PublicOrLoopback, "http://127.0.0.1:9/"));
        assert!(permitted(Network::PublicOrLoopback, "http://[::1]:9/"));
        assert!(!permitted(Network::PublicOrLoopback, "http://10.0.0.1/"));
        assert!(!permitted(Network::Public, "http://127.0.0.1:9/"));
        assert!(!permitted(Network::Public, "http://[::1]:9/"));
        assert!(permitted(Network::Public, "https://1.1.1.1/"));
    }

    #[tokio::test]
    async fn a_name_of_a_private_address_is_not_resolved() {
        let resolved = |network| Resolver::new(network).call("localhost".parse().unwrap());
        let error = resolved(Network::Public).await.unwrap_err();
        assert!(error.to_string().contains("private network"), "{error}");
        assert!(resolved(Network::PublicOrLoopback).await.unwrap().count() > 0);
    }
}
