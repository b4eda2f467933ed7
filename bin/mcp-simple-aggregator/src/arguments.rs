//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use aggregator::{ClientLimits, MethodSet, NamePolicy, Options, Separator, ServerLimits, Surface};
use lexopt::{Arg, Parser, ValueExt};

/// Printed if the command line is invalid.
pub(crate) const USAGE: &str = "\
usage: mcp-simple-aggregator --config <FILE> [options]
hint: `mcp-simple-aggregator --help` explains the options";

const HELP: &str = "\
Serves the tools of many MCP servers as one MCP server over stdio.

usage: mcp-simple-aggregator --config <FILE> [options]

The config is the JSON that Claude Desktop and others use:
  {\"mcpServers\": {\"git\": {\"command\": \"uvx\", \"args\": [\"mcp-server-git\"], \"env\": {\"TOKEN\": \"${TOKEN}\"}}}}
$VAR, ${VAR} and ${VAR:-default} are replaced by environment variables. The tool `log` of the
server `git` is listed as `git:log`.

options:
  --config <FILE>      the servers to start (required)
  --separator <S>      the separator between server and tool [default: :]
  --names <POLICY>     auto: `server:tool`, but `server__tool` for clients known to refuse other
                       characters; canonical: always the first; safe: always the second
                       [default: auto]. A call is accepted under either name.
  --name <NAME>        the name reported to the client [default: mcp-simple-aggregator]
  --version <VERSION>  the version reported to the client [default: 1.0.0];
                       without a value: print the version of this program
  --debug              log everything, not only warnings and errors
  --log-file <FILE>    append the log to a file instead of writing it to stderr
  --help               print this help

environment:
  MCP_AGGREGATOR_START_TIMEOUT   seconds a server may take to become ready [default: 60]
  memory limits in kB; a server that exceeds one fails, and the others are not affected:
  MCP_AGGREGATOR_SERVER_HANDSHAKE_KB     its response to `initialize` [default: 1024]
  MCP_AGGREGATOR_SERVER_INSTRUCTIONS_KB  its instructions [default: 64]
  MCP_AGGREGATOR_ALL_INSTRUCTIONS_KB     the instructions of all servers [default: 1024]
  MCP_AGGREGATOR_SERVER_LIST_PAGES       pages of its list [default: 1000]
  MCP_AGGREGATOR_SERVER_CATALOG_KB       its list [default: 32768]
  MCP_AGGREGATOR_ALL_CATALOGS_KB         the lists of all servers [default: 131072]
  MCP_AGGREGATOR_SERVER_NOTIFICATION_KB  a notification [default: 4096]
  MCP_AGGREGATOR_SERVER_REQUESTS_KB      its pending requests [default: 32768]
  MCP_AGGREGATOR_SERVER_MESSAGE_KB       a message, results included [default: 262144]
  MCP_AGGREGATOR_SERVER_UNDELIVERED_KB   large messages that are not yet delivered [default: 262144]
  MCP_AGGREGATOR_ALL_UNDELIVERED_KB      the same of all servers [default: 524288]

exit status: 0 success, 1 the config cannot be used, 2 the command line is invalid";

/// What to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Serve.
    Serve(Box<Arguments>),
    /// Print this and exit.
    Print(String),
}

/// The options for serving.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub config: PathBuf,
    pub options: Options,
    pub debug: bool,
    pub log_file: Option<PathBuf>,
}

