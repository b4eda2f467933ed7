//! The help texts of the command line as a whole: the overview in ten lines, and `--help` with commands in groups.

use std::fmt::Write;

use clap::Command;

use crate::commands::environment;
use crate::target::SERVICE_URL;

/// Printed if no command is given.
///
/// It goes to stderr with exit status 2: an MCP client whose config forgot the `stdio` must neither read text where
/// messages are expected nor assume success.
pub(crate) const OVERVIEW: &str = "\
mcp-aggregator: many MCP servers in, one endpoint out.
Usage: mcp-aggregator <COMMAND>

Try:
  mcp-aggregator demo               start a demo service with two small servers; Ctrl-C ends it
  mcp-aggregator import --dry-run   find the servers of MCP clients on this machine
  mcp-aggregator serve              start a service for your clients at http://127.0.0.1:8808/mcp

`mcp-aggregator --help` lists all commands, `mcp-aggregator help <COMMAND>` describes one.
`mcp-aggregator doctor` diagnoses problems and suggests how to fix them.";

/// The text of `--help` after the options.
pub(super) fn after_help() -> String {
    format!(
        "\
The config is JSON with `mcpServers`, as Claude Desktop and other clients use it:
  {{\"mcpServers\": {{\"git\": {{\"command\": \"uvx\", \"args\": [\"mcp-server-git\"], \"env\": {{\"TOKEN\": \"${{TOKEN}}\"}}}}}}}}
$VAR, ${{VAR}} and ${{VAR:-default}} are replaced by environment variables. Clients see the tool `git_log` of the server
`git` as `git.git_log`. A server over HTTP has a `url` and, if needed, `headers` and a `type` (http, sse).
A server in a container has a `docker` block with an `image`; Docker or Podman runs it.
Every server can have a `timeout` (of a call, in milliseconds), an `era` (legacy, modern) and be `disabled`.

Examples:
  mcp-aggregator check --config mcp.json              check the config
  mcp-aggregator check --config mcp.json --start      check that all servers start
  mcp-aggregator tools --config mcp.json              list their tools
  mcp-aggregator call  --config mcp.json git.git_log repo_path=. max_count=3
  mcp-aggregator stdio --config mcp.json              serve them all as one, for an MCP client
  mcp-aggregator serve --config mcp.json              the same over HTTP, for many clients
  mcp-aggregator serve                                a service; add and remove servers while it runs:
  mcp-aggregator add memory -- npx -y @modelcontextprotocol/server-memory
  mcp-aggregator list
  mcp-aggregator call memory.read_graph
  mcp-aggregator search remember something
  mcp-aggregator run notes.md                         run the tool calls in a document
  mcp-aggregator ask \"What time is it in Rome?\"       ask a model that can use the tools
  mcp-aggregator status
  mcp-aggregator import --dry-run                     find the servers of MCP clients on this machine

Commands for registered servers use the service that runs on this machine, or its registry if none runs.

Environment:
{}  MCP_AGGREGATOR_SERVER_CATALOG_KB and others
                                 Limits of servers, for `stdio` and commands with --config; `serve` has settings
                                 instead. docs/security.md describes them

Exit status:
  0 success                              2 invalid command line
  1 config, server or call failed        3 the tool ran and reported an error
  130 interrupted

`mcp-aggregator help <command>` describes a command.",
        environment::help_rows(&[
            "MCP_AGGREGATOR_START_TIMEOUT",
            "MCP_AGGREGATOR_ANSWER_TIMEOUT",
            "MCP_AGGREGATOR_LIMITS",
            "MCP_AGGREGATOR_TOKEN",
            "MCP_CREDENTIAL_KEY",
            "DOCKER_HOST",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ])
    )
}

/// The commands in groups. A test checks that each is in one group.
const GROUPS: &[(&str, &[&str])] = &[
    ("Serve", &["serve", "stdio", "demo"]),
    (
        "Inspect and try",
        &[
            "check",
            "doctor",
            "status",
            "top",
            "tools",
            "call",
            "calls",
            "search",
            "skills",
            "prompts",
            "resources",
            "clients",
        ],
    ),
    (
        "Servers",
        &[
            "add",
            "remove",
            "list",
            "show",
            "enable",
            "disable",
            "login",
            "logout",
            "connect",
            "disconnect",
            "restart",
            "logs",
            "test",
            "history",
        ],
    ),
    ("Other programs", &["client", "import", "export"]),
    ("Documents", &["run", "doc", "ask", "context"]),
    ("This program", &["settings", "profiles", "limits", "completions", "man", "licenses", "help"]),
];

/// Commands that use the registry if no service runs. All others with `--url` need a service.
const REGISTRY_VERBS: &[&str] = &[
    "add", "disable", "doc", "doctor", "enable", "export", "history", "import", "limits", "list", "names", "remove",
    "settings", "show", "tools",
];

/// The command line with summaries that all end without a full stop, and with the right default of `--url`.
pub(crate) fn consistent(command: Command) -> Command {
    command.mut_subcommands(|verb| {
        let needs_service = !REGISTRY_VERBS.contains(&verb.get_name());
        let is_tools = verb.get_name() == "tools";
        // `tools` lists what the registry has; `tools on` and `tools off` need a service.
        with_help(verb, needs_service).mut_subcommands(|below| with_help(below, needs_service || is_tools))
    })
}

fn with_help(verb: Command, needs_service: bool) -> Command {
    let summary = verb.get_about().map(|about| about.to_string().trim_end_matches('.').to_owned());
    let verb = match summary {
        Some(summary) => verb.about(summary),
        None => verb,
    };
    let has_url = verb.get_arguments().any(|argument| argument.get_id() == "url");
    if needs_service && has_url { verb.mut_arg("url", |url| url.help(SERVICE_URL)) } else { verb }
}

/// The command line with its commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{}:\n{{options}}{{after-help}}",
        groups(&command),
        heading(&command, "Options"),
    );
    command.help_template(template)
}

