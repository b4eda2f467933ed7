//! Schemas of state, health, settings and the audit log.

use serde_json::json;
use service::SETTING_RANGES;

use super::moment;
use crate::schema::{Schema, TextPattern};

/// The state of the service.
pub(super) fn state() -> Schema {
    let states = Schema::object()
        .with("discovered", Schema::count())
        .with("classifying", Schema::count())
        .with("classified", Schema::count())
        .with("unclassified", Schema::count());
    Schema::object()
        .with("total_servers", Schema::count())
        .with("connected_servers", Schema::count().about("Includes degraded servers."))
        .with(
            "disconnected_servers",
            Schema::count().about("Servers that are neither connected nor failed; includes the next four."),
        )
        .with("connecting_servers", Schema::count())
        .with("asleep_servers", Schema::count().about("Lazy servers that are not running; they start when needed."))
        .with("disabled_servers", Schema::count())
        .with("sign_in_required_servers", Schema::count().about("Servers that a person must sign in to."))
        .with("error_servers", Schema::count())
        .with("total_tools", Schema::count().about("Tools of connected servers."))
        .with("classified_tools", Schema::count())
        .with("unclassified_tools", Schema::count())
        .with("tool_states", states.about("The number of tools in each state."))
        .with("last_sync", moment().or_null().about("The time of the last tool discovery."))
        .with("uptime_seconds", Schema::number())
        .with("executions_stopped", Schema::truth().about("Whether calls are refused until a reset."))
}

pub(super) fn service_health() -> Schema {
    let issue = Schema::object()
        .with(
            "component",
            Schema::one_of([
                "server",
                "database",
                "executions",
                "config",
                "tokens",
                "certificate",
                "settings",
                "tools",
                "vectors",
                "embeddings",
            ]),
        )
        .with("message", Schema::text())
        .with_optional("server_id", Schema::formatted("uuid"))
        .with_optional("server_name", Schema::text());
    let action = Schema::object()
        .with("component", Schema::one_of(["server"]))
        .with("server_id", Schema::formatted("uuid"))
        .with("server_name", Schema::text())
        .with("reason", Schema::one_of(["sign_in_required"]))
        .with("message", Schema::text())
        .with("command", Schema::text().about("The command that does it."));
    let check = || Schema::object().with("status", Schema::one_of(["ok", "failed"]));
    let vectors = check()
        .with("in_use", 
            Schema::one_of(["none", "table", "embedded", "qdrant"]).about(
                "Where vectors are compared now. With `table`, the model is missing or unreachable, and rough vectors of \
                 the word table are compared; with `none`, only words are.",
            ),
        )
        .with("address", Schema::text().or_null().about("The address of the configured vector store."))
        .with("points", Schema::count().or_null().about("The number of vectors in the store."));
    let checks = Schema::object()
        .with("database", check())
        .with("servers", check())
        .with("embeddings", check().about("Whether the embedding model is reachable, if one is configured."))
        .with("vectors", vectors);
    state()
        .with("status", Schema::one_of(["healthy", "degraded"]))
        .with("checks", checks)
        .with("issues", Schema::list(issue))
        .with(
            "action_required",
            Schema::list(action).about("What only a person can do. It does not make the service unhealthy."),
        )
}

/// The settings with their ranges.
pub(super) fn settings() -> Schema {
    each_setting().into_iter().fold(Schema::object(), |schema, (name, member)| schema.with(name, member))
}

/// The body that changes settings.
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
            "The timeout of calls from REST, the command line, documents and assistants, including time in the queue."
        }
        "mcp_timeout_ms" => "The timeout of calls from MCP clients; null means no limit.",
        "concurrent_limit" => {
            "How many calls from REST, the command line, documents and assistants may run at the same time."
        }
        "mcp_concurrent_limit" => "How many calls from MCP clients may run at the same time; -1 means no limit.",
        "queue_limit" => "How many calls may wait in the queue.",
        "session_limit" => "How many calls a document or an assistant may make in one session; -1 means no limit.",
        "health_check_interval_s" => "The interval between health checks of connected servers.",
        "health_check_timeout_ms" => "The timeout of a health check.",
        "failure_threshold" => "How often connecting to a server is retried before the server is disabled.",
        "idle_timeout_s" => {
            "How long a lazy server, or an instance for one identity or session, may be idle before it is stopped."
        }
        "keep_executions_days" => "Older executions are deleted.",
        "keep_executions" => "If there are more executions, the oldest are deleted.",
        "keep_audit_days" => "Older entries of the audit log are deleted.",
        "keep_audit" => "If the audit log has more entries, the oldest are deleted.",
        "keep_history_days" => "Older events in the history of servers are deleted.",
        "keep_history" => "If the history of a server has more events, the oldest are deleted.",
        "server_handshake_kb" => {
            "The maximum size of a server's response to `initialize` or `server/discover`, including instructions."
        }
        "server_instructions_kb" => "The maximum size of the instructions of one server.",
        "all_instructions_kb" => "The maximum size of the instructions of all servers, which every client gets.",
        "server_list_pages" => "The maximum number of pages of one list of a server.",
        "server_catalog_kb" => {
            "The maximum size of everything one server lists: tools, prompts, resources and templates."
        }
        "all_catalogs_kb" => "The maximum size of everything all servers list.",
        "server_notification_kb" => "The maximum size of a notification of a server; larger ones are dropped.",
        "server_requests_kb" => "The maximum size of all requests of one server that wait for a client's answer.",
        "server_message_kb" => "The maximum size of one message of a server, including results of calls.",
        "server_undelivered_kb" => "The maximum size of all undelivered large messages of one server.",
        "all_undelivered_kb" => "The maximum size of all undelivered large messages of all servers.",
        _ => "",
    };
    let numbers = SETTING_RANGES.into_iter().map(|(name, least, most, may_be_unlimited)| {
        let schema = Schema::integer(if may_be_unlimited { -1 } else { least }, most).about(about(name));
        (name, if name == "mcp_timeout_ms" { schema.or_null() } else { schema })
    });
    let pauses = Schema::list(Schema::count()).not_empty().about(
        "The delays before each further attempt to connect a server. A call that can be retried waits for the same \
         delays, and is retried at most once for each of them.",
    );
    let payloads = Schema::truth().about("Whether arguments and results are stored with executions.");
    let pinned = Schema::list(name_of_tool())
        .about("Tools that are always listed, even for clients that otherwise see only the search tools.");
    let learns = Schema::truth().about(
        "Whether what MCP clients call after a search lifts tools in their later searches. Turning it off deletes what was counted.",
    );
    let others = [
        ("retry_backoff_ms", pauses),
        ("store_payloads", payloads),
        ("pinned_tools", pinned),
        ("learn_from_use", learns),
    ];
    numbers.chain(others).collect()
}

fn name_of_tool() -> Schema {
    let pattern = TextPattern {
        pattern: "^[^\\u0000]+$",
        fits: |name| !name.is_empty() && !name.contains('\0'),
        message: "the full name of a tool, as in `server.tool`",
    };
    Schema::matching(pattern, 255)
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