/// Parses the command line; the error is a sentence for the user.
pub(crate) fn parse(mut parser: Parser) -> Result<Action, String> {
    let mut config = None;
    let mut options = Options {
        name: "mcp-simple-aggregator".to_owned(),
        version: "1.0.0".to_owned(),
        separator: Separator::default(),
        names: NamePolicy::AutoCanonical,
        start_timeout: Duration::ZERO,
        answer_timeout: Duration::from_secs(300),
        surface: Surface::Full,
        withheld: &["MCP_AGGREGATOR_TOKEN", "MCP_CREDENTIAL_KEY"],
        servers_can_change: false,
        method_set: MethodSet::TOOLS,
        capabilities: "{}",
        server_limits: ServerLimits::from_environment()?,
        client_limits: ClientLimits::default(),
        awaits_client: false,
    };
    let (mut debug, mut log_file) = (false, None);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Arg::Long("config") => config = Some(PathBuf::from(value(&mut parser, "--config")?)),
            Arg::Long("separator") => options.separator = parsed(&mut parser, "--separator")?,
            Arg::Long("names") => {
                options.names = parsed::<NamePolicy>(&mut parser, "--names")?.canonical_for_unknown();
            }
            Arg::Long("name") => options.name = parsed(&mut parser, "--name")?,
            Arg::Long("version") => match optional_value(&mut parser)? {
                Some(version) => options.version = version,
                None => return Ok(Action::Print(format!("mcp-simple-aggregator {}", env!("CARGO_PKG_VERSION")))),
            },
            Arg::Long("debug") => debug = true,
            Arg::Long("log-file") => log_file = Some(PathBuf::from(value(&mut parser, "--log-file")?)),
            Arg::Long("help") | Arg::Short('h') => return Ok(Action::Print(HELP.to_owned())),
            Arg::Short('V') => {
                return Ok(Action::Print(format!("mcp-simple-aggregator {}", env!("CARGO_PKG_VERSION"))));
            }
            Arg::Value(value) => {
                return Err(format!("unexpected argument `{}`; a config is given with --config", value.display()));
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    let config = config.ok_or("no config given: --config <FILE> is required")?;
    options.start_timeout = aggregator::load::start_timeout()?;
    Ok(Action::Serve(Box::new(Arguments { config, options, debug, log_file })))
}

fn value(parser: &mut Parser, option: &str) -> Result<std::ffi::OsString, String> {
    let value = parser.value().map_err(|_| format!("{option} needs a value"))?;
    if value.is_empty() { Err(format!("{option} must not be empty")) } else { Ok(value) }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(parser: &mut Parser, option: &str) -> Result<T, String> {
    let text = value(parser, option)?.string().map_err(|error| format!("{option}: {error}"))?;
    text.parse().map_err(|error| format!("{option} {text:?}: {error}"))
}

/// The value of an option that may have none: after `=`, or the next argument if it is not an option.
fn optional_value(parser: &mut Parser) -> Result<Option<String>, String> {
    let text = |value: std::ffi::OsString| value.string().map_err(|error| error.to_string());
    if let Some(value) = parser.optional_value() {
        return text(value).map(Some);
    }
    let mut rest = parser.raw_args().map_err(|error| error.to_string())?;
    match rest.next_if(|next| !next.as_encoded_bytes().starts_with(b"-")) {
        Some(value) => text(value).map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(arguments: &[&str]) -> Result<Action, String> {
        parse(Parser::from_args(arguments))
    }

    fn serve(arguments: &[&str]) -> Arguments {
        match action(arguments) {
            Ok(Action::Serve(arguments)) => *arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        let Arguments { config, options, debug, log_file } = serve(&["--config", "c.json"]);
        assert_eq!(config, PathBuf::from("c.json"));
        assert_eq!((options.name.as_str(), options.version.as_str()), ("mcp-simple-aggregator", "1.0.0"));
        assert_eq!((options.separator.as_str(), options.names), (":", NamePolicy::AutoCanonical));
        assert_eq!(options.start_timeout, Duration::from_secs(60));
        assert!(!debug && log_file.is_none());
    }

    #[test]
    fn the_help_lists_every_limit_with_its_default() {
        for limit in aggregator::Limit::ALL {
            let line = HELP.lines().find(|line| line.split_whitespace().next() == Some(&limit.variable()));
            let default = format!("[default: {}]", limit.default_value());
            assert!(line.is_some_and(|line| line.ends_with(&default)), "{} {default}", limit.variable());
        }
    }

    #[test]
    fn version_with_a_value_is_reported_and_without_one_is_printed() {
        assert_eq!(serve(&["--config", "c", "--version", "2.5"]).options.version, "2.5");
        assert_eq!(serve(&["--version=3", "--config=c"]).options.version, "3");
        for arguments in [&["--version"][..], &["--config", "c", "--version"], &["--version", "--config", "c"]] {
            let Ok(Action::Print(text)) = action(arguments) else { panic!("{arguments:?}") };
            assert!(text.contains(env!("CARGO_PKG_VERSION")));
        }
    }

    #[test]
    fn every_mistake_is_named() {
        for (arguments, expected) in [
            (&[][..], "--config <FILE> is required"),
            (&["--config"], "--config needs a value"),
            (&["c.json"], "`c.json`"),
            (&["--config", "c", "--separator", ""], "--separator must not be empty"),
            (&["--config", "c", "--separator", "a b"], "white space"),
            (&["--config", "c", "--names", "nice"], "nice"),
            (&["--config", "c", "--bogus"], "--bogus"),
        ] {
            let error = action(arguments).unwrap_err();
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
    }
}
