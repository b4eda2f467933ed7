//! What comes and goes, by name: the schemas of the document. Those about documents that run tools are in `documents`.

pub(crate) mod documents;

use registry::{Deployment, EventKind, ExecutionStatus, Origin, SectionKind, Source, Status, Transport};
use serde_json::json;
use service::finding::{SkillOrigin, Strategy};
use service::settings::RANGES;

use crate::schema::{Schema, Shape};

/// Longer texts than this are nothing anybody reads.
const DESCRIPTION: usize = 10_000;
const ADDRESS: usize = 8_000;
const QUERY: usize = 8_000;

macro_rules! words {
    ($name:ident) => {
        Schema::word($name::ALL.iter().map(|word| word.as_str()))
    };
}

/// Every schema that has a name.
pub(crate) fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("Server", server()),
        ("Tool", tool()),
        ("FoundTool", found_tool()),
        ("Findings", findings()),
        ("Skill", skill()),
        ("Health", server_health()),
        ("HistoryEvent", history_event()),
        ("TestReport", test_report()),
        ("Result", result()),
        ("Execution", execution()),
        ("Binding", binding()),
        ("Stopped", stopped()),
        ("State", state()),
        ("ServiceHealth", service_health()),
        ("Settings", settings()),
        ("AuditRecord", audit_record()),
        ("Registry", backup()),
        ("ImportReport", import_report()),
        ("Problem", problem()),
        ("Error", error()),
    ]
    .into_iter()
    .chain(documents::all())
    .collect()
}

/// What a name may be.
fn name() -> Schema {
    let fits = |name: &str| {
        let mut letters = name.bytes();
        letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"_-".contains(&letter))
    };
    let says = "a name begins with a letter and has only lower-case letters, digits, `_` and `-`";
    Schema::shaped(Shape { pattern: "^[a-z][a-z0-9_-]*$", fits, says }, 255).such_as("github")
}

fn moment() -> Schema {
    Schema::formatted("date-time")
}

fn connection_config() -> Schema {
    Schema::any_object()
        .about(
            "Where and with what. `stdio` needs `command` and may have `args`, `env` and `cwd`; `sse` needs `url`; \
             `http` needs `url` or `base_url`; both may have `headers`. Any may have `docker` instead, and runs in a \
             container of ours; and `timeout` (milliseconds for a \
             call), `era` (legacy, modern) and `lazy`. `${VAR}` is kept as written and filled in when connecting. It \
             is kept encrypted; secrets are shown as `***`, and what is sent back as `***` stays as it was.",
        )
        .with_either(&["command", "url", "base_url", "docker"])
        .may_have("command", Schema::kept_text().about("The program that is started."))
        .may_have("args", Schema::list(Schema::kept_text()))
        .may_have("env", Schema::any_object().about("Texts by the names of variables."))
        .may_have("cwd", Schema::kept_text())
        .may_have("url", address())
        .may_have("base_url", address())
        .may_have("headers", Schema::any_object().about("Texts by the names of headers."))
        .may_have("docker", docker())
        .may_have("timeout", Schema::integer(1, 86_400_000).about("Milliseconds that a call may take."))
        .may_have("era", Schema::word(["legacy", "modern"]))
        .may_have("lazy", Schema::truth().about("It starts when it is needed."))
        .such_as(json!({"command": "npx", "args": ["-y", "some-server"], "env": {"TOKEN": "${TOKEN}"}}))
}

/// A container to be made. What its members mean is checked where they are read.
fn docker() -> Schema {
    Schema::any_object()
        .about(
            "A container to be made for it: `image`; may have `containerName`, `command` (instead of the image's entry \
             point), `args`, `env`, `ports` (`[8080]` or `{\"8080\": 18080}`; needed for `sse` and `http`), `path` (where \
             it answers), `volumes` (`[\"/here:/inside:ro\"]`), `network` (none for `stdio` unless said), `memory` \
             (`512m`), `cpus`, `user`, `pull` (never, missing, always) and `readOnly`.",
        )
        .with("image", Schema::kept_text().about("The image."))
}

