//! Errors of the REST API as messages for users, with hints.

use catalog::login_command;
use http::StatusCode;
use serde_json::Value;

use crate::admission::TOKEN_VARIABLE;
use crate::command_hint;
use crate::failure::Failure;
use crate::table::printable;

/// The failure for an error response.
pub(crate) fn describe(url: &str, status: StatusCode, body: &[u8]) -> Failure {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(code) = said["error_code"].as_str() else {
        return not_this_service(url, &format!("it returned HTTP {status}"));
    };
    let data = Some(said["context"].clone()).filter(|context| !context.is_null()).map(Box::new);
    let message = match code {
        // The rest of the hint is for users of REST.
        "EXECUTION_STOPPED" => "executions are stopped".to_owned(),
        _ => detail(&said["detail"]),
    };
    let hint = hint(code, &message, &said["context"]);
    let failure = Failure { kind: Some(code.to_owned()), data, ..Failure::new(message) };
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// Something that is not mcp-aggregator answered at this URL.
pub(crate) fn not_this_service(url: &str, what: &str) -> Failure {
    Failure::new(format!("{url} is not an mcp-aggregator service: {what}"))
        .with_hint("pass the URL that `mcp-aggregator serve` prints at start, such as http://127.0.0.1:8808")
}

/// A message, or all problems with a request, one per line.
fn detail(detail: &Value) -> String {
    let Value::Array(problems) = detail else { return text(detail) };
    let line = |problem: &Value| {
        let location = problem["loc"].as_array().into_iter().flatten().skip(1).map(text).collect::<Vec<_>>().join(".");
        let message = text(&problem["msg"]);
        // This prefix is not part of what the user typed.
        let location = location.strip_prefix("connection_config.").unwrap_or(&location);
        if location.is_empty() { message } else { format!("{location}: {message}") }
    };
    match problems.as_slice() {
        [only] => line(only),
        several => several
            .iter()
            .fold("the request is invalid".to_owned(), |lines, problem| format!("{lines}\n  {}", line(problem))),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| text.lines().map(printable).collect::<Vec<_>>().join("\n"))
}

/// The hint about a full disk.
pub(crate) const NO_ROOM: &str = "free space on the disk of the registry, then try again";

fn hint(code: &str, said: &str, context: &Value) -> Option<String> {
    let name = |key: &str| context[key].as_str().map(printable);
    match code {
        "UNAUTHORIZED" => Some(format!("set {TOKEN_VARIABLE}, or pass a file that contains the token with --token-file")),
        "SERVER_NOT_FOUND" => Some("`mcp-aggregator list` lists all servers".to_owned()),
        "SKILL_NOT_FOUND" => {
            let hint =
                "`mcp-aggregator skills` lists all skills, `mcp-aggregator skills suggestions` lists suggested ones";
            Some(hint.to_owned())
        }
        "SERVER_ALREADY_EXISTS" => name("name")
            .map(|name| format!("`mcp-aggregator show {name}` shows it, `add --replace` changes it, `mcp-aggregator remove {name}` removes it; to change a server of the config file, edit that file")),
        "SERVER_UNAVAILABLE" | "SERVER_CONNECTION_FAILED" if context["status"] == "sign_in_required" => {
            name("server_name").map(|name| format!("`{}` signs in to it", login_command(&name)))
        }
        "SERVER_UNAVAILABLE" if context["status"] == "disabled" => {
            name("server_name").map(|name| format!("`mcp-aggregator enable {name}` enables it"))
        }
        "SERVER_UNAVAILABLE" if context["status"] == "connecting" => name("server_name").map(|name| {
            format!("the first start may take a while; `mcp-aggregator show {name}` shows its status")
        }),
        "SERVER_UNAVAILABLE" => name("server_name").map(|name| format!("`mcp-aggregator connect {name}` connects it")),
        "SERVER_CONNECTION_FAILED" => {
            name("server_name").map(|name| format!("`mcp-aggregator history {name}` shows its connection history"))
        }
        "EXECUTION_STOPPED" => Some("`mcp-aggregator calls allow` allows them again".to_owned()),
        "EXECUTION_NOT_FOUND" => Some("`mcp-aggregator calls --json` lists the latest calls with their ids".to_owned()),
        "EXECUTION_TIMEOUT" if context["limit"] == "server" => name("server_name")
            .map(|name| format!("raise the `timeout` (milliseconds) in the configuration of server `{name}`")),
        "EXECUTION_TIMEOUT" => Some(longer(context)),
        "TOOL_NOT_FOUND" => Some("`mcp-aggregator tools` lists all tools".to_owned()),
        "DATABASE_UNAVAILABLE" if said.contains("disk of the database is full") => Some(NO_ROOM.to_owned()),
        "LIMIT_NOT_FOUND" => Some("`mcp-aggregator limits` lists all limits".to_owned()),
        // The message says when.
        "LIMIT_REACHED" if context["reason"] == "rate_limited" => None,
        "DATABASE_UNAVAILABLE" | "LIMIT_REACHED" => Some("try again in a moment".to_owned()),
        _ => None,
    }
}

/// The hint to double the timeout of a call.
fn longer(context: &Value) -> String {
    let millis = context["timeout_ms"].as_u64().unwrap_or(30_000).saturating_mul(2).min(86_400_000);
    let tool = format!("{}.{}", text(&context["server_name"]), text(&context["tool_name"]));
    format!(
        "`mcp-aggregator call --timeout {} {}` gives this call more time, `mcp-aggregator settings timeout_ms {millis}` \
         every call",
        millis.div_ceil(1000),
        command_hint::quoted(&tool),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> String {
        describe("http://x", StatusCode::NOT_FOUND, body.as_bytes()).to_string()
    }

    #[test]
    fn a_refusal_is_reported_with_what_to_do_about_it() {
        assert_eq!(
            said(r#"{"detail":"there is no server `a`","error_code":"SERVER_NOT_FOUND","context":{"server":"a"}}"#),
            "error: there is no server `a`\nhint: `mcp-aggregator list` lists all servers"
        );
        let problem = r#"{"loc":["body","name"],"msg":"too long","type":"x"}"#;
        let invalid = |problems: &str| {
            said(&format!(r#"{{"detail":[{problems}],"error_code":"VALIDATION_ERROR","context":{{}}}}"#))
        };
        assert_eq!(invalid(problem), "error: name: too long");
        assert_eq!(
            invalid(&format!("{problem},{problem}")),
            "error: the request is invalid\n  name: too long\n  name: too long"
        );
    }

    #[test]
    fn a_full_disk_is_not_mended_by_waiting() {
        let full = r#"{"detail":"could not register a server: the disk of the database is full","error_code":"DATABASE_UNAVAILABLE"}"#;
        assert!(said(full).ends_with("hint: free space on the disk of the registry, then try again"), "{}", said(full));
        assert!(said(r#"{"detail":"busy","error_code":"DATABASE_UNAVAILABLE"}"#).ends_with("try again in a moment"));
    }

    #[test]
    fn a_call_that_timed_out_is_reported_with_how_to_raise_the_limit() {
        let late = |context: &str| {
            said(&format!(r#"{{"detail":"too slow","error_code":"EXECUTION_TIMEOUT","context":{context}}}"#))
        };
        let hint = late(r#"{"server_name":"git","tool_name":"log","timeout_ms":30000}"#);
        assert!(hint.contains("`mcp-aggregator call --timeout 60 git.log`"), "{hint}");
        assert!(hint.contains("`mcp-aggregator settings timeout_ms 60000`"), "{hint}");
        let own = late(r#"{"server_name":"git","tool_name":"log","limit":"server"}"#);
        assert!(own.contains("`timeout` (milliseconds) in the configuration of server `git`"), "{own}");
    }

    #[test]
    fn another_program_at_the_address_is_recognised() {
        assert!(said("<html>").contains("is not an mcp-aggregator service: it returned HTTP 404"));
    }
}
