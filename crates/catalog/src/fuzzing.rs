//! The fuzz targets: each takes any bytes, and panics only on a bug.

use bytes::Bytes;
use protocol::Lifecycle;
use protocol::scan::{Cursor, Span};

use crate::item::{Kind, Page};
use crate::limits;
use crate::names::{NameStyle, Separator};
use crate::offer::{Hints, Offer};
use crate::server::ServerName;
use crate::snapshot::{Scope, ServerEntry, ServerState, Snapshot};
use crate::uri_template::UriTemplate;

/// Definitions as a server lists them. The first byte selects the kind, the rest is the `result` of a list.
///
/// What is kept is JSON within every limit, needs no further repair, and is listed.
pub fn definitions(data: &[u8]) {
    let Some((first, text)) = data.split_first() else { return };
    let kind = Kind::ALL[usize::from(*first) % Kind::ALL.len()];
    if std::str::from_utf8(text).is_err() || !is_json(text) {
        return;
    }
    let line = Bytes::copy_from_slice(text);
    let whole = protocol::bridge::change::whole(&line);
    let Some(page) = Page::read(kind, &line, whole) else { return };
    let mut kept = Vec::new();
    for item in page.items().flatten() {
        let (repaired, _) = item.repaired(kind);
        let Some(item) = repaired else { continue };
        assert!(limits::fits(&item.definition), "what is kept is within the limits");
        let (again, flaws) = item.clone().repaired(kind);
        assert_eq!((again.as_ref(), flaws.len()), (Some(&item), 0), "what was repaired needs no repair");
        if kind == Kind::Tool {
            // An error is fine: the tool is then shown without its headers.
            let _headers = protocol::bridge::header_params::of_tool(&item.definition);
            let _legacy = protocol::bridge::definition::to_legacy(&item.definition);
        }
        kept.push(item);
    }
    let Ok(name) = ServerName::new("s") else { return };
    let mut offer = Offer::new(Lifecycle::Session);
    offer.set_items(kind, kept, Hints::NONE);
    let server = ServerEntry { name, state: ServerState::Running, offer: offer.into() };
    let snapshot = Snapshot::new(vec![server], Separator::default());
    for lifecycle in [Lifecycle::Session, Lifecycle::SelfContained] {
        for style in [NameStyle::Canonical, NameStyle::Safe] {
            let page = snapshot.page(Scope::All, kind, style, lifecycle, None);
            assert!(page.is_some_and(|page| is_json(page)), "the list is JSON");
        }
    }
}

/// A URI template and, after the first line break, a URI.
pub fn uri_template(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (template, uri) = text.split_once('\n').unwrap_or((text, ""));
    let Some(compiled) = UriTemplate::parse(template) else { return };
    compiled.matches(uri);
    if !template.contains(['{', '}']) {
        assert!(compiled.matches(template), "a template without variables matches itself");
    }
}

fn is_json(text: &[u8]) -> bool {
    let mut cursor = Cursor::new(text);
    cursor.value().and_then(|_: Span| cursor.finish()).is_ok()
}

#[cfg(test)]
mod tests {
    /// Runs a target on every file of its corpus.
    fn replay(target: &str, run: fn(&[u8])) {
        let corpus = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() > 5, "{target} has a corpus");
        for file in files {
            println!("{}", file.display());
            run(&std::fs::read(&file).unwrap());
        }
    }

    #[test]
    fn the_corpora_are_fine() {
        replay("definitions", super::definitions);
        replay("uri_template", super::uri_template);
    }
}
