//! The only module that starts and ends programs.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use catalog::{Filled, Program};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout_at};

use crate::inherited::{self, Inherited};
use crate::process_mark::Tag;
use crate::watchdog::Watchdog;

/// How long leftovers of a process group may take to end after SIGTERM.
const STRAGGLER_GRACE: Duration = Duration::from_millis(300);

/// A program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A bare name that is in none of the folders of `PATH`.
    #[error("program `{program}` was not found; looked in {}", list(searched))]
    NotInPath {
        /// What was looked for.
        program: String,
        /// Where, in order.
        searched: Vec<PathBuf>,
    },
    /// A path that does not exist.
    #[error("program `{}` does not exist", path.display())]
    NoSuchFile {
        /// The path, made absolute.
        path: PathBuf,
    },
    /// The file exists, but cannot be executed.
    #[error("`{}` is not executable", path.display())]
    NotExecutable {
        /// What was found.
        path: PathBuf,
    },
    /// The working directory does not exist.
    #[error("working directory `{}` does not exist", path.display())]
    NoSuchFolder {
        /// What was configured.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("could not start `{}`: {}", path.display(), explain(path, source))]
    System {
        /// What was to be executed.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl StartError {
    /// What the user can do about it, if anything.
    pub fn hint(&self) -> Option<&'static str> {
        const NO_TILDE: &str = "`~` is not expanded here; write `${HOME}` instead";
        match self {
            Self::NotInPath { program, .. } if program.contains(char::is_whitespace) => {
                Some("`command` is only the program; its arguments go into `args`, one by one")
            }
            Self::NotInPath { .. } => Some("install it, or set `command` to its full path"),
            Self::NoSuchFile { path } if has_tilde(path) => Some(NO_TILDE),
            Self::NoSuchFile { path } if path.to_string_lossy().contains(' ') => {
                Some("`command` is only the program; its arguments go into `args`, one by one")
            }
            Self::NotExecutable { path } if path.is_dir() => Some("it is a folder; set `command` to a program in it"),
            Self::NotExecutable { .. } => Some("make it executable (`chmod +x`)"),
            Self::NoSuchFolder { path } if has_tilde(path) => Some(NO_TILDE),
            Self::System { source, .. } if Errno::from_io_error(source) == Some(Errno::NOENT) => {
                Some("its installation is incomplete: install the server again")
            }
            Self::NoSuchFile { .. } | Self::NoSuchFolder { .. } | Self::System { .. } => None,
        }
    }

    /// The same with the text of the config: the values of its variables may be secret.
    fn without(mut self, command: &Filled) -> Self {
        if command.has_variables() {
            match &mut self {
                Self::NotInPath { program, .. } => *program = command.shown().to_owned(),
                Self::NoSuchFile { path } | Self::NotExecutable { path } | Self::System { path, .. } => {
                    *path = command.shown().into();
                }
                Self::NoSuchFolder { .. } => {}
            }
        }
        self
    }
}

/// The interpreter named in the first line of a script.
fn interpreter(script: &std::path::Path) -> Option<String> {
    let mut head = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(std::fs::File::open(script).ok()?, 256), &mut head).ok()?;
    let line = String::from_utf8(head.split(|byte| *byte == b'\n').next()?.to_vec()).ok()?;
    line.strip_prefix("#!")?.split_whitespace().next().map(str::to_owned)
}

/// A shell would have expanded it.
fn has_tilde(path: &std::path::Path) -> bool {
    path.components().any(|part| part.as_os_str() == "~")
}

fn list(folders: &[PathBuf]) -> String {
    if folders.is_empty() {
        return "no folder, because PATH is empty".to_owned();
    }
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn explain(path: &std::path::Path, error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        // The file exists (it was checked), so what is missing is the interpreter in its first line.
        Some(Errno::NOENT) => {
            let named = interpreter(path).unwrap_or_else(|| "#!".to_owned());
            format!("the interpreter in its first line (`{named}`) was not found")
        }
        _ => error.to_string(),
    }
}

