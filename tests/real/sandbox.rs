//! The files of one test's servers: some files, a Git repository, an empty home.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::{NamedTempFile, TempDir};
use testkit::run::run_command;

use super::parts::Parts;

/// A folder that goes away with this.
#[derive(Debug)]
pub(super) struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    pub(super) fn new() -> Self {
        let folder = TempDir::with_prefix("real-").expect("a temporary folder can be made");
        let sandbox = Self { folder };
        fs::create_dir(sandbox.files()).expect("a temporary folder can be written");
        fs::create_dir(sandbox.home()).expect("a temporary folder can be written");
        sandbox
    }

    /// What the filesystem server may touch.
    pub(super) fn files(&self) -> PathBuf {
        self.path("files")
    }

    /// For clients and servers, so that they leave the user's own alone.
    pub(super) fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// Any other file of this test.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A script for Node that finds the packages of npm, which it does only from below the folder they are in.
    pub(super) fn node_script(&self, parts: &Parts, name: &str, text: &str) -> PathBuf {
        let packages = self.path("node_modules");
        match symlink(parts.npm_file(""), packages) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => panic!("could not make a link: {error}"),
            _ => {}
        }
        self.script(name, text)
    }

    /// A script. Several threads may ask for the same one.
    pub(super) fn script(&self, name: &str, text: &str) -> PathBuf {
        let mut draft = NamedTempFile::new_in(self.path("")).expect("a temporary folder can be written");
        draft.write_all(text.as_bytes()).expect("a temporary file can be written");
        let script = self.path(name);
        draft.persist(&script).expect("a temporary file can be renamed");
        script
    }

    /// Where our own servers write down the labels of cancelled calls, one in a line.
    pub(super) fn journal(&self) -> PathBuf {
        self.path("cancelled.txt")
    }

    /// A repository with one commit, `first` by Ada, and one untracked file, `new.txt`.
    pub(super) fn repository(&self) -> Repository {
        let folder = self.path("repository");
        fs::create_dir(&folder).expect("a temporary folder can be written");
        let repository = Repository { folder };
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        fs::write(repository.folder.join("old.txt"), "old\n").expect("a temporary folder can be written");
        repository.git(&["add", "old.txt"]);
        repository.git(&["commit", "--quiet", "--message=first"]);
        fs::write(repository.folder.join("new.txt"), "new\n").expect("a temporary folder can be written");
        repository
    }
}

/// A Git repository in the sandbox.
#[derive(Debug)]
pub(super) struct Repository {
    folder: PathBuf,
}

impl Repository {
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The hash of the newest commit.
    #[track_caller]
    pub(super) fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    #[track_caller]
    fn git(&self, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        // Nothing of the user's own set-up may show.
        git.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "Ada").env(format!("GIT_{who}_EMAIL"), "ada@example.com");
            git.env(format!("GIT_{who}_DATE"), "2026-01-02T03:04:05+00:00");
        }
        let output = run_command(&mut git);
        assert!(output.status.success(), "{git:?} failed: {}", output.stderr);
        output.stdout
    }
}