fn deployment() -> Schema {
    words!(Deployment).about("Who runs it. Follows from the rest, and is refused where it does not fit.")
}

/// An address that may be written with variables.
fn address() -> Schema {
    let shape = Shape {
        pattern: "^([hH][tT][tT][pP][sS]?://|\\$)[^\\u0000]*$",
        fits: |text| (is_address(text) || text.starts_with('$')) && !text.contains('\0'),
        says: "an address begins with http:// or https://",
    };
    Schema::shaped(shape, ADDRESS)
}

fn is_address(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.starts_with("http://") || text.starts_with("https://")
}

fn transport() -> Schema {
    words!(Transport).about("How it is reached. Any case is read.")
}

fn health_check_url() -> Schema {
    let shape = Shape {
        pattern: "^[hH][tT][tT][pP][sS]?://[^\\u0000]*$",
        fits: |text| is_address(text) && !text.contains('\0'),
        says: "an address begins with http:// or https://",
    };
    Schema::shaped(shape, ADDRESS).or_null().about("Asked by GET whether the server is well, instead of itself.")
}

/// A server to be registered.
pub(crate) fn registration() -> Schema {
    Schema::object()
        .with("name", name().about("Unique."))
        .may_have("description", Schema::kept_text().at_most(DESCRIPTION).or_null().about("What it is for."))
        .with("transport_type", transport())
        .may_have("deployment_type", deployment())
        .with("connection_config", connection_config())
        .may_have("health_check_url", health_check_url())
        .may_have("auto_connect", Schema::truth().by_default(true).about("Connect without being asked."))
        .may_have("enabled", Schema::truth().by_default(true).about("It may be connected."))
        .and_no_more()
}

/// A server to be tried.
pub(crate) fn trial() -> Schema {
    Schema::object()
        .may_have("name", name())
        .with("transport_type", transport())
        .with("connection_config", connection_config())
        .may_have(
            "description",
            Schema::anything().about("As in a registration; not looked at, like all that follows."),
        )
        .may_have("deployment_type", Schema::anything())
        .may_have("health_check_url", Schema::anything())
        .may_have("auto_connect", Schema::anything())
        .may_have("enabled", Schema::anything())
        .and_no_more()
}

/// What is to be different about a server.
pub(crate) fn update() -> Schema {
    Schema::object()
        .may_have("name", name().about("Its tools are renamed with it."))
        .may_have("description", Schema::kept_text().at_most(DESCRIPTION).or_null())
        .may_have("transport_type", transport())
        .may_have("deployment_type", deployment())
        .may_have("connection_config", connection_config())
        .may_have("health_check_url", health_check_url())
        .may_have("auto_connect", Schema::truth())
        .may_have("enabled", Schema::truth())
        .and_no_more()
}

/// Whether calls in flight are cancelled instead of waited for.
pub(crate) fn force() -> Schema {
    Schema::truth().by_default(false).about("Cancel calls in flight instead of waiting for them, up to 30 s.")
}

/// A call to be made.
pub(crate) fn call() -> Schema {
    let sources = Source::ALL.iter().filter(|source| **source != Source::Mcp).map(|source| source.as_str());
    Schema::object()
        .may_have("name", Schema::kept_text().about("`server.tool`, or the tool's own name.").such_as("github.search"))
        .may_have("tool_name", Schema::kept_text().about("The same as `name`."))
        .with_either(&["name", "tool_name"])
        .may_have("arguments", Schema::any_object().about("What the tool takes. Passed on byte for byte."))
        .may_have("server_id", Schema::kept_text().or_null().about("The server, by id or name."))
        .may_have("source", Schema::word(sources).by_default("rest").about("Which way the call came."))
        .may_have("document_path", Schema::kept_text().or_null().about("The document the call is made from."))
        .may_have("section_line", Schema::integer(0, i64::from(u32::MAX)).or_null().about("The line in it."))
        .may_have(
            "session",
            Schema::kept_text().or_null().about("The session of a document or an assistant that the call counts for."),
        )
        .may_have(
            "timeout_ms",
            Schema::integer(1, 86_400_000).or_null().about("Another limit than that of the settings."),
        )
        .and_no_more()
}

