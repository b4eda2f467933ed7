//! How a server or a call failed, in words a person can act on.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Secrets, ServerName};
use protocol::envelope::Reason;
use protocol::escape;

use crate::limits::OverLimit;
use crate::process::StartError;

/// How far a server had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its program was being started.
    Startup,
    /// It was being asked who it is and what it offers.
    Initialization,
    /// It was serving calls.
    Runtime,
}

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Startup => "startup",
            Self::Initialization => "initialization",
            Self::Runtime => "runtime",
        })
    }
}

/// How a server came to its end.
#[derive(Debug)]
pub enum Ending {
    /// We asked it to stop.
    Stopped,
    /// It ended, or was ended, because something went wrong.
    Failed {
        /// How far it had come.
        phase: Phase,
        /// What went wrong.
        cause: Cause,
    },
}

/// What went wrong with a server.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// Its program could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It runs elsewhere or in a container, and this program starts programs only.
    #[error("this program reaches no servers over HTTP or in containers")]
    NoRemotes,
    /// It runs elsewhere, and could not be reached or would not talk to us.
    #[error("{0}")]
    Remote(String),
    /// It runs elsewhere, and does not accept our credentials: trying again with the same ones is of no use.
    #[error("{0}")]
    Unauthorized(String),
    /// It is this aggregator, or one of those who use it: its tools would be among its own without end.
    #[error("{0}")]
    Loop(&'static str),
    /// It has a container of its own, which could not be made or did not last.
    #[error("{what}")]
    Container {
        /// What happened, with the engine's own words.
        what: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// Its process ended.
    #[error("{}", describe(*.0))]
    Exited(ExitStatus),
    /// Our own task that looked after it broke.
    #[error("the task that looks after it broke, which is a bug in the aggregator")]
    Broken,
    /// It closed its output but did not end.
    #[error("it closed its output")]
    ClosedOutput,
    /// It closed its input but did not end.
    #[error("it closed its input")]
    ClosedInput,
    /// It took too long to become ready.
    #[error("it did not answer `{method}` within {} s", waited.as_secs_f32())]
    TooSlow {
        /// What it was asked.
        method: &'static str,
        /// For how long we waited.
        waited: Duration,
    },
    /// It answered a question of ours with an error.
    #[error("it answered `{method}` with an error: {error}")]
    Refused {
        /// What it was asked.
        method: &'static str,
        /// The error object, as it came.
        error: String,
    },
    /// It answered a question of ours with something unusable.
    #[error("it answered `{method}` with {problem}")]
    Nonsense {
        /// What it was asked.
        method: &'static str,
        /// What came instead of an answer.
        problem: String,
    },
    /// It sent or listed more than it may.
    #[error("it answered `{method}`, but {over}")]
    TooMuch {
        /// What it was asked.
        method: &'static str,
        /// Which limit it exceeds, and what raises it.
        over: OverLimit,
    },
}

impl Cause {
    /// The same without the secrets of its server, which may have repeated them.
    #[must_use]
    pub fn hiding(self, secrets: &Secrets) -> Self {
        let hidden = |text: &str| secrets.hide(text).into_owned();
        match self {
            Self::Remote(text) => Self::Remote(hidden(&text)),
            Self::Unauthorized(text) => Self::Unauthorized(hidden(&text)),
            Self::Container { what, hint } => Self::Container { what: hidden(&what), hint },
            Self::Refused { method, error } => Self::Refused { method, error: hidden(&error) },
            Self::Nonsense { method, problem } => Self::Nonsense { method, problem: hidden(&problem) },
            other @ (Self::Start(_)
            | Self::NoRemotes
            | Self::Loop(_)
            | Self::Broken
            | Self::Exited(_)
            | Self::ClosedOutput
            | Self::ClosedInput
            | Self::TooSlow { .. }
            | Self::TooMuch { .. }) => other,
        }
    }

    /// What the user can do about it, where there is something to do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Start(error) => error.hint(),
            Self::Container { hint, .. } => *hint,
            Self::TooSlow { .. } => Some(
                "if it needs more time, set MCP_AGGREGATOR_START_TIMEOUT to more seconds, or `startTimeout` of this server \
                 to more milliseconds",
            ),
            Self::NoRemotes
            | Self::Broken
            | Self::Remote(_)
            | Self::Unauthorized(_)
            | Self::Loop(_)
            | Self::Exited(_)
            | Self::ClosedOutput
            | Self::ClosedInput
            | Self::Refused { .. }
            | Self::Nonsense { .. }
            | Self::TooMuch { .. } => None,
        }
    }
}

