//! `client`: configures MCP clients to use mcp-aggregator, lists them, and restores their configs.

use std::path::{Path, PathBuf};

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{client_setup, list};
use crate::client_config::duplicates::duplicates;
use crate::client_config::entry;
use crate::commands::connect::ConnectArguments;
use crate::failure::Failure;
use crate::import::clients::{Client, Machine};
use crate::import::jsonc;
use crate::import::plan::is_ours;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::target::TargetArguments;
use crate::{command_hint, session};

/// Help of the argument that names a client.
const CLIENT_HELP: &str = "The client: claude-desktop, claude-code, cursor or vscode";

/// The default name of our entry in a client's config.
pub(crate) const DEFAULT_ENTRY: &str = "all";

/// Change the config files of MCP clients so that they use mcp-aggregator, and restore them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator client list
  mcp-aggregator client add cursor --dry-run
  mcp-aggregator client add cursor --replace
  mcp-aggregator client remove cursor")]
pub(crate) struct ClientArguments {
    #[command(subcommand)]
    pub(crate) verb: ClientVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientVerb {
    Add(ClientAddArguments),
    Remove(ClientRemoveArguments),
    List(ClientListArguments),
}

/// Change the config of a client so that it uses mcp-aggregator.
///
/// The client uses the running service (with its token, if it has one), or starts mcp-aggregator itself (--stdio).
/// This command writes one entry, and keeps comments and everything else in the file. It reports servers in the
/// client's config that mcp-aggregator serves, too; --replace removes them there.
/// A backup of the file is stored next to it; --undo or `client remove` restores it. If the file was edited in the
/// meantime, only the changes of this command are undone.
/// Config files of a project are meant to be shared, so they contain a reference to MCP_AGGREGATOR_TOKEN instead of the
/// token. Set this variable where you start the client.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator client add cursor --dry-run                      shows what would change in Cursor's config
  mcp-aggregator client add cursor
  mcp-aggregator client add cursor --replace                      also removes servers that mcp-aggregator serves
  mcp-aggregator client add cursor --undo                         restores its config
  mcp-aggregator client add vscode --project                      only for the project in this folder
  mcp-aggregator client add claude-desktop --stdio --config mcp.json
  mcp-aggregator client add claude-code --url http://mcp.example.com:8808 --token-file token"
)]
pub(crate) struct ClientAddArguments {
    #[arg(value_name = "CLIENT", help = CLIENT_HELP, value_parser = client_word(), hide_possible_values = true)]
    pub(crate) client: Client,
    /// Print JSON: {"client", "file", "changed", "backup", "duplicates", "removed"}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    #[command(flatten)]
    pub(crate) options: ClientOptions,
}

/// How to change a client's config.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// Let the client start mcp-aggregator, instead of using a running service
    #[arg(long, requires = "config", conflicts_with_all = ["url", "undo"])]
    pub(crate) stdio: bool,
    /// The config file for --stdio
    #[arg(long, value_name = "FILE", requires = "stdio")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) entry_options: ClientEntryOptions,
    /// Remove servers from the client's config that mcp-aggregator also serves
    #[arg(long, conflicts_with = "undo")]
    pub(crate) replace: bool,
    /// Restore the file
    #[arg(long)]
    pub(crate) undo: bool,
}

/// Which entry of which file.
#[derive(Debug, Args)]
pub(crate) struct ClientEntryOptions {
    /// Change the config of the project in this folder, instead of the user's config
    #[arg(long)]
    pub(crate) project: bool,
    /// The name of the entry in the client's config
    #[arg(long = "as", value_name = "NAME", default_value = DEFAULT_ENTRY, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) entry: String,
    /// Show what would change without changing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl ClientOptions {
    /// Whether an option was given that only makes sense for clients.
    pub(crate) fn are_given(&self) -> bool {
        let ClientEntryOptions { project, entry, dry_run } = &self.entry_options;
        self.stdio || self.replace || self.undo || *project || *dry_run || entry != DEFAULT_ENTRY
    }
}

/// Restore the config of a client to what it was before `client add`.
///
/// If the file was edited in the meantime, this command removes the entry of mcp-aggregator, adds servers that
/// --replace removed, and keeps the rest.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator client remove cursor
  mcp-aggregator client remove vscode --project --dry-run"
)]
pub(crate) struct ClientRemoveArguments {
    #[arg(value_name = "CLIENT", help = CLIENT_HELP, value_parser = client_word(), hide_possible_values = true)]
    pub(crate) client: Client,
    #[command(flatten)]
    pub(crate) entry_options: ClientEntryOptions,
    /// Print JSON: {"client", "file", "changed"}
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the clients that mcp-aggregator can configure, and whether they use it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator client list
  mcp-aggregator client list --json | jq -r '.[] | select(.connected) | .client'")]
pub(crate) struct ClientListArguments {
    /// Print JSON: [{"client", "scope", "file", "exists", "problem", "connected", "entries", "servers",
    /// "duplicates"}]
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

fn client_word() -> impl TypedValueParser<Value = Client> {
    PossibleValuesParser::new(CLIENTS.map(Client::as_str))
        .map(|word| Client::of_name(&word).expect("only their words are accepted"))
}

/// The clients whose config can be changed. Windsurf is not one of them, because the path of its config changes between
/// versions.
pub(crate) const CLIENTS: [Client; 4] = [Client::ClaudeDesktop, Client::ClaudeCode, Client::Cursor, Client::VsCode];

/// The requested change of a client's config, from any command.
pub(super) struct Request<'a> {
    pub(super) client: Client,
    pub(super) entry_options: &'a ClientEntryOptions,
    /// The service for the client to use; not needed for `--undo`.
    target: Option<&'a TargetArguments>,
    /// The config for a client that starts mcp-aggregator itself.
    pub(super) config: Option<&'a Path>,
    pub(super) replace: bool,
    pub(super) undo: bool,
    pub(super) json: bool,
}

impl<'a> Request<'a> {
    pub(super) fn of_connect(arguments: &'a ConnectArguments, client: Client) -> Self {
        let ConnectArguments { one, options } = arguments;
        Self {
            client,
            entry_options: &options.entry_options,
            target: Some(&one.target),
            config: options.config.as_deref(),
            replace: options.replace,
            undo: options.undo,
            json: one.json,
        }
    }

