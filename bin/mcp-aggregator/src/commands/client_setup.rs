//! Changes the config of a client so that it uses mcp-aggregator, and restores it.

use std::io;
use std::path::{Path, PathBuf};

use aggregator::Accepted;
use aggregator::load::LoadError;
use catalog::Config;
use serde_json::{Map, Value, json};

use super::client::Request;
use super::list;
use crate::admission::TOKEN_VARIABLE;
use crate::cli::shared::UNIX_PREFIX;
use crate::client_config::diff::{Side, diff};
use crate::client_config::duplicates::duplicates;
use crate::client_config::edit::{self, EditError};
use crate::client_config::entry::{self, ClientTransport};
use crate::client_config::file::ClientFile;
use crate::client_config::mask;
use crate::client_config::undo::{Made, Undone, url_of};
use crate::commands::client::DEFAULT_ENTRY;
use crate::failure::Failure;
use crate::import::clients::{Client, Machine};
use crate::import::plan::is_ours;
use crate::import::registration_of_entry;
use crate::output::{self, print_message};
use crate::program_path::program_path;
use crate::target::TokenFrom;
use crate::{config, session, suggestion};

/// The hint about a file that cannot be read.
const BY_HAND: &str = "correct the file, or remove the entry of mcp-aggregator";

/// The change of a file.
enum Change {
    /// None.
    Nothing,
    /// Write this; the version without our changes is kept.
    Write { text: String, before: Option<String> },
    /// Restore the original: this content, or no file.
    GiveBack(Option<String>),
    /// Undo only our changes: the rest was edited in the meantime.
    Undo(Undone),
    /// Remove one of several entries of ours; the file still has others.
    TakeOne { name: String, text: String, before: Option<String> },
    /// Our entries were already removed: delete backup and note.
    Forget,
}

/// The target of the client's new entry.
struct Wanted {
    entry: Value,
    has_token: bool,
    /// The servers that the client gets through it, as REST describes them.
    served: Vec<Value>,
}

/// The planned change of a client's file, and messages about it.
struct Plan {
    change: Change,
    has_token: bool,
    /// Servers that are in the client's config and served by mcp-aggregator.
    duplicates: Vec<String>,
}

impl Plan {
    /// Those that will be removed from the client's config.
    fn removed(&self, request: &Request<'_>) -> &[String] {
        if request.replace { &self.duplicates } else { &[] }
    }
}

pub(super) fn run(request: &Request<'_>) -> Result<(), Failure> {
    let client = request.client;
    let file = Machine::this().own_file(client, request.entry_options.project).ok_or_else(|| no_file(client))?;
    let file = ClientFile::at(&file).map_err(|error| unreadable(&file, &error))?;
    let before = file.read().map_err(|error| unreadable(file.path(), &error))?;
    let plan = if request.undo {
        let change = undoing(client, &file, before.as_deref(), &request.entry_options.entry)?;
        Plan { change, has_token: false, duplicates: Vec::new() }
    } else {
        adding(request, &file, before.as_deref())?
    };
    if request.entry_options.dry_run {
        return show(request, &file, before.as_deref(), &plan);
    }
    carry_out(&file, &plan.change)
        .map_err(|error| Failure::new(format!("could not write {}: {error}", file.path().display())))?;
    if plan.has_token && request.entry_options.project {
        print_message(format_args!(
            "hint: the file does not contain the token: {} reads it from {TOKEN_VARIABLE}",
            client.as_str()
        ));
        print_message(format_args!(
            "hint: export the variable where you start {}; then you can share the file",
            client.as_str()
        ));
    } else if plan.has_token && file.is_open() {
        let path = file.path().display();
        print_message(format_args!(
            "warning: {path} contains the token now, and other users of this machine can read it"
        ));
        print_message(format_args!("hint: chmod 600 {path}"));
    }
    print_outcome(request, &file, &plan)
}

fn adding(request: &Request<'_>, file: &ClientFile, before: Option<&str>) -> Result<Plan, Failure> {
    let wanted = wanted_entry(request, file)?;
    let group = entry::group(request.client);
    let entries = entries_of(file, before, group)?;
    let mut duplicates = duplicates(&json!({ group: entries }), group, &wanted.served);
    duplicates.retain(|name| *name != request.entry_options.entry);
    let removed: &[String] = if request.replace { &duplicates } else { &[] };
    let change = connecting(request, file, before, &wanted.entry, removed)?;
    Ok(Plan { change, has_token: wanted.has_token, duplicates })
}