/// A running program with a process group of its own. Dropped without [`Process::clean_up`], it is killed.
#[derive(Debug)]
pub struct Process {
    child: tokio::process::Child,
    group: Pid,
}

/// Our ends of a program's three streams.
#[derive(Debug)]
pub struct Streams {
    /// Its stdin, which we write.
    pub stdin: OwnedFd,
    /// Its stdout, which we read.
    pub stdout: OwnedFd,
    /// Its stderr, which we read.
    pub stderr: OwnedFd,
}

impl Process {
    /// Starts `program` in our environment without the `withheld` variables, with `extra` variables on top of its own.
    /// It ends with us, even where `watchdog` cannot ensure that.
    pub fn start(
        program: &Program,
        withheld: &[&str],
        extra: &[(OsString, OsString)],
        tag: Tag,
        watchdog: &Watchdog,
    ) -> Result<(Self, Streams), StartError> {
        let folder = program.cwd.as_ref().map(|cwd| PathBuf::from(&cwd.value));
        let executable = locate(program)?;
        let read_end = watchdog.read_end();
        let inherited = Inherited { read_end: read_end.as_ref(), tag: Some(tag) };

        let failed = |source| StartError::System { path: executable.clone(), source }.without(&program.command);
        let start = |mut command: Command| {
            if let Some(folder) = &folder {
                command.current_dir(folder);
            }
            for name in withheld {
                command.env_remove(name);
            }
            command
                .args(&program.args)
                .envs(program.env.iter().map(|(name, value)| (name, value)))
                .envs(extra.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0)
                .kill_on_drop(true);
            inherited::spawn_with(&inherited, || command.spawn(), number_of)
        };
        let mut command = Command::new(&executable);
        command.arg0(&program.command.value);
        let mut child = start(command)
            .or_else(|error| match Errno::from_io_error(&error) {
                // A script without an interpreter line is run by the shell, as a shell would do.
                Some(Errno::NOEXEC) => {
                    let mut shell = Command::new("/bin/sh");
                    shell.arg(&executable);
                    start(shell)
                }
                _ => Err(error),
            })
            .map_err(failed)?;
        let group = number_of(&child);
        let group = group.ok_or_else(|| failed(io::Error::other("it has no process number")))?;
        if let Some(Err(error)) = read_end.map(|read_end| read_end.kill_at_end(group)) {
            tracing::debug!(%error, "this server survives if this program and the watchdog are killed at the same moment");
        }
        let streams = Streams {
            stdin: child.stdin.take().map_or_else(missing, |stdin| stdin.into_owned_fd()).map_err(failed)?,
            stdout: child.stdout.take().map_or_else(missing, |stdout| stdout.into_owned_fd()).map_err(failed)?,
            stderr: child.stderr.take().map_or_else(missing, |stderr| stderr.into_owned_fd()).map_err(failed)?,
        };
        Ok((Self { child, group }, streams))
    }

    /// The id of its process group, which is also its process id.
    pub fn group(&self) -> Pid {
        self.group
    }

    /// Waits for the program itself to end. May be called repeatedly.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends `signal` to the program and everything in its group. An empty group is no error.
    pub fn signal(&self, signal: Signal) {
        if let Err(error) = kill_process_group(self.group, signal)
            && error != Errno::SRCH
        {
            tracing::debug!(group = %self.group.as_raw_nonzero(), %error, "failed to signal a process group");
        }
    }

