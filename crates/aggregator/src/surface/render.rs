//! The text about servers' tools on the small surface.

use catalog::{Kind, Route, Scope};
use protocol::scan::{Span, member};
use protocol::{Lifecycle, text};

use super::meta_tools::one_line;
use super::signature::signature;
use super::{Found, count};
use crate::client::Client;
use crate::fleet::View;

/// The budget of a search result, in tokens of about four bytes each.
const MAX_RESULT_TOKENS: usize = 2000;
const BYTES_PER_TOKEN: usize = 4;
/// The budget of a complete definition, in tokens as well: few hand-written ones are longer.
const MAX_DEFINITION_TOKENS: usize = 8000;
/// Characters of a description shown beside a name.
const MAX_DESCRIPTION_CHARS: usize = 200;

/// Every tool this client could use.
pub(super) fn routes<'v>(view: &'v View, client: &Client) -> Box<dyn Iterator<Item = Route> + 'v> {
    match client.scope() {
        Scope::All => Box::new(view.snapshot.listed(Kind::Tool, client.style())),
        Scope::One(server) => {
            let items = view.snapshot.servers()[server].offer.items(Kind::Tool).len();
            Box::new((0..items).map(move |item| Route { server, item }))
        }
    }
}

/// The name of a tool for this client.
pub(super) fn name(view: &View, client: &Client, route: Route) -> String {
    match client.scope() {
        Scope::All => view.snapshot.listed_name(Kind::Tool, route, client.style()),
        Scope::One(_) => view.snapshot.item(Kind::Tool, route).id.to_string(),
    }
}

/// The found tools that this client may use now, as routes, best first.
pub(super) fn usable(view: &View, client: &Client, found: &[Found]) -> Vec<Route> {
    let mut routes = Vec::new();
    for hit in found {
        let server = Scope::One(hit.server);
        let route = view.snapshot.resolve(server, Kind::Tool, &hit.tool);
        let is_there =
            |route: &Route| client.scope().sees(route.server) && view.snapshot.servers()[route.server].state.offers();
        routes.extend(route.filter(is_there));
    }
    routes
}

/// The reverse: these routes as results of a tool finder.
pub(super) fn found(view: &View, routes: &[Route]) -> Vec<Found> {
    let tool = |route: Route| view.snapshot.item(Kind::Tool, route).id.to_string();
    routes.iter().map(|&route| Found { server: route.server, tool: tool(route), score: 0.0 }).collect()
}

/// How many tools a search covers, of this server or of all.
pub(super) fn among(view: &View, client: &Client, server: Option<usize>) -> usize {
    match (client.scope(), server) {
        (Scope::All, Some(server)) => routes(view, client).filter(|route| route.server == server).count(),
        _ => count(view, client),
    }
}

/// The response to a search among `total` tools.
pub(super) fn findings(
    view: &View,
    client: &Client,
    query: &str,
    routes: &[Route],
    total: usize,
    do_they_fit: bool,
) -> String {
    if routes.is_empty() {
        return format!("None of the {total} tools fits \"{}\". Try other words.", one_line(query, 200));
    }
    let mut text = String::new();
    let mut rendered = 0;
    for &route in routes {
        let entry = entry(view, client, route);
        if rendered > 0 && text.len() + entry.len() > MAX_RESULT_TOKENS * BYTES_PER_TOKEN {
            break;
        }
        text += &entry;
        rendered += 1;
    }
    let left_out = match routes.len() - rendered {
        0 => String::new(),
        more => format!(" ({more} more were found; search more precisely)"),
    };
    let how_well = if do_they_fit { "best first" } else { "none of which fits well; try other words" };
    format!("{rendered} of {total} tools, {how_well}{left_out}:\n\n{text}")
}

/// One tool: name, parameters, description.
fn entry(view: &View, client: &Client, route: Route) -> String {
    let definition = &view.snapshot.item(Kind::Tool, route).definition;
    let whole = Span { start: 0, end: definition.len() };
    let description = member(definition, whole, "description").and_then(|span| text::decode(span.of(definition)));
    let mut entry = name(view, client, route) + &signature(definition) + "\n";
    let description = one_line(description.as_deref().unwrap_or_default(), MAX_DESCRIPTION_CHARS);
    if !description.is_empty() {
        entry += &format!("    {description}\n");
    }
    entry
}

/// A tool's complete definition, as in the full list; a huge one is truncated.
pub(super) fn definition(view: &View, client: &Client, lifecycle: Lifecycle, route: Route) -> String {
    let mut definition = Vec::new();
    view.snapshot.write_tool(client.scope(), client.style(), lifecycle, route, &mut definition);
    let definition = String::from_utf8_lossy(&definition);
    let most = MAX_DEFINITION_TOKENS * BYTES_PER_TOKEN;
    match definition.len().checked_sub(most) {
        None | Some(0) => definition.into_owned(),
        Some(more) => {
            let end = definition.floor_char_boundary(most);
            format!("{}… (cut here: {more} bytes more)", &definition[..end])
        }
    }
}
