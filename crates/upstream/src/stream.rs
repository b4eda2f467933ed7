//! The two ends of a pipe or socket, read and written without blocking.
//!
//! Clients written in Node hand their servers Unix sockets where others hand pipes; both are taken as they are. A
//! terminal or a file cannot be waited for by the kernel's event queue: a thread pumps it through a pipe.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use bytes::BytesMut;
use rustix::fs::FileType;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{UnixStream, unix::pipe};

/// How much is read before others get a turn. One who writes without end must not starve the rest.
const FAIR_SHARE: usize = 128 << 10;
const SMALL_SHARE: usize = 8 << 10;

/// Where bytes come from.
#[derive(Debug)]
pub struct Source {
    end: Readable,
    /// Read since others last had a turn.
    taken: usize,
    share: usize,
}

#[derive(Debug)]
enum Readable {
    Pipe(pipe::Receiver),
    Socket(UnixStream),
}

/// Where bytes go.
#[derive(Debug)]
pub enum Sink {
    /// The writing end of a pipe.
    Pipe(pipe::Sender),
    /// A connected Unix socket.
    Socket(UnixStream),
}

/// The thread that carries bytes between one of our pipes and something that cannot be waited for.
pub type Pump = JoinHandle<io::Result<u64>>;

impl Source {
    /// Takes over a descriptor for reading, whatever it is.
    pub fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let end = match kind_of(&fd)? {
            FileType::Fifo => Readable::Pipe(pipe::Receiver::from_owned_fd(fd)?),
            FileType::Socket => Readable::Socket(adopt_socket(fd)?),
            _ => {
                let (reader, mut writer) = io::pipe()?;
                // Nobody waits for this thread: it ends with its input, or with us.
                std::thread::spawn(move || io::copy(&mut File::from(fd), &mut writer));
                Readable::Pipe(pipe::Receiver::from_owned_fd(reader.into())?)
            }
        };
        Ok(Self { end, taken: 0, share: FAIR_SHARE })
    }

    /// For what matters less: others get a turn more often.
    pub fn with_small_share(self) -> Self {
        Self { share: SMALL_SHARE, ..self }
    }

    /// Waits until there is something to read, or nothing ever will be. Whoever expects silence need keep no room for it.
    pub async fn readable(&self) -> io::Result<()> {
        match &self.end {
            Readable::Pipe(pipe) => pipe.readable().await,
            Readable::Socket(socket) => socket.readable().await,
        }
    }

    /// Appends what has arrived to `buffer`; zero means the other side is done.
    pub async fn read_into(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        if self.taken >= self.share {
            self.taken = 0;
            tokio::task::yield_now().await;
        }
        let count = match &mut self.end {
            Readable::Pipe(pipe) => pipe.read_buf(buffer).await?,
            Readable::Socket(socket) => socket.read_buf(buffer).await?,
        };
        self.taken += count;
        Ok(count)
    }
}

impl Sink {
    /// Takes over a descriptor for writing, whatever it is. Where a thread pumps, wait for it at the end.
    pub fn adopt(fd: OwnedFd) -> io::Result<(Self, Option<Pump>)> {
        match kind_of(&fd)? {
            FileType::Fifo => Ok((Self::Pipe(pipe::Sender::from_owned_fd(fd)?), None)),
            FileType::Socket => Ok((Self::Socket(adopt_socket(fd)?), None)),
            _ => {
                let (mut reader, writer) = io::pipe()?;
                let pump = std::thread::spawn(move || io::copy(&mut reader, &mut File::from(fd)));
                Ok((Self::Pipe(pipe::Sender::from_owned_fd(writer.into())?), Some(pump)))
            }
        }
    }

    /// Writes what the other side takes right now.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_write(bytes),
            Self::Socket(socket) => socket.try_write(bytes),
        }
    }

    /// Writes what the other side takes right now of several stretches.
    pub fn try_write_all(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_write_vectored(slices),
            Self::Socket(socket) => socket.try_write_vectored(slices),
        }
    }

    /// Waits until writing makes sense again.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.writable().await,
            Self::Socket(socket) => socket.writable().await,
        }
    }

    /// Waits until the other side has gone away. On a socket that cannot be told from a half-close without reading what
    /// may be somebody else's to read, so there only a write, or the end of input, tells.
    pub async fn abandoned(&self) {
        match self {
            Self::Pipe(pipe) => drop(pipe.ready(Interest::ERROR).await),
            Self::Socket(_) => std::future::pending().await,
        }
    }
}

fn kind_of(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

fn adopt_socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
