//! `environment`, hidden: lists every environment variable of the programs, for `docs/reference/environment.md`; and
//! the rows of some of them for `--help`.

use serde_json::{Value, json};
use upstream::Limit;

use crate::failure::Failure;
use crate::output;

/// The width of a row of `--help`.
const ROW_WIDTH: usize = 110;

/// A variable: its name, its default (empty if there is none), and what it does.
type Variable = (&'static str, &'static str, &'static str);

const SERVICE: &[Variable] = &[
    (
        "MCP_AGGREGATOR_TOKEN",
        "",
        "A token that clients of `serve` must send, named `default`; commands send it to a service. Not passed to servers",
    ),
    (
        "MCP_AGGREGATOR_LIMITS",
        "",
        "Limits of clients of `serve`, as in `sessions=2000 id-bytes=4096`; `--limit` takes precedence",
    ),
    (
        "MCP_AGGREGATOR_DATABASE_SCHEMA",
        "`mcp`",
        "The schema of a PostgreSQL registry; `--database-schema` takes precedence",
    ),
    (
        "MCP_AGGREGATOR_DATABASE_WAIT",
        "60",
        "Seconds that `serve` waits for an unreachable PostgreSQL at start; `--database-wait` takes precedence",
    ),
    (
        "MCP_CREDENTIAL_KEY",
        "the file `credential.key` in the data directory",
        "The key that encrypts credentials in the registry. Not passed to servers",
    ),
    (
        "XDG_DATA_HOME",
        "`~/.local/share`",
        "The folder that contains the data directory `mcp-aggregator`; `--data-dir` takes precedence",
    ),
];

const SERVERS: &[Variable] = &[
    (
        "MCP_AGGREGATOR_START_TIMEOUT",
        "60",
        "Seconds a server may take to become ready; `startTimeout` of a server takes precedence",
    ),
    (
        "MCP_AGGREGATOR_ANSWER_TIMEOUT",
        "300",
        "Seconds a client of revision 2026-07-28 may take to answer a request of a legacy server, before the call is cancelled",
    ),
    (
        "MCP_AGGREGATOR_CONFIGS",
        "",
        "Set by mcp-aggregator for the servers it starts, to detect cycles. Unset it for an agent that should run its own aggregator",
    ),
    (
        "MCP_AGGREGATOR_LINEAGE",
        "",
        "Set by mcp-aggregator for the servers it starts: marks the processes that it ends at exit",
    ),
    ("PATH", "", "Where programs of servers are looked up, unless their `env` has a `PATH`"),
];

const CONTAINERS: &[Variable] = &[
    (
        "DOCKER_HOST",
        "the usual sockets of Docker and Podman",
        "Address of the container engine, as in `tcp://host:2376`",
    ),
    ("DOCKER_TLS_VERIFY", "", "If set, `tcp://` engines are reached over TLS"),
    ("DOCKER_CERT_PATH", "`~/.docker`", "Folder with `ca.pem`, `cert.pem` and `key.pem`"),
    ("XDG_RUNTIME_DIR", "", "Where the sockets of rootless engines are looked for"),
];

const MODELS: &[Variable] = &[
    ("MCP_MODEL", "", "Model of `ask` and `run`; `anthropic:NAME` or `openai:NAME` also selects the provider"),
    ("MCP_MODEL_PROVIDER", "by the keys that are set", "`openai` or `anthropic`"),
    ("MCP_MODEL_TOOLS", "`native`", "`text` for models without tool calls"),
    ("MCP_MODEL_IMAGES", "`false`", "`true` if the model accepts images that tools return"),
    (
        "OPENAI_BASE_URL",
        "`https://api.openai.com/v1`",
        "Address of an OpenAI-compatible API, also of Ollama, llama.cpp or vLLM",
    ),
    ("OPENAI_API_KEY", "", "Its key. Not passed to servers"),
    ("ANTHROPIC_BASE_URL", "`https://api.anthropic.com`", "Address of Anthropic's API"),
    ("ANTHROPIC_API_KEY", "", "Its key. Not passed to servers"),
    (
        "MCP_ASSISTANT_API_KEY",
        "",
        "Key of `serve --assistant-model` and of `assistant` in a config. Not passed to servers",
    ),
    ("MCP_CLASSIFIER_API_KEY", "", "Key of `serve --classifier-url`. Not passed to servers"),
    ("MCP_EMBEDDINGS_API_KEY", "", "Key of `serve --embeddings-url`. Not passed to servers"),
    ("MCP_VECTORS", "", "Address of Qdrant, as in `http://HOST:6334`; `--vectors` takes precedence"),
    ("QDRANT_API_KEY", "", "Key of Qdrant. Not passed to servers"),
];

const TRACES: &[Variable] = &[
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "", "Address of a collector; unset: no traces"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", "The same for traces only, with the whole path"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "", "Headers for the collector, as in `api-key=secret`. Not passed to servers"),
    ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "", "The same for traces only. Not passed to servers"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "10000", "Milliseconds an export may take"),
    ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "", "The same for traces only"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "`http/protobuf`", "Any other value disables traces, with a warning"),
    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "", "The same for traces only"),
    ("OTEL_SERVICE_NAME", "`mcp-aggregator`", "Name of the service in traces"),
    ("OTEL_RESOURCE_ATTRIBUTES", "", "More attributes, as in `deployment.environment.name=test`"),
    (
        "OTEL_TRACES_SAMPLER",
        "`parentbased_always_on`",
        "Which calls are traced: `always_on`, `always_off`, `traceidratio`, or one of these after `parentbased_`",
    ),
    ("OTEL_TRACES_SAMPLER_ARG", "1", "The ratio for `traceidratio`, as in `0.1`"),
    ("OTEL_TRACES_EXPORTER", "`otlp`", "`none` disables traces"),
    ("OTEL_SDK_DISABLED", "`false`", "`true` disables traces"),
];