    fn of_add(arguments: &'a ClientAddArguments) -> Self {
        let ClientAddArguments { client, json, target, options } = arguments;
        Self {
            client: *client,
            entry_options: &options.entry_options,
            target: Some(target),
            config: options.config.as_deref(),
            replace: options.replace,
            undo: options.undo,
            json: *json,
        }
    }

    fn of_remove(arguments: &'a ClientRemoveArguments) -> Self {
        let ClientRemoveArguments { client, entry_options, json } = arguments;
        Self { client: *client, entry_options, target: None, config: None, replace: false, undo: true, json: *json }
    }

    pub(super) fn target(&self) -> Result<&'a TargetArguments, Failure> {
        self.target.ok_or_else(|| Failure::usage("no service is named"))
    }

    /// The options that select the file and the entry, for hints.
    pub(super) fn place_options(&self) -> String {
        let project = if self.entry_options.project { " --project" } else { "" };
        match self.entry_options.entry.as_str() {
            DEFAULT_ENTRY => project.to_owned(),
            name => format!("{project} --as '{name}'"),
        }
    }

    /// The same, with the option for the config.
    pub(super) fn add_options(&self) -> String {
        let config = self.config.map(|config| command_hint::quoted(&config.display().to_string()));
        let stdio = config.map(|config| format!(" --stdio --config {config}")).unwrap_or_default();
        format!("{}{stdio}", self.place_options())
    }
}

pub(crate) fn run(arguments: &ClientArguments) -> Result<(), Failure> {
    match &arguments.verb {
        ClientVerb::Add(arguments) => client_setup::run(&Request::of_add(arguments)),
        ClientVerb::Remove(arguments) => client_setup::run(&Request::of_remove(arguments)),
        ClientVerb::List(arguments) => list_clients(arguments),
    }
}

fn list_clients(arguments: &ClientListArguments) -> Result<(), Failure> {
    // Without a service, there is nothing to compare with.
    let (url, served) = session::block_on(async {
        match arguments.target.running().await? {
            Some(service) => {
                let url = arguments.target.url_for_clients(service.url());
                Ok((Some(url), list::servers_of(&service).await?))
            }
            None => Ok((None, Vec::new())),
        }
    })?;
    let machine = Machine::this();
    let scopes = |client| [(client, "user"), (client, "project")];
    let mut clients = Vec::new();
    for (client, scope) in CLIENTS.into_iter().flat_map(scopes) {
        let Some(path) = machine.own_file(client, scope == "project") else { continue };
        if scope == "project" && !path.exists() {
            continue;
        }
        clients.push(described(client, scope, &path, url.as_deref(), &served));
    }
    if arguments.json {
        return output::print_json(&json!(clients));
    }
    output::print_lines(&table(["CLIENT", "STATE", "OWN SERVERS", "FILE"], clients.iter().map(row).collect()))?;
    for client in clients.iter().filter(|client| client["problem"].is_string()) {
        print_message(format_args!("warning: {}", text(client, "problem")));
    }
    for client in clients.iter().filter(|client| client["duplicates"].as_array().is_some_and(|all| !all.is_empty())) {
        let (word, names) = (text(client, "client"), joined(&client["duplicates"]));
        print_message(format_args!(
            "hint: mcp-aggregator also serves {names}: `mcp-aggregator client add {word} --replace` removes them from the config of {word}"
        ));
    }
    Ok(())
}

/// A client's config. One that cannot be read has its error, and does not prevent listing the others.
fn described(client: Client, scope: &str, path: &Path, url: Option<&str>, served: &[Value]) -> Value {
    let read = match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(Some(Value::Null)),
        Ok(text) => jsonc::read(&text).map(Some).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    };
    let exists = !matches!(read, Ok(None));
    let (known, problem) = match read {
        Ok(known) => (known.unwrap_or_default(), None),
        Err(why) => (Value::Null, Some(format!("could not read {}: {why}", path.display()))),
    };
    let group = entry::group(client);
    let all = known[group].as_object().into_iter().flatten();
    let (ours, others): (Vec<_>, Vec<_>) = all.partition(|(_, entry)| is_ours(entry, url));
    let names = |entries: &[(&String, &Value)]| entries.iter().map(|(name, _)| (*name).clone()).collect::<Vec<_>>();
    json!({
        "client": client.as_str(),
        "scope": scope,
        "file": path,
        "exists": exists,
        "problem": problem,
        "connected": !ours.is_empty(),
        "entries": names(&ours),
        "servers": names(&others),
        "duplicates": duplicates(&known, group, served),
    })
}

fn row(client: &Value) -> [String; 4] {
    let state = match (client["connected"] == true, client["exists"] == true) {
        _ if client["problem"].is_string() => "cannot be read".to_owned(),
        (true, _) => format!("connected as {}", joined(&client["entries"])),
        (false, true) => "not connected".to_owned(),
        (false, false) => "no config".to_owned(),
    };
    let servers = client["servers"].as_array().map_or(0, Vec::len);
    [text(client, "client"), state, servers.to_string(), text(client, "file")]
}

fn joined(names: &Value) -> String {
    let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
