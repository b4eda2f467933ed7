//! What can go wrong with a container, in words a person can act on.

use std::path::PathBuf;

use bollard::errors::Error;
use upstream::failure::Cause;

/// Why there is no container, or no longer one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// No engine is installed, or none runs.
    #[error("no container engine was found; looked at {}", list(looked_at))]
    NoEngine {
        /// Where it was looked for.
        looked_at: Vec<PathBuf>,
    },
    /// A variable that says how the engine is reached cannot be read.
    #[error("{variable} is set, but not to UTF-8")]
    BadVariable {
        /// Its name.
        variable: &'static str,
    },
    /// Something is there, but does not answer as an engine would.
    #[error("the container engine at {address} does not answer: {words}")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What happened.
        words: String,
    },
    /// The engine is not for us.
    #[error("the container engine at {address} may not be used by this user")]
    Forbidden {
        /// Where it is.
        address: String,
    },
    /// The image is not there, and may not be fetched.
    #[error("there is no image `{image}` here, and `pull` is \"never\"")]
    NoImage {
        /// The image.
        image: String,
    },
    /// The image is not there, and could not be fetched.
    #[error("image `{image}` could not be pulled: {words}")]
    NotPulled {
        /// The image.
        image: String,
        /// What the engine says.
        words: String,
    },
    /// Somebody else has a container of that name.
    #[error("there is another container named `{name}`: {words}")]
    NameTaken {
        /// The name.
        name: String,
        /// What the engine says.
        words: String,
    },
    /// Somebody else has the port.
    #[error("port {port} is in use already: {words}")]
    PortTaken {
        /// Which one, or which ones it may be.
        port: String,
        /// What the engine says.
        words: String,
    },
    /// The image does not say what to run, or has no such program.
    #[error("image `{image}` cannot run {command}: {words}")]
    NoCommand {
        /// The image.
        image: String,
        /// What was to be run.
        command: String,
        /// What the engine says.
        words: String,
    },
    /// It used more memory than it may.
    #[error("its container ran out of memory: it may use {} MB", limit >> 20)]
    OutOfMemory {
        /// Its limit in bytes.
        limit: u64,
    },
    /// A folder of this machine that it should see is not there.
    #[error("the container engine would not make the container: {words}")]
    NoFolder {
        /// What the engine says.
        words: String,
    },
    /// It ended by itself.
    #[error("its container exited with status {code}{}", if *ran_short { ", after something in it had run out of memory" } else { "" })]
    Exited {
        /// Its exit code.
        code: i64,
        /// A process in it, not the server itself, was killed for want of memory before.
        ran_short: bool,
    },
    /// A signal ended it that nobody sends from outside.
    #[error("its server was ended by signal {signal}{}", name_of(*signal))]
    Crashed {
        /// Which one.
        signal: i64,
    },
    /// A signal ended it that was not ours.
    #[error("its container was stopped from outside: signal {signal}{}", name_of(*signal))]
    StoppedFromOutside {
        /// Which one.
        signal: i64,
    },
    /// Somebody else ended it and started it again: what was said to it is lost.
    #[error("its container was restarted from outside")]
    RestartedFromOutside,
    /// Somebody else removed it.
    #[error("its container was removed from outside")]
    RemovedFromOutside,
    /// Somebody else stopped its clock: it is there, and answers nothing.
    #[error("its container was paused from outside")]
    PausedFromOutside,
    /// The engine is gone, and with it everything it ran.
    #[error("the container engine went away: {words}")]
    EngineLost {
        /// What happened.
        words: String,
    },
    /// It runs, but its port leads nowhere from here.
    #[error("port {port} of its container cannot be reached from here: its network publishes no ports")]
    NotPublished {
        /// The port inside.
        port: u16,
    },
    /// It runs, but nobody listens at its port.
    #[error("nothing answers at port {port} of its container")]
    Deaf {
        /// The port inside.
        port: u16,
    },
    /// The engine would not.
    #[error("the container engine would not {operation}: {words}")]
    Refused {
        /// What it was asked for.
        operation: &'static str,
        /// What it says.
        words: String,
    },
}

impl ContainerError {
    /// What the user can do about it.
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::BadVariable { .. } => Some("set it again, or unset it to look in the usual places"),
            Self::NoEngine { .. } => Some("start Docker or Podman, or say where it is with DOCKER_HOST"),
            Self::Unreachable { .. } | Self::EngineLost { .. } => Some("look whether the engine runs: `docker info`"),
            Self::Forbidden { .. } => Some("add this user to the group `docker`, or use an engine without root"),
            Self::NoImage { .. } => Some("pull or build it, or set `pull` to \"missing\""),
            Self::NotPulled { .. } => Some("look at its name; one that needs a login is pulled by hand first"),
            Self::NameTaken { .. } => Some("remove that container, or leave `containerName` out"),
            Self::PortTaken { .. } => Some(
                "end who has it, or choose another; `ports` as in [8080] has a free one chosen, unless `network` is \"host\"",
            ),
            Self::NoCommand { .. } => Some("set `command` to a program that is in the image"),
            Self::OutOfMemory { .. } => Some("raise `memory` in its `docker` block"),
            Self::NoFolder { .. } => Some("make that folder first, or look how it is written in `volumes`"),
            Self::NotPublished { .. } => {
                Some("name another `network` in its `docker` block: one with a bridge, or \"host\"")
            }
            Self::Deaf { .. } => Some("it must listen at 0.0.0.0 inside, at the first of its `ports`"),
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

/// The status the engine answered with.
pub(crate) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// The engine's own words, or what kept it from having any.
pub(crate) fn in_words(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        Error::DockerStreamError { error } => error.trim().to_owned(),
        other => first_cause(other).to_string(),
    }
}

/// What began it. Everything around that is told by the names of libraries.
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
