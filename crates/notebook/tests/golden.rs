//! Documents of all kinds: a run changes nothing but results, and a second run changes nothing.
//!
//! `golden/NAME.md` is a document, `golden/expected/NAME.md` the document after a run. `BLESS=1` rewrites the latter.

use std::fs;
use std::path::{Path, PathBuf};

use notebook::{Document, PlacementOutcome};

use crate::fixture::run_text;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn documents() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
        .collect();
    found.sort();
    assert!(found.len() >= 30, "{}", found.len());
    found
}

#[test]
fn a_run_writes_what_is_expected() {
    for (name, text) in documents() {
        let path = folder().join("expected").join(&name);
        let ran = run_text(&text).0.text;
        if std::env::var_os("BLESS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &ran).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(ran, expected, "{name}");
    }
}

#[test]
fn without_its_results_a_document_is_what_it_was() {
    for (name, text) in documents() {
        let ran = Document::parse(run_text(&text).0.text);
        assert_eq!(ran.without_results(), text, "{name}");
    }
}

#[test]
fn running_twice_equals_running_once() {
    for (name, text) in documents() {
        let once = run_text(&text).0.text;
        let (twice, report) = run_text(&once);
        assert_eq!(twice.text, once, "{name}");
        assert!(twice.edits.is_empty(), "{name}");
        let fates = twice.placements.iter().map(|placement| placement.fate);
        assert!(
            fates.into_iter().all(|fate| matches!(fate, PlacementOutcome::Unchanged | PlacementOutcome::Nothing)),
            "{name}: {report:?}"
        );
    }
}

#[test]
fn every_result_finds_its_place() {
    for (name, text) in documents() {
        for placement in run_text(&text).0.placements {
            assert!(
                matches!(placement.fate, PlacementOutcome::Written | PlacementOutcome::Nothing),
                "{name}: {placement:?}"
            );
        }
    }
}

#[test]
fn edits_lead_from_the_old_text_to_the_new() {
    for (name, text) in documents() {
        let applied = run_text(&text).0;
        let mut edited = text.clone();
        for edit in applied.edits.iter().rev() {
            edited.replace_range(edit.start..edit.end, &edit.text);
        }
        assert_eq!(edited, applied.text, "{name}");
    }
}
