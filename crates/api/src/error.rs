//! What can go wrong, as HTTP tells it: a status, a stable code, a sentence, and what it is about.

use http::header::{ALLOW, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};
use service::{Error, Problem};

use crate::response::ApiResponse;

/// A way to fail, as the document tells of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorCode {
    pub(crate) code: &'static str,
    pub(crate) status: u16,
    pub(crate) about: &'static str,
}

/// Every code there is.
pub(crate) const ALL: &[ErrorCode] = &[
    error_code("VALIDATION_ERROR", 422, "what was sent makes no sense; `detail` lists what is wrong"),
    error_code("SERVER_NOT_FOUND", 404, "there is no such server"),
    error_code("SERVER_ALREADY_EXISTS", 409, "a server of that name exists"),
    error_code("SERVER_READ_ONLY", 409, "the server comes from the config file and is changed there"),
    error_code("TOOL_NOT_FOUND", 404, "there is no such tool"),
    error_code("SKILL_NOT_FOUND", 404, "there is no such skill, or it is switched off"),
    error_code("PROMPT_NOT_FOUND", 404, "there is no such prompt"),
    error_code("PROMPT_AMBIGUOUS", 400, "several servers have a prompt of that name; `context.candidates` lists them"),
    error_code("RESOURCE_NOT_FOUND", 404, "no server has such a resource"),
    error_code("TOOL_AMBIGUOUS", 400, "several servers have a tool of that name; `context.candidates` lists them"),
    error_code("SERVER_UNAVAILABLE", 503, "the server is not connected"),
    error_code("SESSION_NOT_FOUND", 503, "the server forgot us, and could not be reached again"),
    error_code("SERVER_CONNECTION_FAILED", 503, "the server could not be connected to"),
    error_code("EXECUTION_NOT_FOUND", 404, "there is no such execution"),
    error_code("BINDING_NOT_FOUND", 404, "there is no such binding"),
    error_code("DOCUMENT_NOT_FOUND", 404, "there is no such document, or none that may be seen"),
    error_code(
        "DOCUMENT_CHANGED",
        409,
        "the document is another than the one whose `version` was sent; nothing was run",
    ),
    error_code("DOCUMENT_NOT_WRITABLE", 409, "the document is there, but results cannot be written into it"),
    error_code("EXECUTION_FAILED", 502, "the server failed at the call; `context.error` is what it said"),
    error_code("EXECUTION_TIMEOUT", 504, "the call took too long"),
    error_code("EXECUTION_CANCELLED", 409, "somebody cancelled the call"),
    error_code("EXECUTION_STOPPED", 409, "executions are stopped until they are reset"),
    error_code("ASSISTANT_UNAVAILABLE", 503, "no model is configured that answers questions"),
    error_code("MODEL_FAILED", 502, "the model gave no answer; `detail` tells why"),
    error_code(
        "LIMIT_REACHED",
        429,
        "a limit is reached: calls, connections, documents, or wrong tokens from one address; `detail` says which",
    ),
    error_code("DATABASE_UNAVAILABLE", 503, "the database cannot be reached just now; try again"),
    error_code("CONFLICT", 409, "somebody else changed the same thing at the same time"),
    error_code("INTERNAL_ERROR", 500, "a defect of ours; the log tells more"),
    error_code("UNAUTHORIZED", 401, "no token was sent, or none that is known here"),
    error_code("FORBIDDEN", 403, "this host, this web page or this user of the machine is not served"),
    error_code("BAD_REQUEST", 400, "the request broke off or makes no sense as HTTP"),
    error_code("NOT_FOUND", 404, "nothing is at this path"),
    error_code("METHOD_NOT_ALLOWED", 405, "not with this method; `Allow` tells which"),
    error_code("REQUEST_TIMEOUT", 408, "the body of the request arrived too slowly"),
    error_code("PAYLOAD_TOO_LARGE", 413, "the request is too large"),
    error_code("UNSUPPORTED_MEDIA_TYPE", 415, "bodies are `application/json`"),
];

/// What any request may be answered with, whatever it asks for.
pub(crate) const EVERYWHERE: &[&str] =
    &["UNAUTHORIZED", "FORBIDDEN", "BAD_REQUEST", "LIMIT_REACHED", "DATABASE_UNAVAILABLE", "INTERNAL_ERROR"];

