//! `client`: MCP clients are made to use this aggregator, listed, and given their configs back.

use std::path::Path;

use serde_json::{Value, json};

use super::{client_setup, list};
use crate::arguments::clients::{
    ClientAddArguments, ClientArguments, ClientListArguments, ClientPlace, ClientRemoveArguments, ClientVerb,
    DEFAULT_ENTRY,
};
use crate::arguments::servers::ConnectArguments;
use crate::client_config::duplicates::duplicates;
use crate::client_config::entry;
use crate::failure::Failure;
use crate::import::clients::{Client, Machine};
use crate::import::jsonc;
use crate::import::plan::is_ours;
use crate::output::{self, print_message};
use crate::server_view::{table, text};
use crate::target::TargetArguments;
use crate::{command_hint, session};

/// The clients whose config can be changed. Windsurf is none of them: where it keeps its config is known to change.
pub(crate) const CLIENTS: [Client; 4] = [Client::ClaudeDesktop, Client::ClaudeCode, Client::Cursor, Client::VsCode];

/// What is to become of a client's config, however it was asked for.
pub(super) struct Request<'a> {
    pub(super) client: Client,
    pub(super) place: &'a ClientPlace,
    /// The service that the client is to use; none is needed to undo.
    target: Option<&'a TargetArguments>,
    /// The config with which the client is to start this program itself.
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
            place: &options.place,
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
            place: &options.place,
            target: Some(target),
            config: options.config.as_deref(),
            replace: options.replace,
            undo: options.undo,
            json: *json,
        }
    }

    fn of_remove(arguments: &'a ClientRemoveArguments) -> Self {
        let ClientRemoveArguments { client, place, json } = arguments;
        Self { client: *client, place, target: None, config: None, replace: false, undo: true, json: *json }
    }

    pub(super) fn target(&self) -> Result<&'a TargetArguments, Failure> {
        self.target.ok_or_else(|| Failure::usage("no service is named"))
    }

    /// The options that say which file and which entry are meant, to be typed again.
    pub(super) fn place_options(&self) -> String {
        let project = if self.place.project { " --project" } else { "" };
        match self.place.entry.as_str() {
            DEFAULT_ENTRY => project.to_owned(),
            name => format!("{project} --as '{name}'"),
        }
    }

    /// The same, with the config that the client is to start this program with.
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
    // Where nobody serves, there is nothing to compare with.
    let (url, served) = session::block_on(async {
        match arguments.target.running().await? {
            Some(service) => Ok((Some(service.url().to_owned()), list::servers_of(&service).await?)),
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
            "hint: mcp-aggregator serves {names}, too: `mcp-aggregator client add {word} --replace` removes them from the config of {word}"
        ));
    }
    Ok(())
}

/// A client's config. One that cannot be read says why, and keeps no other from being listed.
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
        "client": client.word(),
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
