//! `connect` with the name of a client: its config is changed so that it uses this aggregator, and changed back.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::admission::TOKEN_VARIABLE;
use crate::arguments::servers::{ConnectArguments, USUAL_ENTRY};
use crate::client_config::diff::{Side, diff};
use crate::client_config::edit::{self, Unfit};
use crate::client_config::entry::{self, Way};
use crate::client_config::file::{ClientFile, Since};
use crate::client_config::mask;
use crate::failure::Failure;
use crate::import::clients::{Client, Machine};
use crate::import::jsonc;
use crate::import::plan::is_ours;
use crate::output::{self, say};
use crate::target::TokenFrom;
use crate::{config, session, suggestion};

/// What is to become of a file.
enum Change {
    /// It is as it should be.
    Nothing,
    /// This is to be in it; what it was before us is kept.
    Write { text: String, before: Option<String> },
    /// It is to be what it was before us: this, or not there.
    GiveBack(Option<String>),
    /// Only our entry goes: somebody else has changed the rest meanwhile.
    TakeOut(String),
    /// One of several entries of ours goes; the file stays ours.
    TakeOne(String),
    /// Somebody has taken us out already: what was kept for that is not needed any more.
    Forget,
}

pub(crate) fn run(arguments: &ConnectArguments, client: Client) -> Result<(), Failure> {
    let file = Machine::this().own_file(client, arguments.project).ok_or_else(|| no_file(client))?;
    let file = ClientFile::at(&file).map_err(|error| unreadable(&file, &error))?;
    let before = file.read().map_err(|error| unreadable(file.path(), &error))?;
    let (change, has_token) = if arguments.undo {
        (undoing(client, &file, before.as_deref(), &arguments.entry)?, false)
    } else {
        let (entry, has_token) = wanted_entry(arguments, client, &file)?;
        (connecting(client, &file, before.as_deref(), &arguments.entry, &entry, &arguments.url_of(&entry))?, has_token)
    };
    if arguments.dry_run {
        return show(arguments, client, &file, before.as_deref(), &change);
    }
    carry_out(&file, &change)
        .map_err(|error| Failure::new(format!("could not write {}: {error}", file.path().display())))?;
    if has_token && arguments.project {
        say(format_args!("hint: the token is not in the file: {} reads it from {TOKEN_VARIABLE}", client.word()));
        say(format_args!("hint: export it where {} is started; then the file may be shared", client.word()));
    } else if has_token && file.is_open() {
        let path = file.path().display();
        say(format_args!("warning: {path} has the token in it now, and others on this machine can read it"));
        say(format_args!("hint: chmod 600 {path}"));
    }
    tell(arguments, client, &file, &change)
}

fn no_file(client: Client) -> Failure {
    match client {
        Client::ClaudeDesktop => Failure::usage("claude-desktop has no files for projects"),
        other => Failure::new(format!("it is not known where {} keeps its config: HOME is not set", other.word())),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("could not read {}: {error}", path.display()))
}

fn unfit(path: &Path, why: &Unfit, by_hand: &str) -> Failure {
    Failure::new(format!("could not change {}: {why}", path.display()))
        .with_hint(format!("nothing was changed; by hand: {by_hand}"))
}

