//! How the command line explains itself: in ten lines to who types nothing else, and with verbs in groups by `--help`.

use std::fmt::Write;

use clap::Command;

/// What is said to who types the bare name.
///
/// It goes to stderr with exit status 2: an MCP client whose config forgot the `stdio` must neither read words where
/// messages are expected nor think that all went well.
pub(crate) const OVERVIEW: &str = "\
mcp-aggregator: many MCP servers in, one endpoint out.
Usage: mcp-aggregator <COMMAND>

Try:
  mcp-aggregator demo               a service with two small servers, to look around; Ctrl-C ends it
  mcp-aggregator import --dry-run   which servers do other programs on this machine have?
  mcp-aggregator serve              a service for all your clients, at http://127.0.0.1:8808/mcp

`mcp-aggregator --help` shows all commands, `mcp-aggregator help <COMMAND>` tells more about one.
`mcp-aggregator doctor` looks for what is wrong, and says what to do.";

/// What `--help` tells behind the options.
pub(super) const EXAMPLES: &str = "\
The config is the JSON that Claude Desktop and others use:
  {\"mcpServers\": {\"git\": {\"command\": \"uvx\", \"args\": [\"mcp-server-git\"], \"env\": {\"TOKEN\": \"${TOKEN}\"}}}}
$VAR, ${VAR} and ${VAR:-default} are filled in from the environment. The tool `git_log` of the server
`git` is offered as `git.git_log`. Servers over HTTP have a `url`, and `headers` and a `type` (http, sse) if need be.
Servers in containers have a `docker` block with an `image`; Docker or Podman runs them.
Any server may have a `timeout` (milliseconds for a call), an `era` (legacy, modern) and be `disabled`.

Examples:
  mcp-aggregator check --config mcp.json              is the config right?
  mcp-aggregator check --config mcp.json --start      do all the servers start?
  mcp-aggregator tools --config mcp.json              what can they do?
  mcp-aggregator call  --config mcp.json git.git_log repo_path=. max_count=3
  mcp-aggregator stdio --config mcp.json              serve them all as one (for your MCP client)
  mcp-aggregator serve --config mcp.json              the same over HTTP, for many clients
  mcp-aggregator serve                                a service whose servers are added and removed while it runs:
  mcp-aggregator add memory -- npx -y @modelcontextprotocol/server-memory
  mcp-aggregator list
  mcp-aggregator call memory.read_graph
  mcp-aggregator search remember something
  mcp-aggregator run notes.md                         run the tools that a document names
  mcp-aggregator ask \"What time is it in Rome?\"       ask a model that may use the tools
  mcp-aggregator status
  mcp-aggregator import --dry-run                     which servers do other programs on this machine have?

Verbs for registered servers find the service that runs on this machine, or work on its registry if none runs.

Environment:
  MCP_AGGREGATOR_START_TIMEOUT   seconds a server may take to become ready [default: 60]
  MCP_AGGREGATOR_ANSWER_TIMEOUT  seconds a client of 2026-07-28 may take to come back with what an older
                                 server has asked it; then the call is cancelled [default: 300]
  MCP_AGGREGATOR_SERVER_CATALOG_KB and others
                                 what servers may make us hold; docs/security.md has all of them. `serve` has
                                 settings instead
  MCP_AGGREGATOR_LIMITS          limits of clients of `serve`; see `mcp-aggregator help serve`
  MCP_AGGREGATOR_TOKEN           a token that clients of `serve` must have, and that commands send to a service
  MCP_CREDENTIAL_KEY             the key that credentials in the registry are sealed with
                                 [default: the file credential.key in the data directory]
  DOCKER_HOST                    where the container engine is [default: the usual places of Docker and Podman]
  OTEL_EXPORTER_OTLP_ENDPOINT    where `serve` sends traces of calls; see `mcp-aggregator help serve`

Exit status:
  0 all went well                        2 the command line makes no sense
  1 config, server or call failed        3 the tool ran, and says that it failed
  130 interrupted

`mcp-aggregator help <command>` tells more about each.";

/// The verbs, by what somebody wants who reads the list. Each stands in one group; a test sees to it.
const GROUPS: &[(&str, &[&str])] = &[
    ("Serve", &["serve", "stdio", "demo"]),
    (
        "Look and try",
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
    ("This program", &["settings", "completions", "man", "help"]),
];

/// The command with its verbs in groups.
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
    // Only a built command has the verb `help`.
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

/// As the library writes its own headings. Where there is no terminal, or colours are not wanted, it takes them out again.
fn heading(command: &Command, title: &str) -> String {
    let style = command.get_styles().get_header();
    format!("{style}{title}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::CommandFactory;

    #[test]
    fn every_verb_is_in_one_group() {
        let mut command = Arguments::command();
        command.build();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let groups = GROUPS.iter().filter(|(_, verbs)| verbs.contains(&verb.get_name())).count();
            assert_eq!(groups, 1, "`{}` must be in one of the groups of arguments/help.rs", verb.get_name());
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
    fn who_types_nothing_is_told_in_ten_lines() {
        assert_eq!(OVERVIEW.lines().count(), 10);
        assert!(OVERVIEW.lines().all(|line| line.chars().count() <= 100));
    }
}
