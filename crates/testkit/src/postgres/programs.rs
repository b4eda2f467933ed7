//! Finds PostgreSQL's programs, and the user to run them: they refuse to run as root.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::command;

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
        let path = std::env::var_os("PATH").unwrap_or_default();
        // In `PATH` there may be a link to one of them, without the others.
        let real = |folder: PathBuf| Some(folder.join("initdb").canonicalize().ok()?.parent()?.to_owned());
        let in_path = std::env::split_paths(&path).filter_map(real);
        let installed = versions(Path::new("/usr/lib/postgresql")).into_iter().rev();
        let user = user();
        if let Some(folder) = in_path.chain(installed).find(|folder| is_complete(folder)) {
            return Some(Self { folder, libraries: None, user });
        }
        let root = PathBuf::from(std::env::var_os(PARTS_VARIABLE)?).join("postgres");
        let folder = versions(&root.join("usr/lib/postgresql")).into_iter().rev().find(|folder| is_complete(folder))?;
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

/// Whether all that we use is there.
fn is_complete(folder: &Path) -> bool {
    ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).is_file())
}

/// The folders in which Debian keeps the programs, the newest version last.
fn versions(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort_by_key(|folder| folder.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    found.into_iter().map(|version| version.join("bin")).collect()
}

/// If we are root: the user that the packages made for the database, or nobody.
fn user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody")).or(Some((65534, 65534)))
}
