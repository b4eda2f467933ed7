//! Schemas of servers.

use registry::{Deployment, EventKind, Origin, Status, Transport};
use serde_json::json;

use super::{moment, string_enum};
use crate::schema::{Schema, TextPattern};

/// The maximum length of a description.
const MAX_DESCRIPTION_LEN: usize = 10_000;
const MAX_ADDRESS_LEN: usize = 8_000;

/// The name of a server.
pub(super) fn name() -> Schema {
    let fits = |name: &str| {
        let mut letters = name.bytes();
        letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"_-".contains(&letter))
    };
    let message = "a name starts with a letter and contains only lowercase letters, digits, `_` and `-`";
    Schema::matching(TextPattern { pattern: "^[a-z][a-z0-9_-]*$", fits, message }, 255).such_as("github")
}

fn connection_config() -> Schema {
    Schema::any_object()
        .about(
            "How to reach the server. `stdio` needs `command` and accepts `args`, `env` and `cwd`; `sse` needs `url`; \
             `http` needs `url` or `base_url`; both accept `headers` and `oauth`. Each transport accepts `docker` instead: the \
             server then runs in a container that mcp-aggregator manages. All accept `timeout` (milliseconds for a \
             call), `startTimeout` (milliseconds until the server must be ready), `era` (legacy, modern), `lazy`, \
             `share` (all, user, session) and `max_instances`. \
             `${VAR}` is stored as written and replaced when connecting. The config is stored encrypted. Responses \
             show secrets as `***`; a value of `***` in a request keeps the stored secret.",
        )
        .with_either(&["command", "url", "base_url", "docker"])
        .with_optional("command", Schema::storable_text().about("The program to start."))
        .with_optional("args", Schema::list(Schema::storable_text()))
        .with_optional("env", Schema::any_object().about("Environment variables: strings by name."))
        .with_optional("cwd", Schema::storable_text())
        .with_optional("url", address())
        .with_optional("base_url", address())
        .with_optional("headers", Schema::any_object().about("HTTP headers: strings by name."))
        .with_optional("oauth", oauth())
        .with_optional("docker", docker())
        .with_optional("timeout", Schema::integer(1, 86_400_000).about("The timeout of a call in milliseconds."))
        .with_optional(
            "startTimeout",
            Schema::integer(1, 86_400_000).about("The time in milliseconds until the server must be ready."),
        )
        .with_optional("era", Schema::one_of(["legacy", "modern"]))
        .with_optional("lazy", Schema::truth().about("Start the server only when it is needed."))
        .with_optional(
            "share",
            Schema::one_of(["all", "user", "session"])
                .about("Who shares a process or session of the server: all clients, one identity, or one session."),
        )
        .with_optional(
            "max_instances",
            Schema::integer(1, 10_000)
                .about("How many instances may run at once if not everybody shares the server; 100 by default."),
        )
        .such_as(json!({"command": "npx", "args": ["-y", "some-server"], "env": {"TOKEN": "${TOKEN}"}}))
}

/// The `oauth` member. It is checked where it is read.
fn oauth() -> Schema {
    Schema::anything()
        .about(
            "How to sign in to a server over HTTP, where the defaults do not fit; `false` turns sign-ins off. An object \
             with any of `client_id`, `client_secret`, `scopes` (a list, or words), `redirect_uri`, `issuer`, `resource` \
             (a URL, or `false` to omit the parameter), `client_metadata_url`, `token_endpoint_auth_method`, `grant` \
             (`authorization_code` or `client_credentials`) and `private_key_file`; camelCase is accepted as well.",
        )
        .such_as(json!({"client_id": "my-app", "client_secret": "${SECRET}", "scopes": ["read"]}))
}

/// The `docker` block. Its members are checked where they are read.
fn docker() -> Schema {
    Schema::any_object()
        .about(
            "The container to run the server in: `image`; optionally `containerName`, `command` (instead of the \
             image's entry point), `args`, `env`, `ports` (`[8080]` or `{\"8080\": 18080}`; required for `sse` and \
             `http`), `path` (of the MCP endpoint), `volumes` (`[\"/here:/inside:ro\"]`), `network` (by default none \
             for `stdio`), `memory` (`512m`), `cpus`, `user`, `pull` (never, missing, always) and `readOnly`.",
        )
        .with("image", Schema::storable_text().about("The image."))
}

fn deployment() -> Schema {
    string_enum!(Deployment)
        .about("Who runs the server. Derived from the other members; a value that contradicts them is refused.")
}

/// A URL that may contain variables.
fn address() -> Schema {
    let pattern = TextPattern {
        pattern: "^([hH][tT][tT][pP][sS]?://|\\$)[^\\u0000]*$",
        fits: |text| (is_address(text) || text.starts_with('$')) && !text.contains('\0'),
        message: "a URL starts with http:// or https://",
    };
    Schema::matching(pattern, MAX_ADDRESS_LEN)
}

fn is_address(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.starts_with("http://") || text.starts_with("https://")
}

fn transport() -> Schema {
    string_enum!(Transport).about("The transport, in any case.")
}