/// What any request with a body may be answered with.
pub(crate) const WITH_BODY: &[&str] =
    &["VALIDATION_ERROR", "REQUEST_TIMEOUT", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"];

const fn error_code(code: &'static str, status: u16, about: &'static str) -> ErrorCode {
    ErrorCode { code, status, about }
}

/// The way to fail with that code.
pub(crate) fn known(code: &str) -> Option<&'static ErrorCode> {
    ALL.iter().find(|known_error| known_error.code == code)
}

/// The answer to a request that could not be done.
pub(crate) fn answer(error: &Error) -> ApiResponse {
    if let Error::Validation { problems } = error {
        return invalid(problems);
    }
    let code = code_of(error);
    let status = known(code).map_or(500, |known_error| known_error.status);
    if status == 500 {
        tracing::error!(error = %describe(error), "a request could not be answered");
        return respond(status, code, "something went wrong here; the log tells more", &json!({}));
    }
    let mut answer = respond(status, code, &error.to_string(), &error.context());
    if let Error::LimitReached { .. } = error {
        answer.header(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

/// The same as a value, where an answer has begun already.
pub(crate) fn to_value(error: &Error) -> Value {
    if let Error::Validation { problems } = error {
        return json!({"detail": problems, "error_code": error.code(), "context": {"errors": problems}});
    }
    let detail = match known(code_of(error)) {
        Some(known_error) if known_error.status != 500 => error.to_string(),
        _ => {
            tracing::error!(error = %describe(error), "a request could not be answered to its end");
            "something went wrong here; the log tells more".to_owned()
        }
    };
    json!({"detail": detail, "error_code": code_of(error), "context": error.context()})
}

/// What contradicts what is kept, or cannot be kept, is no defect of ours.
fn code_of(error: &Error) -> &'static str {
    match error {
        Error::Registry(registry::Error::Conflict { .. }) => "CONFLICT",
        Error::Registry(registry::Error::Invalid { .. }) => "VALIDATION_ERROR",
        _ => error.code(),
    }
}

/// An error and what caused it.
fn describe(error: &Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}

/// The answer to what makes no sense.
pub(crate) fn invalid(problems: &[Problem]) -> ApiResponse {
    let detail = json!(problems);
    let body = json!({"detail": detail, "error_code": "VALIDATION_ERROR", "context": {"errors": detail}});
    ApiResponse::json(StatusCode::UNPROCESSABLE_ENTITY, &body)
}

/// The answer to a request that was refused before anybody looked at what it wants.
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

/// The answer to a method that is none of `allowed`.
pub(crate) fn not_allowed(allowed: &str) -> ApiResponse {
    let mut answer = respond(405, "METHOD_NOT_ALLOWED", &format!("not with this method; use {allowed}"), &json!({}));
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
            (Error::ServerNotFound { key: text() }, 404),
            (Error::ServerAlreadyExists { name: text() }, 409),
            (Error::ServerReadOnly { name: text() }, 409),
            (Error::ToolNotFound { name: text() }, 404),
            (Error::SkillNotFound { key: text() }, 404),
            (Error::PromptNotFound { name: text() }, 404),
            (Error::PromptAmbiguous { name: text(), candidates: vec!["a.b".to_owned()] }, 400),
            (Error::ResourceNotFound { uri: text() }, 404),
            (Error::ToolAmbiguous { name: text(), candidates: vec!["a.b".to_owned()] }, 400),
            (Error::ExecutionNotFound { id: text() }, 404),
            (
                Error::SessionNotFound {
                    server_id: text(),
                    name: text(),
                    status: registry::Status::Connected,
                    why: text(),
                },
                503,
            ),
            (Error::BindingNotFound { id: text() }, 404),
            (Error::DocumentNotFound { path: text(), why: text() }, 404),
            (Error::DocumentChanged { path: text() }, 409),
            (Error::DocumentNotWritable { path: text(), why: text() }, 409),
            (Error::ExecutionFailed { message: text(), context: serde_json::Map::new() }, 502),
            (Error::ExecutionTimeout { message: text(), context: serde_json::Map::new() }, 504),
            (Error::ExecutionCancelled { message: text(), context: serde_json::Map::new() }, 409),
            (Error::LimitReached { message: text(), context: serde_json::Map::new() }, 429),
            (Error::ExecutionStopped, 409),
            (Error::AssistantUnavailable { why: text() }, 503),
            (Error::ModelFailed { message: text() }, 502),
            (Error::Validation { problems: Vec::new() }, 422),
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
