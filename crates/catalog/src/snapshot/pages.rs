//! The serialized lists: answering a client costs no more than writing the bytes.

use std::sync::OnceLock;

use bytes::Bytes;
use protocol::{Lifecycle, text};

use super::{Route, Scope, ServerEntry, Snapshot};
use crate::item::Kind;
use crate::names::NameStyle;

/// Items on one page of our lists. Some clients do not support paging, and none of them handles more tools.
pub const ITEMS_PER_PAGE: usize = 1000;

/// The prefix of our cursors, to recognise those of others.
const CURSOR_PREFIX: &str = "mcpa-page-";

/// The pages of every list: by kind, style of names and lifecycle of the client. Each page is the JSON of a `result`.
#[derive(Debug, Default)]
pub(super) struct Pages([[[OnceLock<Vec<Bytes>>; 2]; 2]; 4]);

/// The parameters of a list.
#[derive(Clone, Copy)]
struct List {
    scope: Scope,
    kind: Kind,
    style: NameStyle,
    lifecycle: Lifecycle,
}

impl List {
    /// Lists without our names have no style.
    fn new(scope: Scope, kind: Kind, style: NameStyle, lifecycle: Lifecycle) -> Self {
        let has_style = scope == Scope::All && kind.is_prefixed();
        Self { scope, kind, style: if has_style { style } else { NameStyle::Canonical }, lifecycle }
    }
}

impl Snapshot {
    /// The `result` of a list at `cursor`; `None` if the cursor is not one of ours or points past the end.
    ///
    /// The object is never empty, so a member can be inserted before the last byte.
    pub fn page(
        &self,
        scope: Scope,
        kind: Kind,
        style: NameStyle,
        lifecycle: Lifecycle,
        cursor: Option<&str>,
    ) -> Option<&Bytes> {
        let index = cursor.map_or(Some(0), page_number)?;
        let list = List::new(scope, kind, style, lifecycle);
        self.pages(list)?.get_or_init(|| self.write_pages(list)).get(index)
    }

    /// How many bytes of definitions must be serialized before a list is ready.
    pub fn unwritten(&self, scope: Scope, kind: Kind, style: NameStyle, lifecycle: Lifecycle) -> usize {
        let list = List::new(scope, kind, style, lifecycle);
        if self.pages(list).is_none_or(|pages| pages.get().is_some()) {
            return 0;
        }
        let bytes = |server: &ServerEntry| server.offer.for_lifecycle(lifecycle).weight(kind);
        self.within(scope).map(|(_, server)| bytes(server)).sum()
    }

    /// The storage of a list.
    fn pages(&self, list: List) -> Option<&OnceLock<Vec<Bytes>>> {
        let pages = match list.scope {
            Scope::All => &self.pages_of_all,
            Scope::One(server) => self.pages_of_one.get(server)?.get_or_init(Box::default),
        };
        Some(&pages.0[list.kind as usize][list.style as usize][list.lifecycle as usize])
    }

    /// One tool as it is listed for such a client.
    pub fn write_tool(&self, scope: Scope, style: NameStyle, lifecycle: Lifecycle, route: Route, out: &mut Vec<u8>) {
        self.write_item(List { scope, kind: Kind::Tool, style, lifecycle }, route, out);
    }

    fn write_pages(&self, list: List) -> Vec<Bytes> {
        let routes: Vec<_> = match list.scope {
            Scope::All => self.listed(list.kind, list.style).collect(),
            Scope::One(server) => {
                let count = self.servers[server].offer.items(list.kind).len();
                (0..count).map(|item| Route { server, item }).collect()
            }
        };
        let page_count = routes.len().div_ceil(ITEMS_PER_PAGE).max(1);
        (0..page_count)
            .map(|index| {
                let start = index * ITEMS_PER_PAGE;
                let on_page = &routes[start..routes.len().min(start + ITEMS_PER_PAGE)];
                let next = (index + 1 < page_count).then_some(index + 1);
                self.write_page(list, on_page, next)
            })
            .collect()
    }

    fn write_page(&self, list: List, routes: &[Route], next: Option<usize>) -> Bytes {
        let weight: usize = routes.iter().map(|&route| self.item(list.kind, route).definition.len() + 64).sum();
        let mut page = Vec::with_capacity(weight + 128);
        page.extend_from_slice(format!("{{\"{}\":[", list.kind.array_key()).as_bytes());
        for (index, &route) in routes.iter().enumerate() {
            if index > 0 {
                page.push(b',');
            }
            self.write_item(list, route, &mut page);
        }
        page.push(b']');
        if let Some(next) = next {
            page.extend_from_slice(format!(",\"nextCursor\":\"{CURSOR_PREFIX}{next}\"").as_bytes());
        }
        if list.lifecycle == Lifecycle::SelfContained {
            let hints = self.hints(list.scope, list.kind);
            let scope = if hints.is_private { "private" } else { "public" };
            let members = format!(",\"resultType\":\"complete\",\"ttlMs\":{},\"cacheScope\":\"{scope}\"", hints.ttl_ms);
            page.extend_from_slice(members.as_bytes());
        }
        page.push(b'}');
        Bytes::from(page)
    }

