//! What comes and goes about the service as a whole: how it stands, its settings, and who changed what.

use serde_json::json;
use service::settings::RANGES;

use super::moment;
use crate::schema::{Schema, Shape};

/// How everything stands.
pub(super) fn state() -> Schema {
    let states = Schema::object()
        .with("discovered", Schema::count())
        .with("classifying", Schema::count())
        .with("classified", Schema::count())
        .with("unclassified", Schema::count());
    Schema::object()
        .with("total_servers", Schema::count())
        .with("connected_servers", Schema::count().about("Degraded ones included."))
        .with("disconnected_servers", Schema::count().about("Neither connected nor failed: the next three included."))
        .with("connecting_servers", Schema::count())
        .with("asleep_servers", Schema::count().about("They start when they are needed."))
        .with("disabled_servers", Schema::count())
        .with("error_servers", Schema::count())
        .with("total_tools", Schema::count().about("Of connected servers."))
        .with("classified_tools", Schema::count())
        .with("unclassified_tools", Schema::count())
        .with("tool_states", states.about("How many of them are how far."))
        .with("last_sync", moment().or_null().about("When tools were last discovered."))
        .with("uptime_seconds", Schema::number())
        .with("executions_stopped", Schema::truth().about("Whether calls are refused until a reset."))
}

pub(super) fn service_health() -> Schema {
    let issue = Schema::object()
        .with(
            "component",
            Schema::word(["server", "database", "executions", "config", "tokens", "vectors", "embeddings"]),
        )
        .with("message", Schema::text())
        .with_optional("server_id", Schema::formatted("uuid"))
        .with_optional("server_name", Schema::text());
    let check = || Schema::object().with("status", Schema::word(["ok", "failed"]));
    let vectors = check()
        .with("in_use", Schema::word(["none", "embedded", "qdrant"]).about("Where vectors are compared now."))
        .with("address", Schema::text().or_null().about("Where else they should be."))
        .with("points", Schema::count().or_null().about("How many are there."));
    let checks = Schema::object()
        .with("database", check())
        .with("servers", check())
        .with("embeddings", check().about("Whether the model that makes vectors can be asked, if there is one."))
        .with("vectors", vectors);
    state()
        .with("status", Schema::word(["healthy", "degraded"]))
        .with("checks", checks)
        .with("issues", Schema::list(issue))
}

/// The settings, with what each may be.
pub(super) fn settings() -> Schema {
    each_setting().into_iter().fold(Schema::object(), |schema, (name, member)| schema.with(name, member))
}

/// What may be changed about the settings.
pub(crate) fn changed_settings() -> Schema {
    each_setting()
        .into_iter()
        .fold(Schema::object(), |schema, (name, member)| schema.with_optional(name, member.or_null()))
        .and_no_more()
        .such_as(json!({"timeout_ms": 60_000}))
}

fn each_setting() -> Vec<(&'static str, Schema)> {
    let about = |name: &str| match name {
        "timeout_ms" => {
            "How long a call from REST, the command line, a document or an assistant may take, its turn waited for included."
        }
        "mcp_timeout_ms" => "The same for calls of MCP clients; null is no limit.",
        "concurrent_limit" => "How many calls from REST, the command line, documents and assistants may run at once.",
        "mcp_concurrent_limit" => "The same for calls of MCP clients; -1 is no limit.",
        "queue_limit" => "How many calls may wait for their turn.",
        "session_limit" => "How many calls a document or an assistant may make in one session; -1 is no limit.",
        "health_check_interval_s" => "How often connected servers are looked at.",
        "health_check_timeout_ms" => "How long a look may take.",
        "failure_threshold" => {
            "How often a server that could not be connected to is tried again before it is switched off."
        }
        "idle_timeout_s" => "How long a lazy server may be idle before it is stopped.",
        "keep_executions_days" => "Older executions are forgotten.",
        "keep_executions" => "More executions than this are forgotten, oldest first.",
        "keep_audit_days" => "Older rows of the audit log are deleted.",
        "keep_audit" => "More rows of the audit log than this are deleted, oldest first.",
        "keep_history_days" => "Older events in the histories of servers are deleted.",
        "keep_history" => "More events than this in the history of one server are deleted, oldest first.",
        "server_handshake_kb" => {
            "What a server may answer to `initialize` or `server/discover`, instructions included."
        }
        "server_instructions_kb" => "The instructions of one server.",
        "all_instructions_kb" => "The instructions of all servers, which every client gets.",
        "server_list_pages" => "Pages of one list of a server.",
        "server_catalog_kb" => "Everything one server lists: tools, prompts, resources and templates.",
        "all_catalogs_kb" => "Everything all servers list.",
        "server_notification_kb" => "One notification of a server; larger ones are dropped.",
        "server_requests_kb" => "All requests of one server that wait for a client's answer.",
        "server_message_kb" => "One message of a server, results of calls included.",
        "server_undelivered_kb" => "Large messages of one server that are not delivered yet.",
        "all_undelivered_kb" => "Large messages of all servers that are not delivered yet.",
        _ => "",
    };
    let numbers = RANGES.into_iter().map(|(name, least, most, may_be_unlimited)| {
        let schema = Schema::integer(if may_be_unlimited { -1 } else { least }, most).about(about(name));
        (name, if name == "mcp_timeout_ms" { schema.or_null() } else { schema })
    });
    let pauses =
        Schema::list(Schema::count()).not_empty().about("How long to wait before each further attempt to connect.");
    let payloads = Schema::truth().about("Whether arguments and results are kept with executions.");
    let pinned = Schema::list(name_of_tool()).about("Tools that clients see even where they see little else.");
    let others = [("retry_backoff_ms", pauses), ("store_payloads", payloads), ("pinned_tools", pinned)];
    numbers.chain(others).collect()
}

fn name_of_tool() -> Schema {
    let shape = Shape {
        pattern: "^[^\\u0000]+$",
        fits: |name| !name.is_empty() && !name.contains('\0'),
        says: "the full name of a tool, as in `server.tool`",
    };
    Schema::shaped(shape, 255)
}

pub(super) fn audit_record() -> Schema {
    Schema::object()
        .with("id", Schema::count())
        .with("timestamp", moment())
        .with("who", Schema::text().or_null().about("The name of the token."))
        .with("action", Schema::text().such_as("server.register"))
        .with("target", Schema::text().or_null())
        .with("details", Schema::anything())
}
