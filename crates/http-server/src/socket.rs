//! Where clients connect: TCP, or a Unix socket of this machine.

use std::io::{self, IoSlice, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A socket that clients connect to.
#[derive(Debug)]
pub enum ListeningSocket {
    /// An address and a port.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener),
}

/// The connection of a client, not encrypted.
#[derive(Debug)]
pub(crate) enum ClientSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpListener> for ListeningSocket {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for ListeningSocket {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

impl ListeningSocket {
    /// The next connection.
    pub(crate) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<ClientSocket>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(context).map_ok(|(stream, _)| ClientSocket::Tcp(stream)),
            Self::Unix(listener) => listener.poll_accept(context).map_ok(|(stream, _)| ClientSocket::Unix(stream)),
        }
    }
}

impl ClientSocket {
    /// Our address of the connection. A Unix socket is as local as a loopback address.
    pub(crate) fn local_ip(&self) -> IpAddr {
        match self {
            Self::Tcp(stream) => stream.local_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip()),
            Self::Unix(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// The address at the other end. `None` if the connection has ended.
    pub(crate) fn peer_ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(stream) => Some(stream.peer_addr().ok()?.ip().to_canonical()),
            Self::Unix(_) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        }
    }

    /// Sends small responses at once: clients wait for them.
    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        }
    }

    /// Waits for the first bytes, and leaves them to be read again.
    pub(crate) async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.peek(buffer).await,
            Self::Unix(stream) => {
                let peek = || Ok(recv(stream, &mut *buffer, RecvFlags::PEEK)?.1);
                stream.async_io(Interest::READABLE, peek).await
            }
        }
    }

    /// Writes as much as can be written at once.
    pub(crate) fn write_at_once(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.into_std()?.write_all(bytes),
            Self::Unix(stream) => stream.into_std()?.write_all(bytes),
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