/// A server as it is shown.
pub(crate) fn server() -> Schema {
    Schema::object()
        .with("id", Schema::formatted("uuid").about("Its id, for ever."))
        .with("name", Schema::text().about("Its name, for now."))
        .with("description", Schema::text().or_null())
        .with("transport_type", words!(Transport))
        .with("connection_config", Schema::any_object().about("Without its secrets."))
        .with("health_check_url", Schema::text().or_null())
        .with("deployment_type", words!(Deployment).about("Who runs it: we, or somebody else."))
        .with("origin", words!(Origin).about("How it came here. What the config file says is changed there."))
        .with("status", words!(Status))
        .with("enabled", Schema::truth().about("Whether it may be connected."))
        .with("auto_connect", Schema::truth().about("Whether it is connected without being asked."))
        .with("auto_disabled", Schema::truth().about("Whether too many failures switched it off."))
        .with("failure_count", Schema::count().about("Failures in a row."))
        .with("tool_count", Schema::count())
        .with("error_message", Schema::text().or_null().about("What is wrong."))
        .with("server_info", Schema::anything().about("What it says about itself."))
        .with("last_health_check", moment().or_null())
        .with("last_connected_at", moment().or_null())
        .with("connected_at", moment().or_null().about("Since when it is connected."))
        .with("registered_at", moment())
        .with("updated_at", moment())
        .with("next_retry_at", moment().or_null().about("When the next attempt to connect is made."))
        .with("lazy", Schema::truth().about("It starts when it is needed."))
        .with("container", container().or_null())
        .with(
            "progress",
            Schema::text().or_null().about("What has to be done before it can start, and how far that is."),
        )
        .may_have("tools", Schema::list(Schema::named("Tool")).about("Where they were asked for or just discovered."))
}

/// The container of a server.
fn container() -> Schema {
    Schema::object()
        .with("id", Schema::text().about("Its id at the engine."))
        .with("name", Schema::text().about("Its name at the engine."))
        .with("image", Schema::text())
        .with("image_digest", Schema::text().about("Which image exactly."))
        .with("cpu_percent", Schema::number().or_null().about("Of one processor. Only where that is asked for."))
        .with("memory_bytes", Schema::number().or_null().about("Only where that is asked for."))
        .with("memory_limit_bytes", Schema::number().or_null())
}

/// A tool.
pub(crate) fn tool() -> Schema {
    Schema::object()
        .with("id", Schema::integer(0, i64::MAX))
        .with("name", Schema::text().about("`server.tool`."))
        .with("original_name", Schema::text().about("The name its server gave it."))
        .with("server_id", Schema::formatted("uuid"))
        .with("server_name", Schema::text())
        .with("description", Schema::text().or_null())
        .with("input_schema", Schema::anything().about("A JSON Schema, as the server wrote it."))
        .with("is_external", Schema::truth())
        .with("enabled", Schema::truth())
        .with("is_classified", Schema::truth().about("Whether its skills are known."))
        .with("skill_ids", Schema::list(Schema::text()).about("What it is good for, the best first."))
        .with("skill_confidences", Schema::list(Schema::number()).about("How certain each of these is, from 0 to 1."))
        .with("primary_skill_id", Schema::text().or_null().about("What it is best at."))
        .with("position", Schema::count().about("Its place in its server's list."))
}