fn health_check_url() -> Schema {
    let pattern = TextPattern {
        pattern: "^[hH][tT][tT][pP][sS]?://[^\\u0000]*$",
        fits: |text| is_address(text) && !text.contains('\0'),
        message: "a URL starts with http:// or https://",
    };
    Schema::matching(pattern, MAX_ADDRESS_LEN)
        .or_null()
        .about("A URL for health checks with GET, instead of a request to the server itself.")
}

/// The body that registers a server.
pub(crate) fn registration() -> Schema {
    Schema::object()
        .with("name", name().about("Unique."))
        .with_optional(
            "description",
            Schema::storable_text().at_most(MAX_DESCRIPTION_LEN).or_null().about("What the server is for."),
        )
        .with("transport_type", transport())
        .with_optional("deployment_type", deployment())
        .with("connection_config", connection_config())
        .with_optional("health_check_url", health_check_url())
        .with_optional(
            "auto_connect",
            Schema::truth()
                .by_default(true)
                .about("Connect the server after registration and at every start of the service."),
        )
        .with_optional("enabled", Schema::truth().by_default(true).about("Whether the server may be connected."))
        .and_no_more()
}

/// The body that tests a connection.
pub(crate) fn test_request() -> Schema {
    Schema::object()
        .with_optional("name", name())
        .with("transport_type", transport())
        .with("connection_config", connection_config())
        .with_optional(
            "description",
            Schema::anything().about("As in a registration; ignored, like all members that follow."),
        )
        .with_optional("deployment_type", Schema::anything())
        .with_optional("health_check_url", Schema::anything())
        .with_optional("auto_connect", Schema::anything())
        .with_optional("enabled", Schema::anything())
        .and_no_more()
}

/// The body that changes a server.
pub(crate) fn update() -> Schema {
    Schema::object()
        .with_optional("name", name().about("Renaming the server renames its tools."))
        .with_optional("description", Schema::storable_text().at_most(MAX_DESCRIPTION_LEN).or_null())
        .with_optional("transport_type", transport())
        .with_optional("deployment_type", deployment())
        .with_optional("connection_config", connection_config())
        .with_optional("health_check_url", health_check_url())
        .with_optional("auto_connect", Schema::truth())
        .with_optional("enabled", Schema::truth())
        .and_no_more()
}

/// Whether running calls are cancelled instead of awaited.
pub(crate) fn force() -> Schema {
    Schema::truth().by_default(false).about("Cancel running calls instead of waiting up to 30 s for them.")
}

/// A server in a response.
pub(super) fn server() -> Schema {
    Schema::object()
        .with("id", Schema::formatted("uuid").about("The id; it never changes."))
        .with("name", Schema::text().about("The name; it can be changed."))
        .with("description", Schema::text().or_null())
        .with("transport_type", string_enum!(Transport))
        .with("connection_config", Schema::any_object().about("Secrets are masked."))
        .with("health_check_url", Schema::text().or_null())
        .with(
            "deployment_type",
            string_enum!(Deployment)
                .about("Who runs the server: mcp-aggregator (`managed`) or someone else (`external`)."),
        )
        .with(
            "origin",
            string_enum!(Origin).about("Where the server is defined. Change servers of the config file there."),
        )
        .with("status", string_enum!(Status))
        .with("enabled", Schema::truth().about("Whether the server may be connected."))
        .with("auto_connect", Schema::truth().about("Whether the server is connected at every start of the service."))
        .with("auto_disabled", Schema::truth().about("Whether the server was disabled after too many failures."))
        .with("auto_disabled_at", moment().or_null().about("When it was disabled after too many failures."))
        .with("failure_count", Schema::count().about("The number of consecutive failures."))
        .with("tool_count", Schema::count())
        .with("error_message", Schema::text().or_null().about("The current problem."))
        .with("server_info", Schema::anything().about("The name and version that the server reports."))
        .with("last_health_check", moment().or_null())
        .with("last_connected_at", moment().or_null())
        .with("connected_at", moment().or_null().about("Since when the server has been connected."))
        .with("registered_at", moment())
        .with("updated_at", moment())
        .with("retry_count", Schema::count().about("Attempts to reconnect since the first failure; 0 while connected."))
        .with("next_retry_at", moment().or_null().about("The time of the next attempt to connect."))
        .with("lazy", Schema::truth().about("Whether the server starts only when needed."))
        .with(
            "asleep",
            Schema::truth()
                .about("Whether the server is lazy and not running; it starts when one of its tools is called."),
        )
        .with("instances", instances())
        .with("container", container().or_null())
        .with(
            "usage",
            usage()
                .or_null()
                .about("CPU and memory use of the process or container; in lists only with `include_usage`."),
        )
        .with(
            "progress",
            Schema::text().or_null().about("What is still to be done before the server can start, and its progress."),
        )
        .with_optional("tools", Schema::list(Schema::named("Tool")).about("Only if requested or just discovered."))
}

