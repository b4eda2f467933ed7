//! A TCP relay to an engine that can be cut, frozen and restored.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use super::Engine;

/// Relays connections, unless it is cut.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    ways: Arc<Mutex<Ways>>,
}

#[derive(Debug, Default)]
struct Ways {
    is_cut: bool,
    is_frozen: bool,
    open: Vec<TcpStream>,
}

impl Relay {
    /// To this engine.
    #[track_caller]
    pub fn to(engine: &Engine) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a test may listen on the loopback");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let ways = Arc::new(Mutex::new(Ways::default()));
        let (socket, taken) = (engine.socket(), Arc::clone(&ways));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A connection that is not relayed is closed.
                take(&socket, &taken, stream).ok();
            }
        });
        Self { port, ways }
    }

    /// Its address for `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    /// Closes all connections, and accepts no new ones.
    pub fn cut(&self) {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        ways.is_cut = true;
        for way in ways.open.drain(..) {
            // It may be closed already.
            way.shutdown(Shutdown::Both).ok();
        }
    }

    /// Accepts connections and relays nothing, like an engine that does not respond.
    pub fn freeze(&self) {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner).is_frozen = true;
    }

    /// Relays all connections again.
    pub fn mend(&self) {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        (ways.is_cut, ways.is_frozen) = (false, false);
    }
}

fn take(socket: &Path, ways: &Arc<Mutex<Ways>>, near: TcpStream) -> io::Result<()> {
    let mut state = ways.lock().unwrap_or_else(PoisonError::into_inner);
    if state.is_cut {
        return Ok(());
    }
    let far = UnixStream::connect(socket)?;
    state.open.push(near.try_clone()?);
    let (near_too, far_too) = (near.try_clone()?, far.try_clone()?);
    let (there, back) = (Arc::clone(ways), Arc::clone(ways));
    thread::spawn(move || {
        carry(&there, &near, &far);
        far.shutdown(Shutdown::Write).ok();
    });
    thread::spawn(move || {
        carry(&back, &far_too, &near_too);
        near_too.shutdown(Shutdown::Write).ok();
    });
    Ok(())
}

/// Relays until one side closes. While it is frozen, it holds bytes back.
fn carry(ways: &Mutex<Ways>, mut from: impl Read, mut to: impl Write) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        while ways.lock().unwrap_or_else(PoisonError::into_inner).is_frozen {
            thread::sleep(Duration::from_millis(10));
        }
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}