/// What can be looked for.
pub(crate) fn search() -> Schema {
    let fits = |text: &str| !text.trim().is_empty();
    let query = Shape { pattern: "\\S", fits, says: "say in some words what you want to do" };
    Schema::object()
        .with(
            "query",
            Schema::shaped(query, QUERY).about("What you want to do, in plain words.").such_as("create an issue"),
        )
        .may_have("limit", Schema::integer(1, 1000).by_default(10).about("At most so many."))
        .may_have("server_filter", Schema::list(Schema::kept_text()).about("Only of these servers, by id or name."))
        .may_have(
            "skill_filter",
            Schema::list(Schema::kept_text()).about("Only with one of these skills, by id or name."),
        )
        .may_have("strategy", words!(Strategy).by_default("direct").about("Among all tools, or skills first."))
        .may_have(
            "skill_threshold",
            Schema::number().by_default(0.1).about("Skills lead to tools if they score at least so much, from 0 to 1."),
        )
        .may_have("threshold", Schema::number().by_default(0).about("Only what scores at least so much, from 0 to 1."))
        .may_have("include_schemas", Schema::truth().by_default(false).about("With what each tool takes."))
        .may_have("include_external", Schema::truth().by_default(true).about("Tools of servers; all tools are."))
}

fn found_tool() -> Schema {
    let source = Schema::object()
        .with("id", Schema::formatted("uuid"))
        .with("name", Schema::text())
        .with("status", words!(Status));
    let why = Schema::object()
        .with("matched_words", Schema::list(Schema::text()).about("The words of the request that it has."))
        .with("lexical_score", Schema::number().about("How well its words fit, from 0 to 1."))
        .with("vector_score", Schema::number().or_null().about("How near its meaning is, from 0 to 1."));
    Schema::object()
        .with("name", Schema::text().about("`server.tool`."))
        .with("original_name", Schema::text().about("The name its server gave it."))
        .with("description", Schema::text().or_null())
        .with("score", Schema::number().about("How well it fits, from 0 to 1."))
        .with("source_server", source)
        .with("skill_ids", Schema::list(Schema::text()))
        .with("skill_confidences", Schema::list(Schema::number()).about("How certain each of these is, from 0 to 1."))
        .with("primary_skill_id", Schema::text().or_null())
        .with("is_classified", Schema::truth())
        .with("why", why)
        .may_have("input_schema", Schema::anything().about("A JSON Schema, as the server wrote it."))
}

fn findings() -> Schema {
    let matched = Schema::object()
        .with("id", Schema::text())
        .with("name", Schema::text())
        .with("score", Schema::number().about("How well it fits, from 0 to 1."));
    let metadata = Schema::object()
        .with("strategy", words!(Strategy).about("`direct` where no skill led anywhere."))
        .with("by_meaning", Schema::truth().about("Whether meanings were compared, or words alone."))
        .with("vectors", Schema::text().or_null().about("Where meanings were compared: `embedded` or `qdrant`."))
        .with("servers_searched", Schema::count())
        .with("total_tools_searched", Schema::count())
        .with("tools_without_vectors", Schema::count().about("Found by words alone for now."))
        .with("embedding_time_ms", Schema::number())
        .with("search_time_ms", Schema::number())
        .with("total_time_ms", Schema::number());
    Schema::object()
        .with("query", Schema::text())
        .with("tools", Schema::list(Schema::named("FoundTool")))
        .with("matched_skills", Schema::list(matched).about("Those that led to the tools; none in a direct search."))
        .with("metadata", metadata)
}

/// A skill as it is shown.
fn skill() -> Schema {
    Schema::object()
        .with("id", Schema::text().about("For ever."))
        .with("name", Schema::text())
        .with("description", Schema::text().about("What its tools do."))
        .with("examples", Schema::list(Schema::text()).about("Things one would ask its tools for."))
        .with("enabled", Schema::truth().about("Whether tools may have it."))
        .with("origin", words!(SkillOrigin).about("Whether it comes with the program, from a file, or was made here."))
        .with("is_changed", Schema::truth().about("Whether it was changed or made here."))
        .with("tool_count", Schema::count().about("Tools of connected servers that are good for it."))
        .with("primary_tool_count", Schema::count().about("Those of them that are best at it."))
}

/// A skill that a classifier missed.
pub(crate) fn suggestion() -> Schema {
    Schema::object()
        .with("id", Schema::text())
        .with("name", Schema::text())
        .with("description", Schema::text().about("What its tools would do."))
        .with("tools", Schema::list(Schema::text()).about("Some that would have it, as `server.tool`."))
        .with("rejected", Schema::truth())
        .with("suggested_at", moment())
}