fn groups(command: &Command) -> String {
    let mut command = command.clone();
    // The command `help` only exists after the command line is built.
    command.build();
    let literal = command.get_styles().get_literal();
    let width = command.get_subcommands().map(|verb| verb.get_name().len()).max().unwrap_or_default();
    let mut text = String::new();
    for (title, verbs) in GROUPS {
        let written = writeln!(text, "{}:", heading(&command, title));
        written.expect("writing to a string cannot fail");
        for verb in verbs.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let written = writeln!(text, "  {literal}{:width$}{literal:#}  {about}", verb.get_name());
            written.expect("writing to a string cannot fail");
        }
        text.push('\n');
    }
    text
}

/// A heading in the style of clap, which removes the colours if they are not supported.
fn heading(command: &Command, title: &str) -> String {
    let style = command.get_styles().get_header();
    format!("{style}{title}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Arguments;
    use clap::CommandFactory;

    #[test]
    fn every_verb_is_in_one_group() {
        let mut command = Arguments::command();
        command.build();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let groups = GROUPS.iter().filter(|(_, verbs)| verbs.contains(&verb.get_name())).count();
            assert_eq!(groups, 1, "`{}` must be in one of the groups of cli/help.rs", verb.get_name());
        }
    }

    #[test]
    fn summaries_end_without_a_full_stop_and_the_default_of_url_is_right() {
        let whole = consistent(Arguments::command());
        for name in REGISTRY_VERBS {
            assert!(whole.find_subcommand(name).is_some(), "`{name}` is not a command");
        }
        for verb in whole.get_subcommands().flat_map(|verb| verb.get_subcommands().chain([verb])) {
            let summary = verb.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!summary.ends_with('.'), "{}: {summary}", verb.get_name());
        }
        let default_of = |path: &[&str]| {
            let verb = path.iter().fold(&whole, |verb, name| verb.find_subcommand(name).unwrap());
            let url = verb.get_arguments().find(|argument| argument.get_id() == "url").unwrap();
            url.get_help().unwrap().to_string()
        };
        for path in [&["status"][..], &["tools", "off"], &["skills"], &["call"]] {
            assert!(!default_of(path).contains("registry"), "{path:?} needs a service");
        }
        for path in [&["list"][..], &["tools"], &["doc", "bind"]] {
            assert!(default_of(path).contains("registry"), "{path:?} can use the registry");
        }
    }

    #[test]
    fn every_verb_fits_on_a_line() {
        let help = grouped(Arguments::command()).render_help().to_string();
        let verbs = help.lines().filter(|line| line.starts_with("  ") && !line.contains("mcp-aggregator"));
        for line in verbs.take_while(|line| !line.contains("--help")) {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }

    #[test]
    fn the_overview_has_ten_lines() {
        assert_eq!(OVERVIEW.lines().count(), 10);
        assert!(OVERVIEW.lines().all(|line| line.chars().count() <= 100));
    }
}
