//! The pages in `docs/reference` are generated from the programs.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test -p behaviour documentation` regenerates them; read the difference before you commit
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Map, Value};
use tempfile::TempDir;
use testkit::http_client::HttpRequest;
use testkit::program;
use testkit::run::run_command;

use super::environment::groups;
use super::root;
use crate::rest::{PREFIX, Rest, expect};

const UPDATE_VARIABLE: &str = "UPDATE_SNAPSHOTS";
/// An error of at least this many endpoints is listed once.
const COMMON: usize = 10;
const GENERATED: &str = "<!-- Generated: UPDATE_SNAPSHOTS=1 cargo test -p behaviour documentation -->";

/// Compares a page with its generated content, or writes it.
#[track_caller]
fn compare(name: &str, now: &str) {
    let file = root().join("docs/reference").join(name);
    if std::env::var_os(UPDATE_VARIABLE).is_some_and(|value| !value.is_empty()) {
        fs::write(&file, now).expect("the page can be written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let differs = now.lines().zip(kept.lines()).find(|(now, kept)| now != kept);
    assert!(
        now == kept,
        "docs/reference/{name} is out of date, first here: {differs:?}; {UPDATE_VARIABLE}=1 writes it again"
    );
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The help of a command, wrapped at 100 columns.
fn help(name: &str, arguments: &[&str]) -> String {
    let home = TempDir::with_prefix("home-").expect("a temporary folder can be made");
    let mut command = Command::new(program(name));
    command.args(arguments).arg("--help").stdin(Stdio::null()).env("HOME", home.path()).env("COLUMNS", "100");
    let output = run_command(&mut command);
    assert!(output.status.success(), "{arguments:?}: {}", output.stderr);
    output.stdout
}

/// Every command of `mcp-aggregator`. Each has a manual page.
fn commands() -> Vec<String> {
    let folder = TempDir::with_prefix("man-").expect("a temporary folder can be made");
    let mut command = Command::new(program("mcp-aggregator"));
    let output = run_command(command.args(["man", "--json", "--dir"]).arg(folder.path()).stdin(Stdio::null()));
    let report: Value = serde_json::from_str(&output.stdout).expect("`man --json` prints JSON");
    let pages = report["pages"].as_array().expect("a list of pages").iter().map(text);
    let commands = pages.filter_map(|page| page.strip_prefix("mcp-aggregator-")?.strip_suffix(".1"));
    commands.map(|command| command.replace('-', " ")).collect()
}

#[test]
fn the_reference_of_commands_is_what_help_prints() {
    let mut page = format!(
        "# Commands\n\n\
         After this page you can look up every command and option of `mcp-aggregator` and `mcp-simple-aggregator`. \
         The same text is\nprinted by `--help`, and `mcp-aggregator man` has it as manual pages.\n\n{GENERATED}\n\n"
    );
    let commands = commands();
    let mut section = |title: &str, help: &str| {
        let written = write!(page, "## {title}\n\n```text\n{}\n```\n\n", help.trim_end());
        written.expect("writing to a string cannot fail");
    };
    section("mcp-aggregator", &help("mcp-aggregator", &[]));
    for command in &commands {
        let words: Vec<&str> = command.split(' ').collect();
        section(&format!("mcp-aggregator {command}"), &help("mcp-aggregator", &words));
    }
    section("mcp-simple-aggregator", &help("mcp-simple-aggregator", &[]));
    compare("cli.md", &(page.trim_end().to_owned() + "\n"));
}

#[test]
fn the_reference_of_the_environment_is_what_the_program_lists() {
    let mut page = format!(
        "# Environment variables\n\n\
         After this page you can look up every environment variable that the programs read or set, and its default. \
         Options take\nprecedence over variables.\n\n{GENERATED}\n\n"
    );
    for group in groups() {
        let variables = group["variables"].as_array().expect("a list").iter();
        let rows = variables.map(|variable| {
            format!(
                "| `{}` | {} | {} |\n",
                text(&variable["name"]),
                text(&variable["default"]),
                text(&variable["about"])
            )
        });
        let rows: String = rows.collect();
        let written =
            write!(page, "## {}\n\n| variable | default | meaning |\n|---|---|---|\n{rows}\n", text(&group["title"]));
        written.expect("writing to a string cannot fail");
    }
    compare("environment.md", &(page.trim_end().to_owned() + "\n"));
}

#[test]
fn the_rest_reference_matches_the_openapi_document() {
    let rest = Rest::start();
    let document = expect(200, &rest.serve.fetch(&HttpRequest::new("GET", "/api/v1/openapi.json")));
    let mut page = format!(
        "# REST endpoints\n\n\
         After this page you can look up every endpoint of the REST API: what it takes, what it returns and how it can \
         fail. Paths are\nbelow `{PREFIX}`, except `/metrics` and those that start with `/api`. `/api/docs` of a running \
         service shows the same with\nall schemas and lets you try it; `/api/v1/openapi.json` is the OpenAPI document.\n\n\
         {GENERATED}\n\n"
    );
    let common = common_errors(&document);
    page += "## Errors of most endpoints\n\n| status | meaning |\n|---|---|\n";
    page.extend(common.iter().map(|(status, meaning)| format!("| {status} | {} |\n", cell(meaning))));
    page.push('\n');
    let paths = document["paths"].as_object().expect("paths");
    for tag in document["tags"].as_array().expect("tags").iter().map(|tag| text(&tag["name"])) {
        let written = write!(page, "## {tag}\n\n");
        written.expect("writing to a string cannot fail");
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().expect("methods") {
                if operation["tags"][0] == *tag {
                    page.push_str(&endpoint(&document, &common, path, method, operation));
                }
            }
        }
    }
    compare("rest.md", &(page.trim_end().to_owned() + "\n"));
}

/// A status and its meaning.
type Meaning = (String, String);

/// The errors that are listed once.
fn common_errors(document: &Value) -> BTreeSet<Meaning> {
    let methods = document["paths"].as_object().into_iter().flat_map(Map::values).filter_map(Value::as_object);
    let mut counts: BTreeMap<Meaning, usize> = BTreeMap::new();
    for responses in methods.flat_map(Map::values).filter_map(|operation| operation["responses"].as_object()) {
        for (status, response) in responses {
            *counts.entry((status.clone(), text(&response["description"]).to_owned())).or_default() += 1;
        }
    }
    let is_common = |((status, _), count): &(Meaning, usize)| *count >= COMMON && status.as_str() >= "400";
    counts.into_iter().filter(is_common).map(|(meaning, _)| meaning).collect()
}

/// One endpoint.
fn endpoint(document: &Value, common: &BTreeSet<Meaning>, path: &str, method: &str, operation: &Value) -> String {
    let path = path.strip_prefix(PREFIX).unwrap_or(path);
    let mut section = format!("### {} {path}\n\n", method.to_uppercase());
    let summary = text(&operation["summary"]).trim_end_matches('.');
    section += &format!("{summary}. {}", text(&operation["description"])).trim_end().replace("\n\n", "\n");
    section += "\n\n";
    let mut rows = String::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let about = [&parameter["description"], &parameter["schema"]["description"]].map(text).join("");
        rows += &row(
            text(&parameter["name"]),
            text(&parameter["in"]),
            parameter["required"] == true,
            &parameter["schema"],
            &about,
        );
    }
    let body = named(document, &operation["requestBody"]["content"]["application/json"]["schema"]);
    let required = body["required"].as_array().cloned().unwrap_or_default();
    for (name, schema) in body["properties"].as_object().unwrap_or(&Map::new()) {
        let is_required = required.iter().any(|other| text(other) == name);
        rows += &row(name, "body", is_required, schema, text(&schema["description"]));
    }
    if !rows.is_empty() {
        section += &format!("| name | in | type | meaning |\n|---|---|---|---|\n{rows}\n");
    }
    section += "| status | meaning |\n|---|---|\n";
    for (status, response) in operation["responses"].as_object().expect("responses") {
        let meaning = text(&response["description"]);
        if !common.contains(&(status.clone(), meaning.to_owned())) {
            section += &format!("| {status} | {} |\n", cell(meaning));
        }
    }
    section + "\n"
}

fn row(name: &str, place: &str, is_required: bool, schema: &Value, about: &str) -> String {
    let required = if is_required { ", required" } else { "" };
    format!("| `{name}` | {place}{required} | {} | {} |\n", kind(schema), cell(about))
}

/// A schema, looked up if it is named.
fn named<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    name.map_or(schema, |name| &document["components"]["schemas"][name])
}

/// The type of a value, in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return name.to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .map(|value| format!("`{}`", value.as_str().unwrap_or("null")))
            .collect::<Vec<_>>()
            .join(" or ");
    }
    let one = |kind: &str| match kind {
        "array" => format!("array of {}", kind_of_items(schema)),
        kind => kind.to_owned(),
    };
    match &schema["type"] {
        Value::String(kind) => one(kind),
        Value::Array(kinds) => kinds.iter().map(|kind| one(text(kind))).collect::<Vec<_>>().join(" or "),
        _ => alternatives(schema),
    }
}

fn kind_of_items(schema: &Value) -> String {
    if schema["items"].is_object() { kind(&schema["items"]) } else { "any".to_owned() }
}

fn alternatives(schema: &Value) -> String {
    let alternatives = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    match alternatives {
        Some(schemas) => schemas.iter().map(kind).collect::<Vec<_>>().join(" or "),
        None => "any".to_owned(),
    }
}
