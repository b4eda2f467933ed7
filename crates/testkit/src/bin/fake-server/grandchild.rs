//! A process that this server starts and does not supervise, as `npx` starts `node`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::{FOREVER, termination};

/// The first argument of the grandchild.
pub(crate) const FLAG: &str = "--grandchild";

#[derive(Debug)]
pub(crate) struct Grandchild {
    /// Leave the session and process group of the server.
    pub(crate) setsid: bool,
    pub(crate) ignore_term: bool,
    /// Only root can read its environment.
    pub(crate) undumpable: bool,
    /// Keep the server's stdin, stdout and stderr open instead of taking /dev/null.
    pub(crate) inherit_stdio: bool,
}

impl Grandchild {
    /// Starts it; returns its pid once it is set up.
    pub(crate) fn start(&self) -> anyhow::Result<u32> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let ready = format!("fake-server-{}-{count}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&ready)?)
            .context("could not listen for the grandchild")?;

        let mut command =
            if self.ignore_term { termination::deaf_command()? } else { Command::new(std::env::current_exe()?) };
        command.args([FLAG, &ready]);
        if self.setsid {
            command.arg("--setsid");
        }
        if self.undumpable {
            command.arg("--undumpable");
        }
        if !self.inherit_stdio {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
        let mut child = command.spawn().context("could not start the grandchild")?;
        let pid = child.id();
        listener.accept().context("the grandchild did not report")?;
        // Reap it when it ends, so that a zombie here is never mistaken for a living process.
        std::thread::spawn(move || child.wait());
        Ok(pid)
    }
}

/// Runs as the grandchild.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    if arguments.iter().any(|argument| argument == "--setsid") {
        rustix::process::setsid().context("could not leave the session")?;
    }
    if arguments.iter().any(|argument| argument == "--undumpable") {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).context("could not become undumpable")?;
    }
    let ready = arguments.first().context("the grandchild was not told where to report")?;
    drop(UnixStream::connect_addr(&SocketAddr::from_abstract_name(ready)?)?);
    std::thread::sleep(FOREVER);
    Ok(())
}