/// All there is to know about a server that failed.
#[derive(Debug)]
pub struct Report {
    /// How far it had come.
    pub phase: Phase,
    /// What went wrong.
    pub cause: String,
    /// The last lines of its stderr.
    pub stderr_lines: Vec<String>,
    /// What to do about it.
    pub hint: Option<&'static str>,
}

impl Report {
    /// `None` if the server did not fail.
    pub fn new(ending: &Ending, stderr_lines: Vec<String>) -> Option<Self> {
        let Ending::Failed { phase, cause } = ending else { return None };
        let silent = "it said nothing on stderr; run its command by hand to see more";
        let hint = match cause {
            Cause::Exited(_) | Cause::ClosedOutput | Cause::ClosedInput if stderr_lines.is_empty() => Some(silent),
            cause => cause.hint(),
        };
        Some(Self { phase: *phase, cause: cause.to_string(), stderr_lines, hint })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What the server wrote is shown and not obeyed, and cannot pass for what we say ourselves.
        let mut cause = self.cause.split('\n').map(|line| escape::one_line(line.trim_end_matches('\r')));
        write!(out, "failed during {}: {}", self.phase, cause.next().unwrap_or_default())?;
        cause.try_for_each(|line| write!(out, "\n    | {line}"))?;
        if !self.stderr_lines.is_empty() {
            write!(out, "\n  last lines of its stderr:")?;
            self.stderr_lines.iter().try_for_each(|line| write!(out, "\n    | {}", escape::one_line(line)))?;
        }
        match self.hint {
            Some(hint) => write!(out, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => out.write_str("it was stopped"),
            Self::Failed { cause, .. } => cause.fmt(out),
        }
    }
}

/// Why a call that was accepted, or would have been, got no answer from its server.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The server ended before it answered. Whether it did the work is unknown.
    #[error("server `{server}` ended before it answered: {ending}{}", in_its_words(said.as_deref()))]
    Ended {
        /// Whose fault it is.
        server: ServerName,
        /// How it ended.
        ending: Arc<Ending>,
        /// The last thing it said on stderr.
        said: Option<Box<str>>,
    },
    /// The server answered, but not in a way that can be passed on.
    #[error("server `{server}` sent an answer that cannot be passed on: {problem}")]
    Unreadable {
        /// Whose fault it is.
        server: ServerName,
        /// What was wrong with it.
        problem: Unreadable,
    },
    /// The server runs elsewhere, and the call did not get through or came back without an answer.
    #[error("server `{server}`: {problem}")]
    Remote {
        /// Whose fault it is.
        server: ServerName,
        /// What happened.
        problem: String,
        /// What became of it.
        failure: RemoteFailure,
    },
    /// The server does not read its input, and enough is waiting already. The call was not sent.
    #[error("server `{server}` is not reading its input; {} MB are waiting", waiting >> 20)]
    Congested {
        /// Whose fault it is.
        server: ServerName,
        /// Bytes already queued for it.
        waiting: usize,
    },
    /// The server did not answer within the time its configuration allows.
    #[error("server `{server}` did not answer within {} s, the `timeout` of its configuration", limit.as_secs_f32())]
    TooSlow {
        /// Whose fault it is.
        server: ServerName,
        /// How long it had.
        limit: Duration,
    },
    /// The server asks its clients questions, so it serves one at a time, and another one's call took too long. The
    /// call was not sent.
    #[error("server `{server}` serves one client at a time, and another one's call is still running")]
    OthersTurn {
        /// Whose call it was.
        server: ServerName,
    },
    /// Its client was gone, and others waited for the server that was still at it, or the server for the client.
    #[error("the call to `{server}` was given up: its client was gone")]
    Deserted {
        /// Who was still at it.
        server: ServerName,
    },
}

