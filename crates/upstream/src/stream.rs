//! The two ends of a pipe or socket, read and written without blocking.
//!
//! Clients written in Node pass Unix sockets to their servers where others pass pipes; both are used as they are. The
//! kernel's event queue cannot wait for a terminal or a file: a thread pumps it through a pipe.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use bytes::BytesMut;
use rustix::fs::FileType;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{UnixStream, unix::pipe};
use tokio::sync::oneshot;

/// How much is read before other tasks get a turn. A source that writes without end must not starve the rest.
const FAIR_SHARE: usize = 128 << 10;
const SMALL_SHARE: usize = 8 << 10;

/// How much a pump copies at once: as much as a pipe holds.
const CARRIED_AT_ONCE: usize = 64 << 10;

/// The reading end.
#[derive(Debug)]
pub struct Source {
    end: Readable,
    /// Bytes read since other tasks last had a turn.
    taken: usize,
    share: usize,
}

#[derive(Debug)]
enum Readable {
    Pipe(pipe::Receiver),
    Socket(UnixStream),
}

/// The writing end.
#[derive(Debug)]
pub enum Sink {
    /// The writing end of a pipe.
    Pipe(pipe::Sender),
    /// A connected Unix socket.
    Socket(UnixStream),
}

/// The end of the thread that copies bytes from one of our pipes to something that cannot be polled.
///
/// Never joined: a terminal that accepts no more blocks the thread, and only the end of the process frees it.
#[derive(Debug)]
pub struct Pump(oneshot::Receiver<()>);

impl Pump {
    /// Waits until everything that was in the pipe is written, or never will be.
    pub async fn ended(self) {
        // The sender is dropped when the thread ends.
        drop(self.0.await);
    }
}

impl Source {
    /// Takes over a descriptor for reading, whatever its type.
    pub fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let end = match kind_of(&fd)? {
            FileType::Fifo => Readable::Pipe(pipe::Receiver::from_owned_fd(fd)?),
            FileType::Socket => Readable::Socket(adopt_socket(fd)?),
            _ => {
                let (reader, mut writer) = io::pipe()?;
                // This thread is never joined: it ends with its input, or with the process.
                std::thread::spawn(move || carry(&mut File::from(fd), &mut writer));
                Readable::Pipe(pipe::Receiver::from_owned_fd(reader.into())?)
            }
        };
        Ok(Self { end, taken: 0, share: FAIR_SHARE })
    }

    /// A smaller share, for less important sources: other tasks get a turn more often.
    pub fn with_small_share(self) -> Self {
        Self { share: SMALL_SHARE, ..self }
    }

    /// Waits until there is something to read, or the end. No buffer is needed while nothing is expected.
    pub async fn readable(&self) -> io::Result<()> {
        match &self.end {
            Readable::Pipe(pipe) => pipe.readable().await,
            Readable::Socket(socket) => socket.readable().await,
        }
    }

    /// Appends what has arrived to `buffer`; zero means the end.
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
    /// Takes over a descriptor for writing, whatever its type. If a thread pumps, wait for it at the end.
    pub fn adopt(fd: OwnedFd) -> io::Result<(Self, Option<Pump>)> {
        match kind_of(&fd)? {
            FileType::Fifo => Ok((Self::Pipe(pipe::Sender::from_owned_fd(fd)?), None)),
            FileType::Socket => Ok((Self::Socket(adopt_socket(fd)?), None)),
            _ => {
                let (mut reader, writer) = io::pipe()?;
                let (running, ended) = oneshot::channel();
                std::thread::spawn(move || {
                    let _running: oneshot::Sender<()> = running;
                    carry(&mut reader, &mut File::from(fd))
                });
                Ok((Self::Pipe(pipe::Sender::from_owned_fd(writer.into())?), Some(Pump(ended))))
            }
        }
    }

    /// Writes what the other side accepts right now.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_write(bytes),
            Self::Socket(socket) => socket.try_write(bytes),
        }
    }

    /// Writes what the other side accepts right now of several slices.
    pub(crate) fn try_write_all(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_write_vectored(slices),
            Self::Socket(socket) => socket.try_write_vectored(slices),
        }
    }

    /// Waits until the other side accepts more.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.writable().await,
            Self::Socket(socket) => socket.writable().await,
        }
    }

    /// Waits until the other side has closed. On a socket that cannot be distinguished from a half-close without
    /// reading what may belong to another reader, so there only a write, or the end of input, shows it.
    pub async fn abandoned(&self) {
        match self {
            Self::Pipe(pipe) => drop(pipe.ready(Interest::ERROR).await),
            Self::Socket(_) => std::future::pending().await,
        }
    }
}

/// Copies until the input ends or the output is closed.
///
/// Not `io::copy`, which lets the kernel splice: that locks the pipe while it waits for the terminal, and any access
/// to the other end of the pipe, non-blocking or not, hangs until the terminal is read.
fn carry(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut chunk = vec![0; CARRIED_AT_ONCE];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&chunk[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
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
