//! README, ARCHITECTURE and docs: their sizes, links, quoted commands, environment variables, and generated pages.
//!
//! - [`markdown`]: reads pages: links, anchors, quoted code
//! - [`commands`]: every quoted command is accepted by the programs
//! - [`environment`]: the documented variables are those that the code reads
//! - [`reference`]: the generated pages in `docs/reference`
//! - [`test_filters`]: quoted commands that run tests select at least one

mod commands;
mod environment;
mod markdown;
mod reference;
mod test_filters;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use markdown::Page;

/// The pages outside `docs` that are for readers.
const TOP_PAGES: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
const README_LIMIT: u64 = 10 * 1024;
const ARCHITECTURE_LIMIT: u64 = 16 * 1024;
const CLICKS: usize = 2;
/// The sentence of a page in `docs` about what its reader can do afterwards.
const PROMISE: &str = "After this page you ";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the repository").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("could not read {}: {error}", path.display()))
}

/// Every page of `docs`, by its path in the repository.
fn docs() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.strip_prefix(root()).expect("it is in the repository").to_owned());
            }
        }
    }
    found.sort();
    assert!(found.len() > 15, "{found:?}");
    found
}

/// All pages, by their paths in the repository.
fn pages() -> BTreeMap<PathBuf, Page> {
    let more = ["examples/README.md", "bench/README.md"];
    let paths = TOP_PAGES.iter().chain(&more).map(PathBuf::from).chain(docs());
    paths.map(|path| (path.clone(), Page::parse(&read(&root().join(path))))).collect()
}

#[track_caller]
fn none(what: &str, problems: &[String]) {
    assert!(problems.is_empty(), "{what}:\n{}", problems.join("\n"));
}

#[test]
fn readme_and_architecture_are_short() {
    for (page, limit) in [("README.md", README_LIMIT), ("ARCHITECTURE.md", ARCHITECTURE_LIMIT)] {
        let size = fs::metadata(root().join(page)).expect("the page exists").len();
        assert!(size <= limit, "{page} has {size} bytes; the limit is {limit}. Move details to docs");
    }
}

#[test]
fn relative_links_and_anchors_resolve() {
    let pages = pages();
    let mut problems = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { resolved(path, file) };
            if !root().join(&target).exists() {
                problems.push(format!("{}: there is no {link}", path.display()));
            } else if !anchor.is_empty() && !pages.get(&target).is_some_and(|page| page.anchors.contains(anchor)) {
                problems.push(format!("{}: there is no heading for {link}", path.display()));
            }
        }
    }
    none("links that lead nowhere", &problems);
}

/// The path in the repository that a relative link on a page leads to.
fn resolved(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => assert!(path.pop(), "{link} in {} leads out of the repository", page.display()),
            part => path.push(part),
        }
    }
    path
}

#[test]
fn every_page_of_docs_is_at_most_two_clicks_from_the_readme() {
    let pages = pages();
    let mut reached = BTreeSet::from([PathBuf::from("README.md")]);
    for _ in 0..CLICKS {
        let links = reached.iter().filter_map(|path| Some((path, pages.get(path)?)));
        let next = links.flat_map(|(path, page)| {
            page.links.iter().filter_map(move |link| {
                let file = link.split('#').next().filter(|file| !file.is_empty())?;
                Some(resolved(path, file))
            })
        });
        let next: Vec<PathBuf> = next.collect();
        reached.extend(next);
    }
    let missed = docs().into_iter().filter(|path| !reached.contains(path));
    none("too far from README.md", &missed.map(|path| path.display().to_string()).collect::<Vec<_>>());
}

#[test]
fn every_page_of_docs_starts_with_what_its_reader_can_do_afterwards() {
    let mut problems = Vec::new();
    for path in docs() {
        let text = read(&root().join(&path));
        let is_decision = path.starts_with("docs/decisions") && !path.ends_with("README.md");
        let start = if is_decision { "## Context\n" } else { PROMISE };
        // The page on security has its own readers, and starts with its contents.
        let is_exempt = path.ends_with("docs/security.md");
        let second = text.split("\n\n").nth(1).unwrap_or_default().to_owned() + "\n";
        if !is_exempt && !second.starts_with(start) {
            problems.push(format!("{} does not start with {start:?} below its title", path.display()));
        }
    }
    none("pages that start otherwise", &problems);
}

#[test]
fn every_decision_has_context_decision_and_consequences() {
    let mut numbers = Vec::new();
    for path in docs().iter().filter(|path| path.starts_with("docs/decisions") && !path.ends_with("README.md")) {
        let text = read(&root().join(path));
        let parts = ["# ", "\n## Context\n", "\n## Decision\n", "\n## Consequences\n"].map(|part| text.find(part));
        assert!(parts.iter().all(Option::is_some) && parts.is_sorted(), "{}: {parts:?}", path.display());
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        numbers.push(name.split('-').next().and_then(|number| number.parse::<usize>().ok()).expect("NNN-title.md"));
    }
    let expected: Vec<usize> = (1..=numbers.len()).collect();
    assert_eq!(numbers, expected, "decisions are numbered without gaps");
}

/// Checks that messages quoted on the page on troubleshooting are in the code. `…` stands for variable parts.
#[test]
fn quoted_messages_are_in_the_code() {
    let text = read(&root().join("docs/troubleshooting.md"));
    let first_columns = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let code = code();
    let mut problems = Vec::new();
    let mut fragments = 0;
    for message in first_columns.flat_map(|column| column.split('`').skip(1).step_by(2).collect::<Vec<_>>()) {
        for fragment in message.split('…').map(str::trim).filter(|fragment| fragment.contains(' ')) {
            fragments += 1;
            if !code.contains(fragment) {
                problems.push(format!("{fragment:?} in {message:?}"));
            }
        }
    }
    assert!(fragments > 10, "too few messages were found: {fragments}");
    none("docs/troubleshooting.md quotes what no code says", &problems);
}

/// All code of the programs, with strings joined.
fn code() -> String {
    let mut code = String::new();
    let mut folders: Vec<PathBuf> = ["bin", "crates"].map(|group| root().join(group)).into();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).expect("the folder can be read").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                for line in read(&path).lines() {
                    // A string that continues on the next line ends with a backslash.
                    let goes_on = line.trim_start().trim_end_matches('\\');
                    code.push_str(goes_on);
                    code.push_str(if line.ends_with('\\') { "" } else { "\n" });
                }
            }
        }
    }
    code
}
