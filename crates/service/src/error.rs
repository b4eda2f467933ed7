//! What went wrong, told once for every edge: a stable code, a sentence, and what it is about.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// One thing that is wrong with what was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where it is: `["body", "connection_config", "command"]`.
    pub loc: Vec<String>,
    /// What is wrong, and what would be right.
    pub msg: String,
    /// A stable word for it, such as `missing`, `string_pattern_mismatch`, `value_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such server.
    #[error("there is no server `{key}`")]
    ServerNotFound {
        /// The id or name it was looked for by.
        key: String,
    },
    /// There is a server of that name.
    #[error("a server named `{name}` exists already")]
    ServerAlreadyExists {
        /// The name.
        name: String,
    },
    /// The server comes from the config file, and is changed there.
    #[error("server `{name}` comes from the config file; change it there")]
    ServerReadOnly {
        /// The server.
        name: String,
    },
    /// There is no such tool.
    #[error("there is no tool `{name}`")]
    ToolNotFound {
        /// The name it was looked for by.
        name: String,
    },
    /// There is no such prompt.
    #[error("there is no prompt `{name}`")]
    PromptNotFound {
        /// The name it was looked for by.
        name: String,
    },
    /// Several servers have a prompt of that name.
    #[error("several servers have a prompt `{name}`: {}", candidates.join(", "))]
    PromptAmbiguous {
        /// The name.
        name: String,
        /// The full names it could be.
        candidates: Vec<String>,
    },
    /// No server has such a resource.
    #[error("there is no resource `{uri}`")]
    ResourceNotFound {
        /// The address.
        uri: String,
    },
    /// There is no such skill, or it is switched off.
    #[error("there is no skill `{key}`")]
    SkillNotFound {
        /// The id or name it was looked for by.
        key: String,
    },
    /// Several servers have a tool of that name.
    #[error("several servers have a tool `{name}`: {}", candidates.join(", "))]
    ToolAmbiguous {
        /// The name.
        name: String,
        /// The full names it could be.
        candidates: Vec<String>,
    },
    /// The server is not connected.
    #[error("{sentence}")]
    ServerUnavailable {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// How things stand with it.
        status: registry::Status,
        /// Which server, its state, since when, and when it is tried next.
        sentence: String,
    },
    /// The server could not be connected to.
    #[error("could not connect to server `{name}`: {why}")]
    ConnectionFailed {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// How things stand with it.
        status: registry::Status,
        /// What happened.
        why: String,
    },
    /// The server forgot us, and did not get to know us again.
    #[error("the session with server `{name}` is lost: {why}")]
    SessionNotFound {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// How things stand with it.
        status: registry::Status,
        /// What happened.
        why: String,
    },
    /// There is no such execution.
    #[error("there is no execution `{id}`")]
    ExecutionNotFound {
        /// Its id.
        id: String,
    },
    /// There is no such binding.
    #[error("there is no binding `{id}`")]
    BindingNotFound {
        /// Its id.
        id: String,
    },
    /// There is no such document, or none that may be seen.
    #[error("there is no document `{path}`: {why}")]
    DocumentNotFound {
        /// What was asked for.
        path: String,
        /// Why not.
        why: String,
    },
    /// The document says something else than the one that was meant.
    #[error("document `{path}` has changed since it was looked at; look at it again, then run it")]
    DocumentChanged {
        /// What was asked for.
        path: String,
    },
    /// The document is there, but results cannot be put into it.
    #[error("document `{path}` cannot be written, so nothing was run: {why}")]
    DocumentNotWritable {
        /// What was asked for.
        path: String,
        /// Why not.
        why: String,
    },
    /// The server failed at the call, or answered with a JSON-RPC error.
    #[error("{message}")]
    ExecutionFailed {
        /// What happened.
        message: String,
        /// Which execution, server and tool; the server's own error object as `error`.
        context: Map<String, Value>,
    },
    /// The call took too long.
    #[error("{message}")]
    ExecutionTimeout {
        /// What happened.
        message: String,
        /// Which execution, server and tool, and the limit.
        context: Map<String, Value>,
    },
    /// Somebody cancelled the call.
    #[error("{message}")]
    ExecutionCancelled {
        /// What happened.
        message: String,
        /// Which execution, server and tool.
        context: Map<String, Value>,
    },
    /// Too much goes on already.
    #[error("{message}")]
    LimitReached {
        /// Which limit, and what to do.
        message: String,
        /// The limit and how much there is.
        context: Map<String, Value>,
    },
    /// Executions were stopped, and not yet allowed again.
    #[error("executions are stopped; allow them again with POST /api/v1/aggregator/executions/reset")]
    ExecutionStopped,
    /// No model answers questions here.
    #[error("{why}")]
    AssistantUnavailable {
        /// Why, and what to do.
        why: String,
    },
    /// The model that was asked gave no answer.
    #[error("{message}")]
    ModelFailed {
        /// Which model, and what happened.
        message: String,
    },
    /// What was sent makes no sense.
    #[error("{}", problems.first().map_or("the request is not valid", |problem| &problem.msg))]
    Validation {
        /// Everything that is wrong with it.
        problems: Vec<Problem>,
    },
    /// Something of ours broke.
    #[error("{what}")]
    Internal {
        /// What.
        what: String,
    },
    /// The registry could not do it.
    #[error(transparent)]
    Registry(registry::Error),
}

