//! The error type for all interfaces: a stable code, a message, and a context.

use serde::Serialize;
use serde_json::{Value, json};
use tool_search::SkillProblem;

/// One problem with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its location: `["body", "connection_config", "command"]`.
    pub loc: Vec<String>,
    /// What is wrong, and what would be valid.
    pub msg: String,
    /// A stable identifier, such as `missing`, `string_pattern_mismatch`, `value_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

impl From<SkillProblem> for Problem {
    fn from(problem: SkillProblem) -> Self {
        let SkillProblem { field, msg, kind } = problem;
        let loc: &[&str] = match &field {
            Some("id") => &["path", "skill"],
            Some(field) => &["body", field],
            None => &["body"],
        };
        Self { loc: loc.iter().map(|&part| part.to_owned()).collect(), msg, kind }
    }
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call has no result, or its object does not exist.
    #[error(transparent)]
    Call(executions::Error),
    /// There is a server of that name.
    #[error("a server named `{name}` already exists")]
    ServerAlreadyExists {
        /// The name.
        name: String,
    },
    /// The server comes from the config file, and can be changed only there.
    #[error("server `{name}` is defined in the config file; change it there")]
    ServerReadOnly {
        /// The server.
        name: String,
    },
    /// There is no such profile.
    #[error("there is no profile `{name}`")]
    ProfileNotFound {
        /// The requested name.
        name: String,
    },
    /// The profile comes from the config file, and can be changed only there.
    #[error("profile `{name}` is defined in the config file; change it there")]
    ProfileReadOnly {
        /// The profile.
        name: String,
    },
    /// Principals are bound to the profile, and could not use the service without it.
    #[error("profile `{name}` cannot be removed: {} bound to it; bind them to another one first", bound_to(bound))]
    ProfileInUse {
        /// The profile.
        name: String,
        /// The principals.
        bound: Vec<String>,
    },
    /// Somebody who is bound to a profile wants to do what shows or changes more than the profile.
    #[error("you are bound to the profile `{profile}`, which does not include this")]
    BoundToProfile {
        /// The profile.
        profile: String,
    },
    /// The profile that somebody is bound to does not exist. They must not see everything instead.
    #[error(
        "`{principal}` is bound to the profile `{profile}`, which does not exist; an administrator can add it with \
         `mcp-aggregator profiles set {profile}`"
    )]
    BoundToNothing {
        /// Who.
        principal: String,
        /// The profile.
        profile: String,
    },
    /// There is no such prompt.
    #[error("there is no prompt `{name}`")]
    PromptNotFound {
        /// The requested name.
        name: String,
    },
    /// Several servers have a prompt of that name.
    #[error("several servers have a prompt `{name}`: {}", candidates.join(", "))]
    PromptAmbiguous {
        /// The name.
        name: String,
        /// The full names it could mean.
        candidates: Vec<String>,
    },
    /// No server has such a resource.
    #[error("there is no resource `{uri}`")]
    ResourceNotFound {
        /// The address.
        uri: String,
    },
    /// There is no such skill, or it is disabled.
    #[error("there is no skill `{key}`")]
    SkillNotFound {
        /// The requested id or name.
        key: String,
    },
    /// There is no such binding.
    #[error("there is no binding `{id}`")]
    BindingNotFound {
        /// Its id.
        id: String,
    },
    /// There is no such limit.
    #[error("there is no limit of {key}")]
    LimitNotFound {
        /// Its kind and name.
        key: String,
    },
    /// There is no such document, or it is not accessible.
    #[error("there is no document `{path}`: {why}")]
    DocumentNotFound {
        /// The requested path.
        path: String,
        /// Why not.
        why: String,
    },
    /// The document has changed since it was read.
    #[error("document `{path}` has changed since it was read; check it, then run it again")]
    DocumentChanged {
        /// The requested path.
        path: String,
    },
    /// The document exists, but results cannot be written to it.
    #[error("document `{path}` cannot be written, so nothing was run: {why}")]
    DocumentNotWritable {
        /// The requested path.
        path: String,
        /// Why not.
        why: String,
    },
    /// No model is configured for the assistant.
    #[error("{why}")]
    AssistantUnavailable {
        /// Why, and what to do.
        why: String,
    },
    /// The model did not respond.
    #[error("{message}")]
    ModelFailed {
        /// Which model, and what happened.
        message: String,
    },
    /// This kind of server does not support sign-in.
    #[error("server `{name}` does not support sign-in: {why}")]
    SignInNotSupported {
        /// The server.
        name: String,
        /// Why not, and what to do.
        why: String,
    },
    /// A sign-in could not be started, or a sign-out not be completed.
    #[error("{message}")]
    SignInFailed {
        /// The server.
        name: String,
        /// The step, the address, what came back, and what to do.
        message: String,
    },
    /// The request is invalid.
    #[error("{}", problems.first().map_or("the request is not valid", |problem| &problem.msg))]
    Validation {
        /// All problems with it.
        problems: Vec<Problem>,
    },
    /// An internal error.
    #[error("{what}")]
    Internal {
        /// What.
        what: String,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(registry::Error),
}

