//! Errors as HTTP responses: a status, a stable code, a message and a context.

use executions::Error as CallError;
use http::header::{ALLOW, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use registry::Role;
use serde_json::{Value, json};
use service::{Error, Problem};

use crate::response::ApiResponse;

/// An error code of the API, as documented.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorCode {
    pub(crate) code: &'static str,
    pub(crate) status: u16,
    pub(crate) about: &'static str,
}

/// Every error code.
pub(crate) const ALL: &[ErrorCode] = &[
    error_code("VALIDATION_ERROR", 422, "the request is invalid; `detail` lists what is wrong"),
    error_code("SERVER_NOT_FOUND", 404, "no server has this id or name"),
    error_code("SERVER_ALREADY_EXISTS", 409, "a server with this name already exists"),
    error_code("SERVER_READ_ONLY", 409, "the server is defined in the config file and must be changed there"),
    error_code("TOOL_NOT_FOUND", 404, "the tool does not exist"),
    error_code("PROFILE_NOT_FOUND", 404, "the profile does not exist"),
    error_code("PROFILE_READ_ONLY", 409, "the profile is defined in the config file and must be changed there"),
    error_code("PROFILE_IN_USE", 409, "tokens are bound to the profile; `context.bound` lists them"),
    error_code("SKILL_NOT_FOUND", 404, "the skill does not exist, or is disabled"),
    error_code("PROMPT_NOT_FOUND", 404, "the prompt does not exist"),
    error_code(
        "PROMPT_AMBIGUOUS",
        400,
        "several servers have a prompt with this name; `context.candidates` lists them",
    ),
    error_code("RESOURCE_NOT_FOUND", 404, "no server has this resource"),
    error_code("TOOL_AMBIGUOUS", 400, "several servers have a tool with this name; `context.candidates` lists them"),
    error_code("SERVER_UNAVAILABLE", 503, "the server is not connected"),
    error_code("SESSION_NOT_FOUND", 503, "the server ended the session, and a new one could not be established"),
    error_code("SERVER_CONNECTION_FAILED", 503, "connecting to the server failed"),
    error_code("EXECUTION_NOT_FOUND", 404, "the execution does not exist"),
    error_code("BINDING_NOT_FOUND", 404, "the binding does not exist"),
    error_code("LIMIT_NOT_FOUND", 404, "the limit does not exist"),
    error_code("DOCUMENT_NOT_FOUND", 404, "the document does not exist, or is not in the served folder"),
    error_code("DOCUMENT_CHANGED", 409, "the document changed since the `version` in the request; nothing was run"),
    error_code("DOCUMENT_NOT_WRITABLE", 409, "the document exists, but results cannot be written into it"),
    error_code("EXECUTION_FAILED", 502, "the call failed on the server; `context.error` is the server's error"),
    error_code("EXECUTION_TIMEOUT", 504, "the call timed out"),
    error_code("EXECUTION_CANCELLED", 409, "the call was cancelled"),
    error_code("EXECUTION_STOPPED", 409, "executions are stopped until `/executions/reset`"),
    error_code("ASSISTANT_UNAVAILABLE", 503, "no model is configured for the assistant"),
    error_code("MODEL_FAILED", 502, "the model returned no answer; `detail` has the reason"),
    error_code("SIGN_IN_NOT_SUPPORTED", 409, "this kind of server does not support sign-in"),
    error_code("SIGN_IN_FAILED", 502, "the sign-in could not be started; `detail` has the step and what to do"),
    error_code(
        "LIMIT_REACHED",
        429,
        "a limit is reached (calls, connections, documents, or wrong tokens from one address); `detail` says which",
    ),
    error_code("DATABASE_UNAVAILABLE", 503, "the database is unreachable; try again"),
    error_code(
        "CONFLICT",
        409,
        "another request changed the same object at the same time, or another program stored the same name",
    ),
    error_code("INTERNAL_ERROR", 500, "a bug in mcp-aggregator; the log has details"),
    error_code("UNAUTHORIZED", 401, "the request has no token, or an unknown one"),
    error_code(
        "FORBIDDEN",
        403,
        "the `Host`, the `Origin` or the local user of the request is not allowed, or the request goes beyond the \
         profile that the token is bound to",
    ),
    error_code(
        "ROLE_REQUIRED",
        403,
        "the role of the token or the identity does not suffice; `context.required` names one that does",
    ),
    error_code("BAD_REQUEST", 400, "the request is incomplete or is not valid HTTP"),
    error_code("NOT_FOUND", 404, "there is no endpoint at this path"),
    error_code("METHOD_NOT_ALLOWED", 405, "the endpoint does not support this method; `Allow` lists those it does"),
    error_code("REQUEST_TIMEOUT", 408, "the request body arrived too slowly"),
    error_code("PAYLOAD_TOO_LARGE", 413, "the request is too large"),
    error_code("UNSUPPORTED_MEDIA_TYPE", 415, "the body must be `application/json`"),
];

