//! The input of fuzz targets, and what must be true for it.

use crate::apply::{ApplyOptions, apply};
use crate::binding::Bindings;
use crate::document::Document;
use crate::line_context::line_context;
use crate::outline::outline;
use crate::plan::{Plan, Selection};
use crate::run::{Finished, Report};
use crate::toolbox::Server;
use crate::yaml;

/// Any bytes as YAML: what is parsed is JSON.
pub fn read_fuzz_yaml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(node) = yaml::parse(text) {
        let json = node.to_json();
        assert!(serde_json::from_str::<serde::de::IgnoredAny>(&json).is_ok(), "{text:?} became {json}");
    }
}

/// Any bytes as a document: it can be mapped and planned, and results that say that blocks were refused change nothing
/// but their own places.
pub fn read_fuzz_document(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let servers = ["one", "two"].map(|name| Server { name: name.to_owned(), is_enabled: name == "one" });
    let document = Document::parse(text);
    let bindings = Bindings::of(&document, &[]);
    let map = outline(&document, &servers, &bindings);
    line_context(&document, &servers, &bindings, text.lines().count() / 2 + 1);
    let Ok(plan) = Plan::new(&document, &servers, &bindings, &Selection::default(), false) else { return };
    assert_eq!(map.blocks().count(), plan.steps.len());
    let finished = plan.steps.iter().map(Finished::of_refused).collect();
    let report = Report { finished, remarks: Vec::new() };
    let applied = apply(text, &report, &ApplyOptions { force: false, folder: "a.assets" });
    assert_eq!(Document::parse(applied.text).without_results(), document.without_results(), "{text:?}");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::{read_fuzz_document, read_fuzz_yaml};

    fn replay(target: &str, feed: fn(&[u8])) {
        let corpus = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        let files: Vec<_> = fs::read_dir(corpus).expect("the corpus is there").flatten().collect();
        assert!(files.len() >= 5, "{} files", files.len());
        for file in files {
            let began = Instant::now();
            feed(&fs::read(file.path()).expect("it can be read"));
            assert!(began.elapsed() < Duration::from_secs(20), "{}: {:?}", file.path().display(), began.elapsed());
        }
    }

    #[test]
    fn what_was_found_in_yaml_stays_found() {
        replay("yaml", read_fuzz_yaml);
    }

    #[test]
    fn what_was_found_in_documents_stays_found() {
        replay("markdown", read_fuzz_document);
    }
}
