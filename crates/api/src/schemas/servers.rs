//! What comes and goes about servers.

use registry::{Deployment, EventKind, Origin, Status, Transport};
use serde_json::json;

use super::{moment, words};
use crate::schema::{Schema, Shape};

/// Longer texts than this are nothing anybody reads.
const DESCRIPTION: usize = 10_000;
const ADDRESS: usize = 8_000;

/// What a name may be.
pub(super) fn name() -> Schema {
    let fits = |name: &str| {
        let mut letters = name.bytes();
        letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"_-".contains(&letter))
    };
    let says = "a name begins with a letter and has only lower-case letters, digits, `_` and `-`";
    Schema::shaped(Shape { pattern: "^[a-z][a-z0-9_-]*$", fits, says }, 255).such_as("github")
}

fn connection_config() -> Schema {
    Schema::any_object()
        .about(
            "Where and with what. `stdio` needs `command` and may have `args`, `env` and `cwd`; `sse` needs `url`; \
             `http` needs `url` or `base_url`; both may have `headers`. Any may have `docker` instead, and runs in a \
             container of ours; and `timeout` (milliseconds for a \
             call), `startTimeout` (milliseconds until it must be ready), `era` (legacy, modern) and `lazy`. `${VAR}` is kept as written and filled in when connecting. It \
             is kept encrypted; secrets are shown as `***`, and what is sent back as `***` stays as it was.",
        )
        .with_either(&["command", "url", "base_url", "docker"])
        .with_optional("command", Schema::kept_text().about("The program that is started."))
        .with_optional("args", Schema::list(Schema::kept_text()))
        .with_optional("env", Schema::any_object().about("Texts by the names of variables."))
        .with_optional("cwd", Schema::kept_text())
        .with_optional("url", address())
        .with_optional("base_url", address())
        .with_optional("headers", Schema::any_object().about("Texts by the names of headers."))
        .with_optional("docker", docker())
        .with_optional("timeout", Schema::integer(1, 86_400_000).about("Milliseconds that a call may take."))
        .with_optional(
            "startTimeout",
            Schema::integer(1, 86_400_000).about("Milliseconds that it may take to become ready."),
        )
        .with_optional("era", Schema::word(["legacy", "modern"]))
        .with_optional("lazy", Schema::truth().about("It starts when it is needed."))
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
        .with_optional("description", Schema::kept_text().at_most(DESCRIPTION).or_null().about("What it is for."))
        .with("transport_type", transport())
        .with_optional("deployment_type", deployment())
        .with("connection_config", connection_config())
        .with_optional("health_check_url", health_check_url())
        .with_optional("auto_connect", Schema::truth().by_default(true).about("Connect without being asked."))
        .with_optional("enabled", Schema::truth().by_default(true).about("It may be connected."))
        .and_no_more()
}

/// A server to be tried.
pub(crate) fn test_request() -> Schema {
    Schema::object()
        .with_optional("name", name())
        .with("transport_type", transport())
        .with("connection_config", connection_config())
        .with_optional(
            "description",
            Schema::anything().about("As in a registration; not looked at, like all that follows."),
        )
        .with_optional("deployment_type", Schema::anything())
        .with_optional("health_check_url", Schema::anything())
        .with_optional("auto_connect", Schema::anything())
        .with_optional("enabled", Schema::anything())
        .and_no_more()
}

/// What is to be different about a server.
pub(crate) fn update() -> Schema {
    Schema::object()
        .with_optional("name", name().about("Its tools are renamed with it."))
        .with_optional("description", Schema::kept_text().at_most(DESCRIPTION).or_null())
        .with_optional("transport_type", transport())
        .with_optional("deployment_type", deployment())
        .with_optional("connection_config", connection_config())
        .with_optional("health_check_url", health_check_url())
        .with_optional("auto_connect", Schema::truth())
        .with_optional("enabled", Schema::truth())
        .and_no_more()
}

/// Whether calls in flight are cancelled instead of waited for.
pub(crate) fn force() -> Schema {
    Schema::truth().by_default(false).about("Cancel calls in flight instead of waiting for them, up to 30 s.")
}

/// A server as it is shown.
pub(super) fn server() -> Schema {
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
        .with("auto_disabled_at", moment().or_null().about("When they did."))
        .with("failure_count", Schema::count().about("Failures in a row."))
        .with("tool_count", Schema::count())
        .with("error_message", Schema::text().or_null().about("What is wrong."))
        .with("server_info", Schema::anything().about("What it says about itself."))
        .with("last_health_check", moment().or_null())
        .with("last_connected_at", moment().or_null())
        .with("connected_at", moment().or_null().about("Since when it is connected."))
        .with("registered_at", moment())
        .with("updated_at", moment())
        .with(
            "retry_count",
            Schema::count().about("Attempts to connect again since the first one failed; 0 while it is connected."),
        )
        .with("next_retry_at", moment().or_null().about("When the next attempt to connect is made."))
        .with("lazy", Schema::truth().about("It starts when it is needed."))
        .with("asleep", Schema::truth().about("It is lazy, and well: it starts when one of its tools is called."))
        .with("container", container().or_null())
        .with(
            "usage",
            usage()
                .or_null()
                .about("What its process or container uses; of several servers only where that is asked for."),
        )
        .with(
            "progress",
            Schema::text().or_null().about("What has to be done before it can start, and how far that is."),
        )
        .with_optional(
            "tools",
            Schema::list(Schema::named("Tool")).about("Where they were asked for or just discovered."),
        )
}

/// What a server uses of the machine.
fn usage() -> Schema {
    Schema::object()
        .with("cpu_percent", Schema::number().about("Of one processor, since it was last looked at."))
        .with("memory_bytes", Schema::number().about("What several of its processes share is counted for each."))
        .with("processes", Schema::count().or_null().about("Its own and those it started."))
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

pub(super) fn server_health() -> Schema {
    Schema::object()
        .with("server_id", Schema::formatted("uuid"))
        .with("name", Schema::text())
        .with("status", words!(Status))
        .with("is_healthy", Schema::truth())
        .with("last_check", moment().or_null())
        .with("latency_ms", Schema::number().or_null())
        .with(
            "consecutive_failures",
            Schema::count().about("Failed health checks in a row, or failed attempts to connect, whichever are more."),
        )
        .with("failure_count", Schema::count().about("Failed attempts to connect in a row."))
        .with("retry_count", Schema::count())
        .with("next_retry_at", moment().or_null())
        .with("error_message", Schema::text().or_null())
        .with(
            "warning",
            Schema::text()
                .or_null()
                .about("What is odd, such as a health address that fails while the server answers calls."),
        )
}

pub(super) fn history_event() -> Schema {
    Schema::object()
        .with("id", Schema::count())
        .with("server_id", Schema::formatted("uuid"))
        .with("event_type", words!(EventKind))
        .with("details", Schema::anything().about("The states before and after, and what else was told."))
        .with("timestamp", moment())
}

pub(super) fn test_report() -> Schema {
    Schema::object()
        .with("success", Schema::truth())
        .with("duration_ms", Schema::number())
        .with("server_info", Schema::anything().about("Who it is, as it says itself."))
        .with("tools", Schema::list(Schema::text()).about("The names of its tools."))
        .with("error", Schema::text().or_null().about("What went wrong, with the end of its stderr."))
}
