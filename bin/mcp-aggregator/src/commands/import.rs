//! `import`: imports the servers of other programs, or an export.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Args;
use serde_json::{Value, json};
use service::Registration;

use super::list;
use crate::failure::Failure;
use crate::import::clients::{Client, Machine};
use crate::import::plan::{ImportDecision, Planned, plan};
use crate::import::{Found, found_in, is_export, pasted, read_jsonc};
use crate::output::{self, print_message};
use crate::server_view::{connection_summary, table};
use crate::table::printable;
use crate::target::{Target, TargetArguments};
use crate::{local_registry, progress, session};

/// Import servers from the configs of MCP clients, or from an export.
///
/// This command finds the config files of MCP clients on this machine, prints their servers, and adds those that are
/// not registered yet. It overwrites nothing and changes no file. It adapts names that are not valid, and reports them.
/// It skips entries that refer to mcp-aggregator. From an export (see `export`), it imports new servers, settings and
/// bindings.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator import --dry-run                     shows what it finds on this machine
  mcp-aggregator import --from claude-desktop
  mcp-aggregator import .vscode/mcp.json
  mcp-aggregator export --secrets > all.json; mcp-aggregator import all.json --url http://other:8808"
)]
pub(crate) struct ImportArguments {
    /// The config of an MCP client, or an export; `-` reads stdin
    #[arg(value_name = "FILE", conflicts_with = "from")]
    pub(crate) file: Option<PathBuf>,
    /// claude-desktop, claude-code, cursor, vscode, windsurf, or a file; may be repeated [default: all of them]
    #[arg(long, value_name = "CLIENT | FILE")]
    pub(crate) from: Vec<String>,
    /// Show what would be imported without importing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the result as JSON, without commands, URLs and credentials
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// The name of stdin.
const STDIN: &str = "-";

/// What to import.
enum Source {
    Export(Value),
    Servers(Vec<Found>),
}

pub(crate) fn run(arguments: &ImportArguments) -> Result<(), Failure> {
    let source = read_all(arguments)?;
    session::block_on(async {
        if arguments.dry_run {
            let target = arguments.target.find_existing().await?;
            return match source {
                Source::Export(export) => preview(target.as_ref(), &export).await,
                Source::Servers(found) => add_all(arguments, target.as_ref(), found).await,
            };
        }
        let target = arguments.target.find().await?;
        match source {
            Source::Export(export) => take_in(arguments, &target, &export).await,
            Source::Servers(found) => add_all(arguments, Some(&target), found).await,
        }
    })
}

/// Reads what the user named, or every config that can be found.
fn read_all(arguments: &ImportArguments) -> Result<Source, Failure> {
    let named: Vec<String> = match &arguments.file {
        Some(file) => vec![file.display().to_string()],
        None => arguments.from.clone(),
    };
    let machine = Machine::this();
    if named.is_empty() {
        return Ok(Source::Servers(of_clients(&machine, &Client::ALL)?));
    }
    let mut found = Vec::new();
    for name in &named {
        if let Some(client) = Client::of_name(name).filter(|_| arguments.file.is_none()) {
            found.extend(of_clients(&machine, &[client])?);
            continue;
        }
        let file = read(Path::new(name))?;
        let name = &if name == STDIN { "stdin".to_owned() } else { name.clone() };
        if !is_export(&file) {
            found.extend(servers_of(&file, name)?);
        } else if named.len() == 1 {
            return Ok(Source::Export(file));
        } else {
            return Err(Failure::usage(format!("{name} is an export; import it separately")));
        }
    }
    Ok(Source::Servers(found))
}

fn servers_of(file: &Value, name: &str) -> Result<Vec<Found>, Failure> {
    let found = found_in(file, name);
    if !found.is_empty() || file["mcpServers"].is_object() || file["servers"].is_object() {
        return Ok(found);
    }
    Err(Failure::new(format!("there are no servers in {name}"))
        .with_hint("expected an object `mcpServers` or `servers`, or a file from `mcp-aggregator export`"))
}

/// The servers in all files of these programs. A file that cannot be read does not prevent reading the others.
fn of_clients(machine: &Machine, clients: &[Client]) -> Result<Vec<Found>, Failure> {
    let places: Vec<PathBuf> = clients.iter().flat_map(|&client| machine.files(client)).collect();
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for file in places.iter().filter(|file| file.is_file()) {
        // In the home folder, the files of a project are those of the user.
        let whole = fs::canonicalize(file).unwrap_or_else(|_| file.clone());
        if seen.contains(&whole) {
            continue;
        }
        seen.push(whole);
        match read(file) {
            Ok(content) => found.extend(found_in(&content, &file.display().to_string())),
            Err(failure) => print_message(format_args!("warning: {}", failure.message)),
        }
    }
    if seen.is_empty() {
        let looked: String = places.iter().map(|file| format!("\n  {}", file.display())).collect();
        return Err(Failure::new(format!("found no config of an MCP client; looked for{looked}"))
            .with_hint("import a file: `mcp-aggregator import FILE`"));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Value, Failure> {
    let is_stdin = path == Path::new(STDIN);
    let shown = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
    let text = if is_stdin { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) };
    let text = text.map_err(|error| Failure::new(format!("could not read {shown}: {error}")))?;
    // A pasted text may be a single entry, as READMEs show it.
    let pasted = if is_stdin { pasted::understood(&text).ok() } else { None };
    match pasted {
        Some(whole) => Ok(whole),
        None => read_jsonc(&text).map_err(|error| Failure::new(format!("{shown} is not valid JSON: {error}"))),
    }
}

/// Adds all servers that can be added. A dry run also works without a registry.
async fn add_all(arguments: &ImportArguments, target: Option<&Target>, found: Vec<Found>) -> Result<(), Failure> {
    let known = known_at(target).await?;
    let known: Vec<String> = known.iter().filter_map(|server| server["name"].as_str().map(str::to_owned)).collect();
    let url = match target {
        Some(Target::Service(service)) => Some(service.url()),
        Some(Target::Registry(_)) | None => None,
    };
    let mut planned = plan(found, &known, url);
    if let Some(target) = target.filter(|_| !arguments.dry_run) {
        let many = format!("adding {} servers", planned.iter().filter(|one| one.fate == ImportDecision::Add).count());
        let adding = Box::pin(add_each(target, &mut planned));
        match target {
            // Each takes little time, but there may be a thousand.
            Target::Registry(_) => progress::with_spinner(&many, adding).await,
            Target::Service(_) => adding.await,
        }
    }
    show(arguments, &planned)?;
    let failed = planned.iter().filter(|one| matches!(one.fate, ImportDecision::Unusable { .. })).count();
    if failed > 0 {
        let verb = if arguments.dry_run { "can" } else { "could" };
        return Err(Failure::new(format!("{failed} of the servers {verb} not be added")));
    }
    Ok(())
}

async fn add_each(target: &Target, planned: &mut [Planned]) {
    for one in planned.iter_mut().filter(|one| one.fate == ImportDecision::Add) {
        match progress::with_spinner(&format!("adding `{}`", one.name), Box::pin(add(target, one))).await {
            Err(failure) => one.fate = ImportDecision::Unusable { why: failure.message },
            Ok(added) => one.found.notes.extend(not_connected(&added)),
        }
    }
}

async fn known_at(target: Option<&Target>) -> Result<Vec<Value>, Failure> {
    match target {
        Some(target) => list::servers(target).await,
        None => Ok(Vec::new()),
    }
}

/// Warns about a server that was added but could not be connected. `list` has the details.
fn not_connected(added: &Value) -> Option<String> {
    let why = added["error_message"].as_str()?.lines().next()?;
    Some(format!("it was added, but could not be connected: {why}"))
}

async fn add(target: &Target, planned: &Planned) -> Result<Value, Failure> {
    let new = Value::Object(planned.found.registration.clone());
    match target {
        Target::Service(service) => Ok(service.post("/servers", Some(&new)).await?),
        Target::Registry(store) => {
            let new: Registration = serde_json::from_value(new).map_err(|error| Failure::new(error.to_string()))?;
            local_registry::add(store, new).await
        }
    }
}

fn show(arguments: &ImportArguments, planned: &[Planned]) -> Result<(), Failure> {
    let is_dry = arguments.dry_run;
    if arguments.json {
        let one = |one: &Planned| {
            let (word, why) = in_words(one, is_dry);
            json!({"name": one.name, "original_name": one.found.name, "from": one.found.from, "result": word,
                "why": why, "notes": one.found.notes})
        };
        output::print_json(&planned.iter().map(one).collect())?;
    } else if !planned.is_empty() {
        output::print_lines(&lines(planned, is_dry))?;
    }
    let added = planned.iter().filter(|one| one.fate == ImportDecision::Add).count();
    let rest = planned.len() - added;
    let verb = if is_dry { "would be added" } else { "added" };
    match planned.is_empty() {
        true => print_message("there is nothing to import"),
        false => print_message(format_args!("{added} {verb}, {rest} not")),
    }
    Ok(())
}

fn lines(planned: &[Planned], is_dry: bool) -> Vec<String> {
    let row = |one: &Planned| {
        let word = in_words(one, is_dry).0.to_owned();
        [printable(&one.name), word, printable(&one.found.from), connection_summary(&one.masked_config())]
    };
    let rows = planned.iter().map(row).collect();
    let mut lines = Vec::new();
    for (index, line) in table(["SERVER", "RESULT", "FROM", "PROGRAM OR URL"], rows).into_iter().enumerate() {
        lines.push(line);
        let Some(one) = index.checked_sub(1).and_then(|index| planned.get(index)) else { continue };
        if one.is_renamed() {
            lines.push(format!("  renamed from `{}`", printable(&one.found.name)));
        }
        lines.extend(in_words(one, is_dry).1.map(|why| format!("  why: {}", printable(&why))));
        lines.extend(one.found.notes.iter().map(|note| format!("  note: {}", printable(note))));
    }
    lines
}

/// The result for a server: a word, and a reason if needed.
fn in_words(one: &Planned, is_dry: bool) -> (&'static str, Option<String>) {
    match &one.fate {
        ImportDecision::Add if is_dry => ("new", None),
        ImportDecision::Add => ("added", None),
        ImportDecision::Exists => ("exists", None),
        ImportDecision::Twice { first } => ("left out", Some(format!("it is identical to the one in {first}"))),
        ImportDecision::Ours => ("left out", Some("it refers to mcp-aggregator".to_owned())),
        ImportDecision::Unusable { why } => ("failed", Some(why.clone())),
    }
}

async fn take_in(arguments: &ImportArguments, target: &Target, export: &Value) -> Result<(), Failure> {
    let report = match target {
        Target::Service(service) => service.post("/import", Some(export)).await?,
        Target::Registry(store) => local_registry::import(store, export).await?,
    };
    if arguments.json {
        return output::print_json(&report);
    }
    let names = |key: &str| {
        let names = report[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(printable).collect::<Vec<_>>().join(", ")
    };
    for (key, words) in [
        ("added", "added"),
        ("kept", "already there, unchanged"),
        ("without_secrets", "disabled, because their secrets are masked in the export"),
    ] {
        if !names(key).is_empty() {
            print_message(format_args!("{words}: {}", names(key)));
        }
    }
    let counted = |key: &str, thing: &str| match report[key].as_u64().unwrap_or_default() {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    };
    print_message(format_args!("{}, {}", counted("settings", "setting"), counted("bindings", "binding")));
    Ok(())
}

/// What importing an export would do to servers.
async fn preview(target: Option<&Target>, export: &Value) -> Result<(), Failure> {
    let known = known_at(target).await?;
    let servers = export["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |server: &Value| {
        let is_known = known.iter().any(|known| known["name"] == server["name"]);
        let name = printable(server["name"].as_str().unwrap_or_default());
        [name, if is_known { "exists" } else { "new" }.to_owned()]
    };
    output::print_lines(&table(["SERVER", "RESULT"], servers.iter().map(row).collect()))
}
