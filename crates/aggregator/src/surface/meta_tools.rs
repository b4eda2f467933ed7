//! The meta tools: their names, descriptions, and the short list they form.

use bytes::Bytes;
use catalog::{Kind, Route, Scope};
use protocol::Lifecycle;
use protocol::reply;

use super::ToolFinder;
use crate::client::Client;
use crate::fleet::View;

pub(super) const SEARCH: &str = "search_tools";
pub(super) const DESCRIBE: &str = "describe_tool";
pub(super) const CALL: &str = "call_tool";

/// How many of the largest servers and skills are named; of the rest, only the number.
const MAX_NAMED: usize = 12;

/// Whether a name is that of a meta tool.
pub(super) fn is_own(name: &str) -> bool {
    [SEARCH, DESCRIBE, CALL].contains(&name)
}

/// The short list: meta tools, then pinned tools, then discovered tools.
pub(super) fn page(view: &View, client: &Client, tool_finder: &dyn ToolFinder, lifecycle: Lifecycle) -> Bytes {
    let mut page = br#"{"tools":["#.to_vec();
    page.extend_from_slice(&search_definition(&paragraph(view, client, tool_finder)));
    for definition in [DESCRIBE_DEFINITION, CALL_DEFINITION] {
        page.push(b',');
        page.extend_from_slice(definition.as_bytes());
    }
    let pinned = pinned(view, client, tool_finder);
    let discovered = super::render::usable(view, client, &client.discovered());
    let is_new = |route: &Route| !pinned.contains(route);
    for route in pinned.iter().copied().chain(discovered.into_iter().filter(is_new)) {
        page.push(b',');
        view.snapshot.write_tool(client.scope(), client.style(), lifecycle, route, &mut page);
    }
    page.push(b']');
    if lifecycle == Lifecycle::SelfContained {
        page.extend_from_slice(br#","resultType":"complete","ttlMs":0,"cacheScope":"private""#);
    }
    page.push(b'}');
    Bytes::from(page)
}

fn pinned(view: &View, client: &Client, tool_finder: &dyn ToolFinder) -> Vec<Route> {
    let mut routes = Vec::new();
    for name in &*tool_finder.pinned() {
        // Pinned by its full name: a client of one server sees the tool's own name.
        let found = view.snapshot.resolve(Scope::All, Kind::Tool, name);
        let is_seen = |route: &Route| client.scope().sees(route.server) && !routes.contains(route);
        routes.extend(found.filter(is_seen));
    }
    routes
}

fn search_definition(paragraph: &str) -> Vec<u8> {
    let mut definition = format!(r#"{{"name":"{SEARCH}","title":"Search tools","description":"#).into_bytes();
    definition.extend_from_slice(&reply::string(paragraph));
    definition.extend_from_slice(SEARCH_REST.as_bytes());
    definition
}

const SEARCH_REST: &str = r#","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"What you want to do, in plain words, e.g. \"create an issue\" or \"read a file\""},"limit":{"type":"integer","minimum":1,"maximum":50,"description":"At most so many (default 8)"},"server":{"type":"string","description":"Only tools of this server"},"skill":{"type":"string","description":"Only tools with this skill"}},"required":["query"]},"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}"#;

const DESCRIBE_DEFINITION: &str = r#"{"name":"describe_tool","title":"Describe a tool","description":"Shows the whole definition of a tool that search_tools found: description, input schema, annotations. Only needed where the signature in the search result does not suffice.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"The tool's name as search_tools gives it"}},"required":["name"]},"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}"#;

const CALL_DEFINITION: &str = r#"{"name":"call_tool","title":"Call a tool","description":"Calls a tool that search_tools found and returns its result.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"The tool's name as search_tools gives it"},"arguments":{"type":"object","description":"The tool's own arguments, as its signature says"}},"required":["name"]}}"#;

/// A paragraph on the tools that can be searched.
fn paragraph(view: &View, client: &Client, tool_finder: &dyn ToolFinder) -> String {
    let mut servers: Vec<(String, usize)> = Vec::new();
    let mut last = None;
    let routes: Vec<Route> = super::render::routes(view, client).collect();
    for route in &routes {
        if last != Some(route.server) {
            servers.push((view.snapshot.servers()[route.server].name.to_string(), 0));
            last = Some(route.server);
        }
        if let Some((_, count)) = servers.last_mut() {
            *count += 1;
        }
    }
    servers.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
    let mut text = format!(
        "Finds tools by what they do. {} of {} can be used here although they are not listed: ",
        counted(routes.len(), "tool"),
        counted(servers.len(), "server"),
    );
    text += &enumeration(&servers);
    let skills = tool_finder.skills(client.scope().only());
    if !skills.is_empty() {
        text += ". They are good for: ";
        text += &enumeration(&skills);
    }
    text += ". Search before you say that something cannot be done; then use call_tool with a name that was found.";
    text
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `name (count)` of the first ones, and the number of the rest.
fn enumeration(counts: &[(String, usize)]) -> String {
    let mut parts: Vec<String> =
        counts.iter().take(MAX_NAMED).map(|(name, count)| format!("{} ({count})", one_line(name, 40))).collect();
    if counts.len() > MAX_NAMED {
        parts.push(format!("{} more", counts.len() - MAX_NAMED));
    }
    parts.join(", ")
}

/// Foreign text within our own: one line, truncated.
pub(super) fn one_line(text: &str, most: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let clean: String = words.chars().filter(|char| !char.is_control()).collect();
    match clean.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", clean[..end].trim_end()),
        None => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::scan::{Span, member};
    use protocol::text;

    #[test]
    fn our_definitions_are_valid_and_carry_their_names() {
        let search = search_definition("says \"what\"\nis behind");
        for (definition, name) in
            [(&search[..], SEARCH), (DESCRIBE_DEFINITION.as_bytes(), DESCRIBE), (CALL_DEFINITION.as_bytes(), CALL)]
        {
            let line = [br#"{"jsonrpc":"2.0","method":"x","params":"#, definition, b"}"].concat();
            protocol::Envelope::scan(&line).unwrap();
            let whole = Span { start: 0, end: definition.len() };
            let at = member(definition, whole, "name").unwrap();
            assert_eq!(text::decode(at.of(definition)).unwrap(), name);
            assert!(is_own(name));
        }
    }

    #[test]
    fn text_of_others_is_escaped_to_one_line() {
        assert_eq!(one_line("a\n\n  b\tc\u{7}", 10), "a b c");
        assert_eq!(one_line("äöüß and more", 5), "äöüß…");
    }

    #[test]
    fn what_is_too_much_to_name_is_counted() {
        let many: Vec<_> = (0..14).map(|index| (format!("s{index}"), 20 - index)).collect();
        let text = enumeration(&many);
        assert!(text.starts_with("s0 (20), s1 (19)") && text.ends_with("s11 (9), 2 more"), "{text}");
    }
}
