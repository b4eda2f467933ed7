//! Documents: Markdown files that run tools, from the one folder that may be read. Each section shows its server and
//! why. Scripts run blocks and show progress; without scripts, forms run them.

mod map;
mod markdown;
mod run;

use std::borrow::Cow;

use http::Method;
use notebook::{Document, FolderError, Listing, Outline};
use service::Error;

use crate::assets::DOCUMENTS;
use crate::form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::request::PageRequest;
use crate::response::PageResponse;
use crate::{Documents, display};
pub(crate) use run::run;

/// How much of a document is shown.
const MAX_SHOWN_BYTES: usize = 100_000;
/// How much of a line is shown: an image that is embedded as text can be a megabyte long.
const MAX_LINE_LEN: usize = 4_000;
/// How many documents a page lists.
const PAGE: u32 = 100;

/// The list of documents, or one document.
pub(crate) async fn show(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let Some(documents) = &request.console.dependencies.documents else {
        return Ok(render_page("Documents", nothing_served(), None));
    };
    match request.query.value_of("path") {
        Some(path) => one(request, documents, path).await,
        None => list(request, documents).await,
    }
}

fn render_page(title: &str, body: Html, script: Option<&'static str>) -> PageResponse {
    PageResponse::page(Page { title: title.to_owned(), place: "/documents", body, script })
}

/// What to do if no folder is configured.
fn nothing_served() -> Html {
    html!(
        r#"<h1>Documents</h1><div class="empty"><h3>No documents folder is configured</h3>
<p>A Markdown file can call tools: a fenced block names a tool, and its result is written below the block. To open a folder
of documents here, start the service with:</p>{command}<p>Without the console, <code>mcp-aggregator run FILE</code> runs any document.</p></div>"#,
        command = crate::pages::overview::copyable("mcp-aggregator serve --documents ~/notes"),
    )
}

async fn list(request: &PageRequest<'_>, documents: &Documents) -> Result<PageResponse, Error> {
    let folder = std::sync::Arc::clone(&documents.folder);
    let root = folder.root().display().to_string();
    let listed = run_blocking(move || folder.list()).await?;
    let listed = listed.map_err(|error| Error::Internal { what: format!("failed to list documents: {error}") })?;
    let offset: u64 = request.query.value_of("offset").and_then(|offset| offset.parse().ok()).unwrap_or(0);
    let first = usize::try_from(offset).unwrap_or(usize::MAX);
    let part: Vec<&Listing> = listed.iter().skip(first).take(PAGE as usize).collect();
    let table = match part.is_empty() {
        true => html!(
            r#"<div class="empty"><h3>No documents</h3><p>Files that end in <code>.md</code> appear here. Hidden files and symbolic links do not.</p></div>"#
        ),
        false => html!(
            r#"<div class="scroll"><table class="cards"><thead><tr><th>Document</th><th class="n">Size</th><th>Changed</th></tr></thead><tbody>{}</tbody></table></div>"#,
            part.iter().map(|listing| row(listing)).collect::<Html>()
        ),
    };
    let address = |offset: u64| form::address("/documents", &[("offset", &offset.to_string())]);
    let body = html!(
        r#"<h1>Documents</h1><p class="muted">Markdown files in <code>{root}</code>. Open one to see which tools it calls, and run them.</p>{table}{pager}"#,
        root = root,
        table = table,
        pager = crate::pages::pager(part.len(), offset, PAGE, listed.len() as u64, address),
    );
    Ok(render_page("Documents", body, None))
}

fn row(listing: &Listing) -> Html {
    if let Some(problem) = &listing.problem {
        return html!(
            r#"<tr><th scope="row">{path}</th><td colspan="2"><span class="bad">{problem}</span></td></tr>"#,
            path = listing.path,
            problem = problem,
        );
    }
    let changed = listing.modified_at.as_deref().and_then(|at| at.parse().ok()).map(display::moment);
    html!(
        r#"<tr><th scope="row"><a href="{to}">{path}</a></th><td class="n" data-name="Size">{size}</td><td class="nowrap" data-name="Changed">{changed}</td></tr>"#,
        to = address_of(&listing.path),
        path = listing.path,
        size = display::size(listing.bytes),
        changed = changed,
    )
}

/// The path of a document's page.
fn address_of(path: &str) -> String {
    form::address("/documents", &[("path", path)])
}

