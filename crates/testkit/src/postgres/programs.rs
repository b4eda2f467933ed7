//! Where PostgreSQL's programs are, and as whom they run: they refuse to be run by root.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{command, versions};

/// Where `scripts/test` puts what is not installed.
const PARTS_VARIABLE: &str = "MCP_TEST_PARTS";

/// PostgreSQL's programs.
#[derive(Debug)]
pub(super) struct Programs {
    folder: PathBuf,
    /// Libraries that came with them, where they were unpacked and not installed.
    libraries: Option<PathBuf>,
    /// The user and group that they run as, if not ours.
    user: Option<(u32, u32)>,
}

impl Programs {
    /// Looks into `PATH`, where Debian installs them, and where `scripts/test` unpacks them.
    pub(super) fn find() -> Option<Self> {
        let in_path =
            std::env::var_os("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
        let installed = || versions(Path::new("/usr/lib/postgresql")).pop().map(|version| version.join("bin"));
        let found = in_path.into_iter().find(|folder| folder.join("initdb").is_file()).or_else(installed);
        let user = user();
        if let Some(folder) = found {
            return Some(Self { folder, libraries: None, user });
        }
        let root = PathBuf::from(std::env::var_os(PARTS_VARIABLE)?).join("postgres");
        let folder = versions(&root.join("usr/lib/postgresql")).pop()?.join("bin");
        let libraries = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        Some(Self { folder, libraries: Some(libraries), user })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// One of the programs, to be run as the right user.
    pub(super) fn command(&self, name: &str, folder: &Path) -> Command {
        self.as_user(command(self.path(name), folder))
    }

    /// A shell that runs as the right user.
    pub(super) fn shell(&self, folder: &Path) -> Command {
        self.as_user(command("/bin/sh", folder))
    }

    fn as_user(&self, mut command: Command) -> Command {
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// Gives a folder to the user that the programs run as.
    pub(super) fn hand_over(&self, folder: &Path) {
        if let Some((user, group)) = self.user {
            chown(folder, Some(user), Some(group)).expect("root may give away what is its own");
        }
    }
}

/// If we are root: the user that the packages made for the database, or nobody.
fn user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody")).or(Some((65534, 65534)))
}
