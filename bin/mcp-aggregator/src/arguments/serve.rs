//! The command line of what serves all servers as one: `stdio` and `serve`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use aggregator::Surface;
use clap::Args;

use super::{ConfigArgument, NameArguments, one_of};
use crate::assistant::AssistantArguments;
use crate::model_args::SearchModelArguments;
use crate::storage::StorageArguments;

/// Serve all servers as one MCP server over stdio, to one client.
///
/// This is what an MCP client starts. Everything is relayed: tools, prompts, resources, and what servers
/// ask; clients of every protocol revision are served. It ends when the client closes its end, or by a signal.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
In the config of your MCP client:
  {\"mcpServers\": {\"all\": {\"command\": \"mcp-aggregator\", \"args\": [\"stdio\", \"--config\", \"/path/to/mcp.json\"]}}}

Examples:
  mcp-aggregator stdio --config mcp.json
  mcp-aggregator stdio --config mcp.json --names safe --log-file aggregator.log
  mcp-aggregator client add claude-desktop --stdio --config mcp.json  writes that config"
)]
pub(crate) struct StdioArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    #[command(flatten)]
    pub(crate) names: NameArguments,
    /// The name reported to the client
    #[arg(long, value_name = "NAME", default_value = "mcp-aggregator")]
    pub(crate) name: String,
    /// Log everything, not only warnings and errors
    #[arg(long)]
    pub(crate) debug: bool,
    /// Append the log to a file instead of writing it to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

/// Serve all servers as one MCP server over HTTP, to many clients at once.
///
/// Clients of every protocol revision are served: Streamable HTTP at /mcp, the older HTTP+SSE at /sse,
/// one server alone and under its own names at /mcp/<server> and /sse/<server>; /health tells how we are.
/// All clients share one set of servers. What a server asks is put only to the client it is about.
/// Servers are those of the registry and, if there is a config, those in it. The registry is changed
/// while it runs, over REST: /api/docs tells how. The config is read again when it has changed.
/// /metrics has numbers for Prometheus.
/// It ends by a signal, after requests have had ten seconds to finish; a second signal hurries.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
In the config of your MCP client:
  {\"mcpServers\": {\"all\": {\"type\": \"http\", \"url\": \"http://127.0.0.1:8808/mcp\"}}}
with a token:
  {\"mcpServers\": {\"all\": {\"type\": \"http\", \"url\": \"http://127.0.0.1:8808/mcp\",
                          \"headers\": {\"Authorization\": \"Bearer <token>\"}}}}

Who may come in:
  Without tokens, the user that runs this and root, on this machine alone: another --listen is refused.
  Where the system does not tell which user a connection belongs to, requests must carry the token in
  local.token of the data directory; commands of this program send it by themselves.
  --token-file FILE      lines of `name:token`; # begins a comment
  MCP_AGGREGATOR_TOKEN   one more, named `default`
  Clients send `Authorization: Bearer <token>`. Servers never see it.
  Requests for other host names, or from web pages of other origins, are refused unless allowed. Pages of
  other ports of this machine may use MCP, but not REST or the console.

Limits of clients (--limit NAME=VALUE, or several in MCP_AGGREGATOR_LIMITS; what servers may do is a setting):
  connections=4096             connections at once; connections-per-token=2048
  sessions=1000                sessions at once; sessions-per-token=500
  requests-per-session=256     requests that wait for their answers
  body-mb=64                   one request
  body-seconds=20              a body may stall or trickle so long; body-kb-per-second=16 is no trickle
  received-mb=512              all requests that are not done with; received-mb-per-token=256
  unread-mb=256                what clients have not read, or may read again; unread-mb-per-token=128
  kept-kb-per-session=4096     what one session keeps to be read again
  client-info-kb=64            a client's name, version and capabilities
  id-bytes=1024                a request id, a progress token or a cursor
  subscriptions=20000          to resources; subscriptions-per-token=5000, subscriptions-per-session=1000
  uri-bytes=8192               a URI that is subscribed to
  wrong-tokens-per-minute=20   of one address, before it has to wait

Traces of calls, for an OpenTelemetry collector (OTLP, http/protobuf):
  OTEL_EXPORTER_OTLP_ENDPOINT          its address, as in http://127.0.0.1:4318; unset: no traces
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT   the same for traces alone, with the whole path
  OTEL_EXPORTER_OTLP_HEADERS           what it wants to be told, as in api-key=secret
  OTEL_EXPORTER_OTLP_TIMEOUT           how many milliseconds it may take [default: 10000]
  OTEL_SERVICE_NAME                    who we are there [default: mcp-aggregator]
  OTEL_RESOURCE_ATTRIBUTES             more of that, as in deployment.environment.name=test
  OTEL_TRACES_SAMPLER                  which calls: always_on, always_off, traceidratio, or one of these after
                                       parentbased_ [default: parentbased_always_on]
  OTEL_TRACES_SAMPLER_ARG              the part for traceidratio, as in 0.1

Examples:
  mcp-aggregator serve --config mcp.json
  mcp-aggregator serve --config mcp.json --listen 9000
  mcp-aggregator serve --database postgres://me@localhost/mcp
  curl http://127.0.0.1:8808/health
  echo \"laptop:$(openssl rand -hex 32)\" > tokens
  mcp-aggregator serve --config mcp.json --listen 0.0.0.0:8808 --token-file tokens --allow-host mcp.example.com
  MCP_AGGREGATOR_TOKEN=<token> mcp-aggregator serve --config mcp.json"
)]
pub(crate) struct ServeArguments {
    /// More servers, in the JSON that Claude Desktop and others use
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) storage: StorageArguments,
    /// How long to wait at start for a PostgreSQL that is unreachable; 0 does not wait. Wrong credentials
    /// and a missing database fail at once. Else the variable MCP_AGGREGATOR_DATABASE_WAIT [default: 60]
    #[arg(long, verbatim_doc_comment, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=crate::database_wait::MAX_WAIT_SECONDS))]
    pub(crate) database_wait: Option<u64>,
    /// The address to listen at: ADDRESS:PORT, or a port on this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8808", value_parser = listen_address)]
    pub(crate) listen: SocketAddr,
    /// The tokens that let clients in, one `name:token` a line
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A host name clients reach us by, beside localhost and the address itself; may be repeated
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub(crate) allow_host: Vec<String>,
    /// The origin of web pages that may ask for everything; may be repeated. Pages of this machine may ask for MCP
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    pub(crate) allow_origin: Vec<String>,
    #[command(flatten)]
    pub(crate) names: NameArguments,
    /// More skills that tools may have, or other words for those that come along: a JSON array of
    /// {"id", "name", "description", "examples": []}; `mcp-aggregator skills --json` shows all
    #[arg(long, verbatim_doc_comment, value_name = "FILE")]
    pub(crate) skills: Option<PathBuf>,
    /// Keep the vectors by which tools are found in Qdrant, too, and compare them there:
    /// http://HOST[:PORT][/COLLECTION], the port for gRPC; else the variable MCP_VECTORS. A key goes into QDRANT_API_KEY
    #[arg(long, verbatim_doc_comment, value_name = "URL")]
    pub(crate) vectors: Option<String>,
    /// What clients see: `full` is every tool, `search` a few tools of ours that find and call all others,
    /// `grow` the same and what was found, `auto` is full unless the client would drown; an address may say
    /// otherwise: /mcp?surface=search
    #[arg(long, verbatim_doc_comment, value_name = "full|search|grow|auto", default_value_t = Surface::Full,
        value_parser = one_of::<Surface>(&["full", "search", "grow", "auto"]), hide_possible_values = true)]
    pub(crate) surface: Surface,
    /// The folder whose Markdown files may be listed, read, run and rewritten over REST and in the console;
    /// nothing outside of it is, and links are not followed
    #[arg(long, verbatim_doc_comment, value_name = "DIR")]
    pub(crate) documents: Option<PathBuf>,
    /// The name reported to clients
    #[arg(long, value_name = "NAME", default_value = "mcp-aggregator")]
    pub(crate) name: String,
    /// Print where it listens as a line of JSON, as soon as it does:
    /// {"url", "mcp", "has_tokens", "reachable_by", "token_file", "pid"}
    #[arg(long, verbatim_doc_comment)]
    pub(crate) json: bool,
    /// Log everything, not only warnings and errors
    #[arg(long)]
    pub(crate) debug: bool,
    /// Append the log to a file instead of writing it to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// A limit of clients, as in sessions=2000; may be repeated. The list is below
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = limit)]
    pub(crate) limits: Vec<String>,
    /// Keep no account of the calls of MCP clients: for the benchmark, which shows what that costs
    #[arg(long, hide = true)]
    pub(crate) no_history: bool,
    // Last, for their headings are those of all options behind them.
    #[command(flatten)]
    pub(crate) advisers: SearchModelArguments,
    #[command(flatten)]
    pub(crate) assistant: AssistantArguments,
}