async fn one(request: &PageRequest<'_>, documents: &Documents, path: &str) -> Result<PageResponse, Error> {
    let (document, outline) = (documents.open)(path.to_owned()).await?;
    let own_path = path.to_owned();
    let access = if request.may(&Method::POST, "/documents/run") { map::Access::Run } else { map::Access::Read };
    let rendered = notebook::off_runtime(move || RenderedDocument::of(&own_path, &document, &outline, access)).await;
    let RenderedDocument { cut, shown, column, all, version, is_anything } =
        rendered.map_err(|error| Error::Internal { what: format!("failed to display a document: {error}") })?;
    let body = html!(
        r#"<div class="head"><h1>{name}</h1><div class="actions">{run_all}</div></div>
<p class="muted"><a href="/documents">Documents</a> · <code>{path}</code> · results are written into the file, as <code>mcp-aggregator run</code> does</p>
<form id="runner" method="post" action="/documents/run">{csrf}<input type="hidden" name="path" value="{path:#}"></form>
<div class="sticky actions" hidden><span id="run-status" role="status" data-path="{path:#}" data-changes="{changes}"></span><span id="run-rest"></span><button id="stop" class="danger small" hidden>Stop</button></div><p id="gone" class="flash warn" role="status" hidden>The file does not exist any more. The page shows its last version until the file is back.</p><div id="problems" role="alert"></div>
<div class="columns document"><article id="document" class="prose-page" data-live="document.">{cut}{shown}<span id="edition" data-version="{version}" data-all="{all}" hidden></span><input type="hidden" form="runner" name="version" value="{version:#}"></article><aside id="outline" data-live="document." aria-label="Outline">{map}</aside></div>"#,
        csrf = request.csrf(),
        name = path.rsplit('/').next().unwrap_or(path),
        run_all = (access == map::Access::Run).then(|| {
            html!(
                r#"<button id="run-all" form="runner" name="blocks" value="{all:#}"{off}>Run all</button>"#,
                all = all.as_str(),
                off = (!is_anything).then(|| html!(" disabled")),
            )
        }),
        all = all,
        version = version,
        changes = form::address("/api/v1/aggregator/documents/changes", &[("path", path)]),
        path = path,
        cut = cut,
        shown = shown,
        map = column,
    );
    Ok(render_page(path, body, Some(DOCUMENTS.path.as_str())))
}

/// A rendered document.
struct RenderedDocument {
    /// A notice if it is longer than what is shown.
    cut: Option<Html>,
    shown: Html,
    /// The column next to it.
    column: Html,
    /// The numbers of all blocks.
    all: String,
    version: String,
    /// Whether there is a block to run.
    is_anything: bool,
}

impl RenderedDocument {
    fn of(path: &str, document: &Document, outline: &Outline, access: map::Access) -> Self {
        let (text, is_cut) = beginning(document.text());
        let anchors = map::anchors(outline);
        let parts = markdown::DocumentParts {
            headings: map::headings(outline, access),
            fences: map::fences(outline, access),
            picture: &|target| picture_address(path, target),
            link: &|target| match target.strip_prefix('#') {
                Some(name) => anchors.get(&form::segment(name).to_lowercase()).map(|line| format!("#line-{line}")),
                None => beside(path, target),
            },
        };
        let shown = markdown::shown(&text, &parts);
        let cut = is_cut.then(|| {
            html!(r#"<p class="flash warn">The document is too long, or has very long lines, so only a part is shown. You can run all blocks from the outline.</p>"#)
        });
        let is_anything = outline.sections.iter().any(|section| !section.blocks.is_empty());
        let (column, all) = (map::column(outline, access), map::all_blocks(outline));
        Self { cut, shown, column, all, version: outline.version.clone(), is_anything }
    }
}

/// The part of a text that is shown, and whether it was cut. No line in between is omitted, because annotations refer
/// to lines.
fn beginning(text: &str) -> (Cow<'_, str>, bool) {
    let is_long = |line: &str| line.len() > MAX_LINE_LEN;
    if text.len() <= MAX_SHOWN_BYTES && !text.lines().any(is_long) {
        return (Cow::Borrowed(text), false);
    }
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        if shown.len() + line.len().min(MAX_LINE_LEN) > MAX_SHOWN_BYTES {
            break;
        }
        match is_long(line) {
            true => {
                shown.push_str(&line[..line.floor_char_boundary(MAX_LINE_LEN)]);
                shown.push_str(" …\n");
            }
            false => shown.push_str(line),
        }
    }
    (Cow::Owned(shown), true)
}

