//! Why a call has no result: a stable code, a message, and a context.

use catalog::{SIGN_IN_REQUIRED, login_command};
use registry::Status;
use serde_json::{Map, Value, json};

/// Why a call has no result, or does not exist.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such server.
    #[error("there is no server `{key}`")]
    ServerNotFound {
        /// The requested id or name.
        key: String,
    },
    /// There is no such tool.
    #[error("there is no tool `{name}`")]
    ToolNotFound {
        /// The requested name.
        name: String,
    },
    /// Several servers have a tool of that name.
    #[error("several servers have a tool `{name}`: {}", candidates.join(", "))]
    ToolAmbiguous {
        /// The name.
        name: String,
        /// The full names it could mean.
        candidates: Vec<String>,
    },
    /// The arguments are no JSON object.
    #[error("the arguments of a tool are a JSON object")]
    InvalidArguments,
    /// The server is not connected.
    #[error("{sentence}")]
    ServerUnavailable {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// Its status.
        status: Status,
        /// The server, its state, since when, and when it is retried next.
        sentence: String,
    },
    /// The server could not be connected to.
    #[error("could not connect to server `{name}`: {why}")]
    ConnectionFailed {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// Its status.
        status: Status,
        /// What happened.
        why: String,
    },
    /// The server lost our session, and a new handshake failed.
    #[error("the session with server `{name}` is lost: {why}")]
    SessionNotFound {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// Its status.
        status: Status,
        /// What happened.
        why: String,
    },
    /// There is no such execution.
    #[error("there is no execution `{id}`")]
    ExecutionNotFound {
        /// Its id.
        id: String,
    },
    /// The server failed during the call, or responded with a JSON-RPC error.
    #[error("{message}")]
    ExecutionFailed {
        /// What happened.
        message: String,
        /// The execution, server and tool; the server's own error object as `error`.
        context: Map<String, Value>,
    },
    /// The call took too long.
    #[error("{message}")]
    ExecutionTimeout {
        /// What happened.
        message: String,
        /// The execution, server and tool, and the limit.
        context: Map<String, Value>,
    },
    /// The call was cancelled.
    #[error("{message}")]
    ExecutionCancelled {
        /// What happened.
        message: String,
        /// The execution, server and tool.
        context: Map<String, Value>,
    },
    /// A limit is reached.
    #[error("{message}")]
    LimitReached {
        /// Which limit, and what to do.
        message: String,
        /// The limit and the current number.
        context: Map<String, Value>,
    },
    /// Executions were stopped, and not yet allowed again.
    #[error("executions are stopped; allow them again with POST /api/v1/aggregator/executions/reset")]
    ExecutionStopped,
    /// The registry failed.
    #[error(transparent)]
    Registry(registry::Error),
}

impl Error {
    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ServerNotFound { .. } => "SERVER_NOT_FOUND",
            Self::ToolNotFound { .. } => "TOOL_NOT_FOUND",
            Self::ToolAmbiguous { .. } => "TOOL_AMBIGUOUS",
            Self::InvalidArguments => "VALIDATION_ERROR",
            Self::ServerUnavailable { .. } => "SERVER_UNAVAILABLE",
            Self::ConnectionFailed { .. } => "SERVER_CONNECTION_FAILED",
            Self::SessionNotFound { .. } => "SESSION_NOT_FOUND",
            Self::ExecutionNotFound { .. } => "EXECUTION_NOT_FOUND",
            Self::ExecutionFailed { .. } => "EXECUTION_FAILED",
            Self::ExecutionTimeout { .. } => "EXECUTION_TIMEOUT",
            Self::ExecutionCancelled { .. } => "EXECUTION_CANCELLED",
            Self::LimitReached { .. } => "LIMIT_REACHED",
            Self::ExecutionStopped => "EXECUTION_STOPPED",
            Self::Registry(error) if error.is_retryable() => "DATABASE_UNAVAILABLE",
            Self::Registry(_) => "INTERNAL_ERROR",
        }
    }

    /// Its context, for programs. For a call that was not made it includes that: then a retry is safe.
    pub fn context(&self) -> Value {
        let mut context = self.subject();
        if let (Some(reason), Value::Object(members)) = (self.reason_not_called(), &mut context) {
            members.insert("reason".to_owned(), json!(reason));
            members.insert("safeToRetry".to_owned(), json!(true));
            if reason == SIGN_IN_REQUIRED
                && let Some(server) = members.get("server_name").and_then(Value::as_str)
            {
                let command = login_command(server);
                members.insert("command".to_owned(), json!(command));
            }
        }
        context
    }

    /// Why no server has received the call. Errors of calls that may have reached one have that in their own context.
    fn reason_not_called(&self) -> Option<&'static str> {
        match self {
            Self::ServerNotFound { .. } => Some("server_not_found"),
            Self::ToolNotFound { .. } => Some("tool_not_found"),
            Self::ToolAmbiguous { .. } => Some("tool_ambiguous"),
            Self::ServerUnavailable { status: Status::SignInRequired, .. }
            | Self::ConnectionFailed { status: Status::SignInRequired, .. } => Some(SIGN_IN_REQUIRED),
            Self::ServerUnavailable { .. } => Some("server_unavailable"),
            Self::ConnectionFailed { .. } => Some("server_unreachable"),
            Self::SessionNotFound { .. } => Some("session_lost"),
            Self::ExecutionStopped => Some("executions_stopped"),
            _ => None,
        }
    }

    /// The kind of error that the record of a call has if its server was not there.
    pub(crate) fn kind_of_absence(&self) -> &'static str {
        match self.reason_not_called() {
            Some(SIGN_IN_REQUIRED) => SIGN_IN_REQUIRED,
            _ => "server_unavailable",
        }
    }

    fn subject(&self) -> Value {
        match self {
            Self::ServerNotFound { key } => json!({ "server": key }),
            Self::ToolNotFound { name } => json!({ "name": name }),
            Self::ToolAmbiguous { name, candidates } => json!({ "name": name, "candidates": candidates }),
            Self::ServerUnavailable { server_id, name, status, .. }
            | Self::ConnectionFailed { server_id, name, status, .. }
            | Self::SessionNotFound { server_id, name, status, .. } => {
                json!({ "server_id": server_id, "server_name": name, "status": status })
            }
            Self::ExecutionNotFound { id } => json!({ "execution_id": id }),
            Self::ExecutionFailed { context, .. }
            | Self::ExecutionTimeout { context, .. }
            | Self::ExecutionCancelled { context, .. }
            | Self::LimitReached { context, .. } => Value::Object(context.clone()),
            Self::InvalidArguments | Self::ExecutionStopped | Self::Registry(_) => json!({}),
        }
    }
}

impl From<registry::Error> for Error {
    fn from(error: registry::Error) -> Self {
        match error {
            registry::Error::NotFound { what: "execution", key } => Self::ExecutionNotFound { id: key },
            other => Self::Registry(other),
        }
    }
}