/// Where to listen, as it may be typed.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let local = |port: &str| port.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let named = text.strip_prefix("localhost:").and_then(local);
    let parsed = text.parse().ok().or(named).or_else(|| local(text));
    parsed.ok_or_else(|| "expected an address and a port, like 127.0.0.1:8808 or [::1]:8808, or only a port".to_owned())
}

fn limit(text: &str) -> Result<String, String> {
    http_server::Limits::default().set(text).map(|()| text.to_owned())
}

fn host(text: &str) -> Result<String, http_server::GuardError> {
    http_server::check_host(text).map(|()| text.to_owned())
}

fn origin(text: &str) -> Result<String, http_server::GuardError> {
    http_server::check_origin(text).map(|()| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_limit_with_its_default() {
        use clap::Args as _;
        let command = ServeArguments::augment_args(clap::Command::new("serve"));
        let help = command.get_after_help().unwrap().to_string();
        for (name, default, _) in http_server::Limits::changeable() {
            assert!(help.contains(&format!("{name}={default}")), "{name}={default}");
        }
    }

    #[test]
    fn an_address_to_listen_at_may_be_short() {
        for (typed, address) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("localhost:80", "127.0.0.1:80"),
            ("0", "127.0.0.1:0"),
            ("[::1]:8808", "[::1]:8808"),
            ("0.0.0.0:99", "0.0.0.0:99"),
        ] {
            assert_eq!(listen_address(typed), Ok(address.parse().unwrap()));
        }
        for typed in ["", "x", "127.0.0.1", "localhost", "localhost:x", "70000", "example.com:80"] {
            assert!(listen_address(typed).is_err(), "{typed}");
        }
    }
}
