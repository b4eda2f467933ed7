//! `serve`: serves all servers as one MCP server over HTTP, for many clients.
//!
//! - `plan`: the options, read and checked
//! - `server`: `build` connects the parts, `run` serves until shutdown, `drain` ends everything in order
//! - `location`: reports where the service listens, to users and commands

mod location;
mod plan;
mod server;

use std::io;
use std::path::PathBuf;

use aggregator::{Signals, Surface, raise_open_files};
use clap::Args;
use http_server::TrustedProxy;

use super::environment;
use crate::access::Access;
use crate::assistant::AssistantArguments;
use crate::cli::shared::{ListenAddress, LogArguments, NameArguments, file_mode, one_of, serve_address};
use crate::failure::Failure;
use crate::identity_args::IdentityArguments;
use crate::model_args::SearchModelArguments;
use crate::socket_activation;
use crate::storage::StorageArguments;
use crate::tls_files::TlsArguments;
use plan::Plan;

pub(crate) use location::{Addresses, print_location};

/// Help of `--json`, which `demo` also has.
pub(crate) const JSON_HELP: &str = "\
Print the addresses as one line of JSON when the service is ready:
{\"url\", \"mcp\", \"public_url\", \"has_tokens\", \"reachable_by\", \"token_file\", \"pid\"}";

fn after_help() -> String {
    format!(
        "\
In the config of your MCP client:
  {{\"mcpServers\": {{\"all\": {{\"type\": \"http\", \"url\": \"http://127.0.0.1:8808/mcp\"}}}}}}
with a token:
  {{\"mcpServers\": {{\"all\": {{\"type\": \"http\", \"url\": \"http://127.0.0.1:8808/mcp\",
                          \"headers\": {{\"Authorization\": \"Bearer <token>\"}}}}}}}}

Who can use the service:
  Without tokens, only the user that runs it, and root, on this machine; --listen accepts only local addresses.
  On systems that do not report the user of a connection, requests need the token in the file local.token of the
  data directory; commands of mcp-aggregator send it automatically.
  --token-file FILE      one `name:token[:role[:profile]]` per line; # begins a comment
  MCP_AGGREGATOR_TOKEN   one more token, named `default`
  --oauth-issuer URL     everybody to whom this identity provider issues tokens for --public-url
  Clients send `Authorization: Bearer <token>`. It is not passed to servers.
  Requests for other host names, or from web pages of other origins, are refused unless you allow them. Pages of
  other ports on this machine may use MCP, but not REST or the console.

Limits of clients (--limit NAME=VALUE, or several in MCP_AGGREGATOR_LIMITS; limits of servers are settings):
{}
Traces of calls, for an OpenTelemetry collector (OTLP, http/protobuf):
{}
Examples:
  mcp-aggregator serve --config mcp.json
  mcp-aggregator serve --config mcp.json --listen 9000
  mcp-aggregator serve --database postgres://me@localhost/mcp
  curl http://127.0.0.1:8808/health
  mcp-aggregator serve --config mcp.json --listen 0.0.0.0:443 --token-file tokens --tls-cert fullchain.pem \\
    --tls-key privkey.pem --public-url https://mcp.example.com
  echo \"laptop:$(openssl rand -hex 32)\" > tokens
  mcp-aggregator serve --config mcp.json --listen 0.0.0.0:8808 --token-file tokens --allow-host mcp.example.com
  MCP_AGGREGATOR_TOKEN=<token> mcp-aggregator serve --config mcp.json",
        limit_rows(),
        environment::help_rows(&[
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            "OTEL_SERVICE_NAME",
            "OTEL_RESOURCE_ATTRIBUTES",
            "OTEL_TRACES_SAMPLER",
            "OTEL_TRACES_SAMPLER_ARG",
        ])
    )
}

/// Every limit of clients with its default.
fn limit_rows() -> String {
    let limits = http_server::Limits::changeable().into_iter();
    let rows: Vec<_> = limits.map(|(name, default, about)| (format!("{name}={default}"), about)).collect();
    let width = rows.iter().map(|(limit, _)| limit.len()).max().unwrap_or_default();
    rows.iter().map(|(limit, about)| format!("  {limit:width$}  {about}\n")).collect()
}

/// Serve all servers as one MCP server over HTTP, for many clients at once.
///
/// The service supports clients of every protocol revision: Streamable HTTP at /mcp, the deprecated HTTP+SSE at /sse.
/// /mcp/<server> and /sse/<server> serve one server alone, with its own tool names. /health reports the health of the
/// service, /metrics has metrics for Prometheus.
/// All clients share the same servers. A request of a server goes only to the client that it concerns.
/// The servers come from the registry and, with --config, from a config file. You can change the registry while the
/// service runs: with commands, in the console, or with the REST API (see /api/docs). The service reloads the config
/// file when it changes.
/// On a signal, the service exits after requests in progress have had ten seconds to finish. A second signal ends them
/// immediately.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = after_help())]
pub(crate) struct ServeArguments {
    /// A config file with more servers: JSON with `mcpServers`, as Claude Desktop and other clients use it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) storage: StorageArguments,
    /// How long to wait at start for an unreachable PostgreSQL; 0 does not wait. Wrong credentials and a missing
    /// database fail immediately [default: MCP_AGGREGATOR_DATABASE_WAIT, or 60]
    #[arg(long, verbatim_doc_comment, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=crate::database_wait::MAX_WAIT_SECONDS))]
    pub(crate) database_wait: Option<u64>,
    /// Where to listen: ADDRESS:PORT, a port on localhost, or a Unix socket as in unix:/run/mcp-aggregator.sock. Sockets
    /// that systemd passes to the service are used instead
    #[arg(long, verbatim_doc_comment, value_name = "ADDRESS", default_value = "127.0.0.1:8808", value_parser = serve_address)]
    pub(crate) listen: ListenAddress,
    /// The permissions of the Unix socket, such as 660. Without tokens, only the user of the service and root are
    /// served, whoever may connect [default: 600]
    #[arg(long, verbatim_doc_comment, value_name = "MODE", value_parser = file_mode)]
    pub(crate) socket_mode: Option<u32>,
    /// The file that contains the tokens of clients, one `name:token[:role[:profile]]` per line. Roles are user (MCP and
    /// calls), operator (also servers, no secrets) and admin, which is the default
    #[arg(long, verbatim_doc_comment, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tls: TlsArguments,
    /// A proxy in front of the service: an address, or a network such as 10.0.0.0/8. Its X-Forwarded-For,
    /// X-Forwarded-Proto and Forwarded headers are believed, and those of nobody else; may be repeated
    #[arg(long, verbatim_doc_comment, value_name = "ADDRESS")]
    pub(crate) trusted_proxy: Vec<TrustedProxy>,
    /// Accept requests for this host name, besides localhost and the listening address; may be repeated
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub(crate) allow_host: Vec<String>,
    /// Allow web pages of this origin to use MCP, REST and the console; may be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    pub(crate) allow_origin: Vec<String>,
    /// The URL at which users and their clients reach this service, such as https://mcp.example.com: sign-ins to servers
    /// come back there, and `client add` configures it [default: the address it listens on]
    #[arg(long, verbatim_doc_comment, value_name = "URL", value_parser = public_url)]
    pub(crate) public_url: Option<String>,
    /// The public address of a client ID metadata document that names this service and its redirect address, for
    /// providers that accept one; `client_metadata_url` in a server's `oauth` overrides it
    #[arg(long, verbatim_doc_comment, value_name = "URL", value_parser = client_metadata_url)]
    pub(crate) client_metadata_url: Option<String>,
    /// Do not follow registered servers to private, link-local or otherwise special addresses when somebody signs in to
    /// them; loopback addresses and servers of the config file are not affected
    #[arg(long, verbatim_doc_comment)]
    pub(crate) deny_private_networks: bool,
    #[command(flatten)]
    pub(crate) names: NameArguments,
    /// A file that adds skills, or redefines built-in ones: a JSON array of {"id", "name", "description",
    /// "examples": []}; `mcp-aggregator skills --json` prints all skills
    #[arg(long, verbatim_doc_comment, value_name = "FILE")]
    pub(crate) skills: Option<PathBuf>,
    /// Store embeddings of tools in Qdrant and search them there: http://HOST[:PORT][/COLLECTION], with the gRPC
    /// port. Its key is in QDRANT_API_KEY. Needs a build with the feature `qdrant` [default: the variable MCP_VECTORS]
    #[arg(long, verbatim_doc_comment, value_name = "URL")]
    pub(crate) vectors: Option<String>,
    /// Which tools clients see: `full` lists every tool, `search` lists three tools that find and call all others,
    /// `grow` also lists the tools that were found, `auto` lists every tool up to the number the client accepts (100 if
    /// unknown), and the search tools otherwise. A client can choose with its URL: /mcp?surface=search
    #[arg(long, verbatim_doc_comment, value_name = "full|search|grow|auto", default_value_t = Surface::Full,
        value_parser = one_of::<Surface>(&["full", "search", "grow", "auto"]), hide_possible_values = true)]
    pub(crate) surface: Surface,
    /// A folder with Markdown documents, which REST and the console can list, read, run and edit. Files outside the
    /// folder are not accessible, and symbolic links are not followed
    #[arg(long, verbatim_doc_comment, value_name = "DIR")]
    pub(crate) documents: Option<PathBuf>,
    /// The name reported to clients
    #[arg(long, value_name = "NAME", default_value = "mcp-aggregator")]
    pub(crate) name: String,
    #[arg(long, help = JSON_HELP)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) log: LogArguments,
    /// Change a limit of clients, such as sessions=2000; may be repeated. All limits are listed below
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = limit)]
    pub(crate) limits: Vec<String>,
    /// Do not record calls of MCP clients, for the benchmark
    #[arg(long, hide = true)]
    pub(crate) no_history: bool,
    // Last, because their headings apply to all options after them.
    #[command(flatten)]
    pub(crate) identity: IdentityArguments,
    #[command(flatten)]
    pub(crate) search_models: SearchModelArguments,
    #[command(flatten)]
    pub(crate) assistant: AssistantArguments,
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

/// The origin, and perhaps a path, without a slash at its end.
fn public_url(text: &str) -> Result<String, String> {
    let expected = "expected an address such as https://mcp.example.com";
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}; {expected}"))?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if !is_web || !has_host || uri.query().is_some() || text.contains('#') {
        return Err(expected.to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// The address is the id of the client: providers fetch it, and compare it byte for byte.
fn client_metadata_url(text: &str) -> Result<String, String> {
    let expected = "expected an https address with a path, such as https://mcp.example.com/client.json";
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}; {expected}"))?;
    let has_host = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    let is_document = uri.scheme_str() == Some("https") && has_host && uri.path().len() > 1 && !text.contains('#');
    if is_document { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

/// The number of file descriptors that suffices for all connections and servers.
const DESCRIPTORS: u64 = 16_384;

pub(crate) fn run(arguments: ServeArguments) -> Result<(), Failure> {
    let as_json = arguments.json;
    run_announced(arguments, Signals::respecting_nohup, |addresses, access| match as_json {
        true => print_location(addresses, access),
        false => location::announce(addresses, access),
    })
}

/// Serves until a signal; `announce` prints the address, and who can use the service.
pub(crate) fn run_announced(
    arguments: ServeArguments,
    signals: impl FnOnce() -> io::Result<Signals>,
    announce: impl FnOnce(&Addresses, &Access),
) -> Result<(), Failure> {
    arguments.log.init()?;
    let passed = socket_activation::take()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| start(&error))?;
    let plan = Plan::read(arguments, passed, runtime.handle())?;
    make_room_for_connections();
    runtime.block_on(async {
        let mut signals = signals().map_err(|error| start(&error))?;
        let Some(mut server) = Box::pin(server::build(plan, &mut signals)).await? else { return Ok(()) };
        announce(server.addresses(), server.access());
        let served = server.run(signals.next()).await;
        let drained = server.drain(&mut signals).await;
        served.and(drained).map_err(|error| Failure::new(format!("could not serve: {error}")))
    })
}

/// Every client needs one or two file descriptors. Some systems have a low limit by default, which a program may raise;
/// servers keep the original limit.
fn make_room_for_connections() {
    if let Err(error) = raise_open_files(DESCRIPTORS) {
        tracing::debug!(%error, "could not raise the limit of open files");
    }
}

fn start(error: &io::Error) -> Failure {
    Failure::new(format!("could not start: {error}"))
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
}
