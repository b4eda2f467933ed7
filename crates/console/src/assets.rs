//! Styles and scripts: part of the program, named by their content, so that browsers can cache them forever.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

/// A file that pages refer to.
pub(crate) struct Asset {
    /// Its path.
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) content: &'static str,
}

/// The styles of all pages.
pub(crate) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| named("console", "css", "text/css; charset=utf-8", include_str!("../assets/console.css")));
/// The script of all pages: live updates, copying, confirmations, drawers.
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let parts = concat!(include_str!("../assets/console.js"), include_str!("../assets/drawer.js"));
    named("console", "js", JAVASCRIPT, parts)
});
/// Receives the events of the service for all tabs.
pub(crate) static EVENTS: LazyLock<Asset> =
    LazyLock::new(|| named("events", "js", JAVASCRIPT, include_str!("../assets/events.js")));
/// The playground, whose parts are one script to browsers.
pub(crate) static PLAYGROUND: LazyLock<Asset> = LazyLock::new(|| {
    let parts = concat!(
        include_str!("../assets/playground/json.js"),
        include_str!("../assets/playground/schema.js"),
        include_str!("../assets/playground/limits.js"),
        include_str!("../assets/playground/field_hints.js"),
        include_str!("../assets/playground/fields.js"),
        include_str!("../assets/playground/lists.js"),
        include_str!("../assets/playground/maps.js"),
        include_str!("../assets/playground/unions.js"),
        include_str!("../assets/playground/forms.js"),
        include_str!("../assets/playground/client.js"),
        include_str!("../assets/playground/result_view.js"),
        include_str!("../assets/playground/media.js"),
        include_str!("../assets/playground/run_progress.js"),
        include_str!("../assets/playground/question.js"),
        include_str!("../assets/playground/bench.js"),
        include_str!("../assets/playground/history.js"),
        include_str!("../assets/playground/choice.js"),
    );
    named("playground", "js", JAVASCRIPT, parts)
});
/// Documents that run tools.
pub(crate) static DOCUMENTS: LazyLock<Asset> =
    LazyLock::new(|| named("documents", "js", JAVASCRIPT, include_str!("../assets/documents.js")));
/// The favicon.
pub(crate) static ICON: LazyLock<Asset> =
    LazyLock::new(|| named("icon", "svg", "image/svg+xml", include_str!("../assets/icon.svg")));

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// The asset at a path.
pub(crate) fn at(path: &str) -> Option<&'static Asset> {
    let all = [&*STYLE, &*SCRIPT, &*EVENTS, &*PLAYGROUND, &*DOCUMENTS, &*ICON];
    all.into_iter().find(|asset| asset.path == path)
}

fn named(name: &str, ending: &str, content_type: &'static str, content: &'static str) -> Asset {
    let digest = Sha256::digest(content.as_bytes());
    let mark: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Asset { path: format!("/assets/{name}-{mark}.{ending}"), content_type, content }
}
