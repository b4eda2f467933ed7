//! Our capabilities, merged from those of the servers.

use bytes::Bytes;
use protocol::scan::{Span, members};
use protocol::{Lifecycle, reply, text};

use super::{Scope, Snapshot};
use crate::item::Kind;
use crate::offer::Offer;

/// The extension that replaced the core tasks of 2025-11-25.
pub(super) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

type Member = (&'static str, Vec<u8>);

impl Snapshot {
    /// The capabilities to announce to a client of `lifecycle`: a JSON object for `initialize` or `server/discover`.
    pub fn capabilities(&self, scope: Scope, lifecycle: Lifecycle) -> Bytes {
        let alone = match scope {
            Scope::All => None,
            Scope::One(server) => self.servers.get(server).filter(|server| server.state.offers()),
        };
        Bytes::from(match alone {
            Some(server) => capabilities_of_one(server.offer.for_lifecycle(lifecycle), lifecycle),
            None => self.merged_capabilities(scope, lifecycle),
        })
    }

    /// A client asks once, at its start. While servers are starting, their capabilities are unknown, so everything we
    /// can serve is announced: an empty list is harmless, a list that is never requested is not.
    fn merged_capabilities(&self, scope: Scope, lifecycle: Lifecycle) -> Vec<u8> {
        let is_open = self.servers_can_change || !self.is_settled_in(scope);
        let any =
            |path: &[&str]| self.running(scope).any(|(_, server)| server.offer.for_lifecycle(lifecycle).has_at(path));
        let list_changed = || reply::object([("listChanged", b"true".to_vec())]);
        let mut merged: Vec<Member> = vec![(Kind::Tool.capability(), list_changed())];
        if is_open || any(&["prompts"]) {
            merged.push((Kind::Prompt.capability(), list_changed()));
        }
        if is_open || any(&["resources"]) {
            let subscribe = (is_open || any(&["resources", "subscribe"])).then(|| ("subscribe", b"true".to_vec()));
            let members = subscribe.into_iter().chain([("listChanged", b"true".to_vec())]);
            merged.push((Kind::Resource.capability(), reply::object(members)));
        }
        for plain in ["completions", "logging"] {
            if is_open || any(&[plain]) {
                merged.push((plain, b"{}".to_vec()));
            }
        }
        merged.extend(match lifecycle {
            Lifecycle::Session => self.merged_tasks(scope),
            Lifecycle::SelfContained => self.merged_extensions(scope),
        });
        reply::object(merged)
    }

    /// The core tasks of legacy servers, which only legacy clients support.
    fn merged_tasks(&self, scope: Scope) -> Option<Member> {
        let any = |path: &[&str]| self.offers_in(scope, Lifecycle::Session).any(|offer| offer.has_at(path));
        if !any(&["tasks"]) {
            return None;
        }
        let mut members: Vec<Member> = Vec::new();
        for part in ["list", "cancel"] {
            if any(&["tasks", part]) {
                members.push((part, b"{}".to_vec()));
            }
        }
        if any(&["tasks", "requests", "tools", "call"]) {
            members.push(("requests", b"{\"tools\":{\"call\":{}}}".to_vec()));
        }
        Some(("tasks", reply::object(members)))
    }

    /// The one extension that we can route among several servers.
    fn merged_extensions(&self, scope: Scope) -> Option<Member> {
        let is_offered = self
            .offers_in(scope, Lifecycle::SelfContained)
            .any(|offer| offer.has_within("extensions", TASKS_EXTENSION));
        is_offered.then(|| ("extensions", reply::object([(TASKS_EXTENSION, b"{}".to_vec())])))
    }

    /// The offers of running servers with a connection of `lifecycle`.
    fn offers_in(&self, scope: Scope, lifecycle: Lifecycle) -> impl Iterator<Item = &Offer> {
        self.running(scope)
            .map(move |(_, server)| server.offer.for_lifecycle(lifecycle))
            .filter(move |offer| offer.lifecycle == lifecycle)
    }
}

/// A server's own capabilities, including unknown members. We always announce list changes: the server may be
/// restarted.
fn capabilities_of_one(offer: &Offer, lifecycle: Lifecycle) -> Vec<u8> {
    let json = &offer.capabilities;
    let mut out = vec![b'{'];
    members(json, Span { start: 0, end: json.len() }, |key, value| {
        let name = text::decode(key.of(json)).unwrap_or_default();
        if !crosses(&name, offer.lifecycle, lifecycle) {
            return;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(key.of(json));
        out.push(b':');
        match &*name {
            "tools" | "prompts" | "resources" => write_with_list_changed(json, value, &mut out),
            _ => out.extend_from_slice(value.of(json)),
        }
    });
    out.push(b'}');
    out
}

/// Whether a client of one lifecycle can use a capability of a server of another.
fn crosses(capability: &str, server: Lifecycle, client: Lifecycle) -> bool {
    match capability {
        "tasks" => (server, client) == (Lifecycle::Session, Lifecycle::Session),
        "extensions" => server == client,
        _ => true,
    }
}

fn write_with_list_changed(json: &[u8], value: Span, out: &mut Vec<u8>) {
    match json[value.start] {
        b'{' => {}
        b't' => return out.extend_from_slice(b"{\"listChanged\":true}"),
        _ => return out.extend_from_slice(value.of(json)),
    }
    out.push(b'{');
    members(json, value, |key, value| {
        if !text::token_is(key.of(json), "listChanged") {
            out.extend_from_slice(key.of(json));
            out.push(b':');
            out.extend_from_slice(value.of(json));
            out.push(b',');
        }
    });
    out.extend_from_slice(b"\"listChanged\":true}");
}

#[cfg(test)]
mod tests {
    use super::super::tests::{capable, idle, snapshot};
    use super::super::{ServerEntry, ServerState};
    use super::*;

    fn legacy(capabilities: &str) -> ServerEntry {
        capable(idle("l", Lifecycle::Session), capabilities)
    }

    fn modern(capabilities: &str) -> ServerEntry {
        capable(idle("m", Lifecycle::SelfContained), capabilities)
    }

    /// What is announced to a legacy and to a modern client.
    fn announced(servers: Vec<ServerEntry>, scope: Scope) -> [String; 2] {
        let snapshot = snapshot(servers);
        [Lifecycle::Session, Lifecycle::SelfContained]
            .map(|lifecycle| String::from_utf8(snapshot.capabilities(scope, lifecycle).to_vec()).unwrap())
    }

    fn same(text: &str) -> [String; 2] {
        [text.to_owned(), text.to_owned()]
    }

    #[test]
    fn tools_are_always_announced_and_the_rest_only_if_a_running_server_has_it() {
        let only_tools = r#"{"tools":{"listChanged":true}}"#;
        assert_eq!(announced(vec![], Scope::All), same(only_tools));
        let down = ServerEntry { state: ServerState::Stopped, ..legacy(r#"{"prompts":{},"logging":{}}"#) };
        assert_eq!(announced(vec![down.clone(), modern("{}")], Scope::All), same(only_tools));
        assert_eq!(announced(vec![down], Scope::One(0)), same(only_tools));
        assert_eq!(announced(vec![], Scope::One(0)), same(only_tools));

        let servers = vec![
            legacy(r#"{"prompts":{},"resources":{"subscribe":false}}"#),
            modern(r#"{"resources":{},"logging":{"x":1},"experimental":{"y":{}}}"#),
        ];
        let expected = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true},"logging":{}}"#;
        assert_eq!(announced(servers, Scope::All), same(expected));

        let servers = vec![legacy("{}"), modern(r#"{"resources":{"subscribe":true},"completions":{}}"#)];
        let expected =
            r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{}}"#;
        assert_eq!(announced(servers, Scope::All), same(expected));
    }

    #[test]
    fn while_servers_are_starting_everything_we_can_serve_is_announced() {
        let starting = ServerEntry { state: ServerState::Initializing, ..legacy("{}") };
        let everything = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}}"#;
        assert_eq!(announced(vec![legacy("{}"), starting.clone()], Scope::All), same(everything));
        assert_eq!(announced(vec![starting.clone()], Scope::One(0)), same(everything));
        assert_eq!(announced(vec![legacy("{}"), starting], Scope::One(0)), same("{}"), "others do not matter to one");
    }

    #[test]
    fn tasks_are_announced_as_the_clients_lifecycle_does_for_servers_of_that_lifecycle() {
        let with_core = legacy(r#"{"tasks":{"list":{},"requests":{"tools":{"call":{}}}}}"#);
        let with_cancel = legacy(r#"{"tasks":{"cancel":{}}}"#);
        let with_extension = modern(r#"{"extensions":{"io.modelcontextprotocol/tasks":{},"other":{}},"tasks":{}}"#);
        let [to_legacy, to_modern] =
            announced(vec![with_core.clone(), with_cancel, with_extension.clone()], Scope::All);
        let tools = r#""tools":{"listChanged":true}"#;
        assert_eq!(
            to_legacy,
            format!(r#"{{{tools},"tasks":{{"list":{{}},"cancel":{{}},"requests":{{"tools":{{"call":{{}}}}}}}}}}"#)
        );
        assert_eq!(to_modern, format!(r#"{{{tools},"extensions":{{"io.modelcontextprotocol/tasks":{{}}}}}}"#));
        assert_eq!(announced(vec![with_core], Scope::All)[1], format!("{{{tools}}}"));
        assert_eq!(announced(vec![with_extension], Scope::All)[0], format!("{{{tools}}}"));
    }

    #[test]
    fn a_server_alone_announces_all_its_capabilities_and_list_changes() {
        let own = r#" { "tools" : {"listChanged": false, "x":1.0}, "prompts":{}, "resources":true, "logging":{ } ,
            "experimental":{"a":{}}, "new":[1] } "#;
        let expected = r#"{"tools":{"x":1.0,"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true},"logging":{ },"experimental":{"a":{}},"new":[1]}"#;
        assert_eq!(announced(vec![legacy(own)], Scope::One(0)), same(expected));
        assert_eq!(announced(vec![modern("{}")], Scope::One(0)), same("{}"));
        assert_eq!(
            announced(vec![modern(r#"{"tools":null,"prompts":false}"#)], Scope::One(0))[0],
            r#"{"tools":null,"prompts":false}"#
        );
    }

    #[test]
    fn tasks_and_extensions_of_a_single_server_are_not_bridged() {
        let own = r#"{"tasks":{"list":{}},"extensions":{"ui":{}},"logging":{}}"#;
        let neither = r#"{"logging":{}}"#.to_owned();
        assert_eq!(announced(vec![legacy(own)], Scope::One(0)), [own.to_owned(), neither.clone()]);
        assert_eq!(
            announced(vec![modern(own)], Scope::One(0)),
            [neither, r#"{"extensions":{"ui":{}},"logging":{}}"#.to_owned()]
        );
    }
}
