//! The errors of containers, in text a person can act on.

use std::path::PathBuf;

use bollard::errors::Error;
use upstream::Cause;

/// Why there is no container, or no longer one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// No engine is installed, or none runs.
    #[error("no container engine was found; looked at {}", list(looked_at))]
    NoEngine {
        /// The paths that were tried.
        looked_at: Vec<PathBuf>,
    },
    /// A variable with the address of the engine cannot be read.
    #[error("{variable} is not valid UTF-8")]
    BadVariable {
        /// Its name.
        variable: &'static str,
    },
    /// The address exists, but does not respond like an engine.
    #[error("the container engine at {address} does not respond: {words}")]
    Unreachable {
        /// The address.
        address: String,
        /// What happened.
        words: String,
    },
    /// Access to the engine is denied.
    #[error("this user has no access to the container engine at {address}")]
    Forbidden {
        /// Its address.
        address: String,
    },
    /// The image does not exist, and may not be pulled.
    #[error("image `{image}` does not exist locally, and `pull` is \"never\"")]
    NoImage {
        /// The image.
        image: String,
    },
    /// The image does not exist, and could not be pulled.
    #[error("failed to pull image `{image}`: {words}")]
    NotPulled {
        /// The image.
        image: String,
        /// The message of the engine.
        words: String,
    },
    /// Another container has that name.
    #[error("another container is named `{name}`: {words}")]
    NameTaken {
        /// The name.
        name: String,
        /// The message of the engine.
        words: String,
    },
    /// The port is taken.
    #[error("port {port} is already in use: {words}")]
    PortTaken {
        /// The port, or the candidates.
        port: String,
        /// The message of the engine.
        words: String,
    },
    /// The image has no command, or no such program.
    #[error("image `{image}` cannot run {command}: {words}")]
    NoCommand {
        /// The image.
        image: String,
        /// The command.
        command: String,
        /// The message of the engine.
        words: String,
    },
    /// It exceeded its memory limit.
    #[error("its container ran out of memory; the limit is {} MB", limit >> 20)]
    OutOfMemory {
        /// Its limit in bytes.
        limit: u64,
    },
    /// A mounted host folder does not exist.
    #[error("the container engine failed to create the container: {words}")]
    NoFolder {
        /// The message of the engine.
        words: String,
    },
    /// It ended by itself.
    #[error("its container exited with status {code}{}", if *ran_short { ", after a process in it had run out of memory" } else { "" })]
    Exited {
        /// Its exit code.
        code: i64,
        /// A process in it, not the server itself, was killed because of the memory limit before.
        ran_short: bool,
    },
    /// It was ended by a signal that is not usually sent from outside.
    #[error("its server was terminated by signal {signal}{}", name_of(*signal))]
    Crashed {
        /// The signal.
        signal: i64,
    },
    /// It was ended by a signal that we did not send.
    #[error("its container was stopped externally: signal {signal}{}", name_of(*signal))]
    StoppedFromOutside {
        /// The signal.
        signal: i64,
    },
    /// It was restarted from outside: the session is lost.
    #[error("its container was restarted externally")]
    RestartedFromOutside,
    /// It was removed from outside.
    #[error("its container was removed externally")]
    RemovedFromOutside,
    /// It was paused from outside: it exists, and does not respond.
    #[error("its container was paused externally")]
    PausedFromOutside,
    /// The engine is unreachable, and with it everything it ran.
    #[error("the container engine became unreachable: {words}")]
    EngineLost {
        /// What happened.
        words: String,
    },
    /// It runs, but its port is not published on this machine.
    #[error("port {port} of its container is unreachable from here: its network publishes no ports")]
    NotPublished {
        /// The port inside.
        port: u16,
    },
    /// It runs, but does not listen at its port.
    #[error("nothing responds on port {port} of its container")]
    Deaf {
        /// The port inside.
        port: u16,
    },
    /// The engine refused an operation.
    #[error("the container engine failed to {operation}: {words}")]
    Refused {
        /// The operation.
        operation: &'static str,
        /// The message of the engine.
        words: String,
    },
}

impl ContainerError {
    /// What the user can do about it.
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::BadVariable { .. } => Some("set it again, or unset it to use the default locations"),
            Self::NoEngine { .. } => Some("start Docker or Podman, or set DOCKER_HOST to its address"),
            Self::Unreachable { .. } | Self::EngineLost { .. } => {
                Some("check whether the engine is running: `docker info`")
            }
            Self::Forbidden { .. } => Some("add this user to the group `docker`, or use a rootless engine"),
            Self::NoImage { .. } => Some("pull or build it, or set `pull` to \"missing\""),
            Self::NotPulled { .. } => Some("check the name; if the image requires a login, pull it by hand first"),
            Self::NameTaken { .. } => Some("remove that container, or remove `containerName`"),
            Self::PortTaken { .. } => Some(
                "stop the program that uses it, or choose another port; with `ports` as in [8080] a free port is \
                 chosen, unless `network` is \"host\"",
            ),
            Self::NoCommand { .. } => Some("set `command` to a program that is in the image"),
            Self::OutOfMemory { .. } => Some("raise `memory` in its `docker` block"),
            Self::NoFolder { .. } => Some("create that folder first, or check how it is written in `volumes`"),
            Self::NotPublished { .. } => {
                Some("set another `network` in its `docker` block: a bridge network, or \"host\"")
            }
            Self::Deaf { .. } => {
                Some("the server must listen on 0.0.0.0 inside the container, on the first of its `ports`")
            }
            Self::Exited { .. }
            | Self::Crashed { .. }
            | Self::StoppedFromOutside { .. }
            | Self::RestartedFromOutside
            | Self::RemovedFromOutside
            | Self::PausedFromOutside
            | Self::Refused { .. } => None,
        }
    }
}

impl From<ContainerError> for Cause {
    fn from(error: ContainerError) -> Self {
        Self::Container { what: error.to_string(), hint: error.hint() }
    }
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn name_of(signal: i64) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        5 => " (SIGTRAP)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

/// The status of the engine's response.
pub(crate) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// The engine's own message, or why there is none.
pub(crate) fn in_words(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        Error::DockerStreamError { error } => error.trim().to_owned(),
        other => first_cause(other).to_string(),
    }
}

/// The root cause. The errors around it only name libraries.
fn first_cause(error: &dyn std::error::Error) -> &dyn std::error::Error {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_an_engine_error_is_reported_without_library_names() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(in_words(&Error::IOError { err: refused }), "connection refused");
    }
}
