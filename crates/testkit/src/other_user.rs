//! Other users of this machine, for tests that run as root: programs started as one of them.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::program::{copy_program, program};

/// Two users that do not exist on any machine.
pub const ANN: u32 = 61_001;
/// The other one.
pub const BEN: u32 = 61_002;

/// A folder whose programs every user can start.
#[derive(Debug)]
pub struct SharedPrograms {
    folder: TempDir,
}

/// Whether programs can be started as other users. If not, reports loudly what is not tested; with `CI=true` that
/// fails.
#[track_caller]
pub fn can_be_others(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skipped(&format!("{what}: only root can be another user"));
    }
    is_root
}

/// Reports loudly that something is not tested.
#[track_caller]
pub fn skipped(what: &str) {
    let message = format!("SKIPPED: {what}");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{message}");
    // Not by a macro, because their output is hidden in tests that pass.
    writeln!(io::stderr(), "\n{message}").expect("stderr can be written");
}

impl SharedPrograms {
    /// A folder that everybody can read.
    #[track_caller]
    pub fn new() -> Self {
        let folder = TempDir::with_prefix("shared-").expect("a temporary folder can be made");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self { folder }
    }

    /// A program of this workspace, where everybody can start it.
    #[track_caller]
    pub fn program(&self, name: &str) -> PathBuf {
        let (from, to) = (program(name), self.folder.path().join(name));
        if !to.exists() {
            fs::hard_link(&from, &to).unwrap_or_else(|_| copy_program(&from, &to));
        }
        to
    }

    /// A folder that only that user can read.
    #[track_caller]
    pub fn home_of(&self, uid: u32) -> PathBuf {
        let home = self.folder.path().join(format!("home-{uid}"));
        if !home.exists() {
            fs::create_dir(&home).expect("a folder can be made");
            fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("it is ours");
            std::os::unix::fs::chown(&home, Some(uid), Some(uid)).expect("root can give it away");
        }
        home
    }

    /// Sends bytes as that user, and returns what came back until the connection was closed.
    #[track_caller]
    pub fn send_as(&self, uid: u32, address: SocketAddr, request: &[u8]) -> String {
        self.request(uid, &[&address.to_string()], request)
    }

    /// Sends bytes as that user, and closes the connection at once.
    #[track_caller]
    pub fn abandon_as(&self, uid: u32, address: SocketAddr, request: &[u8]) {
        self.request(uid, &[&address.to_string(), "abandon"], request);
    }

    #[track_caller]
    fn request(&self, uid: u32, arguments: &[&str], request: &[u8]) -> String {
        let mut command = Command::new(self.program("raw-request"));
        command.args(arguments).uid(uid).gid(uid).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a program can be started as another user");
        child.stdin.take().expect("stdin was asked for").write_all(request).expect("it reads what it is to send");
        let output = child.wait_with_output().expect("our own child can be waited for");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Default for SharedPrograms {
    fn default() -> Self {
        Self::new()
    }
}