impl Error {
    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Call(error) => error.code(),
            Self::ServerAlreadyExists { .. } => "SERVER_ALREADY_EXISTS",
            Self::ServerReadOnly { .. } => "SERVER_READ_ONLY",
            Self::ProfileNotFound { .. } => "PROFILE_NOT_FOUND",
            Self::ProfileReadOnly { .. } => "PROFILE_READ_ONLY",
            Self::ProfileInUse { .. } => "PROFILE_IN_USE",
            Self::BoundToProfile { .. } | Self::BoundToNothing { .. } => "FORBIDDEN",
            Self::PromptNotFound { .. } => "PROMPT_NOT_FOUND",
            Self::PromptAmbiguous { .. } => "PROMPT_AMBIGUOUS",
            Self::ResourceNotFound { .. } => "RESOURCE_NOT_FOUND",
            Self::SkillNotFound { .. } => "SKILL_NOT_FOUND",
            Self::BindingNotFound { .. } => "BINDING_NOT_FOUND",
            Self::LimitNotFound { .. } => "LIMIT_NOT_FOUND",
            Self::DocumentNotFound { .. } => "DOCUMENT_NOT_FOUND",
            Self::DocumentChanged { .. } => "DOCUMENT_CHANGED",
            Self::DocumentNotWritable { .. } => "DOCUMENT_NOT_WRITABLE",
            Self::AssistantUnavailable { .. } => "ASSISTANT_UNAVAILABLE",
            Self::ModelFailed { .. } => "MODEL_FAILED",
            Self::SignInNotSupported { .. } => "SIGN_IN_NOT_SUPPORTED",
            Self::SignInFailed { .. } => "SIGN_IN_FAILED",
            Self::Validation { .. } => "VALIDATION_ERROR",
            Self::Registry(error) if error.is_retryable() => "DATABASE_UNAVAILABLE",
            Self::Internal { .. } | Self::Registry(_) => "INTERNAL_ERROR",
        }
    }

    /// Its context, for programs.
    pub fn context(&self) -> Value {
        match self {
            Self::Call(error) => error.context(),
            Self::ServerAlreadyExists { name }
            | Self::ServerReadOnly { name }
            | Self::ProfileNotFound { name }
            | Self::ProfileReadOnly { name }
            | Self::PromptNotFound { name } => json!({ "name": name }),
            Self::ProfileInUse { name, bound } => json!({ "name": name, "bound": bound }),
            Self::BoundToProfile { profile } | Self::BoundToNothing { profile, .. } => json!({ "profile": profile }),
            Self::SignInNotSupported { name, .. } | Self::SignInFailed { name, .. } => json!({ "server_name": name }),
            Self::ResourceNotFound { uri } => json!({ "uri": uri }),
            Self::SkillNotFound { key } => json!({ "skill": key }),
            Self::PromptAmbiguous { name, candidates } => json!({ "name": name, "candidates": candidates }),
            Self::BindingNotFound { id } => json!({ "binding_id": id }),
            Self::LimitNotFound { key } => json!({ "limit": key }),
            Self::DocumentNotFound { path, .. }
            | Self::DocumentChanged { path }
            | Self::DocumentNotWritable { path, .. } => json!({ "path": path }),
            Self::Validation { problems } => json!({ "errors": problems }),
            Self::AssistantUnavailable { .. }
            | Self::ModelFailed { .. }
            | Self::Internal { .. }
            | Self::Registry(_) => json!({}),
        }
    }
}

/// `token `a` is`, or `tokens `a`, `b` are`.
fn bound_to(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let is = if names.len() == 1 { "is" } else { "are" };
    format!("{} {is}", quoted.join(", "))
}

impl From<executions::Error> for Error {
    /// Errors that are not specific to calls map to the same error as elsewhere.
    fn from(error: executions::Error) -> Self {
        match error {
            executions::Error::Registry(error) => error.into(),
            executions::Error::InvalidArguments => {
                let loc = vec!["body".to_owned(), "arguments".to_owned()];
                Self::Validation { problems: vec![Problem { loc, msg: error.to_string(), kind: "dict_type" }] }
            }
            of_call => Self::Call(of_call),
        }
    }
}

impl From<tool_search::Error> for Error {
    fn from(error: tool_search::Error) -> Self {
        match error {
            tool_search::Error::ServerNotFound { key } => Self::Call(executions::Error::ServerNotFound { key }),
            tool_search::Error::SkillNotFound { key } => Self::SkillNotFound { key },
            tool_search::Error::InvalidSkill { problems } => {
                Self::Validation { problems: problems.into_iter().map(Problem::from).collect() }
            }
            tool_search::Error::Registry(error) => error.into(),
            other => Self::Internal { what: other.to_string() },
        }
    }
}

impl From<registry::Error> for Error {
    fn from(error: registry::Error) -> Self {
        match error {
            registry::Error::AlreadyExists { name } => Self::ServerAlreadyExists { name },
            registry::Error::NotFound { what: "server", key } => Self::Call(executions::Error::ServerNotFound { key }),
            registry::Error::NotFound { what: "execution", key } => {
                Self::Call(executions::Error::ExecutionNotFound { id: key })
            }
            registry::Error::NotFound { what: "binding", key } => Self::BindingNotFound { id: key },
            registry::Error::NotFound { what: "limit", key } => Self::LimitNotFound { key },
            other => Self::Registry(other),
        }
    }
}