/// What a skill is to be.
pub(crate) fn changed_skill() -> Schema {
    Schema::object()
        .may_have("name", Schema::kept_text().at_most(100).about("For people. A new skill needs one."))
        .may_have("description", Schema::kept_text().at_most(2000).about("What its tools do. A new skill needs one."))
        .may_have("examples", Schema::list(Schema::kept_text().at_most(500)).about("50 at most."))
        .may_have("enabled", Schema::truth().about("Whether tools may have it; a new one is enabled."))
        .and_no_more()
        .such_as(json!({"name": "Beekeeping", "description": "Hives and honey", "examples": ["count the bees"]}))
}

fn server_health() -> Schema {
    Schema::object()
        .with("server_id", Schema::formatted("uuid"))
        .with("name", Schema::text())
        .with("status", words!(Status))
        .with("is_healthy", Schema::truth())
        .with("last_check", moment().or_null())
        .with("latency_ms", Schema::number().or_null())
        .with("consecutive_failures", Schema::count())
        .with("failure_count", Schema::count())
        .with("next_retry_at", moment().or_null())
        .with("error_message", Schema::text().or_null())
        .with("warning", Schema::text().or_null().about("What is odd, such as a health address that answers 404."))
}

fn history_event() -> Schema {
    Schema::object()
        .with("id", Schema::count())
        .with("server_id", Schema::formatted("uuid"))
        .with("event_type", words!(EventKind))
        .with("details", Schema::anything().about("The states before and after, and what else was told."))
        .with("timestamp", moment())
}

