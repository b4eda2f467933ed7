//! What comes and goes about calls, and the account of them.

use registry::{ExecutionStatus, Source};

use super::{moment, words};
use crate::schema::{Schema, Shape};

/// No tool has a longer name.
const TOOL_NAME: usize = 8_000;
const DOCUMENT_PATH: usize = 4096;
/// So many sessions are remembered that their names must be short.
pub(super) const SESSION: usize = 255;

/// A call to be made.
pub(crate) fn call() -> Schema {
    let sources = Source::ALL.iter().filter(|source| **source != Source::Mcp).map(|source| source.as_str());
    let fits = |text: &str| !text.trim().is_empty() && !text.contains('\0');
    let name =
        || Shape { pattern: "^[^\\u0000]*[^\\s\\u0000][^\\u0000]*$", fits, says: "the name of a tool is not empty" };
    Schema::object()
        .with_optional(
            "name",
            Schema::shaped(name(), TOOL_NAME).about("`server.tool`, or the tool's own name.").such_as("github.search"),
        )
        .with_optional("tool_name", Schema::shaped(name(), TOOL_NAME).about("The same as `name`."))
        .with_either(&["name", "tool_name"])
        .with_optional("arguments", Schema::any_object().about("What the tool takes. Passed on byte for byte."))
        .with_optional("server_id", Schema::kept_text().or_null().about("The server, by id or name."))
        .with_optional("source", Schema::word(sources).by_default("rest").about("Which way the call came."))
        .with_optional(
            "document_path",
            Schema::kept_text().at_most(DOCUMENT_PATH).or_null().about("The document the call is made from."),
        )
        .with_optional("section_line", Schema::integer(0, i64::from(u32::MAX)).or_null().about("The line in it."))
        .with_optional(
            "session",
            Schema::kept_text()
                .at_most(SESSION)
                .or_null()
                .about("The session of a document or an assistant that the call counts for."),
        )
        .with_optional(
            "timeout_ms",
            Schema::integer(1, 86_400_000).or_null().about("Another limit than that of the settings."),
        )
        .and_no_more()
}

fn metadata() -> Schema {
    Schema::object()
        .with("execution_id", Schema::formatted("uuid"))
        .with("routed_to", Schema::text().about("The name of the server."))
        .with("server_id", Schema::formatted("uuid"))
        .with("routing_strategy", Schema::word(["namespace_resolved", "server_specified", "original_name"]))
        .with("queue_time_ms", Schema::number().about("Waiting for its turn."))
        .with("routing_time_ms", Schema::number().about("From its turn to the server."))
        .with("execution_time_ms", Schema::number())
        .with("total_time_ms", Schema::number())
}

pub(super) fn result() -> Schema {
    Schema::object()
        .with_optional("content", Schema::anything().about("As the server sent it."))
        .with_optional(
            "isError",
            Schema::anything()
                .about("As the server sent it: true if the tool says that it failed. Always there; false where the server says nothing."),
        )
        .with_optional("structuredContent", Schema::anything().about("As the server sent it."))
        .with_optional("metadata", Schema::either([metadata(), Schema::anything()]).about("How the call got there."))
        .with_optional(
            "_aggregator",
            metadata().about("How the call got there, if the server's result has a `metadata` of its own."),
        )
}

pub(super) fn execution() -> Schema {
    Schema::object()
        .with("id", Schema::formatted("uuid"))
        .with("server_id", Schema::formatted("uuid").or_null())
        .with("server_name", Schema::text())
        .with("tool_name", Schema::text())
        .with("source", words!(Source))
        .with("caller", Schema::text().or_null().about("The name of the token it was made with."))
        .with("client", Schema::text().or_null().about("What the MCP client that made it calls itself."))
        .with("document_path", Schema::text().or_null())
        .with("section_line", Schema::count().or_null())
        .with("status", words!(ExecutionStatus))
        .with("submitted_at", moment())
        .with("started_at", moment().or_null())
        .with("completed_at", moment().or_null())
        .with("duration_ms", Schema::number().or_null())
        .with("retries", Schema::count())
        .with("error_message", Schema::text().or_null())
        .with("request_id", Schema::text().or_null().about("The id that its MCP client gave it, as JSON."))
        .with("request_bytes", Schema::count().or_null().about("How long the request was, kept or not."))
        .with("response_bytes", Schema::count().or_null().about("How long the server's answer was, kept or not."))
        .with("arguments", Schema::anything().about("Only where keeping them is switched on."))
        .with("result", Schema::anything().about("Only where keeping them is switched on."))
}

pub(super) fn stopped() -> Schema {
    Schema::object()
        .with("stopped", Schema::truth().about("Whether new calls are refused."))
        .with("cancelled", Schema::count().about("Calls that were cancelled."))
}