/// The codes that any request can fail with.
pub(crate) const EVERYWHERE: &[&str] =
    &["UNAUTHORIZED", "FORBIDDEN", "BAD_REQUEST", "LIMIT_REACHED", "DATABASE_UNAVAILABLE", "INTERNAL_ERROR"];

/// The codes that any request with a body can fail with.
pub(crate) const WITH_BODY: &[&str] =
    &["VALIDATION_ERROR", "REQUEST_TIMEOUT", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"];

const fn error_code(code: &'static str, status: u16, about: &'static str) -> ErrorCode {
    ErrorCode { code, status, about }
}

/// Finds an error code.
pub(crate) fn known(code: &str) -> Option<&'static ErrorCode> {
    ALL.iter().find(|known_error| known_error.code == code)
}

/// The response for an error of the service.
pub(crate) fn answer(error: &Error) -> ApiResponse {
    if let Error::Validation { problems } = error {
        return invalid(problems);
    }
    let code = code_of(error);
    let status = known(code).map_or(500, |known_error| known_error.status);
    if status == 500 {
        tracing::error!(error = %describe(error), "failed to answer a request");
        return respond(status, code, "internal error; see the log for details", &json!({}));
    }
    let mut answer = respond(status, code, &error.to_string(), &error.context());
    if let Error::Call(CallError::LimitReached { context, .. }) = error {
        let millis = context.get("retry_after_ms").and_then(Value::as_u64);
        answer.header(RETRY_AFTER, HeaderValue::from(millis.map_or(1, |millis| millis.div_ceil(1000))));
    }
    answer
}

/// The body of that response, for streams that have already started.
pub(crate) fn to_value(error: &Error) -> Value {
    if let Error::Validation { problems } = error {
        return json!({"detail": problems, "error_code": error.code(), "context": {"errors": problems}});
    }
    let detail = match known(code_of(error)) {
        Some(known_error) if known_error.status != 500 => error.to_string(),
        _ => {
            tracing::error!(error = %describe(error), "failed to complete a request");
            "internal error; see the log for details".to_owned()
        }
    };
    json!({"detail": detail, "error_code": code_of(error), "context": error.context()})
}

/// The code of an error. A conflict with stored data, or data that cannot be stored, is not an internal error.
fn code_of(error: &Error) -> &'static str {
    match error {
        Error::Registry(registry::Error::Conflict { .. } | registry::Error::ToolNameTaken { .. }) => "CONFLICT",
        Error::Registry(registry::Error::Invalid { .. }) => "VALIDATION_ERROR",
        _ => error.code(),
    }
}

