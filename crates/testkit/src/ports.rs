//! Ports that nobody else takes while a test needs them.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Below those that Linux hands out by itself, to whoever listens on port 0 or connects to somebody.
const PORTS: std::ops::Range<u16> = 18_000..32_000;

/// The locks of the ports that this process has taken.
static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A free port of the loopback interface that is this process's until its end.
///
/// A port that the kernel picks is anybody's again as soon as nobody listens there: it may be somebody else's when a
/// server is started again, or when another program is told to listen there.
#[track_caller]
pub fn free_port() -> u16 {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = PORTS.end - PORTS.start;
    // Processes begin at different places, so that they seldom meet.
    let first = std::process::id().wrapping_mul(97).wrapping_add(u32::try_from(taken.len()).unwrap_or(0));
    for offset in 0..u32::from(count) {
        let place = u16::try_from(first.wrapping_add(offset) % u32::from(count)).unwrap_or(0);
        let port = PORTS.start + place;
        // The name vanishes with the process, however it ends.
        let name = format!("mcp-aggregator-test-port-{port}");
        let Ok(lock) = SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name)) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            taken.push(lock);
            return port;
        }
    }
    panic!("no port between {} and {} is free", PORTS.start, PORTS.end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_handed_out_once() {
        let mut ports: Vec<u16> = (0..50).map(|_| free_port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
    }
}
