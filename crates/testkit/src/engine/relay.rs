//! A way to an engine over TCP that can be cut and mended.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use super::Engine;

/// Passes on what comes, as long as it is not cut.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    ways: Arc<Mutex<Ways>>,
}

#[derive(Debug, Default)]
struct Ways {
    is_cut: bool,
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
                // Who is not let through is hung up on.
                take(&socket, &taken, stream).ok();
            }
        });
        Self { port, ways }
    }

    /// Where it is, for `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    /// Hangs up on everybody, and lets nobody through.
    pub fn cut(&self) {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        ways.is_cut = true;
        for way in ways.open.drain(..) {
            // It may be closed already.
            way.shutdown(Shutdown::Both).ok();
        }
    }

    /// Lets everybody through again.
    pub fn mend(&self) {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner).is_cut = false;
    }
}

fn take(socket: &Path, ways: &Mutex<Ways>, near: TcpStream) -> io::Result<()> {
    let mut ways = ways.lock().unwrap_or_else(PoisonError::into_inner);
    if ways.is_cut {
        return Ok(());
    }
    let far = UnixStream::connect(socket)?;
    ways.open.push(near.try_clone()?);
    let (near_too, far_too) = (near.try_clone()?, far.try_clone()?);
    thread::spawn(move || {
        io::copy(&mut &near, &mut &far).ok();
        far.shutdown(Shutdown::Write).ok();
    });
    thread::spawn(move || {
        io::copy(&mut &far_too, &mut &near_too).ok();
        near_too.shutdown(Shutdown::Write).ok();
    });
    Ok(())
}
