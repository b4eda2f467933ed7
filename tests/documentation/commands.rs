//! Every command that a page quotes is accepted by the programs.
//!
//! A command is run with `--help` after its arguments: the program parses all of them, reports unknown ones, and does
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::program;
use testkit::run::run_command;

use super::markdown::Page;
use super::{none, pages};

const PROGRAMS: [&str; 2] = ["mcp-aggregator", "mcp-simple-aggregator"];
/// Placeholders, and a value for each.
const PLACEHOLDERS: [(&str, &str); 4] =
    [("SECONDS", "1"), ("MILLISECONDS", "1"), ("N", "1"), ("NAME=VALUE", "sessions=2000")];

/// A program and its arguments.
type Quoted = (&'static str, Vec<String>);

#[test]
fn quoted_commands_are_accepted_by_the_programs() {
    let mut found: BTreeMap<Quoted, BTreeSet<String>> = BTreeMap::new();
    // The programs print the reference themselves.
    for (path, page) in pages().into_iter().filter(|(path, _)| !path.starts_with("docs/reference")) {
        for command in quoted(&page) {
            found.entry(command).or_default().insert(path.display().to_string());
        }
    }
    assert!(found.len() > 60, "too few commands were found: {found:?}");
    let mut problems = Vec::new();
    for ((name, arguments), pages) in found {
        let output = run_command(
            Command::new(program(name))
                .args(with_help(&arguments))
                .stdin(Stdio::null())
                .env_remove("MCP_AGGREGATOR_TOKEN"),
        );
        // `serve --documents` names an option, not a whole command.
        let is_option_alone = arguments.last().is_some_and(|word| word.starts_with("--"))
            && output.stderr.contains("a value is required for");
        if !output.status.success() && !is_option_alone {
            problems.push(format!("{pages:?}: {name} {}\n{}", arguments.join(" "), output.stderr));
        }
    }
    none("commands that the programs do not accept", &problems);
}

/// The arguments, with `--help` before those of another program, or at the end.
fn with_help(arguments: &[String]) -> Vec<String> {
    let mut arguments = arguments.to_vec();
    if arguments.first().is_some_and(|verb| verb == "help") {
        arguments.remove(0);
    }
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    arguments.insert(end, "--help".to_owned());
    arguments
}

/// All commands on a page: in shell blocks, in configs of clients, and in the text.
fn quoted(page: &Page) -> Vec<Quoted> {
    let mut found = Vec::new();
    for (language, text) in &page.blocks {
        match language.as_str() {
            "sh" | "console" => found.extend(text.replace("\\\n", " ").lines().flat_map(in_line)),
            "json" => found.extend(serde_json::from_str(text).iter().flat_map(in_config)),
            _ => {}
        }
    }
    for code in &page.code {
        found.extend(in_line(code));
        // `serve --surface search` is a command as well.
        let mut words = words(code);
        if words.first().is_some_and(|verb| is_verb(verb)) && words.iter().any(|word| word.starts_with("--")) {
            words.iter_mut().for_each(fill);
            found.push((PROGRAMS[0], words));
        }
    }
    found
}

fn is_verb(word: &str) -> bool {
    const VERBS: [&str; 25] = [
        "add", "ask", "call", "calls", "check", "client", "connect", "demo", "doc", "doctor", "export", "import",
        "list", "logs", "man", "profiles", "run", "search", "serve", "settings", "skills", "status", "stdio", "tools",
        "top",
    ];
    VERBS.contains(&word)
}

/// The commands in a line of a shell.
fn in_line(line: &str) -> Vec<Quoted> {
    let words = words(line);
    let name = |word: &String| PROGRAMS.into_iter().find(|name| word.rsplit('/').next() == Some(name));
    // `cargo test -p mcp-aggregator` names a package.
    let is_package = |at: usize| at > 0 && words[at - 1] == "-p";
    let starts = words.iter().enumerate().filter(|(at, _)| !is_package(*at));
    let starts = starts.filter_map(|(at, word)| Some((at, name(word)?)));
    starts
        .map(|(at, name)| {
            let mut arguments: Vec<String> =
                words[at + 1..].iter().take_while(|word| !is_separator(word)).cloned().collect();
            arguments.iter_mut().for_each(fill);
            (name, arguments)
        })
        // `cargo install --path bin/mcp-aggregator` names a folder, and a page may mention a program in passing.
        .filter(|(_, arguments)| !arguments.is_empty())
        .collect()
}

fn is_separator(word: &str) -> bool {
    word.starts_with(['|', '>', '&', ';', '<'])
}

fn fill(word: &mut String) {
    if let Some((_, chosen)) = PLACEHOLDERS.iter().find(|(placeholder, _)| word == placeholder) {
        (*chosen).clone_into(word);
    }
}

/// The words of a line as a shell splits it, up to a comment. Operators are words of their own.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | '>' | '&' | ';') => {
                words.extend(word.take());
                words.push(letter.to_string());
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The commands in a config of a client.
fn in_config(value: &Value) -> Vec<Quoted> {
    let mut found = Vec::new();
    if let Some(command) = value["command"].as_str()
        && let Some(name) = PROGRAMS.into_iter().find(|name| command.rsplit('/').next() == Some(name))
    {
        let arguments = value["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        found.push((name, arguments.map(str::to_owned).collect()));
    }
    match value {
        Value::Object(members) => found.extend(members.values().flat_map(in_config)),
        Value::Array(items) => found.extend(items.iter().flat_map(in_config)),
        _ => {}
    }
    found
}

#[test]
fn commands_are_found_in_lines() {
    let line = "A=1 cargo build && x/mcp-aggregator call a.b k='1 + 2' \"two words\" | jq . # mcp-aggregator no";
    let expected = ["call", "a.b", "k=1 + 2", "two words"].map(str::to_owned).to_vec();
    assert_eq!(in_line(line), [("mcp-aggregator", expected)]);
    assert!(in_line("cargo install --path bin/mcp-aggregator").is_empty());
    assert!(in_line("cargo test -p mcp-aggregator snapshots").is_empty());
    let before = ["add", "x", "--help", "--", "npx"].map(str::to_owned);
    assert_eq!(with_help(&["add", "x", "--", "npx"].map(str::to_owned)), before);
}
