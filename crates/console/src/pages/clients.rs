//! The connected MCP clients.

use service::{ClientView, Error};

use crate::display;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::overview::clip;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The page.
pub(crate) fn show(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let clients = request.service().clients();
    let rows: Html = clients.iter().map(row).collect();
    let table = match clients.is_empty() {
        true => html!(
            r#"<div class="empty"><h3>No client is connected</h3><p>The <a href="/">overview</a> shows how to connect one.</p></div>"#
        ),
        false => html!(
            r#"<div class="scroll"><table class="cards"><thead><tr><th>Client</th><th>Version</th><th>Revision</th><th>Since</th><th class="n">Calls</th><th>Token</th></tr></thead><tbody>{}</tbody></table></div>"#,
            rows
        ),
    };
    let body = html!(
        r#"<h1>Clients</h1><div id="clients" data-live="execution. notice"><p class="muted">{total}. Clients of revision 2026-07-28 have no session: they are listed for 15 minutes after their last request.</p>{table}</div>"#,
        total = display::several(clients.len() as u64, "client"),
        table = table,
    );
    Ok(PageResponse::page(Page { title: "Clients".into(), place: "/clients", body, script: None }))
}

fn row(client: &ClientView) -> Html {
    html!(
        r#"<tr><th scope="row">{name}</th><td data-name="Version">{version}</td><td class="nowrap" data-name="Revision">{revision}</td><td class="nowrap" data-name="Since">{exact} <span class="sub">{since}</span></td><td class="n" data-name="Calls">{calls}</td><td data-name="Token">{caller}</td></tr>"#,
        name = client.name.as_deref().map_or_else(|| "(no name)".to_owned(), |name| clip(name, 80)),
        version = client.version.as_deref().map(|version| clip(version, 40)),
        revision = client.revision,
        exact = display::exact(client.since),
        since = display::moment(client.since),
        calls = display::count(client.calls),
        caller = client.caller.as_deref(),
    )
}