    /// Ends what is left of the group after the program itself has ended: terminated first, then killed.
    pub async fn clean_up(self) {
        let deadline = Instant::now() + STRAGGLER_GRACE;
        self.signal(Signal::TERM);
        while test_kill_process_group(self.group).is_ok() {
            if Instant::now() >= deadline {
                self.signal(Signal::KILL);
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for the program to end, but not beyond `deadline`.
    pub(crate) async fn ends_before(&mut self, deadline: Instant) -> bool {
        timeout_at(deadline, self.child.wait()).await.is_ok()
    }
}

fn number_of(child: &tokio::process::Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(id.cast_signed()))
}

fn missing<T>() -> io::Result<T> {
    Err(io::Error::other("a stream is missing"))
}

/// Finds what would be executed for `program`, without starting it.
pub fn locate(program: &Program) -> Result<PathBuf, StartError> {
    let folder = program.cwd.as_ref().map(|cwd| PathBuf::from(&cwd.value));
    if let Some(cwd) = program.cwd.as_ref().filter(|cwd| !Path::new(&cwd.value).is_dir()) {
        return Err(StartError::NoSuchFolder { path: cwd.shown().into() });
    }
    // As in any shell, a PATH of the server's own decides where its program is looked for.
    let own_path = program.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| OsString::from(value));
    let path = own_path.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    find_program(&program.command.value, &path, folder.as_deref()).map_err(|error| error.without(&program.command))
}

/// Finds what the operating system would execute for `program`, or returns what was searched and where.
fn find_program(program: &str, path: &OsString, folder: Option<&Path>) -> Result<PathBuf, StartError> {
    let here = std::env::current_dir().unwrap_or_default();
    let base = folder.map_or_else(|| here.clone(), |folder| here.join(folder));
    if program.contains('/') {
        let path = base.join(program);
        return match is_executable(&path) {
            Some(true) => Ok(path),
            Some(false) => Err(StartError::NotExecutable { path }),
            None => Err(StartError::NoSuchFile { path }),
        };
    }
    let mut searched: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(path) {
        if !folder.as_os_str().is_empty() && !searched.contains(&folder) {
            searched.push(folder);
        }
    }
    let candidates = || searched.iter().map(|folder| base.join(folder).join(program));
    if let Some(found) = candidates().find(|path| is_executable(path) == Some(true)) {
        return Ok(found);
    }
    match candidates().find(|path| is_executable(path).is_some()) {
        Some(path) => Err(StartError::NotExecutable { path }),
        None => Err(StartError::NotInPath { program: program.to_owned(), searched }),
    }
}

/// Whether a file can be executed by anyone; `None` if it does not exist. Folders cannot.
fn is_executable(path: &Path) -> Option<bool> {
    let metadata = path.metadata().ok()?;
    Some(metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_hint_is_about_what_was_written() {
        let path = |path: &str| PathBuf::from(path);
        for (error, needed) in [
            (StartError::NotInPath { program: "npx -y x".to_owned(), searched: Vec::new() }, "`args`"),
            (StartError::NotInPath { program: "npx".to_owned(), searched: Vec::new() }, "install it"),
            (StartError::NoSuchFile { path: path("/cfg/~/bin/x") }, "${HOME}"),
            (StartError::NotExecutable { path: path("/") }, "a folder"),
            (StartError::NotExecutable { path: path("/no/such") }, "chmod"),
        ] {
            assert!(error.hint().is_some_and(|hint| hint.contains(needed)), "{error}");
        }
    }

    #[test]
    fn a_program_is_found_in_path_and_a_missing_one_is_reported_with_the_searched_folders() {
        let place = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| place.path().join(name));
        fs::create_dir_all(&first).unwrap();
        fs::create_dir_all(second.join("tool")).unwrap();
        let path = std::env::join_paths([&first, &second]).unwrap();

        let error = find_program("nothing", &path, None).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("program `nothing` was not found; looked in {}, {}", first.display(), second.display())
        );

        fs::write(first.join("tool"), "#!/bin/sh\n").unwrap();
        let error = find_program("tool", &path, None).unwrap_err();
        assert!(matches!(error, StartError::NotExecutable { path } if path == first.join("tool")));

        fs::set_permissions(first.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_program("tool", &path, None).unwrap(), first.join("tool"));
        assert_eq!(find_program("./tool", &OsString::new(), Some(&first)).unwrap(), first.join("./tool"));
    }

    #[test]
    fn an_empty_path_is_reported() {
        let error = find_program("npx", &OsString::new(), None).unwrap_err().to_string();
        assert!(error.contains("PATH is empty"), "{error}");
    }
}
