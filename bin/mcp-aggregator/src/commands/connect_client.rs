//! `connect` with the name of a client: its config is changed so that it uses this aggregator, and changed back.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::arguments::servers::ConnectArguments;
use crate::client_config::diff::diff;
use crate::client_config::edit::{self, Unfit};
use crate::client_config::entry::{self, Way};
use crate::client_config::file::{ClientFile, Since};
use crate::failure::Failure;
use crate::import::clients::{Client, Machine};
use crate::import::jsonc;
use crate::import::plan::is_ours;
use crate::output::{self, say};
use crate::{config, session};

/// What is to become of a file.
enum Change {
    /// It is as it should be.
    Nothing,
    /// This is to be in it; what was before is kept.
    Write(String),
    /// It is to be what it was before us: this, or not there.
    GiveBack(Option<String>),
    /// Only our entry goes: somebody else has changed the rest meanwhile.
    TakeOut(String),
}

pub(crate) fn run(arguments: &ConnectArguments, client: Client) -> Result<(), Failure> {
    let file = Machine::this().own_file(client, arguments.project).ok_or_else(|| no_file(client))?;
    let file = ClientFile::at(&file).map_err(|error| unreadable(&file, &error))?;
    let before = file.read().map_err(|error| unreadable(file.path(), &error))?;
    let (change, token) = if arguments.undo {
        (undoing(client, &file, before.as_deref(), &arguments.entry)?, None)
    } else {
        let (entry, token) = wanted_entry(arguments, client, &file)?;
        (connecting(client, &file, before.as_deref(), &arguments.entry, &entry, &arguments.url_of(&entry))?, token)
    };
    if arguments.dry_run {
        return show(arguments, client, &file, before.as_deref(), &change, token.as_deref());
    }
    carry_out(&file, &change)
        .map_err(|error| Failure::new(format!("could not write {}: {error}", file.path().display())))?;
    if token.is_some() && file.is_open() {
        let path = file.path().display();
        say(format_args!("warning: {path} has the token in it now, and others on this machine can read it"));
        say(format_args!("hint: chmod 600 {path}"));
    }
    tell(arguments, client, &file, before.is_some(), &change)
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

fn unfit(path: &Path, why: &Unfit) -> Failure {
    Failure::new(format!("could not change {}: {why}", path.display()))
        .with_hint("nothing was changed; `--dry-run` on another file shows the entry to paste")
}

/// The entry that leads here, and the token in it.
fn wanted_entry(
    arguments: &ConnectArguments,
    client: Client,
    file: &ClientFile,
) -> Result<(Value, Option<String>), Failure> {
    if let Some(config) = &arguments.config {
        let config = absolute(config)?;
        if config.canonicalize().is_ok_and(|config| config == file.path()) {
            return Err(Failure::usage("that is the config of the client itself: it would start itself in a circle")
                .with_hint("copy its servers into a file of their own, or `mcp-aggregator import` them"));
        }
        config::load(&config)?;
        let program = std::env::current_exe().map_err(|error| Failure::new(format!("who are we? {error}")))?;
        return Ok((entry::entry(client, &Way::Stdio { program: &program, config: &config }), None));
    }
    session::block_on(async {
        let service = arguments.one.target.service().await.map_err(|failure| {
            let hint = "start one with `mcp-aggregator serve`, or let the client start us: --stdio --config FILE";
            failure.with_hint(hint)
        })?;
        // Whether it lets us in: the client would be refused, too.
        service.get("/state").await?;
        let token = arguments.one.target.token()?;
        let way = Way::Http { url: service.url(), token: token.as_deref() };
        Ok((entry::entry(client, &way), token.clone()))
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
    if !existing.is_null() && !is_ours(existing, url.as_deref()) {
        return Err(Failure::new(format!("{} has another server that is called `{name}`", file.path().display()))
            .with_hint("choose another name for us with --as NAME"));
    }
    edit::set(text, group, name, entry).map(Change::Write).map_err(|why| unfit(file.path(), &why))
}

fn undoing(client: Client, file: &ClientFile, before: Option<&str>, name: &str) -> Result<Change, Failure> {
    match file.since().map_err(|error| unreadable(file.path(), &error))? {
        Since::Untouched { before } => return Ok(Change::GiveBack(before)),
        Since::NotOurs => {
            return Err(Failure::new(format!("{} was not changed by us", file.path().display())));
        }
        Since::Changed => {}
    }
    let (text, group) = (before.unwrap_or_default(), entry::group(client));
    let known = jsonc::read(text).unwrap_or_default();
    if known[group][name].is_null() {
        return Err(Failure::new(format!("there is no `{name}` in {} any more", file.path().display())));
    }
    edit::take_out(text, group, name).map(Change::TakeOut).map_err(|why| unfit(file.path(), &why))
}

fn carry_out(file: &ClientFile, change: &Change) -> io::Result<()> {
    match change {
        Change::Nothing => Ok(()),
        Change::Write(text) => file.replace(text),
        Change::GiveBack(before) => file.give_back(before.as_deref()),
        Change::TakeOut(text) => file.release(text),
    }
}

/// What would change. A token is not for the screen.
fn show(
    arguments: &ConnectArguments,
    client: Client,
    file: &ClientFile,
    before: Option<&str>,
    change: &Change,
    token: Option<&str>,
) -> Result<(), Failure> {
    let path = file.path().display().to_string();
    let after = match change {
        Change::Nothing => before.unwrap_or_default(),
        Change::Write(text) | Change::TakeOut(text) => text,
        Change::GiveBack(before) => before.as_deref().unwrap_or_default(),
    };
    let mut lines = match change {
        Change::Nothing => Vec::new(),
        _ => diff(&path, before.unwrap_or_default(), after),
    };
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        lines = lines.iter().map(|line| line.replace(token, "***")).collect();
    }
    if arguments.one.json {
        let changed = !matches!(change, Change::Nothing);
        return output::print_json(
            &json!({"client": client.word(), "file": path, "would_change": changed, "diff": lines}),
        );
    }
    output::print_lines(&lines)?;
    say(if lines.is_empty() { "nothing would change" } else { "nothing was changed: this is what would be" });
    Ok(())
}

fn tell(
    arguments: &ConnectArguments,
    client: Client,
    file: &ClientFile,
    was_there: bool,
    change: &Change,
) -> Result<(), Failure> {
    let path = file.path().display();
    if arguments.one.json {
        let backup = (was_there && matches!(change, Change::Write(_))).then(|| file.backup());
        let changed = !matches!(change, Change::Nothing);
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
        Change::Write(_) => {
            say(format_args!("connected {word}: {path}"));
            if was_there {
                say(format_args!("what it was is in {}", file.backup().display()));
            }
            let project = if arguments.project { " --project" } else { "" };
            say(format_args!("hint: start {word} anew; `mcp-aggregator connect {word}{project} --undo` takes it back"));
            if client == Client::ClaudeDesktop && !arguments.stdio {
                say("hint: it starts programs only, so `npx mcp-remote` goes between; that needs Node");
            }
        }
    }
    Ok(())
}