impl Error {
    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ServerNotFound { .. } => "SERVER_NOT_FOUND",
            Self::ServerAlreadyExists { .. } => "SERVER_ALREADY_EXISTS",
            Self::ServerReadOnly { .. } => "SERVER_READ_ONLY",
            Self::ToolNotFound { .. } => "TOOL_NOT_FOUND",
            Self::PromptNotFound { .. } => "PROMPT_NOT_FOUND",
            Self::PromptAmbiguous { .. } => "PROMPT_AMBIGUOUS",
            Self::ResourceNotFound { .. } => "RESOURCE_NOT_FOUND",
            Self::SkillNotFound { .. } => "SKILL_NOT_FOUND",
            Self::ToolAmbiguous { .. } => "TOOL_AMBIGUOUS",
            Self::ServerUnavailable { .. } => "SERVER_UNAVAILABLE",
            Self::ConnectionFailed { .. } => "SERVER_CONNECTION_FAILED",
            Self::SessionNotFound { .. } => "SESSION_NOT_FOUND",
            Self::ExecutionNotFound { .. } => "EXECUTION_NOT_FOUND",
            Self::BindingNotFound { .. } => "BINDING_NOT_FOUND",
            Self::DocumentNotFound { .. } => "DOCUMENT_NOT_FOUND",
            Self::DocumentChanged { .. } => "DOCUMENT_CHANGED",
            Self::DocumentNotWritable { .. } => "DOCUMENT_NOT_WRITABLE",
            Self::ExecutionFailed { .. } => "EXECUTION_FAILED",
            Self::ExecutionTimeout { .. } => "EXECUTION_TIMEOUT",
            Self::ExecutionCancelled { .. } => "EXECUTION_CANCELLED",
            Self::LimitReached { .. } => "LIMIT_REACHED",
            Self::ExecutionStopped => "EXECUTION_STOPPED",
            Self::AssistantUnavailable { .. } => "ASSISTANT_UNAVAILABLE",
            Self::ModelFailed { .. } => "MODEL_FAILED",
            Self::Validation { .. } => "VALIDATION_ERROR",
            Self::Registry(error) if error.is_retryable() => "DATABASE_UNAVAILABLE",
            Self::Internal { .. } | Self::Registry(_) => "INTERNAL_ERROR",
        }
    }

    /// What it is about, for programs. Of a call that was not made it says so: then the same call may be made again.
    pub fn context(&self) -> Value {
        let mut context = self.subject();
        if let (Some(reason), Value::Object(members)) = (self.reason_not_called(), &mut context) {
            members.insert("reason".to_owned(), json!(reason));
            members.insert("safeToRetry".to_owned(), json!(true));
        }
        context
    }

    /// Why no server has seen the call. Errors of calls that may have reached one say so in their own context.
    fn reason_not_called(&self) -> Option<&'static str> {
        match self {
            Self::ServerNotFound { .. } => Some("server_not_found"),
            Self::ToolNotFound { .. } => Some("tool_not_found"),
            Self::ToolAmbiguous { .. } => Some("tool_ambiguous"),
            Self::ServerUnavailable { .. } => Some("server_unavailable"),
            Self::ConnectionFailed { .. } => Some("server_unreachable"),
            Self::SessionNotFound { .. } => Some("session_lost"),
            Self::ExecutionStopped => Some("executions_stopped"),
            _ => None,
        }
    }

    fn subject(&self) -> Value {
        match self {
            Self::ServerNotFound { key } => json!({ "server": key }),
            Self::ServerAlreadyExists { name } | Self::ServerReadOnly { name } | Self::ToolNotFound { name } => {
                json!({ "name": name })
            }
            Self::PromptNotFound { name } => json!({ "name": name }),
            Self::ResourceNotFound { uri } => json!({ "uri": uri }),
            Self::SkillNotFound { key } => json!({ "skill": key }),
            Self::ToolAmbiguous { name, candidates } | Self::PromptAmbiguous { name, candidates } => {
                json!({ "name": name, "candidates": candidates })
            }
            Self::ServerUnavailable { server_id, name, status, .. }
            | Self::ConnectionFailed { server_id, name, status, .. }
            | Self::SessionNotFound { server_id, name, status, .. } => {
                json!({ "server_id": server_id, "server_name": name, "status": status })
            }
            Self::ExecutionNotFound { id } => json!({ "execution_id": id }),
            Self::BindingNotFound { id } => json!({ "binding_id": id }),
            Self::DocumentNotFound { path, .. }
            | Self::DocumentChanged { path }
            | Self::DocumentNotWritable { path, .. } => json!({ "path": path }),
            Self::ExecutionFailed { context, .. }
            | Self::ExecutionTimeout { context, .. }
            | Self::ExecutionCancelled { context, .. }
            | Self::LimitReached { context, .. } => Value::Object(context.clone()),
            Self::Validation { problems } => json!({ "errors": problems }),
            Self::ExecutionStopped
            | Self::AssistantUnavailable { .. }
            | Self::ModelFailed { .. }
            | Self::Internal { .. }
            | Self::Registry(_) => json!({}),
        }
    }
}

impl From<registry::Error> for Error {
    fn from(error: registry::Error) -> Self {
        match error {
            registry::Error::AlreadyExists { name } => Self::ServerAlreadyExists { name },
            registry::Error::NotFound { what: "server", key } => Self::ServerNotFound { key },
            registry::Error::NotFound { what: "execution", key } => Self::ExecutionNotFound { id: key },
            registry::Error::NotFound { what: "binding", key } => Self::BindingNotFound { id: key },
            other => Self::Registry(other),
        }
    }
}
