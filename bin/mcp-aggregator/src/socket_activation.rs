//! Sockets that systemd, or another supervisor, has opened for `serve` and passes on: it listens before the service is
//! started, and goes on while the service is restarted.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use crate::failure::Failure;

const HINT: &str = "use ListenStream= with an address or a path in the socket unit, and Accept=no";

/// A socket that listens already.
#[derive(Debug)]
pub(crate) enum PassedSocket {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

/// The sockets in `LISTEN_FDS`, in their order; none if there is no such variable, or if it is for another process. Removes
/// the variables, which are not for servers: call it before there are threads.
pub(crate) fn take() -> Result<Vec<PassedSocket>, Failure> {
    let mut passed = ListenFd::from_env();
    (0..passed.len()).map(|index| take_one(&mut passed, index)).collect()
}

fn take_one(passed: &mut ListenFd, index: usize) -> Result<PassedSocket, Failure> {
    let unusable =
        |why: &str| Failure::new(format!("socket {} of LISTEN_FDS cannot be used: {why}", index + 1)).with_hint(HINT);
    let unusable_by = |error: std::io::Error| unusable(&error.to_string());
    if let Ok(Some(socket)) = passed.take_tcp_listener(index) {
        refuse_connection(&socket).map_err(unusable)?;
        socket.set_nonblocking(true).map_err(unusable_by)?;
        let address = socket.local_addr().map_err(unusable_by)?;
        return Ok(PassedSocket::Tcp(socket, address));
    }
    if let Ok(Some(socket)) = passed.take_unix_listener(index) {
        refuse_connection(&socket).map_err(unusable)?;
        socket.set_nonblocking(true).map_err(unusable_by)?;
        let address = socket.local_addr().map_err(unusable_by)?;
        let path = address.as_pathname().ok_or_else(|| unusable("it is a Unix socket without a path"))?;
        return Ok(PassedSocket::Unix(socket, path.to_owned()));
    }
    Err(unusable("it is neither a TCP socket nor a Unix stream socket"))
}

/// A unit with `Accept=yes` passes one connection instead of the socket.
fn refuse_connection(socket: impl AsFd) -> Result<(), &'static str> {
    match socket_acceptconn(socket) {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err("it does not listen"),
    }
}
