//! Queries the Linux kernel for the user at the other end of a local TCP connection (netlink `sock_diag`).
//!
//! One request of 72 bytes and one response per connection, in the wire format of `linux/inet_diag.h`. The kernel
//! writes the response before `sendto` returns, so nothing here waits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use crate::local::PeerLookup;

/// `SOCK_DIAG_BY_FAMILY`, of both the request and its response.
const BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR`: there is no such socket, or the query is not permitted.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`
const REQUEST: u16 = 1;
const HEADER_LENGTH: usize = 16;
const REQUEST_LENGTH: usize = HEADER_LENGTH + 8 + ID_LENGTH;
/// `struct inet_diag_sockid`
const ID_LENGTH: usize = 48;
/// `struct inet_diag_msg`: four bytes, the id, and five numbers.
const ANSWER_LENGTH: usize = 4 + ID_LENGTH + 20;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;

/// A peer that has connected is in one of these: ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT.
const CONNECTED_STATES: [u8; 4] = [1, 4, 5, 8];

/// A netlink socket for such queries.
#[derive(Debug)]
pub(crate) struct SockDiag {
    state: Mutex<State>,
    /// What the kernel reports for users without a uid in our user namespace; `None` where all have one.
    overflow_uid: Option<u32>,
}

#[derive(Debug)]
struct State {
    socket: OwnedFd,
    sequence: u32,
}

impl SockDiag {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
        Ok(Self { state: Mutex::new(State { socket, sequence: 0 }), overflow_uid: overflow_uid() })
    }
}

impl PeerLookup for SockDiag {
    fn user_of(&self, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = state.query(peer, local).inspect_err(|error| {
            tracing::debug!(%error, "failed to ask the kernel for the user of a connection");
        });
        uid.ok().flatten().filter(|&uid| Some(uid) != self.overflow_uid)
    }
}

