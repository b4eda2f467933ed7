//! Test filters that a page quotes match a test: the commands would otherwise run nothing and succeed.

use std::fs;
use std::path::{Path, PathBuf};

use super::{none, pages, root};

/// A package and its folder.
const PACKAGES: [(&str, &str); 3] =
    [("behaviour", "tests"), ("mcp-aggregator", "bin/mcp-aggregator"), ("search", "crates/search")];

/// The filter in a quoted command, and the package whose tests it selects, if the command names one.
fn filter_in(command: &str) -> Option<(Option<&str>, &str)> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let is_cargo = words.windows(2).position(|pair| pair == ["cargo", "test"]);
    if let Some(start) = is_cargo {
        let ["-p", package, filter, ..] = words[start + 2..] else { return None };
        return (!filter.starts_with('-')).then_some((Some(package), filter));
    }
    if *words.first()? != "scripts/flaky" {
        return None;
    }
    let takes_value = |option: &str| ["--runs", "--loops", "--package"].contains(&option);
    let is_filter = |at: usize| at > 0 && !words[at].starts_with("--") && !takes_value(words[at - 1]);
    (0..words.len()).find(|&at| is_filter(at)).map(|at| (None, words[at]))
}

/// The paths of the modules in a folder, with the names of the functions in them: `browser::appearance::a_test`.
fn test_names(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        for path in fs::read_dir(&inner).expect("the folder can be read").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.extend(names_in(folder, &path));
            }
        }
    }
    found
}

fn names_in(folder: &Path, path: &Path) -> Vec<String> {
    let module = path.strip_prefix(folder).expect("it is in the folder").with_extension("");
    let module = module.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("::");
    let text = fs::read_to_string(path).expect("a source file can be read");
    let functions = text.lines().filter_map(|line| line.trim_start().split_once("fn ")?.1.split(['(', '<']).next());
    functions.map(|function| format!("{module}::{function}")).collect()
}

#[test]
fn quoted_test_filters_match_a_test() {
    let mut problems = Vec::new();
    let mut count = 0;
    let texts = pages().into_iter().flat_map(|(path, page)| {
        let lines: Vec<String> = page.blocks.iter().flat_map(|(_, text)| text.lines().map(str::to_owned)).collect();
        lines.into_iter().chain(page.code).map(move |command| (path.clone(), command))
    });
    for (path, command) in texts.collect::<Vec<(PathBuf, String)>>() {
        let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((package, filter)) = filter_in(&command) else { continue };
        count += 1;
        let folders = PACKAGES.iter().filter(|(name, _)| package.is_none_or(|package| package == *name));
        let mut names = folders.flat_map(|(_, folder)| test_names(&root().join(folder)));
        if !names.any(|name| name.contains(filter)) {
            problems.push(format!("{}: `{command}`", path.display()));
        }
    }
    assert!(count > 4, "only {count} test filters were found");
    none("commands that run no test", &problems);
}

#[test]
fn filters_are_found_in_commands() {
    assert_eq!(filter_in("cargo test -p behaviour listing"), Some((Some("behaviour"), "listing")));
    assert_eq!(filter_in("A=1 cargo test -p search the_vectors"), Some((Some("search"), "the_vectors")));
    assert_eq!(filter_in("scripts/flaky --runs 20 shutdown"), Some((None, "shutdown")));
    assert_eq!(filter_in("scripts/flaky --runs 20"), None);
    assert_eq!(filter_in("cargo test"), None);
}
