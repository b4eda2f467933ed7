//! Arguments of several commands. Those that select the service are in [`target`](crate::target).

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use aggregator::{NamePolicy, Separator, logging};
use catalog::Role;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::failure::Failure;
use crate::target::TargetArguments;

/// Help of options of several commands.
pub(crate) const SERVER: &str = "The server, by name or id";
pub(crate) const REST_JSON: &str = "Print the response of the REST API, which is JSON";
pub(crate) const DEBUG: &str = "Log everything to stderr, not only warnings and errors";
pub(crate) const FORCE: &str = "Cancel calls in progress instead of waiting for them";
pub(crate) const CONFIG_INSTEAD_OF_SERVICE: &str =
    "Start the servers of this config, instead of using those of the running service";
pub(crate) const CONFIG_INSTEAD_OF_REGISTRY: &str =
    "Read the servers of this config, instead of those of the service or the registry; none is started";

/// The separator between server and tool, unless the user chooses another.
const SEPARATOR: &str = ".";

/// The separator where no user sees it.
pub(crate) fn usual_separator() -> Separator {
    SEPARATOR.parse().expect("it is the default on the command line, too")
}

/// Parses one of these values, so that shells can complete them.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}

/// Parses a role, so that shells can complete it.
pub(crate) fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str))
        .try_map(|word| Role::named(&word).ok_or("there is no such role"))
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgument {
    /// The config file: JSON with `mcpServers`, as Claude Desktop and other clients use it
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct SeparatorArgument {
    /// The separator between server and tool in a name
    #[arg(long, value_name = "S", default_value = SEPARATOR)]
    pub(crate) separator: Separator,
}

#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    #[command(flatten)]
    pub(crate) separator: SeparatorArgument,
    /// How tools are named: `canonical` is server.tool, `safe` is server__tool, `auto` is canonical for
    /// clients that are known to accept it, and safe for all others. Calls may use either name
    #[arg(long, verbatim_doc_comment, value_name = "auto|canonical|safe", default_value_t = NamePolicy::Auto,
        value_parser = one_of::<NamePolicy>(&["auto", "canonical", "safe"]), hide_possible_values = true)]
    pub(crate) names: NamePolicy,
}

/// A server, and the output format.
#[derive(Debug, Args)]
pub(crate) struct OneServer {
    #[arg(value_name = "SERVER", help = SERVER)]
    pub(crate) server: String,
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// An address to listen on, as users write it.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let local = |port: &str| port.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let named = text.strip_prefix("localhost:").and_then(local);
    let parsed = text.parse().ok().or(named).or_else(|| local(text));
    parsed.ok_or_else(|| {
        "expected an address and a port, such as 127.0.0.1:8808 or [::1]:8808, or only a port".to_owned()
    })
}

/// Where `serve` listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// What precedes the path of a Unix socket.
pub(crate) const UNIX_PREFIX: &str = "unix:";

impl fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(path) => write!(out, "{UNIX_PREFIX}{}", path.display()),
        }
    }
}

/// An address to listen on, or the path of a Unix socket.
pub(crate) fn serve_address(text: &str) -> Result<ListenAddress, String> {
    let Some(path) = text.strip_prefix(UNIX_PREFIX) else {
        let address = listen_address(text).map(ListenAddress::Tcp);
        return address.map_err(|expected| format!("{expected}; or unix: and the path of a socket"));
    };
    if path.is_empty() {
        return Err("expected the path of a socket after unix:, as in unix:/run/mcp-aggregator.sock".to_owned());
    }
    // Commands in other folders use the same path.
    std::path::absolute(path).map(ListenAddress::Unix).map_err(|error| error.to_string())
}

/// Permissions of a file, in octal digits.
pub(crate) fn file_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "expected permissions in octal digits, such as 660".to_owned())
}

/// Which tools a document or an assistant may use.
#[derive(Debug, Args)]
pub(crate) struct ServersArguments {
    #[arg(long, value_name = "FILE", help = CONFIG_INSTEAD_OF_SERVICE, conflicts_with_all = ["url", "token_file", "data_dir", "database"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    #[arg(long, help = DEBUG)]
    pub(crate) debug: bool,
}

/// What a server process logs, and where.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// Log everything, not only warnings and errors
    #[arg(long)]
    debug: bool,
    /// Append the log to this file instead of writing it to stderr
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
}

impl LogArguments {
    pub(crate) fn init(&self) -> Result<(), Failure> {
        let file = self.log_file.as_deref();
        logging::init(self.debug, file).map_err(|error| {
            let path = file.unwrap_or("-".as_ref()).display();
            Failure::new(format!("could not open log file {path}: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(serve_address("unix:/run/x.sock"), Ok(ListenAddress::Unix("/run/x.sock".into())));
        assert!(serve_address("unix:x.sock").unwrap().to_string().ends_with("/x.sock"), "it is a whole path");
        assert!(serve_address("unix:").unwrap_err().contains("path of a socket"));
        assert!(serve_address("x").unwrap_err().contains("unix:"));
        assert_eq!((file_mode("660"), file_mode("888").is_ok(), file_mode("1777").is_ok()), (Ok(0o660), false, false));
        for typed in ["", "x", "127.0.0.1", "localhost", "localhost:x", "70000", "example.com:80"] {
            assert!(listen_address(typed).is_err(), "{typed}");
        }
    }
}