impl State {
    fn query(&mut self, peer: SocketAddr, local: SocketAddr) -> Result<Option<u32>, Errno> {
        // An IPv4 connection to an IPv6 socket is between IPv4 addresses, and found as such from either side.
        let (peer, local) = (canonical(peer), canonical(local));
        self.sequence = self.sequence.wrapping_add(1);
        let Some(request) = request(peer, local, self.sequence) else { return Ok(None) };
        sendto(&self.socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut buffer = [0; 4096];
        loop {
            let (length, _) = recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT)?;
            // A response to an earlier query may remain after an error.
            if number(&buffer[..length], 8) == Some(self.sequence) {
                return Ok(read_answer(&buffer[..length], peer, local));
            }
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Queries the socket whose own address is `peer` and whose other end is `local`. `None` for addresses of two
/// families.
fn request(peer: SocketAddr, local: SocketAddr, sequence: u32) -> Option<[u8; REQUEST_LENGTH]> {
    let family = match (peer, local) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => AF_INET,
        (SocketAddr::V6(_), SocketAddr::V6(_)) => AF_INET6,
        _ => return None,
    };
    let mut bytes = Vec::with_capacity(REQUEST_LENGTH);
    bytes.extend((REQUEST_LENGTH as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    // Family, protocol, no extensions, and all states.
    bytes.extend([family, IPPROTO_TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(peer.port().to_be_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(octets(peer.ip()));
    bytes.extend(octets(local.ip()));
    // Any interface, and no cookie.
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes.try_into().ok()
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// The uid in a response, if it is about that very connection and its socket still has an owner.
fn read_answer(answer: &[u8], peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind == ERROR || kind != BY_FAMILY {
        return None;
    }
    let answer = answer.get(HEADER_LENGTH..HEADER_LENGTH + ANSWER_LENGTH)?;
    let (family, state) = (answer[0], answer[1]);
    // Where no connection matches, the kernel falls back to a listener at the peer's address.
    let is_this_one = CONNECTED_STATES.contains(&state)
        && address_in(family, &answer[8..24], &answer[4..6]) == Some(peer)
        && address_in(family, &answer[24..40], &answer[6..8]) == Some(local);
    let (uid, inode) = (number(answer, 64)?, number(answer, 68)?);
    // A socket that its process has closed has no owner, and older kernels then report root.
    (is_this_one && inode != 0).then_some(uid)
}

fn address_in(family: u8, octets: &[u8], port: &[u8]) -> Option<SocketAddr> {
    let ip = match family {
        AF_INET => IpAddr::from(<[u8; 4]>::try_from(octets.get(..4)?).ok()?),
        AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(octets).ok()?),
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, u16::from_be_bytes(port.try_into().ok()?))))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The uid that represents every user without a uid here. In the initial user namespace there are none of these.
fn overflow_uid() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let has_all_users = map.split_whitespace().eq(["0", "0", "4294967295"]);
    let configured = || std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok();
    (!has_all_users).then(|| configured().unwrap_or(65_534))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn own_uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// A connection that was just accepted at an address: both of its ends.
    fn connected(listen: &str, to: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen).expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let client = TcpStream::connect(format!("{to}:{port}")).expect("it listens");
        (client, listener.accept().expect("a client has connected").0)
    }

    fn user(diag: &SockDiag, accepted: &TcpStream) -> Option<u32> {
        diag.user_of(accepted.peer_addr().expect("connected"), accepted.local_addr().expect("connected"))
    }

    #[test]
    fn the_user_of_a_connection_is_known_over_every_address_family() {
        let diag = SockDiag::open().expect("the kernel has sock_diag");
        for (listen, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:0", "[::ffff:127.0.0.1]"),
            ("[::1]:0", "[::1]"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "[::ffff:127.0.0.1]"),
            ("[::ffff:127.0.0.1]:0", "127.0.0.1"),
        ] {
            let (_client, accepted) = connected(listen, to);
            assert_eq!(user(&diag, &accepted), Some(own_uid()), "{listen} {to}");
        }
    }

    #[test]
    fn a_peer_that_closed_its_end_has_no_user() {
        let diag = SockDiag::open().expect("the kernel has sock_diag");
        let (client, accepted) = connected("127.0.0.1:0", "127.0.0.1");
        client.shutdown(std::net::Shutdown::Write).expect("it is open");
        assert_eq!(user(&diag, &accepted), Some(own_uid()), "it still reads");
        drop(client);
        assert_eq!(user(&diag, &accepted), None, "not root, either");
    }

    #[test]
    fn a_listener_at_the_peers_address_is_not_the_owner() {
        let diag = SockDiag::open().expect("the kernel has sock_diag");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let at = listener.local_addr().expect("it is bound");
        assert_eq!(diag.user_of(at, "127.0.0.1:9".parse().expect("an address")), None);
    }

    #[test]
    fn an_answer_about_another_connection_is_not_believed() {
        let (peer, local) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:8808".parse().unwrap());
        let answer = |state: u8, peer: SocketAddr, inode: u32| {
            let request = request(peer, local, 1).expect("one family");
            let mut answer = request[..HEADER_LENGTH].to_vec();
            answer.extend([AF_INET, state, 0, 0]);
            answer.extend(&request[HEADER_LENGTH + 8..]);
            answer.extend([0; 12]);
            answer.extend(7u32.to_ne_bytes());
            answer.extend(inode.to_ne_bytes());
            read_answer(&answer, "127.0.0.1:40000".parse().unwrap(), local)
        };
        assert_eq!(answer(1, peer, 5), Some(7));
        assert_eq!(answer(1, "127.0.0.1:40001".parse().unwrap(), 5), None);
        assert_eq!(answer(1, "127.0.0.2:40000".parse().unwrap(), 5), None);
        assert_eq!(answer(10, peer, 5), None, "it listens");
        assert_eq!(answer(2, peer, 5), None, "it has not connected yet");
        assert_eq!(answer(6, peer, 0), None, "it is gone");
        assert_eq!(answer(4, peer, 0), None, "its process has closed it");
        for length in 0..HEADER_LENGTH {
            assert_eq!(read_answer(&vec![0; length], peer, local), None);
        }
    }
}