/// The instances of a server.
fn instances() -> Schema {
    let instance = Schema::object()
        .with("identity", Schema::text().or_null().about("Whom it acts for; null for the local user."))
        .with(
            "client",
            Schema::text().or_null().about("The client whose session it belongs to, with `share: session`."),
        )
        .with("status", Schema::one_of(["starting", "running", "stopping", "failed"]))
        .with("since", moment().about("Since when."))
        .with("running_calls", Schema::count())
        .with("pid", Schema::integer(1, i64::from(u32::MAX)).or_null().about("Its process, if it is one of ours."))
        .with("error", Schema::text().or_null().about("Why it failed."));
    Schema::list(instance).about("The instances for identities or sessions; empty if all clients share the server.")
}

/// CPU and memory use of a server.
fn usage() -> Schema {
    Schema::object()
        .with("cpu_percent", Schema::number().about("In percent of one CPU, since the last measurement."))
        .with(
            "memory_bytes",
            Schema::number().about("Memory shared by several of its processes counts for each of them."),
        )
        .with("processes", Schema::count().or_null().about("The process itself and those it started."))
}

/// The container of a server.
fn container() -> Schema {
    Schema::object()
        .with("id", Schema::text().about("The id of the container."))
        .with("name", Schema::text().about("The name of the container."))
        .with("image", Schema::text())
        .with("image_digest", Schema::text().about("The exact id of the image."))
        .with("cpu_percent", Schema::number().or_null().about("In percent of one CPU. Only if requested."))
        .with("memory_bytes", Schema::number().or_null().about("Only if requested."))
        .with("memory_limit_bytes", Schema::number().or_null())
}

/// The body that starts a sign-in.
pub(crate) fn sign_in_request() -> Schema {
    let pattern = TextPattern {
        pattern: r"^http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?(/.*)?$",
        fits: is_loopback,
        message: "must be an http address on the loopback interface, such as http://127.0.0.1:8700/callback",
    };
    Schema::object()
        .with_optional(
            "redirect_uri",
            Schema::matching(pattern, MAX_ADDRESS_LEN).about(
                "The loopback address of a command that waits for the redirect and passes its query on to \
                 `/oauth/callback`, where the browser cannot reach the service.",
            ),
        )
        .and_no_more()
}

fn is_loopback(address: &str) -> bool {
    let Some(rest) = address.strip_prefix("http://") else { return false };
    let (host_and_port, _) = rest.split_once('/').unwrap_or((rest, ""));
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| {
        let Some(port) = host_and_port.strip_prefix(host) else { return false };
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
    })
}

/// A sign-in that was started.
pub(super) fn sign_in_attempt() -> Schema {
    Schema::object()
        .with("authorization_url", Schema::text().about("The page at which the user continues. It works once."))
        .with("expires_at", moment().about("When the attempt expires."))
}

/// How far a sign-in is.
pub(super) fn sign_in_state() -> Schema {
    Schema::object()
        .with("state", Schema::one_of(["none", "pending", "failed", "signed_in"]))
        .with("error", Schema::text().or_null().about("Why the last attempt failed, or why the sign-in has ended."))
        .with(
            "redirect_uri",
            Schema::text().or_null().about(
                "Where the browser is sent back to: the address configured for the server, else the one of this service. \
                 null if nobody can sign in to the server.",
            ),
        )
        .with(
            "needs_listener",
            Schema::truth().about(
                "Whether that is a loopback address at which this service does not listen: only a command that listens \
                 there can sign in, such as `mcp-aggregator login`.",
            ),
        )
}

pub(super) fn server_health() -> Schema {
    Schema::object()
        .with("server_id", Schema::formatted("uuid"))
        .with("name", Schema::text())
        .with("status", string_enum!(Status))
        .with("is_healthy", Schema::truth())
        .with("last_check", moment().or_null())
        .with("latency_ms", Schema::number().or_null())
        .with(
            "consecutive_failures",
            Schema::count().about(
                "The number of consecutive failed health checks or of failed attempts to connect, whichever is larger.",
            ),
        )
        .with("failure_count", Schema::count().about("Consecutive failed attempts to connect."))
        .with("retry_count", Schema::count())
        .with("next_retry_at", moment().or_null())
        .with("error_message", Schema::text().or_null())
        .with(
            "warning",
            Schema::text()
                .or_null()
                .about("Anything unusual, such as a health check URL that fails while the server answers calls."),
        )
        .with("instances", instances())
}

pub(super) fn history_event() -> Schema {
    Schema::object()
        .with("id", Schema::count())
        .with("server_id", Schema::formatted("uuid"))
        .with("event_type", string_enum!(EventKind))
        .with("details", Schema::anything().about("The status before and after, and further details."))
        .with("timestamp", moment())
}

pub(super) fn test_report() -> Schema {
    Schema::object()
        .with("success", Schema::truth())
        .with("duration_ms", Schema::number())
        .with("server_info", Schema::anything().about("The name and version that the server reports."))
        .with("tools", Schema::list(Schema::text()).about("The names of its tools."))
        .with("error", Schema::text().or_null().about("The error, with the last lines of stderr."))
        .with("sign_in_required", Schema::truth().about("Whether it failed only because a person has to sign in."))
}
