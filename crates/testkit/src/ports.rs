//! Ports that no other program takes while a test needs them.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Below the range from which Linux assigns ports automatically.
const PORTS: std::ops::Range<u16> = 18_000..32_000;

/// The locks of the ports that this process uses.
static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A free port of the loopback interface that belongs to this process until it ends.
///
/// A port that the kernel assigns is free again as soon as nothing listens there: another program may take it before a
/// server is restarted.
#[track_caller]
pub fn free_port() -> u16 {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = PORTS.end - PORTS.start;
    // Processes start at different ports, so that they seldom collide.
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