fn no_file(client: Client) -> Failure {
    match client {
        Client::ClaudeDesktop => Failure::usage("claude-desktop has no config files for projects"),
        other => Failure::new(format!("cannot find the config of {}: HOME is not set", other.as_str())),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("could not read {}: {error}", path.display()))
}

fn edit_failure(path: &Path, why: &EditError, by_hand: &str) -> Failure {
    Failure::new(format!("could not change {}: {why}", path.display()))
        .with_hint(format!("nothing was changed; to do it by hand: {by_hand}"))
}

/// Our entry.
fn wanted_entry(request: &Request<'_>, file: &ClientFile) -> Result<Wanted, Failure> {
    let client = request.client;
    if let Some(config) = request.config {
        let config = absolute(config)?;
        if config.canonicalize().is_ok_and(|config| config == file.path()) {
            return Err(Failure::usage("this is the config of the client itself: mcp-aggregator would start itself")
                .with_hint("copy its servers to a separate file, or import them with `mcp-aggregator import`"));
        }
        // A pipe ends with this command, but the client reads its config at each start.
        if config.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Err(Failure::usage(format!("{} is not a regular file", config.display()))
                .with_hint("the client starts mcp-aggregator with this config again and again: save it as a file"));
        }
        let loaded = config::load(&config)?;
        let program = program_path()
            .map_err(|error| Failure::new(format!("could not find the path of this program: {error}")))?;
        let invalid = |source| LoadError::Invalid { path: config.clone(), source };
        let entries = Config::entries(&loaded.source, Accepted::All).map_err(|why| config::explain(&invalid(why)))?;
        let served = entries.iter().filter_map(|(name, entry)| Some(registration_of_entry(name, entry.as_object()?)));
        let served = served.map(Value::Object).collect();
        let entry = entry::entry(client, &ClientTransport::Stdio { program: &program, config: &config });
        return Ok(Wanted { entry, has_token: false, served });
    }
    session::block_on(async {
        let service = request.target()?.service().await.map_err(|failure| {
            let hint =
                "start one with `mcp-aggregator serve`, or let the client start mcp-aggregator: --stdio --config FILE";
            failure.with_hint(hint)
        })?;
        // Checks the token, because the client would be refused, too.
        service.get("/state").await?;
        let served = list::servers_of(&service).await?;
        let token = request.target()?.token_for_clients(service.url())?;
        let has_token = token.is_some();
        // Config files of a project are meant to be shared.
        let written = token.map(|(token, from)| match (request.entry_options.project, from) {
            (true, from) => {
                if let TokenFrom::File(file) = from {
                    print_message(format_args!("hint: the token is in {}", file.display()));
                }
                entry::reference(client, TOKEN_VARIABLE)
            }
            (false, _) => token,
        });
        let url = request.target()?.url_for_clients(service.url());
        if url.starts_with(UNIX_PREFIX) {
            let failure = Failure::new(format!("the service listens on {url}, which MCP clients cannot connect to"));
            return Err(
                failure.with_hint("start it with --public-url, or let the client start mcp-aggregator: --stdio")
            );
        }
        let entry = entry::entry(client, &ClientTransport::Http { url: &url, token: written.as_deref() });
        Ok(Wanted { entry, has_token, served })
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| unreadable(path, &error))
}

/// The servers in the file.
fn entries_of(file: &ClientFile, text: Option<&str>, group: &str) -> Result<Map<String, Value>, Failure> {
    edit::entries(text.unwrap_or_default(), group).map_err(|why| edit_failure(file.path(), &why, "correct it first"))
}

/// What we wrote, if we did. If the backup is missing, only the entry `name` counts as ours.
fn made_of(file: &ClientFile, group: &str, name: &str) -> Result<Option<Made>, Failure> {
    let without_us = |written: &str| edit::take_out(written, group, name).map_err(io::Error::other);
    file.made(without_us).map_err(|error| unreadable(file.path(), &error))
}