/// An error with its causes.
fn describe(error: &Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The response to an invalid request.
pub(crate) fn invalid(problems: &[Problem]) -> ApiResponse {
    let detail = json!(problems);
    let body = json!({"detail": detail, "error_code": "VALIDATION_ERROR", "context": {"errors": detail}});
    ApiResponse::json(StatusCode::UNPROCESSABLE_ENTITY, &body)
}

/// The response to a request whose role does not suffice.
pub(crate) fn role_required(role: Role, required: Role) -> ApiResponse {
    let detail = format!("this needs the role `{required}`; yours is `{role}`");
    let context = json!({"required": required.as_str(), "role": role.as_str()});
    respond(403, "ROLE_REQUIRED", &detail, &context).needing(required)
}

/// The response to a request that was refused before it was routed.
pub(crate) fn refused(status: StatusCode, why: &str) -> ApiResponse {
    let code = match status.as_u16() {
        400 => "BAD_REQUEST",
        401 => "UNAUTHORIZED",
        403 => "FORBIDDEN",
        404 => "NOT_FOUND",
        408 => "REQUEST_TIMEOUT",
        413 => "PAYLOAD_TOO_LARGE",
        415 => "UNSUPPORTED_MEDIA_TYPE",
        429 => "LIMIT_REACHED",
        _ => "INTERNAL_ERROR",
    };
    respond(status.as_u16(), code, why, &json!({}))
}

/// The response to an unsupported method.
pub(crate) fn not_allowed(allowed: &str) -> ApiResponse {
    let mut answer =
        respond(405, "METHOD_NOT_ALLOWED", &format!("this method is not supported here; use {allowed}"), &json!({}));
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        answer.header(ALLOW, allowed);
    }
    answer
}

fn respond(status: u16, code: &str, detail: &str, context: &Value) -> ApiResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    ApiResponse::json(status, &json!({"detail": detail, "error_code": code, "context": context}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_the_service_has_a_status() {
        let text = String::new;
        for (error, status) in [
            (Error::Call(CallError::ServerNotFound { key: text() }), 404),
            (Error::ServerAlreadyExists { name: text() }, 409),
            (Error::ServerReadOnly { name: text() }, 409),
            (Error::Call(CallError::ToolNotFound { name: text() }), 404),
            (Error::SkillNotFound { key: text() }, 404),
            (Error::ProfileNotFound { name: text() }, 404),
            (Error::ProfileReadOnly { name: text() }, 409),
            (Error::ProfileInUse { name: text(), bound: vec!["ci".to_owned()] }, 409),
            (Error::BoundToProfile { profile: text() }, 403),
            (Error::BoundToNothing { principal: text(), profile: text() }, 403),
            (Error::PromptNotFound { name: text() }, 404),
            (Error::PromptAmbiguous { name: text(), candidates: vec!["a.b".to_owned()] }, 400),
            (Error::ResourceNotFound { uri: text() }, 404),
            (Error::Call(CallError::ToolAmbiguous { name: text(), candidates: vec!["a.b".to_owned()] }), 400),
            (Error::Call(CallError::ExecutionNotFound { id: text() }), 404),
            (
                Error::Call(CallError::SessionNotFound {
                    server_id: text(),
                    name: text(),
                    status: registry::Status::Connected,
                    why: text(),
                }),
                503,
            ),
            (Error::BindingNotFound { id: text() }, 404),
            (Error::LimitNotFound { key: text() }, 404),
            (Error::DocumentNotFound { path: text(), why: text() }, 404),
            (Error::DocumentChanged { path: text() }, 409),
            (Error::DocumentNotWritable { path: text(), why: text() }, 409),
            (Error::Call(CallError::ExecutionFailed { message: text(), context: serde_json::Map::new() }), 502),
            (Error::Call(CallError::ExecutionTimeout { message: text(), context: serde_json::Map::new() }), 504),
            (Error::Call(CallError::ExecutionCancelled { message: text(), context: serde_json::Map::new() }), 409),
            (Error::Call(CallError::LimitReached { message: text(), context: serde_json::Map::new() }), 429),
            (Error::Call(CallError::ExecutionStopped), 409),
            (Error::AssistantUnavailable { why: text() }, 503),
            (Error::ModelFailed { message: text() }, 502),
            (Error::SignInNotSupported { name: text(), why: text() }, 409),
            (Error::SignInFailed { name: text(), message: text() }, 502),
            (Error::Validation { problems: Vec::new() }, 422),
            (Error::Registry(registry::Error::ToolNameTaken { tool: text(), table: text() }), 409),
            (Error::Registry(registry::Error::WrongKey), 500),
        ] {
            assert_eq!(answer(&error).status().as_u16(), status, "{error:?}");
        }
    }

    #[test]
    fn what_can_happen_everywhere_is_known() {
        assert!(EVERYWHERE.iter().chain(WITH_BODY).all(|code| known(code).is_some()));
    }
}