/// A picture that a document links to.
pub(crate) async fn picture(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let path = request.query.text("path").to_owned();
    let Some(documents) = &request.console.dependencies.documents else {
        return Err(Error::DocumentNotFound { path, why: "no documents folder is configured".to_owned() });
    };
    let folder = std::sync::Arc::clone(&documents.folder);
    let (content_type, content) = run_blocking(move || had(path, |path| folder.picture(path))).await??;
    Ok(PageResponse::Picture { content_type, content })
}

/// A file that a tool created and a document links to, as a download: browsers do not display it.
pub(crate) async fn file(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let path = request.query.text("path").to_owned();
    let Some(documents) = &request.console.dependencies.documents else {
        return Err(Error::DocumentNotFound { path, why: "no documents folder is configured".to_owned() });
    };
    let folder = std::sync::Arc::clone(&documents.folder);
    let name = path.rsplit('/').next().unwrap_or_default().replace(['"', '\\'], "");
    let content = run_blocking(move || had(path, |path| folder.attachment(path))).await??;
    Ok(PageResponse::File { name, content_type: "application/octet-stream", content })
}

fn had<T>(path: String, read: impl FnOnce(&str) -> Result<T, FolderError>) -> Result<T, Error> {
    read(&path).map_err(|error| {
        let why = match error {
            FolderError::NoDocument { why, .. } => why,
            FolderError::File(error) => {
                tracing::warn!(%path, %error, "failed to read a file next to a document");
                "it could not be read"
            }
        };
        Error::DocumentNotFound { path, why: why.to_owned() }
    })
}

/// The address of a picture next to a document.
fn picture_address(document: &str, target: &str) -> Option<String> {
    Some(form::address("/documents/picture", &[("path", &neighbour_path(document, target)?)]))
}

/// The target of a relative link: another document, or a file that a tool created.
fn beside(document: &str, target: &str) -> Option<String> {
    let path = neighbour_path(document, target)?;
    if path.ends_with(".md") {
        return Some(address_of(&path));
    }
    path.contains(".assets/").then(|| form::address("/documents/file", &[("path", &path)]))
}

/// The path in the folder for a relative path in a document. The folder checks whether it may be read.
fn neighbour_path(document: &str, target: &str) -> Option<String> {
    let target = target.split(['#', '?']).next().unwrap_or_default();
    if target.is_empty() || target.contains(':') || target.starts_with('/') {
        return None;
    }
    let target = form::segment(target);
    Some(match document.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{target}"),
        None => target,
    })
}

/// Runs blocking disk access outside the threads that relay calls.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Internal { what: format!("failed to process a document: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_in_a_document_start_at_its_folder() {
        assert_eq!(neighbour_path("work/a.md", "a.assets/x%20y.png").as_deref(), Some("work/a.assets/x y.png"));
        assert_eq!(neighbour_path("a.md", "b.md#part").as_deref(), Some("b.md"));
        for elsewhere in ["https://example.com/x.png", "/etc/x.png", "#part", "javascript:alert(1)", "data:image/png,x"]
        {
            assert_eq!(neighbour_path("a.md", elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn a_long_document_is_cut_between_lines() {
        let text = "0123456789é\n".repeat(MAX_SHOWN_BYTES / 5);
        let (shown, is_cut) = beginning(&text);
        assert!(is_cut && shown.len() <= MAX_SHOWN_BYTES && shown.ends_with('\n') && !shown.is_empty());
        assert_eq!(beginning("short"), (Cow::Borrowed("short"), false));
    }

    #[test]
    fn a_very_long_line_hides_nothing_that_follows_it() {
        let text = format!("# A\n\n{}\n\n```one\ntool: echo\n```\n", "é".repeat(300_000));
        let (shown, is_cut) = beginning(&text);
        assert!(is_cut && shown.len() < 2 * MAX_LINE_LEN && shown.contains("éé …\n\n```one\ntool: echo\n```\n"));
        assert_eq!(shown.lines().count(), text.lines().count(), "lines stay where they are");
    }
}