    fn write_item(&self, list: List, route: Route, page: &mut Vec<u8>) {
        let item = self.item_for(list.lifecycle, list.kind, route);
        let has_own_name = list.scope == Scope::All && list.kind.is_prefixed();
        let name = has_own_name.then(|| self.written_name(list, route));
        item.write_for(list.lifecycle, name.as_deref(), page);
    }

    /// The name in the merged list, without quotes.
    fn written_name(&self, list: List, route: Route) -> Vec<u8> {
        match list.style {
            // The server's own spelling stays; only the prefix is ours.
            NameStyle::Canonical => {
                let mut name = Vec::new();
                text::encode_inner(self.servers[route.server].name.as_ref(), &mut name);
                text::encode_inner(self.separator.as_ref(), &mut name);
                name.extend_from_slice(self.item(list.kind, route).id_inner());
                name
            }
            NameStyle::Safe => self.listed_name(list.kind, route, list.style).into_bytes(),
        }
    }
}

/// The page of one of our cursors.
fn page_number(cursor: &str) -> Option<usize> {
    let number = cursor.strip_prefix(CURSOR_PREFIX).filter(|number| !number.starts_with(['0', '+']))?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{capable, idle, server, snapshot, with};
    use super::super::{Hints, ServerState};
    use super::*;

    const STYLE: NameStyle = NameStyle::Canonical;

    fn page(snapshot: &Snapshot, scope: Scope, kind: Kind, lifecycle: Lifecycle) -> String {
        String::from_utf8(snapshot.page(scope, kind, STYLE, lifecycle, None).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_list_is_written_in_order_with_only_names_changed() {
        let snapshot = snapshot(vec![
            server("k\"1", ServerState::Running, &["a\\u0062"]),
            server("z", ServerState::Running, &["t"]),
        ]);
        assert_eq!(
            page(&snapshot, Scope::All, Kind::Tool, Lifecycle::Session),
            r#"{"tools":[{"name":"k\"1:a\u0062","n":1.0},{"name":"z:t","n":1.0}]}"#
        );
    }

    #[test]
    fn prompts_are_written_like_tools_in_either_style() {
        let prompt = [r#"{ "title":"x" , "name":"p\u0031" }"#];
        let snapshot = snapshot(vec![with(idle("my s", Lifecycle::Session), Kind::Prompt, &prompt)]);
        assert_eq!(
            page(&snapshot, Scope::All, Kind::Prompt, Lifecycle::Session),
            r#"{"prompts":[{ "title":"x" , "name":"my s:p\u0031" }]}"#
        );
        let safe = snapshot.page(Scope::All, Kind::Prompt, NameStyle::Safe, Lifecycle::Session, None).unwrap();
        assert!(safe.starts_with(br#"{"prompts":[{ "title":"x" , "name":"my_s__p1_"#), "{safe:?}");
    }

    #[test]
    fn resources_and_templates_are_listed_once_with_every_byte() {
        let one = [r#"{ "uri" : "x:\/\/1","name":"first" ,"n":1e2}"#, r#"{"uri":"x://2"}"#];
        let two = [r#"{"uri":"x://1","name":"second"}"#, r#"{"uri":"x://3"}"#];
        let snapshot = snapshot(vec![
            with(
                with(idle("a", Lifecycle::Session), Kind::Resource, &one),
                Kind::Template,
                &[r#"{"uriTemplate":"x://{v}"}"#],
            ),
            with(idle("b", Lifecycle::SelfContained), Kind::Resource, &two),
        ]);
        for style in [NameStyle::Canonical, NameStyle::Safe] {
            let listed = snapshot.page(Scope::All, Kind::Resource, style, Lifecycle::Session, None).unwrap();
            let expected = format!(r#"{{"resources":[{},{},{}]}}"#, one[0], one[1], two[1]);
            assert_eq!(listed, expected.as_bytes());
        }
        assert_eq!(
            page(&snapshot, Scope::All, Kind::Template, Lifecycle::Session),
            r#"{"resourceTemplates":[{"uriTemplate":"x://{v}"}]}"#
        );
        let alone = page(&snapshot, Scope::One(1), Kind::Resource, Lifecycle::Session);
        assert_eq!(alone, format!(r#"{{"resources":[{},{}]}}"#, two[0], two[1]), "hidden among all, not alone");
    }

    #[test]
    fn a_server_alone_is_listed_verbatim() {
        let definition = [r#"{"name" : "t" }"#];
        let snapshot =
            snapshot(vec![idle("x", Lifecycle::Session), with(idle("s", Lifecycle::Session), Kind::Tool, &definition)]);
        for style in [NameStyle::Canonical, NameStyle::Safe] {
            let listed = snapshot.page(Scope::One(1), Kind::Tool, style, Lifecycle::Session, None).unwrap();
            assert_eq!(listed, r#"{"tools":[{"name" : "t" }]}"#);
        }
        assert_eq!(snapshot.page(Scope::One(2), Kind::Tool, STYLE, Lifecycle::Session, None), None);
    }

    #[test]
    fn modern_clients_get_the_time_to_live_of_a_list() {
        let mut entry = capable(idle("s", Lifecycle::SelfContained), r#"{"tools":{}}"#);
        let offer = std::sync::Arc::make_mut(&mut entry.offer);
        offer.set_items(Kind::Tool, Vec::new(), Hints { ttl_ms: 300, is_private: false });
        let snapshot = snapshot(vec![entry]);
        assert_eq!(
            page(&snapshot, Scope::All, Kind::Tool, Lifecycle::SelfContained),
            r#"{"tools":[],"resultType":"complete","ttlMs":300,"cacheScope":"public"}"#
        );
        assert_eq!(
            page(&snapshot, Scope::One(0), Kind::Prompt, Lifecycle::SelfContained),
            r#"{"prompts":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#
        );
        assert_eq!(page(&snapshot, Scope::One(0), Kind::Tool, Lifecycle::Session), r#"{"tools":[]}"#);
    }

    #[test]
    fn only_legacy_clients_miss_an_output_schema_they_could_not_take() {
        let whole = r#"{"name":"t","outputSchema":{"type":"array"},"n":1.0}"#;
        let snapshot = snapshot(vec![
            with(idle("m", Lifecycle::SelfContained), Kind::Tool, &[whole]),
            with(idle("l", Lifecycle::Session), Kind::Tool, &[whole]),
        ]);
        let alone = |server, lifecycle| page(&snapshot, Scope::One(server), Kind::Tool, lifecycle);
        for server in [0, 1] {
            assert_eq!(alone(server, Lifecycle::Session), r#"{"tools":[{"name":"t","n":1.0}]}"#);
            assert!(alone(server, Lifecycle::SelfContained).contains(whole));
        }
        assert_eq!(
            page(&snapshot, Scope::All, Kind::Tool, Lifecycle::Session),
            r#"{"tools":[{"name":"m:t","n":1.0},{"name":"l:t","n":1.0}]}"#
        );
    }

    #[test]
    fn a_large_list_is_paginated_and_unknown_cursors_are_refused() {
        let definitions: Vec<_> = (0..2500).map(|index| format!(r#"{{"uri":"x://{index}"}}"#)).collect();
        let snapshot = snapshot(vec![with(idle("s", Lifecycle::Session), Kind::Resource, &definitions)]);
        for (scope, lifecycle) in [(Scope::All, Lifecycle::Session), (Scope::One(0), Lifecycle::SelfContained)] {
            let (mut cursor, mut seen) = (None::<String>, 0);
            loop {
                let page = snapshot.page(scope, Kind::Resource, STYLE, lifecycle, cursor.as_deref()).unwrap();
                let page = std::str::from_utf8(page).unwrap();
                seen += page.matches("\"uri\"").count();
                let Some((_, rest)) = page.split_once("\"nextCursor\":\"") else { break };
                cursor = rest.split('"').next().map(str::to_owned);
            }
            assert_eq!(seen, 2500);
        }
        for foreign in
            ["", "0", "mcpa-page-", "mcpa-page-0", "mcpa-page-9", "mcpa-page--1", "mcpa-page-+1", "mcpa-page-01", "abc"]
        {
            let page = snapshot.page(Scope::All, Kind::Resource, STYLE, Lifecycle::Session, Some(foreign));
            assert_eq!(page, None, "{foreign:?}");
        }
    }

    #[test]
    fn no_servers_is_an_empty_list() {
        for kind in Kind::ALL {
            let expected = format!("{{\"{}\":[]}}", kind.array_key());
            assert_eq!(page(&snapshot(vec![]), Scope::All, kind, Lifecycle::Session), expected);
        }
    }
}