/// The entry that leads here, and whether it needs a token.
fn wanted_entry(arguments: &ConnectArguments, client: Client, file: &ClientFile) -> Result<(Value, bool), Failure> {
    if let Some(config) = &arguments.config {
        let config = absolute(config)?;
        if config.canonicalize().is_ok_and(|config| config == file.path()) {
            return Err(Failure::usage("that is the config of the client itself: it would start itself in a circle")
                .with_hint("copy its servers into a file of their own, or `mcp-aggregator import` them"));
        }
        config::load(&config)?;
        let program = std::env::current_exe().map_err(|error| Failure::new(format!("who are we? {error}")))?;
        return Ok((entry::entry(client, &Way::Stdio { program: &program, config: &config }), false));
    }
    session::block_on(async {
        let service = arguments.one.target.service().await.map_err(|failure| {
            let hint = "start one with `mcp-aggregator serve`, or let the client start us: --stdio --config FILE";
            failure.with_hint(hint)
        })?;
        // Whether it lets us in: the client would be refused, too.
        service.get("/state").await?;
        let token = arguments.one.target.token_for_clients(service.url())?;
        let has_token = token.is_some();
        // What belongs to a project is made to be shared.
        let written = token.map(|(token, from)| match (arguments.project, from) {
            (true, from) => {
                if let TokenFrom::File(file) = from {
                    say(format_args!("hint: the token is in {}", file.display()));
                }
                entry::reference(client, TOKEN_VARIABLE)
            }
            (false, _) => token,
        });
        Ok((entry::entry(client, &Way::Http { url: service.url(), token: written.as_deref() }), has_token))
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| unreadable(path, &error))
}

impl ConnectArguments {
    /// Where an entry leads to, for telling whether another one leads there, too.
    fn url_of(&self, entry: &Value) -> Option<String> {
        entry["url"].as_str().map(|url| url.trim_end_matches("/mcp").to_owned())
    }
}

fn connecting(
    client: Client,
    file: &ClientFile,
    before: Option<&str>,
    name: &str,
    entry: &Value,
    url: &Option<String>,
) -> Result<Change, Failure> {
    let (text, group) = (before.unwrap_or_default(), entry::group(client));
    let known = jsonc::read(text).unwrap_or_default();
    let existing = &known[group][name];
    if existing == entry {
        return Ok(Change::Nothing);
    }
    if !existing.is_null() && !is_ours(existing, url.as_deref()) && !is_by_us(file, group, name, existing)? {
        return Err(Failure::new(format!("{} has another server that is called `{name}`", file.path().display()))
            .with_hint("choose another name for us with --as NAME"));
    }
    // If we were there before and somebody has changed the rest since, that is what comes back without us.
    let is_known =
        !existing.is_null() && file.since().map_err(|error| unreadable(file.path(), &error))? == Since::Changed;
    let before = match is_known {
        true => edit::take_out(text, group, name).ok(),
        false => before.map(str::to_owned),
    };
    edit::set(text, group, name, entry).map(|text| Change::Write { text, before }).map_err(|why| {
        let whole = json!({ group: { name: entry } }).to_string();
        let shown = mask::masked(&whole, group).unwrap_or_default();
        unfit(file.path(), &why, &format!("put into it {shown}"))
    })
}

/// Whether an entry is as we wrote it, wherever it leads: the service may have moved since.
fn is_by_us(file: &ClientFile, group: &str, name: &str, entry: &Value) -> Result<bool, Failure> {
    let Some((written, before)) = file.made().map_err(|error| unreadable(file.path(), &error))? else {
        return Ok(false);
    };
    let written = jsonc::read(&written).unwrap_or_default();
    let is_written = written[group][name] == *entry;
    Ok(is_written && ours(&written[group], before.as_deref(), group).iter().any(|ours| ours == name))
}

fn undoing(client: Client, file: &ClientFile, now: Option<&str>, name: &str) -> Result<Change, Failure> {
    let path = file.path();
    let (text, group) = (now.unwrap_or_default(), entry::group(client));
    let known = jsonc::read(text).unwrap_or_default();
    let taken_out = || {
        let by_hand = format!("take `{name}` out of `{group}`");
        edit::take_out(text, group, name).map_err(|why| unfit(path, &why, &by_hand))
    };
    match file.since().map_err(|error| unreadable(path, &error))? {
        Since::NotOurs => Err(Failure::new(format!("{} was not changed by us", path.display()))),
        Since::Untouched { before } => match ours(&known[group], before.as_deref(), group).as_slice() {
            // Whoever names nobody means the only one there is.
            [only] if only == name || name == USUAL_ENTRY => Ok(Change::GiveBack(before)),
            several if several.iter().any(|one| one == name) => taken_out().map(Change::TakeOne),
            several => Err(not_there(path, name, several)),
        },
        Since::Changed if known[group][name].is_null() => Ok(Change::Forget),
        Since::Changed => taken_out().map(Change::TakeOut),
    }
}

/// The entries that differ from what was there before us.
fn ours(now: &Value, before: Option<&str>, group: &str) -> Vec<String> {
    let before = jsonc::read(before.unwrap_or_default()).unwrap_or_default();
    let entries = now.as_object().into_iter().flatten();
    entries.filter(|(name, entry)| before[group][name.as_str()] != **entry).map(|(name, _)| name.clone()).collect()
}

fn not_there(path: &Path, name: &str, ours: &[String]) -> Failure {
    let failure = Failure::new(format!("there is no `{name}` of ours in {}", path.display()));
    let names: Vec<&str> = ours.iter().map(String::as_str).collect();
    match suggestion::some_of(&names) {
        Some(names) => failure.with_hint(format!("there is {names}: name one with --as")),
        None => failure,
    }
}

fn carry_out(file: &ClientFile, change: &Change) -> io::Result<()> {
    match change {
        Change::Nothing => Ok(()),
        Change::Write { text, before } => file.replace(text, before.as_deref()),
        Change::TakeOne(text) => file.replace(text, None),
        Change::Forget => file.forget(),
        Change::GiveBack(before) => file.give_back(before.as_deref()),
        Change::TakeOut(text) => file.release(text),
    }
}

/// What would change. Nobody's secrets are for the screen.
fn show(
    arguments: &ConnectArguments,
    client: Client,
    file: &ClientFile,
    before: Option<&str>,
    change: &Change,
) -> Result<(), Failure> {
    let path = file.path().display().to_string();
    let lines = match change {
        Change::Nothing | Change::Forget => Vec::new(),
        Change::Write { text, .. } | Change::TakeOut(text) | Change::TakeOne(text) => {
            differing(&path, client, before.unwrap_or_default(), text)
        }
        Change::GiveBack(earlier) => {
            differing(&path, client, before.unwrap_or_default(), earlier.as_deref().unwrap_or_default())
        }
    };
    if arguments.one.json {
        let changed = !matches!(change, Change::Nothing | Change::Forget);
        return output::print_json(
            &json!({"client": client.word(), "file": path, "would_change": changed, "diff": lines}),
        );
    }
    output::print_lines(&lines)?;
    say(if lines.is_empty() { "nothing would change" } else { "nothing was changed: this is what would be" });
    Ok(())
}

/// The lines that differ. Where secrets cannot be told from the rest, none is shown.
fn differing(path: &str, client: Client, before: &str, after: &str) -> Vec<String> {
    let group = entry::group(client);
    match (mask::masked(before, group), mask::masked(after, group)) {
        (Some(old), Some(new)) => diff(path, &Side { text: before, shown: &old }, &Side { text: after, shown: &new }),
        _ => vec![format!("--- {path}"), format!("+++ {path}"), "(not shown: there may be secrets in it)".to_owned()],
    }
}

fn tell(arguments: &ConnectArguments, client: Client, file: &ClientFile, change: &Change) -> Result<(), Failure> {
    let path = file.path().display();
    if arguments.one.json {
        let backup = Some(file.backup()).filter(|backup| matches!(change, Change::Write { .. }) && backup.exists());
        let changed = !matches!(change, Change::Nothing | Change::Forget);
        return output::print_json(
            &json!({"client": client.word(), "file": file.path(), "changed": changed, "backup": backup}),
        );
    }
    let word = client.word();
    match change {
        Change::Nothing => say(format_args!("{word} is connected already: {path} is as it should be")),
        Change::GiveBack(Some(_)) => say(format_args!("{path} is as it was before")),
        Change::GiveBack(None) => say(format_args!("removed {path}, which was not there before")),
        Change::TakeOut(_) => {
            say(format_args!("took `{}` out of {path}; it was changed since, and the rest stays", arguments.entry));
        }
        Change::TakeOne(_) => say(format_args!("took `{}` out of {path}", arguments.entry)),
        Change::Forget => {
            say(format_args!(
                "there is no `{}` in {path} any more; what was kept to undo it is removed",
                arguments.entry
            ));
        }
        Change::Write { .. } => {
            say(format_args!("connected {word}: {path}"));
            if file.backup().exists() {
                say(format_args!("what it was is in {}", file.backup().display()));
            }
            let project = if arguments.project { " --project" } else { "" };
            let entry = match arguments.entry.as_str() {
                USUAL_ENTRY => String::new(),
                name => format!(" --as '{name}'"),
            };
            say(format_args!(
                "hint: start {word} anew; `mcp-aggregator connect {word}{project}{entry} --undo` takes it back"
            ));
            if client == Client::ClaudeDesktop && !arguments.stdio {
                say("hint: it starts programs only, so `npx mcp-remote` goes between; that needs Node");
            }
        }
    }
    Ok(())
}
