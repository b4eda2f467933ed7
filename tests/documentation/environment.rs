//! The environment variables on pages are those that the programs read, and vice versa.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::program;

use super::{none, pages, read, root};

/// The prefixes of our variables, and of those that only few programs read.
const PREFIXES: [&str; 8] = ["MCP_", "OTEL_", "DOCKER_", "QDRANT_", "OPENAI_", "ANTHROPIC_", "XDG_", "PG"];
/// Variables of tests and examples, which no program of ours reads.
const NOT_OURS: [&str; 7] = [
    "MCP_TEST_PARTS",
    "MCP_TEST_CACHE",
    "MCP_TEST_BIN_DIR",
    "MCP_SCREENSHOTS",
    "MCP_EXAMPLES_BIN",
    "MCP_UPDATE_SKILLS",
    "QDRANT_URL",
];

/// The output of `mcp-aggregator environment`.
pub(super) fn groups() -> Vec<Value> {
    let output = testkit::run(program("mcp-aggregator"), ["environment"]);
    assert!(output.status.success(), "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("the hidden command prints JSON")
}

fn known() -> BTreeSet<String> {
    let groups = groups();
    let variables = groups.iter().flat_map(|group| group["variables"].as_array().expect("a list"));
    let names: Vec<String> = variables.map(|variable| variable["name"].as_str().expect("a name").to_owned()).collect();
    let known: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(known.len(), names.len(), "a variable is listed twice: {names:?}");
    known
}

/// The names of variables in a text.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_name = |word: &str| {
        word.len() > 4
            && !word.ends_with('_')
            && PREFIXES.iter().any(|prefix| word.starts_with(prefix))
            && word.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
    };
    words.filter(|word| is_name(word) && !NOT_OURS.contains(word)).map(str::to_owned).collect()
}

#[test]
fn documented_variables_exist() {
    let known = known();
    let mut problems = Vec::new();
    for path in pages().into_keys() {
        let unknown = variables(&read(&root().join(&path))).into_iter().filter(|name| !known.contains(name));
        problems.extend(unknown.map(|name| format!("{}: {name}", path.display())));
    }
    none("no program reads these variables", &problems);
}

/// Strings in shipped code that are names of variables, each with a file that contains it.
fn in_code() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<PathBuf> = ["bin", "crates"].map(|group| root().join(group)).into();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).expect("the folder can be read").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                let is_shipped = !["testkit", "tests", "target"].iter().any(|name| path.ends_with(name));
                folders.extend(is_shipped.then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
                found.extend(quoted_names(&read(&path)).into_iter().map(|name| (name, path.clone())));
            }
        }
    }
    found
}

fn quoted_names(text: &str) -> BTreeSet<String> {
    let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = shipped.lines().map(|line| line.split("//").next().unwrap_or_default());
    // Whole strings only, because sentences mention variables, too.
    let strings = lines.flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    strings.filter(|string| variables(string).contains(string)).collect()
}

#[test]
fn variables_that_the_code_reads_are_documented() {
    let known = known();
    let missing: Vec<String> = in_code()
        .into_iter()
        .filter(|(name, _)| !known.contains(name))
        .map(|(name, path)| format!("{name} in {}", path.strip_prefix(root()).unwrap_or(Path::new("")).display()))
        .collect();
    none("`mcp-aggregator environment` does not list these variables", &missing);
}

#[test]
fn names_are_found_in_text() {
    let text = "`MCP_A_B`, ${OTEL_X}, MCP_*_KEY, MCP_AGGREGATOR_ and MCP_TEST_PARTS";
    assert_eq!(variables(text), BTreeSet::from(["MCP_A_B".to_owned(), "OTEL_X".to_owned()]));
    assert_eq!(quoted_names("a(\"MCP_A_B\"); // \"MCP_C\"\nb(\"set MCP_D\")"), BTreeSet::from(["MCP_A_B".to_owned()]));
}