/// What became of a call to a server that runs elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteFailure {
    /// It did not get there.
    Unreachable,
    /// The server had forgotten us, and did not get to know us again.
    SessionLost,
    /// The server has no time for it now.
    Busy,
    /// The server, or what is in its place, does not want it, and will not want it next time.
    Refused,
    /// It got there, and no answer came back.
    ResponseLost,
}

/// What was wrong with an answer.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub enum Unreadable {
    /// It is no valid message.
    #[error("{0}")]
    Faulty(Reason),
    /// It is longer than it may be.
    #[error("{0}")]
    TooLong(OverLimit),
}

impl CallError {
    /// The server at fault.
    pub fn server(&self) -> &ServerName {
        match self {
            Self::Ended { server, .. }
            | Self::Unreadable { server, .. }
            | Self::Remote { server, .. }
            | Self::Congested { server, .. }
            | Self::TooSlow { server, .. }
            | Self::OthersTurn { server }
            | Self::Deserted { server } => server,
        }
    }

    /// A stable word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "server_ended",
            Self::Unreadable { .. } => "unreadable_answer",
            Self::Remote { failure: RemoteFailure::Unreachable, .. } => "server_unreachable",
            Self::Remote { failure: RemoteFailure::SessionLost, .. } => "session_lost",
            Self::Remote { failure: RemoteFailure::Busy, .. } => "server_busy",
            Self::Remote { failure: RemoteFailure::Refused, .. } => "server_refused",
            Self::Remote { failure: RemoteFailure::ResponseLost, .. } => "answer_lost",
            Self::Congested { .. } => "server_congested",
            Self::TooSlow { .. } => "server_too_slow",
            Self::OthersTurn { .. } => "others_turn",
            Self::Deserted { .. } => "client_gone",
        }
    }

    /// Whether the server certainly did not do the work, so that sending the call again cannot do it twice, and may do
    /// it next time.
    pub fn is_safe_to_retry(&self) -> bool {
        match self {
            Self::Congested { .. } | Self::OthersTurn { .. } => true,
            Self::Remote { failure, .. } => {
                matches!(failure, RemoteFailure::Unreachable | RemoteFailure::SessionLost | RemoteFailure::Busy)
            }
            Self::Ended { .. } | Self::Unreadable { .. } | Self::TooSlow { .. } | Self::Deserted { .. } => false,
        }
    }
}

fn in_its_words(said: Option<&str>) -> String {
    said.map_or_else(String::new, |said| format!("; it said: {said}"))
}

/// An exit status as people say it.
fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with status {code}"),
        (None, Some(signal)) => {
            let dumped = if status.core_dumped() { ", core dumped" } else { "" };
            let name = signal_name(signal).map_or_else(String::new, |name| format!(" ({name})"));
            format!("it was killed by signal {signal}{name}{dumped}")
        }
        (None, None) => format!("it ended: {status}"),
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_status_is_described_in_plain_words() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "it exited with status 3");
        assert_eq!(describe(ExitStatus::from_raw(9)), "it was killed by signal 9 (SIGKILL)");
        assert_eq!(describe(ExitStatus::from_raw(11 | 0x80)), "it was killed by signal 11 (SIGSEGV), core dumped");
        assert_eq!(describe(ExitStatus::from_raw(40)), "it was killed by signal 40");
    }

    #[test]
    fn a_secret_that_a_server_repeats_in_a_refusal_is_masked() {
        let secrets = Secrets::default().with(["hunter2"]);
        let cause = Cause::Remote("it answered HTTP 500: no hunter2 here".to_owned()).hiding(&secrets);
        assert_eq!(cause.to_string(), "it answered HTTP 500: no *** here");
        let cause = Cause::Refused { method: "initialize", error: "hunter2?".to_owned() }.hiding(&secrets);
        assert_eq!(cause.to_string(), "it answered `initialize` with an error: ***?");
    }

    #[test]
    fn only_a_call_that_was_never_sent_is_safe_to_retry() {
        let server = ServerName::new("db").unwrap();
        let ended = CallError::Ended { server: server.clone(), ending: Arc::new(Ending::Stopped), said: None };
        assert!(!ended.is_safe_to_retry());
        assert!(CallError::Congested { server, waiting: 5 << 20 }.is_safe_to_retry());
    }
}
