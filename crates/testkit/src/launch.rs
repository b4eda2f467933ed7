//! Starts a program that uses stdin and stdout.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::config::{Config, ConfigFile};
use crate::driver::{Driver, Parts};
use crate::program::program;

/// Lines kept for a test that does not ask for them, by default. More than any test provokes.
const READ_AHEAD: usize = 1 << 20;

/// A program about to be started.
#[derive(Debug)]
pub struct Launch {
    command: Command,
    config: Option<ConfigFile>,
    channel: Channel,
    read_ahead: usize,
}

/// What the program gets as its stdin and stdout.
#[derive(Clone, Copy, Debug)]
enum Channel {
    Pipes,
    Sockets,
}

impl Launch {
    /// Starts `mcp-simple-aggregator --config <file>`.
    #[track_caller]
    pub fn aggregator(config: &Config) -> Self {
        let file = config.write();
        let mut launch = Self::program(program("mcp-simple-aggregator")).arg("--config").arg(file.path());
        launch.config = Some(file);
        launch
    }

    /// Starts `mcp-aggregator stdio --config <file>`.
    #[track_caller]
    pub fn service(config: &Config) -> Self {
        let file = config.write();
        let mut launch = Self::program(program("mcp-aggregator")).args(["stdio", "--config"]).arg(file.path());
        launch.config = Some(file);
        launch
    }

    /// Starts the program at this path.
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self { command: Command::new(path.into()), config: None, channel: Channel::Pipes, read_ahead: READ_AHEAD }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Starts it as another user, which only root can.
    pub fn user(mut self, uid: u32) -> Self {
        self.command.uid(uid).gid(uid);
        self
    }

    /// Sets the working directory.
    pub fn cwd(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Runs the program as another user, who must be able to read it and its config. Only root may do so.
    pub fn as_user(mut self, user: u32) -> Self {
        self.command.uid(user).gid(user);
        self
    }

    /// Has a shell run `script` first, such as `ulimit -n 100`; then it becomes the program.
    pub fn through_shell(mut self, script: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{script}; exec \"$0\" \"$@\""));
        shell.arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        if let Some(folder) = self.command.get_current_dir() {
            shell.current_dir(folder);
        }
        self.command = shell;
        self
    }

    /// Gives the program a Unix socket each for stdin and stdout instead of pipes, as Node does.
    pub fn over_sockets(mut self) -> Self {
        self.channel = Channel::Sockets;
        self
    }

    /// Stops reading once this many lines wait for the test, as a slow client would.
    pub fn read_ahead(mut self, lines: usize) -> Self {
        self.read_ahead = lines;
        self
    }

    /// Starts it.
    #[track_caller]
    pub fn start(mut self) -> Driver {
        let described = format!("{:?}", self.command);
        let (child, stdin, stdout) = match self.channel {
            Channel::Pipes => self.spawn_over_pipes(),
            Channel::Sockets => self.spawn_over_sockets(),
        }
        .unwrap_or_else(|error| panic!("could not start {described}: {error}"));
        // Our copies of the child's ends must be closed, or its stdout would never end.
        drop(self.command);
        let config = self.config;
        Driver::new(Parts { child, stdin, stdout, config, read_ahead: self.read_ahead })
    }

    fn spawn_over_pipes(&mut self) -> io::Result<Spawned> {
        let spawn = self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn.spawn()?;
        let stdin = child.stdin.take().expect("stdin was asked for");
        let stdout = child.stdout.take().expect("stdout was asked for");
        Ok((child, Box::new(stdin), Box::new(stdout)))
    }

    fn spawn_over_sockets(&mut self) -> io::Result<Spawned> {
        let (stdin, child_stdin) = UnixStream::pair()?;
        let (stdout, child_stdout) = UnixStream::pair()?;
        self.command.stdin(OwnedFd::from(child_stdin)).stdout(OwnedFd::from(child_stdout)).stderr(Stdio::piped());
        let child = self.command.spawn()?;
        Ok((child, Box::new(File::from(OwnedFd::from(stdin))), Box::new(File::from(OwnedFd::from(stdout)))))
    }
}

type Spawned = (Child, Box<dyn Write + Send>, Box<dyn Read + Send>);
