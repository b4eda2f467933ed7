//! Schemas of calls and executions.

use registry::{ExecutionStatus, Source};

use super::{moment, string_enum};
use crate::schema::{Schema, TextPattern};

/// The maximum length of a tool name.
const TOOL_NAME: usize = 8_000;
const DOCUMENT_PATH: usize = 4096;
/// Sessions are kept in memory, so their names must be short.
pub(super) const SESSION: usize = 255;

/// The body of a call.
pub(crate) fn call() -> Schema {
    let sources = Source::ALL.iter().filter(|source| **source != Source::Mcp).map(|source| source.as_str());
    let fits = |text: &str| !text.trim().is_empty() && !text.contains('\0');
    let name = || TextPattern {
        pattern: "^[^\\u0000]*[^\\s\\u0000][^\\u0000]*$",
        fits,
        message: "the name of a tool must not be empty",
    };
    Schema::object()
        .with_optional(
            "name",
            Schema::matching(name(), TOOL_NAME)
                .about("`server.tool`, or the tool's own name.")
                .such_as("github.search"),
        )
        .with_optional("tool_name", Schema::matching(name(), TOOL_NAME).about("An alias of `name`."))
        .with_either(&["name", "tool_name"])
        .with_optional("arguments", Schema::any_object().about("The arguments of the tool. Passed on byte for byte."))
        .with_optional("server_id", Schema::storable_text().or_null().about("The server, by id or name."))
        .with_optional("source", Schema::one_of(sources).by_default("rest").about("Where the call comes from."))
        .with_optional(
            "document_path",
            Schema::storable_text().at_most(DOCUMENT_PATH).or_null().about("The document that makes the call."),
        )
        .with_optional(
            "section_line",
            Schema::integer(0, i64::from(u32::MAX)).or_null().about("The line of the document that makes the call."),
        )
        .with_optional(
            "session",
            Schema::storable_text()
                .at_most(SESSION)
                .or_null()
                .about("The session of a document or an assistant that the call belongs to."),
        )
        .with_optional(
            "timeout_ms",
            Schema::integer(1, 86_400_000)
                .or_null()
                .about("The timeout of this call, instead of the one in the settings."),
        )
        .and_no_more()
}

fn metadata() -> Schema {
    Schema::object()
        .with("execution_id", Schema::formatted("uuid"))
        .with("routed_to", Schema::text().about("The name of the server."))
        .with("server_id", Schema::formatted("uuid"))
        .with("routing_strategy", Schema::one_of(["namespace_resolved", "server_specified", "original_name"]))
        .with("queue_time_ms", Schema::number().about("Time in the queue."))
        .with("routing_time_ms", Schema::number().about("Time from leaving the queue until the request is sent."))
        .with("execution_time_ms", Schema::number())
        .with("total_time_ms", Schema::number())
}

pub(super) fn result() -> Schema {
    Schema::object()
        .with_optional("content", Schema::anything().about("As the server sent it."))
        .with_optional(
            "isError",
            Schema::anything().about(
                "Whether the tool failed, as the server sent it. Always present; false if the server does not send it.",
            ),
        )
        .with_optional("structuredContent", Schema::anything().about("As the server sent it."))
        .with_optional("metadata", Schema::either([metadata(), Schema::anything()]).about("How the call was routed."))
        .with_optional(
            "_aggregator",
            metadata().about("How the call was routed, if the server's result already has a member `metadata`."),
        )
}

pub(super) fn execution() -> Schema {
    Schema::object()
        .with("id", Schema::formatted("uuid"))
        .with("server_id", Schema::formatted("uuid").or_null())
        .with("server_name", Schema::text())
        .with("tool_name", Schema::text())
        .with("source", string_enum!(Source))
        .with("caller", Schema::text().or_null().about("The name of the token that made the call."))
        .with(
            "client",
            Schema::text().or_null().about("The name of the MCP client that made the call, as the client reports it."),
        )
        .with("document_path", Schema::text().or_null())
        .with("section_line", Schema::count().or_null())
        .with("status", string_enum!(ExecutionStatus))
        .with("submitted_at", moment())
        .with("started_at", moment().or_null())
        .with("completed_at", moment().or_null())
        .with("duration_ms", Schema::number().or_null())
        .with("retries", Schema::count())
        .with("error_message", Schema::text().or_null())
        .with("request_id", Schema::text().or_null().about("The request id of the MCP client, as JSON."))
        .with(
            "request_bytes",
            Schema::count().or_null().about("The size of the request in bytes, whether it is stored or not."),
        )
        .with(
            "response_bytes",
            Schema::count().or_null().about("The size of the response in bytes, whether it is stored or not."),
        )
        .with("arguments", Schema::anything().about("Only if storing them is enabled."))
        .with("result", Schema::anything().about("Only if storing them is enabled."))
}

pub(super) fn stopped() -> Schema {
    Schema::object()
        .with("stopped", Schema::truth().about("Whether new calls are refused."))
        .with("cancelled", Schema::count().about("The number of cancelled calls."))
}
