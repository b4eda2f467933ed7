//! The resources of all servers, and one of them.

use serde_json::Value;
use service::{Error, ItemKind, ItemPage, ResourceView};

use crate::display;
use crate::form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::overview::clip;
use crate::pages::{error_text, items, pager, part, pretty, server_link, shortened};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// How many characters of a text are shown.
const MAX_TEXT_LEN: usize = 100_000;
/// The types of pictures that are shown, and the limit of their base64.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_PICTURE_BYTES: usize = 4_000_000;

/// The query parameters with the places in the two lists.
const OFFSET: &str = "offset";
const TEMPLATES_OFFSET: &str = "templates";

/// The list.
pub(crate) async fn list(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let (part, templates_part) = (part(request, OFFSET), part(request, TEMPLATES_OFFSET));
    let resources = items(request, ItemKind::Resource, part, ItemPage::resources).await?;
    let templates = items(request, ItemKind::Template, templates_part, ItemPage::resources).await?;
    let rows: Html = resources.items.iter().map(|resource| row(resource, true)).collect();
    let families: Html = templates.items.iter().map(|template| row(template, false)).collect();
    let table = |title: &str, rows: Html| {
        html!(
            r#"<h2>{title}</h2><div class="scroll"><table class="cards"><thead><tr><th>URI</th><th>Server</th><th>Type</th><th>Description</th></tr></thead><tbody>{rows}</tbody></table></div>"#,
            title = title,
            rows = rows
        )
    };
    // A page of one list stays where it is while the other is turned.
    let address = |of_resources: u64, of_templates: u64| {
        let word = |offset: u64| if offset == 0 { String::new() } else { offset.to_string() };
        form::address("/resources", &[(OFFSET, &word(of_resources)), (TEMPLATES_OFFSET, &word(of_templates))])
    };
    let empty = (resources.total == 0 && templates.total == 0)
        .then(|| html!(r#"<div class="empty"><h3>No resources</h3><p>No connected server has any.</p></div>"#));
    let body = html!(
        r#"<h1>Resources</h1><form class="filters" method="get" action="/resources/read"><label class="grow">URI<input name="uri" autocomplete="off" spellcheck="false" placeholder="file:///notes.txt"></label><button class="quiet">Read</button></form>
<div id="resources" data-live="server. tools."><p class="muted">{total}</p>{empty}{listed}{pages}{families}{template_pages}</div>"#,
        total = display::several(resources.total, "resource"),
        empty = empty,
        listed = (resources.total > 0).then(|| table("Listed", rows)),
        pages = pager(resources.items.len(), part.offset, part.limit, resources.total, |offset| {
            address(offset, templates_part.offset)
        }),
        families = (templates.total > 0).then(|| table("Templates", families)),
        template_pages = pager(templates.items.len(), templates_part.offset, part.limit, templates.total, |offset| {
            address(part.offset, offset)
        }),
    );
    Ok(PageResponse::page(Page { title: "Resources".into(), place: "/resources", body, script: None }))
}

fn row(resource: &ResourceView, can_be_read: bool) -> Html {
    let shown = clip(&resource.uri, 120);
    let address = form::address("/resources/read", &[("uri", &resource.uri), ("server", &resource.server_name)]);
    let uri = match can_be_read {
        true => html!(r#"<a href="{address}">{shown}</a>"#, address = address, shown = shown),
        false => html!("<code>{}</code>", shown),
    };
    let name = resource.title.as_deref().or(resource.name.as_deref());
    html!(
        r#"<tr><th scope="row">{uri}</th><td data-name="Server">{server}</td><td data-name="Type">{kind}</td><td data-name="Description">{name}<span class="sub">{about}</span></td></tr>"#,
        uri = uri,
        server = server_link(&resource.server_name),
        kind = resource.mime_type.as_deref().map(|kind| clip(kind, 60)),
        name = name.map(|name| clip(name, 80)),
        about = resource.description.as_deref().map(|about| clip(about, 160)),
    )
}

/// Reads a resource.
pub(crate) async fn read(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let Some(uri) = request.query.value_of("uri") else { return Ok(PageResponse::Seen("/resources".to_owned())) };
    let read = request.service().read_resource(&request.actor, uri, request.query.value_of("server")).await;
    let contents = match &read {
        Ok(result) => match serde_json::from_str::<Value>(result.get()) {
            Ok(read) => match read["contents"].as_array().filter(|all| !all.is_empty()) {
                Some(contents) => contents.iter().map(content).collect(),
                None => html!(
                    r#"<p>The server's response has no contents that can be displayed. The raw response is:</p><pre class="block" tabindex="0">{}</pre>"#,
                    shortened(&pretty(result.get()), MAX_TEXT_LEN)
                ),
            },
            Err(error) => html!(
                r#"{why}<pre class="block" tabindex="0">{raw}</pre>"#,
                why = super::unread(&error),
                raw = shortened(result.get(), MAX_TEXT_LEN),
            ),
        },
        Err(error) => html!(r#"<pre class="error">{}</pre>"#, error_text(error)),
    };
    let body = html!(
        r#"<h1>{uri}</h1>{contents}<p><a href="/resources">All resources</a></p>"#,
        uri = clip(uri, 200),
        contents = contents,
    );
    Ok(PageResponse::page(Page { title: clip(uri, 80), place: "/resources", body, script: None }))
}

fn content(content: &Value) -> Html {
    let said = |key: &str| content[key].as_str().unwrap_or_default();
    let kind = said("mimeType");
    if let Some(text) = content["text"].as_str() {
        return html!(
            r#"<section class="card"><p class="muted">{uri} {kind}</p><pre class="block" tabindex="0">{text}</pre></section>"#,
            uri = clip(said("uri"), 120),
            kind = kind,
            text = shortened(text, MAX_TEXT_LEN),
        );
    }
    let Some(blob) = content["blob"].as_str() else {
        return html!(
            r#"<section class="card"><pre class="block" tabindex="0">{}</pre></section>"#,
            shortened(&pretty(&content.to_string()), MAX_TEXT_LEN)
        );
    };
    let picture = PICTURES.iter().find(|known| **known == kind).filter(|_| blob.len() <= MAX_PICTURE_BYTES);
    let is_base64 = blob.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    match picture.filter(|_| is_base64) {
        Some(kind) => html!(
            r#"<section class="card"><img src="data:{kind};base64,{blob}" alt="{uri}"></section>"#,
            kind = *kind,
            blob = blob,
            uri = clip(said("uri"), 120),
        ),
        None => html!(
            r#"<section class="card"><p class="muted">{uri}: {size} of {kind}. <code>mcp-aggregator resources read</code> writes it to a file.</p></section>"#,
            uri = clip(said("uri"), 120),
            size = display::size(blob.len() as u64 / 4 * 3),
            kind = kind,
        ),
    }
}