const TERMINAL: &[Variable] = &[
    ("NO_COLOR", "", "If set, output has no colours"),
    ("TERM", "", "`dumb`: no colours and no live progress"),
    ("COLUMNS", "the width of the terminal", "Width of tables"),
    ("TZ", "the time zone of the system", "Time zone of times in text; JSON has UTC"),
    ("HOME", "", "Where the configs of clients, the data directory and `.docker` are looked for"),
    ("XDG_CONFIG_HOME", "`~/.config`", "Where the configs of clients are looked for"),
];

/// Variables that are not passed to servers although the programs do not read them, and those that a library reads.
const OTHERS: &[Variable] = &[
    ("PGPASSWORD", "", "Not passed to servers"),
    ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "", "Not passed to servers"),
    ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "", "Not passed to servers"),
];

const GROUPS: [(&str, &[Variable]); 7] = [
    ("Service", SERVICE),
    ("Servers", SERVERS),
    ("Containers", CONTAINERS),
    ("Models and vectors", MODELS),
    ("Traces", TRACES),
    ("Terminal and folders", TERMINAL),
    ("Others", OTHERS),
];

/// Rows of `--help` about these variables. An unknown name is a bug.
pub(crate) fn help_rows(names: &[&str]) -> String {
    let known = |name: &&str| GROUPS.iter().flat_map(|(_, group)| *group).find(|(known, ..)| known == name);
    let width = names.iter().map(|name| name.len()).max().unwrap_or_default();
    let row = |name: &&str| {
        let (name, default, about) = known(name).expect("every variable is in one of the groups");
        let default = match default.replace('`', "") {
            none if none.is_empty() => none,
            default => format!(" [default: {default}]"),
        };
        let text = format!("{about}{default}");
        let lines = fill(&text, ROW_WIDTH.saturating_sub(width + 4));
        format!("  {name:width$}  {}\n", lines.join(&format!("\n{}", " ".repeat(width + 4))))
    };
    names.iter().map(row).collect()
}

/// Wraps a text to lines of at most `width` characters.
fn fill(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a first line");
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

/// Prints all variables as JSON: `[{"title", "variables": [{"name", "default", "about"}]}]`.
pub(crate) fn run() -> Result<(), Failure> {
    let shown = |(name, default, about): &Variable| json!({"name": name, "default": default, "about": about});
    let mut all: Vec<Value> = GROUPS
        .iter()
        .map(|(title, variables)| json!({"title": title, "variables": variables.iter().map(shown).collect::<Vec<_>>()}))
        .collect();
    all.push(json!({"title": "Limits of servers", "variables": limits()}));
    output::print_json(&Value::Array(all))
}

/// The limits of servers, which are settings of `serve`.
fn limits() -> Vec<Value> {
    let about =
        |limit: Limit| format!("As the setting `{}`, for `stdio` and commands with `--config`", limit.setting());
    Limit::ALL
        .into_iter()
        .map(|limit| {
            json!({"name": limit.variable(), "default": limit.default_value().to_string(), "about": about(limit)})
        })
        .collect()
}