fn test_report() -> Schema {
    Schema::object()
        .with("success", Schema::truth())
        .with("duration_ms", Schema::number())
        .with("server_info", Schema::anything().about("Who it is, as it says itself."))
        .with("tools", Schema::list(Schema::text()).about("The names of its tools."))
        .with("error", Schema::text().or_null().about("What went wrong, with the end of its stderr."))
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

fn result() -> Schema {
    Schema::object()
        .may_have("content", Schema::anything().about("As the server sent it."))
        .may_have("isError", Schema::anything().about("As the server sent it: true if the tool says that it failed."))
        .may_have("structuredContent", Schema::anything().about("As the server sent it."))
        .may_have("metadata", Schema::either([metadata(), Schema::anything()]).about("How the call got there."))
        .may_have(
            "_aggregator",
            metadata().about("How the call got there, if the server's result has a `metadata` of its own."),
        )
}

fn execution() -> Schema {
    Schema::object()
        .with("id", Schema::formatted("uuid"))
        .with("server_id", Schema::formatted("uuid").or_null())
        .with("server_name", Schema::text())
        .with("tool_name", Schema::text())
        .with("source", words!(Source))
        .with("caller", Schema::text().or_null().about("The name of the token it was made with."))
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

fn stopped() -> Schema {
    Schema::object()
        .with("stopped", Schema::truth().about("Whether new calls are refused."))
        .with("cancelled", Schema::count().about("Calls that were cancelled."))
}

/// How everything stands.
fn state() -> Schema {
    Schema::object()
        .with("total_servers", Schema::count())
        .with("connected_servers", Schema::count().about("Degraded ones included."))
        .with("disconnected_servers", Schema::count())
        .with("error_servers", Schema::count())
        .with("total_tools", Schema::count().about("Of connected servers."))
        .with("classified_tools", Schema::count())
        .with("unclassified_tools", Schema::count())
        .with("last_sync", moment().or_null().about("When tools were last discovered."))
        .with("uptime_seconds", Schema::number())
        .with("executions_stopped", Schema::truth().about("Whether calls are refused until a reset."))
}

fn service_health() -> Schema {
    let issue = Schema::object()
        .with("component", Schema::word(["server", "database", "executions", "config", "vectors"]))
        .with("message", Schema::text())
        .may_have("server_id", Schema::formatted("uuid"))
        .may_have("server_name", Schema::text());
    let check = || Schema::object().with("status", Schema::word(["ok", "failed"]));
    let vectors = check()
        .with("in_use", Schema::word(["none", "embedded", "qdrant"]).about("Where vectors are compared now."))
        .with("address", Schema::text().or_null().about("Where else they should be."))
        .with("points", Schema::count().or_null().about("How many are there."));
    state()
        .with("status", Schema::word(["healthy", "degraded"]))
        .with("checks", Schema::object().with("database", check()).with("servers", check()).with("vectors", vectors))
        .with("issues", Schema::list(issue))
}

/// The settings, with what each may be.
fn settings() -> Schema {
    each_setting().into_iter().fold(Schema::object(), |schema, (name, member)| schema.with(name, member))
}

/// What may be changed about the settings.
pub(crate) fn changed_settings() -> Schema {
    each_setting()
        .into_iter()
        .fold(Schema::object(), |schema, (name, member)| schema.may_have(name, member.or_null()))
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

fn audit_record() -> Schema {
    Schema::object()
        .with("id", Schema::count())
        .with("timestamp", moment())
        .with("who", Schema::text().or_null().about("The name of the token."))
        .with("action", Schema::text().such_as("server.register"))
        .with("target", Schema::text().or_null())
        .with("details", Schema::anything())
}

/// A binding to be made.
pub(crate) fn new_binding() -> Schema {
    let line = || Schema::integer(1, i64::from(i32::MAX)).or_null();
    Schema::object()
        .with(
            "document",
            Schema::kept_text().about(
                "The document's path, or a pattern: `*` is anything but `/`, `**` anything. One that does not begin \
                 with `/` may begin at any folder.",
            ).such_as("notes/*.md"),
        )
        .with("server_id", Schema::kept_text().about("The server, by id or name."))
        .may_have("heading_text", Schema::kept_text().or_null().about("`Issues`, or `## Issues` of that level only."))
        .may_have("block_id", Schema::kept_text().or_null().about("The id of a block, without its `^`."))
        .may_have("start_line", line().about("The first line of a range. Lines of results are not counted."))
        .may_have("end_line", line().about("The last line of a range, after the first."))
        .may_have("inherit_to_children", Schema::truth().by_default(true).about("Whether sections inside inherit it."))
}

/// A binding as it is shown.
fn binding() -> Schema {
    Schema::object()
        .with("id", Schema::integer(0, i64::MAX))
        .with("document", Schema::text().about("The document's path, or a pattern for several."))
        .with("section_type", words!(SectionKind).about("Which of the following there is."))
        .may_have("heading_text", Schema::text())
        .may_have("block_id", Schema::text())
        .may_have("start_line", Schema::count())
        .may_have("end_line", Schema::count())
        .with("server_id", Schema::formatted("uuid"))
        .with("server_name", Schema::text())
        .with("inherit_to_children", Schema::truth().about("Whether sections inside inherit it."))
        .with("created_at", moment())
        .with("updated_at", moment())
}

/// A registry in one piece.
pub(crate) fn backup() -> Schema {
    let server = registration().may_have("deployment_type", words!(Deployment).or_null());
    Schema::object()
        .with("format", Schema::word(["mcp-aggregator registry"]))
        .with("version", Schema::integer(1, 1))
        .may_have("exported_at", moment().or_null())
        .may_have("servers", Schema::list(server))
        .may_have("settings", changed_settings())
        .may_have("skills", Schema::list(Schema::any_object()).about("Skills that are not as they come."))
        .may_have("bindings", Schema::list(Schema::any_object()).about("Which servers sections of documents use."))
        .such_as(json!({"format": "mcp-aggregator registry", "version": 1, "servers": []}))
}

fn import_report() -> Schema {
    let names = |about| Schema::list(Schema::text()).about(about);
    Schema::object()
        .with("added", names("New servers."))
        .with("replaced", names("Always empty: nothing is replaced."))
        .with("kept", names("Servers that were there, and stayed as they are."))
        .with("without_secrets", names("Servers whose secrets are masked. They are registered, but switched off."))
        .with("settings", Schema::count().about("How many settings were set."))
        .with("skills", Schema::count().about("How many skills were taken over; those that are here stay."))
        .with("bindings", Schema::count().about("How many bindings were made."))
        .with("bindings_left_out", Schema::count().about("How many bindings name a server that is not there."))
}

fn problem() -> Schema {
    Schema::object()
        .with("loc", Schema::list(Schema::text()).such_as(json!(["body", "name"])))
        .with("msg", Schema::text())
        .with("type", Schema::text().such_as("missing"))
}

fn error() -> Schema {
    Schema::object()
        .with(
            "detail",
            Schema::either([Schema::text(), Schema::list(Schema::named("Problem"))])
                .about("A sentence for people; with status 422 a list of what is wrong."),
        )
        .with("error_code", Schema::text().about("A stable word for programs."))
        .with("context", Schema::any_object().about("What it is about."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use service::{Settings, servers};

    /// What a value has that its schema does not tell, or the other way round.
    fn differences(schema: &Schema, value: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        schema.check(&[], value, &mut problems);
        let told = schema.member_names();
        let untold = value.as_object().unwrap().keys().filter(|name| !told.contains(&name.as_str()));
        problems
            .iter()
            .map(|problem| format!("{}: {}", problem.loc.join("."), problem.msg))
            .chain(untold.cloned())
            .collect()
    }

    #[test]
    fn what_is_shown_is_what_the_document_says() {
        let state = servers::State {
            total_servers: 1,
            connected_servers: 1,
            disconnected_servers: 0,
            error_servers: 0,
            total_tools: 1,
            classified_tools: 0,
            unclassified_tools: 1,
            last_sync: Some(registry::Timestamp::now()),
            uptime_seconds: 1.5,
            executions_stopped: false,
        };
        let execution = registry::ExecutionRecord::submitted("a", "b", Source::Rest);
        let report =
            servers::TestReport { success: true, duration_ms: 1.0, server_info: None, tools: vec![], error: None };
        let health = servers::ServerHealth {
            server_id: registry::ServerId::fresh().to_string(),
            name: "a".to_owned(),
            status: Status::Connected,
            is_healthy: true,
            last_check: None,
            latency_ms: Some(0.5),
            consecutive_failures: 0,
            failure_count: 0,
            next_retry_at: None,
            error_message: None,
            warning: None,
        };
        for (schema, value) in [
            (super::settings(), json!(Settings::default())),
            (super::state(), json!(state)),
            (super::execution(), json!(execution)),
            (super::test_report(), json!(report)),
            (super::server_health(), json!(health)),
        ] {
            assert_eq!(differences(&schema, &value), Vec::<String>::new(), "{value}");
        }
    }

    #[test]
    fn a_member_of_a_server_that_is_misspelt_is_told() {
        for schema in [super::registration(), super::update(), super::trial()] {
            let given = [
                ("name", r#""a""#),
                ("nmae", r#""a""#),
                ("transport_type", r#""stdio""#),
                ("connection_config", r#"{"command":"x"}"#),
            ];
            let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
            let given = given.map(|(name, value)| (name.to_owned(), raw(value)));
            let mut problems = Vec::new();
            schema.check_members(&[], &given, &mut problems);
            let told: Vec<_> = problems.iter().map(|problem| (problem.loc.join("."), problem.kind)).collect();
            assert_eq!(told, [("nmae".to_owned(), "extra_forbidden")]);
        }
    }

    #[test]
    fn names_are_small_and_plain() {
        let is_fine = |text: &str| {
            let mut problems = Vec::new();
            name().check(&[], &json!(text), &mut problems);
            problems.is_empty()
        };
        assert!(is_fine("a") && is_fine("a-b_9") && is_fine(&"a".repeat(255)));
        for bad in ["", "A", "9a", "a.b", "a b", "ä", &"a".repeat(256)] {
            assert!(!is_fine(bad), "{bad}");
        }
    }
}