fn connecting(
    request: &Request<'_>,
    file: &ClientFile,
    before: Option<&str>,
    entry: &Value,
    removed: &[String],
) -> Result<Change, Failure> {
    let name = request.entry_options.entry.as_str();
    let (text, group) = (before.unwrap_or_default(), entry::group(request.client));
    let entries = entries_of(file, before, group)?;
    let existing = entries.get(name);
    if existing == Some(entry) && removed.is_empty() {
        return Ok(Change::Nothing);
    }
    let made = made_of(file, group, name)?;
    if let Some(existing) = existing
        && !is_ours(existing, url_of(entry))
        && !is_by_us(file, made.as_ref(), group, name, existing)?
    {
        return Err(Failure::new(format!("{} has another server with the name `{name}`", file.path().display()))
            .with_hint("choose another name with --as NAME"));
    }
    let before = kept_before(file, made, before, group)?;
    let added = edit::set(text, group, name, entry);
    let alone = added.and_then(|text| removed.iter().try_fold(text, |text, name| edit::take_out(&text, group, name)));
    alone.map(|text| Change::Write { text, before }).map_err(|why| {
        let whole = json!({ group: { name: entry } }).to_string();
        let shown = mask::masked(&whole, group).unwrap_or_default();
        edit_failure(file.path(), &why, &format!("add {shown}"))
    })
}

/// The file without our changes: the original, with all later edits by others.
fn kept_before(
    file: &ClientFile,
    made: Option<Made>,
    now: Option<&str>,
    group: &str,
) -> Result<Option<String>, Failure> {
    match (made, now) {
        (None, now) => Ok(now.map(str::to_owned)),
        (Some(made), Some(now)) if now != made.written => {
            Ok(Some(made.undone(now, group).map_err(|why| edit_failure(file.path(), &why, BY_HAND))?.text))
        }
        (Some(made), _) => Ok(made.before),
    }
}

/// Whether an entry is one that we wrote, whatever its target: the service may have moved since.
fn is_by_us(file: &ClientFile, made: Option<&Made>, group: &str, name: &str, entry: &Value) -> Result<bool, Failure> {
    let Some(made) = made else { return Ok(false) };
    let edit_failure = |why| edit_failure(file.path(), &why, BY_HAND);
    let is_written = edit::entries(&made.written, group).map_err(edit_failure)?.get(name) == Some(entry);
    Ok(is_written && made.ours(group).map_err(edit_failure)?.iter().any(|ours| ours == name))
}

fn undoing(client: Client, file: &ClientFile, now: Option<&str>, name: &str) -> Result<Change, Failure> {
    let (path, group) = (file.path(), entry::group(client));
    let Some(made) = made_of(file, group, name)? else {
        return Err(Failure::new(format!("{} was not changed by mcp-aggregator", path.display())));
    };
    let by_hand = format!("remove `{name}` from `{group}`");
    let edit_failure = |why| edit_failure(path, &why, &by_hand);
    let Some(now) = now else {
        return Ok(if made.before.is_some() { Change::GiveBack(made.before) } else { Change::Forget });
    };
    let undone = made.undone(now, group).map_err(edit_failure)?;
    // Without a name, the only entry is meant.
    let is_meant = |ours: &str| ours == name || name == DEFAULT_ENTRY;
    match undone.taken_out.as_slice() {
        [] if undone.put_back.is_empty() => Ok(Change::Forget),
        [] => Ok(Change::Undo(undone)),
        [only] if is_meant(only) && now == made.written => Ok(Change::GiveBack(made.before)),
        [only] if is_meant(only) => Ok(Change::Undo(undone)),
        several if several.iter().any(|one| one == name) => {
            let text = edit::take_out(now, group, name).map_err(edit_failure)?;
            let before = kept_before(file, Some(made), Some(now), group)?;
            Ok(Change::TakeOne { name: name.to_owned(), text, before })
        }
        several => Err(not_there(path, name, several)),
    }
}

fn not_there(path: &Path, name: &str, ours: &[String]) -> Failure {
    let failure = Failure::new(format!("{} has no entry `{name}` of mcp-aggregator", path.display()));
    let names: Vec<&str> = ours.iter().map(String::as_str).collect();
    match suggestion::some_of(&names) {
        Some(names) => failure.with_hint(format!("it has {names}: select one with --as")),
        None => failure,
    }
}

fn carry_out(file: &ClientFile, change: &Change) -> io::Result<()> {
    match change {
        Change::Nothing => Ok(()),
        Change::Write { text, before } | Change::TakeOne { text, before, .. } => file.replace(text, before.as_deref()),
        Change::Forget => file.forget(),
        Change::GiveBack(before) => file.give_back(before.as_deref()),
        Change::Undo(undone) => file.release(&undone.text),
    }
}

