//! The signals that stop a program: SIGINT, SIGTERM and SIGHUP.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives the signals that stop a program.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if it stays ignored.
    hang_up: Option<Signal>,
}

impl Signals {
    /// Registers the handlers; needs a runtime. Call it before any server is started, so that from then on a signal
    /// ends everything in order: until a handler is registered, a signal that the parent process ignores is lost.
    pub fn new() -> io::Result<Self> {
        Ok(Self { hang_up: Some(signal(SignalKind::hangup())?), ..Self::without_hang_up()? })
    }

    /// The same, except that SIGHUP stays ignored if it was ignored at start: a program under `nohup` outlives its
    /// terminal.
    pub fn respecting_nohup() -> io::Result<Self> {
        if is_ignored(SignalKind::hangup()) { Self::without_hang_up() } else { Self::new() }
    }

    fn without_hang_up() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: None,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        let Self { interrupt, terminate, hang_up } = self;
        let hung_up = async {
            match hang_up {
                Some(hang_up) => drop(hang_up.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = hung_up => {}
        }
    }
}

/// Whether this process inherited a signal as ignored. False where the system does not report it.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let bit = u32::try_from(kind.as_raw_value() - 1).unwrap_or_default();
    ignored.is_some_and(|ignored| ignored.checked_shr(bit).is_some_and(|rest| rest & 1 == 1))
}
