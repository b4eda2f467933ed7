//! How a server or a call failed, in text a person can act on.

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

/// How far a server had progressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its program was being started.
    Startup,
    /// The handshake, or the listing of its items, was in progress.
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

/// How a server ended.
#[derive(Debug)]
pub enum Ending {
    /// We stopped it.
    Stopped,
    /// It ended, or was ended, because something went wrong.
    Failed {
        /// How far it had progressed.
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
    /// It is remote or in a container, and this program only starts processes.
    #[error("this program does not support servers over HTTP or in containers")]
    NoRemotes,
    /// It is remote, and could not be reached or refused the connection.
    #[error("{0}")]
    Remote(String),
    /// It is remote, and does not accept our credentials: retrying with the same ones is useless.
    #[error("{0}")]
    Unauthorized(String),
    /// It is remote, and a person has to sign in to it.
    #[error("it requires a sign-in: {why}")]
    SignInRequired {
        /// Why, and the command that does it.
        why: String,
        /// That command, for programs.
        command: String,
    },
    /// It is this aggregator, or one that uses it: its tools would be among its own without end.
    #[error("{0}")]
    Loop(&'static str),
    /// Its container could not be created or did not keep running.
    #[error("{what}")]
    Container {
        /// What happened, with the engine's own message.
        what: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// Its process ended.
    #[error("{}", describe(*.0))]
    Exited(ExitStatus),
    /// Our own task that supervised it panicked.
    #[error("the task of the server panicked, which is a bug in mcp-aggregator")]
    Broken,
    /// It closed its output but did not exit.
    #[error("it closed its output")]
    ClosedOutput,
    /// It closed its input but did not exit.
    #[error("it closed its input")]
    ClosedInput,
    /// It took too long to become ready.
    #[error("it did not answer `{method}` within {} s", waited.as_secs_f32())]
    TooSlow {
        /// The request it did not answer.
        method: &'static str,
        /// How long we waited.
        waited: Duration,
    },
    /// It responded to a request of ours with an error.
    #[error("it answered `{method}` with an error: {error}")]
    Refused {
        /// The request.
        method: &'static str,
        /// The error object, as it came.
        error: String,
    },
    /// It responded to a request of ours with something unusable.
    #[error("it answered `{method}` with {problem}")]
    Nonsense {
        /// The request.
        method: &'static str,
        /// What it sent instead of a valid result.
        problem: String,
    },
    /// It sent or listed more than a limit allows.
    #[error("it answered `{method}`, but {over}")]
    TooMuch {
        /// The request.
        method: &'static str,
        /// The limit it exceeds, and the setting that raises it.
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
            Self::SignInRequired { why, command } => Self::SignInRequired { why: hidden(&why), command },
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

    /// What the user can do about it, if anything.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Start(error) => error.hint(),
            Self::Container { hint, .. } => *hint,
            Self::TooSlow { .. } => Some(
                "if it needs more time, set MCP_AGGREGATOR_START_TIMEOUT to more seconds, or `startTimeout` of this server \
                 to more milliseconds",
            ),
            Self::NoRemotes
            | Self::SignInRequired { .. }
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

/// The report of a server that failed.
#[derive(Debug)]
pub struct Report {
    /// How far it had progressed.
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
        let silent = "it wrote nothing to stderr; run its command by hand to see more";
        let hint = match cause {
            Cause::Exited(_) | Cause::ClosedOutput | Cause::ClosedInput if stderr_lines.is_empty() => Some(silent),
            cause => cause.hint(),
        };
        Some(Self { phase: *phase, cause: cause.to_string(), stderr_lines, hint })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Text of the server is escaped, and cannot be mistaken for our own.
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

/// Why a call got no response from its server.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The server ended before it responded. Whether it did the work is unknown.
    #[error("server `{server}` ended before it answered: {ending}{}", in_its_words(said.as_deref()))]
    Ended {
        /// The server at fault.
        server: ServerName,
        /// How it ended.
        ending: Arc<Ending>,
        /// The last line it wrote to stderr.
        said: Option<Box<str>>,
    },
    /// The server responded, but the response cannot be forwarded.
    #[error("server `{server}` sent a response that cannot be passed on: {problem}")]
    Unreadable {
        /// The server at fault.
        server: ServerName,
        /// What was wrong with it.
        problem: Unreadable,
    },
    /// The server is remote, and the call was not delivered or got no response.
    #[error("server `{server}`: {problem}")]
    Remote {
        /// The server at fault.
        server: ServerName,
        /// What happened.
        problem: String,
        /// How far the call got.
        failure: RemoteFailure,
        /// The command that signs in, if that is what has to be done.
        command: Option<String>,
    },
    /// The server does not read its input, and enough is queued already. The call was not sent.
    #[error("server `{server}` is not reading its input; {} MB are waiting", waiting >> 20)]
    Congested {
        /// The server at fault.
        server: ServerName,
        /// Bytes already queued for it.
        waiting: usize,
    },
    /// The server did not respond within the configured time.
    #[error("server `{server}` did not answer within {} s, the `timeout` of its configuration", limit.as_secs_f32())]
    TooSlow {
        /// The server at fault.
        server: ServerName,
        /// The time limit.
        limit: Duration,
    },
    /// The server sends requests to its clients, so it serves one at a time, and another client's call took too long.
    /// The call was not sent.
    #[error("server `{server}` serves one client at a time, and another one's call is still running")]
    OthersTurn {
        /// The server of the call.
        server: ServerName,
    },
    /// The server has one instance for each identity or session, and no further one may start. The call was not sent.
    #[error(
        "server `{server}` already has {most} instances, the `max_instances` of its configuration; another one can \
         start when one of them has ended"
    )]
    TooManyInstances {
        /// The server of the call.
        server: ServerName,
        /// The limit.
        most: usize,
    },
    /// The instance of the server that serves this client cannot be started, or ended again at once. The call was not
    /// sent.
    #[error("the instance of server `{server}` for this client failed: {why}; next attempt in {} s", retry_in.as_secs_f64().ceil())]
    InstanceFailed {
        /// The server of the call.
        server: ServerName,
        /// What happened, with the last lines of its stderr.
        why: Box<str>,
        /// When a call starts it again.
        retry_in: Duration,
    },
    /// Its client had disconnected, and other clients waited for the server, or the server waited for the client.
    #[error("the call to `{server}` was abandoned: its client disconnected")]
    Deserted {
        /// The server that was still working on it.
        server: ServerName,
    },
}

/// How far a call to a remote server got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteFailure {
    /// It was not delivered.
    Unreachable,
    /// The server had lost our session, and a new handshake failed.
    SessionLost,
    /// The server is overloaded.
    Busy,
    /// A person has to sign in to the server, again or with more rights. The call was not carried out.
    SignInRequired,
    /// The server, or what answers at its address, refuses it, and will refuse it next time.
    Refused,
    /// It was delivered, and no response came back.
    ResponseLost,
}

/// What was wrong with a response.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub enum Unreadable {
    /// It is no valid message.
    #[error("{0}")]
    Faulty(Reason),
    /// It exceeds its limit.
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
            | Self::TooManyInstances { server, .. }
            | Self::InstanceFailed { server, .. }
            | Self::Deserted { server } => server,
        }
    }

    /// A stable identifier for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "server_ended",
            Self::Unreadable { .. } => "unreadable_answer",
            Self::Remote { failure: RemoteFailure::Unreachable, .. } => "server_unreachable",
            Self::Remote { failure: RemoteFailure::SessionLost, .. } => "session_lost",
            Self::Remote { failure: RemoteFailure::Busy, .. } => "server_busy",
            Self::Remote { failure: RemoteFailure::SignInRequired, .. } => "sign_in_required",
            Self::Remote { failure: RemoteFailure::Refused, .. } => "server_refused",
            Self::Remote { failure: RemoteFailure::ResponseLost, .. } => "answer_lost",
            Self::Congested { .. } => "server_congested",
            Self::TooSlow { .. } => "server_too_slow",
            Self::OthersTurn { .. } => "others_turn",
            Self::TooManyInstances { .. } => "too_many_instances",
            Self::InstanceFailed { .. } => "instance_failed",
            Self::Deserted { .. } => "client_gone",
        }
    }

    /// Whether the server certainly did not do the work, so that a retry cannot do it twice, and may succeed.
    pub fn is_safe_to_retry(&self) -> bool {
        match self {
            Self::Congested { .. }
            | Self::OthersTurn { .. }
            | Self::TooManyInstances { .. }
            | Self::InstanceFailed { .. } => true,
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

/// An exit status as text for people.
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