/// The change for display, without secrets.
fn show(request: &Request<'_>, file: &ClientFile, before: Option<&str>, plan: &Plan) -> Result<(), Failure> {
    let (client, change) = (request.client, &plan.change);
    let path = file.path().display().to_string();
    let lines = match change {
        Change::Nothing | Change::Forget => Vec::new(),
        Change::Write { text, .. } | Change::Undo(Undone { text, .. }) | Change::TakeOne { text, .. } => {
            differing(&path, client, before.unwrap_or_default(), text)
        }
        Change::GiveBack(earlier) => {
            differing(&path, client, before.unwrap_or_default(), earlier.as_deref().unwrap_or_default())
        }
    };
    if request.json {
        let changed = !matches!(change, Change::Nothing | Change::Forget);
        return output::print_json(&json!({"client": client.as_str(), "file": path, "would_change": changed,
            "diff": lines, "duplicates": plan.duplicates, "removed": plan.removed(request)}));
    }
    output::print_lines(&lines)?;
    print_message(if lines.is_empty() {
        "nothing would change"
    } else {
        "nothing was changed; these changes would be made"
    });
    print_duplicates(request, plan);
    Ok(())
}

/// The lines that differ. If secrets cannot be recognised, none is displayed.
fn differing(path: &str, client: Client, before: &str, after: &str) -> Vec<String> {
    let group = entry::group(client);
    match (mask::masked(before, group), mask::masked(after, group)) {
        (Some(old), Some(new)) => diff(path, &Side { text: before, shown: &old }, &Side { text: after, shown: &new }),
        _ => vec![format!("--- {path}"), format!("+++ {path}"), "(not shown: it may contain secrets)".to_owned()],
    }
}

fn print_outcome(request: &Request<'_>, file: &ClientFile, plan: &Plan) -> Result<(), Failure> {
    let (client, change) = (request.client, &plan.change);
    let path = file.path().display();
    if request.json {
        let backup = Some(file.backup()).filter(|_| matches!(change, Change::Write { before: Some(_), .. }));
        let changed = !matches!(change, Change::Nothing | Change::Forget);
        return output::print_json(&json!({"client": client.as_str(), "file": file.path(), "changed": changed,
            "backup": backup, "duplicates": plan.duplicates, "removed": plan.removed(request)}));
    }
    let word = client.as_str();
    let entry = request.entry_options.entry.as_str();
    match change {
        Change::Nothing => print_message(format_args!("{word} is already connected: {path} is up to date")),
        Change::GiveBack(Some(_)) => print_message(format_args!("restored {path}")),
        Change::GiveBack(None) => print_message(format_args!("removed {path}, which did not exist before")),
        Change::Undo(undone) => {
            for name in &undone.taken_out {
                print_message(format_args!("removed `{name}` from {path}; the rest of the file was edited and stays"));
            }
            for name in &undone.put_back {
                print_message(format_args!("restored `{name}` in {path}"));
            }
        }
        Change::TakeOne { name, .. } => print_message(format_args!("removed `{name}` from {path}")),
        Change::Forget => {
            print_message(format_args!("{path} has no entry `{entry}` of mcp-aggregator any more; removed its backup"));
        }
        Change::Write { before, .. } => {
            print_message(format_args!("connected {word}: {path}"));
            if before.is_some() {
                print_message(format_args!("the backup is {}", file.backup().display()));
            }
            for name in plan.removed(request) {
                print_message(format_args!("removed its server `{name}`: mcp-aggregator serves it"));
            }
            let options = request.place_options();
            print_message(format_args!(
                "hint: restart {word}; `mcp-aggregator client add {word}{options} --undo` restores its config"
            ));
            if client == Client::ClaudeDesktop && request.config.is_none() {
                print_message("hint: it can only start programs, so it uses `npx mcp-remote`, which needs Node.js");
            }
        }
    }
    print_duplicates(request, plan);
    Ok(())
}

/// Suggests removing servers that the client would have twice.
fn print_duplicates(request: &Request<'_>, plan: &Plan) {
    if request.replace || plan.duplicates.is_empty() {
        return;
    }
    let names = plan.duplicates.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let (word, options) = (request.client.as_str(), request.add_options());
    print_message(format_args!("warning: {word} also has {names} in its config: it sees their tools twice"));
    print_message(format_args!(
        "hint: `mcp-aggregator client add {word}{options} --replace` removes them from its config; --undo restores them"
    ));
}
