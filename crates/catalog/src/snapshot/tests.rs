//! Behaviour of snapshots.

use bytes::Bytes;
use protocol::Lifecycle;

use super::*;

/// A running server without items.
pub(super) fn idle(name: &str, lifecycle: Lifecycle) -> ServerEntry {
    ServerEntry {
        name: ServerName::new(name).unwrap(),
        state: ServerState::Running,
        offer: Offer::new(lifecycle).into(),
    }
}

pub(super) fn server(name: &str, state: ServerState, tools: &[&str]) -> ServerEntry {
    let definitions: Vec<_> = tools.iter().map(|tool| format!("{{\"name\":\"{tool}\",\"n\":1.0}}")).collect();
    with(ServerEntry { state, ..idle(name, Lifecycle::Session) }, Kind::Tool, &definitions)
}

/// The server with these items of one kind.
pub(super) fn with(mut server: ServerEntry, kind: Kind, definitions: &[impl AsRef<str>]) -> ServerEntry {
    let read = |definition: &str| Item::read(kind, Bytes::copy_from_slice(definition.as_bytes())).unwrap();
    let items = definitions.iter().map(|definition| read(definition.as_ref())).collect();
    Arc::make_mut(&mut server.offer).set_items(kind, items, Hints::NONE);
    server
}

/// The server with these capabilities.
pub(super) fn capable(mut server: ServerEntry, capabilities: &str) -> ServerEntry {
    Arc::make_mut(&mut server.offer).capabilities = Bytes::copy_from_slice(capabilities.as_bytes());
    server
}

/// The server with these hints for all its lists.
fn hinting(mut server: ServerEntry, ttl_ms: u64, is_private: bool) -> ServerEntry {
    Arc::make_mut(&mut server.offer).hints = [Hints { ttl_ms, is_private }; 4];
    server
}

fn tool(snapshot: &Snapshot, name: &str) -> Option<Route> {
    snapshot.resolve(Scope::All, Kind::Tool, name)
}

fn tools<'s>(snapshot: &'s Snapshot, cursor: Option<&str>) -> Option<&'s Bytes> {
    snapshot.page(Scope::All, Kind::Tool, NameStyle::Canonical, Lifecycle::Session, cursor)
}

pub(super) fn snapshot(servers: Vec<ServerEntry>) -> Snapshot {
    Snapshot::new(servers, Separator::default())
}

#[test]
fn a_tool_answers_to_both_its_names() {
    let snapshot = snapshot(vec![
        server("git", ServerState::Running, &["log", "show"]),
        server("my files", ServerState::Running, &["read"]),
    ]);
    assert_eq!(tool(&snapshot, "git:show"), Some(Route { server: 0, item: 1 }));
    assert_eq!(tool(&snapshot, "git__show"), Some(Route { server: 0, item: 1 }));
    assert_eq!(tool(&snapshot, "my files:read"), Some(Route { server: 1, item: 0 }));
    let alias = snapshot.listed_name(Kind::Tool, Route { server: 1, item: 0 }, NameStyle::Safe);
    assert_eq!(tool(&snapshot, &alias), Some(Route { server: 1, item: 0 }));
    assert_eq!(tool(&snapshot, "show"), None);
}

#[test]
fn separators_inside_keys_and_tools_do_not_confuse_routing() {
    let snapshot = snapshot(vec![
        server("a", ServerState::Running, &["b:c", "x"]),
        server("a:b", ServerState::Running, &["c", "d"]),
    ]);
    assert_eq!(tool(&snapshot, "a:b:c"), Some(Route { server: 0, item: 0 }), "the first in config order wins");
    assert_eq!(tool(&snapshot, "a:b:d"), Some(Route { server: 1, item: 1 }));
    assert_eq!(**snapshot.shadowed(Kind::Tool), [Route { server: 1, item: 0 }]);
    let listed = String::from_utf8(tools(&snapshot, None).unwrap().to_vec()).unwrap();
    assert_eq!(listed.matches("\"a:b:c\"").count(), 1);
    assert_eq!(snapshot.listed(Kind::Tool, NameStyle::Safe).count(), 4, "the alias still reaches the shadowed one");
}

#[test]
fn a_missing_name_is_explained() {
    let failed = ServerState::Failed("exit status 1".into());
    let snapshot = snapshot(vec![
        server("up", ServerState::Running, &["t"]),
        server("down", failed, &[]),
        server("soon", ServerState::Initializing, &[]),
        server("up:deep", ServerState::Initializing, &[]),
    ]);
    let why = |name| snapshot.why_missing(Scope::All, Kind::Tool, name, NameStyle::Canonical);
    assert_eq!(why("t"), Missing::NoPrefix);
    assert_eq!(why("other__x"), Missing::NoPrefix);
    assert_eq!(why("up__x"), Missing::UnknownItem(0), "the alias of a server counts, whatever was listed");
    assert_eq!(why("other:t"), Missing::UnknownServer);
    assert_eq!(why(":t"), Missing::UnknownServer);
    assert_eq!(why("up:x"), Missing::UnknownItem(0));
    assert_eq!(why("down:x"), Missing::Down(1));
    assert_eq!(why("soon:x"), Missing::Starting(2));
    assert_eq!(why("up:deep:x"), Missing::Starting(3));
    assert_eq!(snapshot.why_missing(Scope::All, Kind::Tool, "other__x", NameStyle::Safe), Missing::UnknownServer);
    assert!(!snapshot.is_settled());
}

#[test]
fn prompts_are_named_like_tools_and_apart_from_them() {
    let both = with(server("s", ServerState::Running, &["a", "same"]), Kind::Prompt, &[r#"{"name":"same"}"#]);
    let snapshot = snapshot(vec![both]);
    let prompt = Some(Route { server: 0, item: 0 });
    assert_eq!(snapshot.resolve(Scope::All, Kind::Prompt, "s:same"), prompt);
    assert_eq!(snapshot.resolve(Scope::All, Kind::Prompt, "s__same"), prompt);
    assert_eq!(snapshot.resolve(Scope::All, Kind::Prompt, "s:a"), None);
    assert_eq!(snapshot.listed_name(Kind::Prompt, Route { server: 0, item: 0 }, NameStyle::Safe), "s__same");
    assert_eq!(tool(&snapshot, "s:same"), Some(Route { server: 0, item: 1 }));
}

#[test]
fn a_server_alone_knows_its_own_names_and_no_others() {
    let snapshot = snapshot(vec![
        server("a", ServerState::Running, &["b:c", "x", "a:x"]),
        server("a:b", ServerState::Running, &["c"]),
    ]);
    let find = |server, name| snapshot.resolve(Scope::One(server), Kind::Tool, name);
    assert_eq!(find(0, "x"), Some(Route { server: 0, item: 1 }));
    assert_eq!(find(0, "a:x"), Some(Route { server: 0, item: 2 }), "a tool may be called like another with its prefix");
    assert_eq!(find(1, "c"), Some(Route { server: 1, item: 0 }), "although its full name is that of another");
    assert_eq!((find(0, "c"), find(0, "a__x"), find(0, "a:b:c"), find(2, "x")), (None, None, None, None));
}

#[test]
fn what_a_server_alone_does_not_have_is_explained_by_its_state() {
    let snapshot = snapshot(vec![
        server("up", ServerState::Running, &["t"]),
        server("soon", ServerState::Initializing, &[]),
        server("down", ServerState::Stopped, &[]),
    ]);
    let why = |server| snapshot.why_missing(Scope::One(server), Kind::Tool, "up:t", NameStyle::Canonical);
    assert_eq!([why(0), why(1)], [Missing::UnknownItem(0), Missing::Starting(1)]);
    assert_eq!([why(2), why(3)], [Missing::Down(2), Missing::UnknownServer]);
}

#[test]
fn an_unknown_uri_may_belong_to_a_server_that_is_still_starting() {
    let up = server("up", ServerState::Running, &[]);
    let soon = server("soon", ServerState::Initializing, &[]);
    let why = |snapshot: &Snapshot| snapshot.why_missing(Scope::All, Kind::Resource, "up:x", NameStyle::Canonical);
    assert_eq!(why(&snapshot(vec![up.clone(), soon])), Missing::Starting(1));
    assert_eq!(why(&snapshot(vec![up])), Missing::UnknownServer);
}

#[test]
fn instructions_are_merged_under_the_names_of_their_servers() {
    let telling = |name, text: &str| {
        let mut server = idle(name, Lifecycle::Session);
        Arc::make_mut(&mut server.offer).instructions = Some(text.into());
        server
    };
    let servers = vec![
        telling("a", "Do this.\n"),
        idle("b", Lifecycle::SelfContained),
        telling("c", " "),
        telling("d", "Do that."),
    ];
    let snapshot = snapshot(servers);
    let merged = snapshot.instructions(Scope::All);
    assert_eq!(merged.as_deref(), Some("## a\n\nDo this.\n\n## d\n\nDo that."));
    assert_eq!(snapshot.instructions(Scope::One(0)).as_deref(), Some("Do this.\n"), "its own words as they are");
    assert_eq!([1, 9].map(|server| snapshot.instructions(Scope::One(server))), [None, None]);
    assert_eq!(super::tests::snapshot(vec![]).instructions(Scope::All), None);
}

#[test]
fn hints_are_the_strictest_of_all_servers_in_scope() {
    let modern = |name, ttl_ms, is_private| {
        let server = capable(idle(name, Lifecycle::SelfContained), r#"{"tools":{}}"#);
        hinting(server, ttl_ms, is_private)
    };
    let without_tools = hinting(capable(idle("w", Lifecycle::SelfContained), r#"{"prompts":{}}"#), 1, true);
    let down = ServerEntry { state: ServerState::Stopped, ..modern("d", 2, true) };
    let starting = ServerEntry { state: ServerState::Initializing, ..modern("s", 2, true) };
    let legacy = capable(idle("l", Lifecycle::Session), r#"{"tools":{}}"#);
    let hints = |servers: Vec<ServerEntry>| snapshot(servers).hints(Scope::All, Kind::Tool);
    let public = |ttl_ms| Hints { ttl_ms, is_private: false };

    let (long, short) = (modern("a", 60, false), modern("b", 30, false));
    assert_eq!(hints(vec![long.clone(), short.clone(), without_tools, down.clone()]), public(30));
    assert_eq!(hints(vec![long.clone(), modern("p", 90, true)]), Hints { ttl_ms: 60, is_private: true });
    assert_eq!(hints(vec![long.clone(), legacy]), Hints::NONE, "a legacy server gives none");
    assert_eq!(hints(vec![long.clone(), starting]), public(0), "what is incomplete must not be kept");
    assert_eq!(hints(vec![down]), Hints::NONE);
    let snapshot = snapshot(vec![long, short]);
    assert_eq!(snapshot.hints(Scope::One(0), Kind::Tool), public(60));
    assert_eq!(snapshot.hints(Scope::One(9), Kind::Tool), Hints::NONE);
    assert_eq!(snapshot.hints(Scope::All, Kind::Resource), Hints::NONE);
}

#[test]
fn names_that_are_the_same_are_not_made_again() {
    let (one, two) = (server("one", ServerState::Running, &["a", "b"]), server("two", ServerState::Running, &["c"]));
    let before = snapshot(vec![one.clone(), two.clone()]);
    assert_eq!(before.unnamed(), 3);
    before.make_names();
    assert_eq!(before.unnamed(), 0);

    let stopped = ServerEntry { state: ServerState::Starting, ..two.clone() };
    let after = snapshot(vec![one.clone(), stopped]).following(&before);
    assert_eq!(after.unnamed(), 0, "the state of a server changes no name");
    assert!(after.resolve(Scope::All, Kind::Tool, "two:c").is_some());

    let renamed = ServerEntry { name: ServerName::new("three").unwrap(), ..two.clone() };
    let after = snapshot(vec![one.clone(), renamed]).following(&before);
    assert_eq!(after.unnamed(), 0, "the names of one server were changed in the table before");
    assert!(after.resolve(Scope::All, Kind::Tool, "three:c").is_some());
    assert!(after.resolve(Scope::All, Kind::Tool, "two:c").is_none());

    let after = snapshot(vec![one, two, server("four", ServerState::Running, &["d"])]).following(&before);
    assert!(after.resolve(Scope::All, Kind::Tool, "four:d").is_some(), "one that joined has its names");
}

#[test]
fn it_is_known_how_much_of_a_list_is_not_written_yet() {
    let snapshot =
        snapshot(vec![server("one", ServerState::Running, &["a"]), server("two", ServerState::Running, &["b"])]);
    let unwritten = |scope, lifecycle| snapshot.unwritten(scope, Kind::Tool, NameStyle::Canonical, lifecycle);
    let (all, one) = (unwritten(Scope::All, Lifecycle::Session), unwritten(Scope::One(0), Lifecycle::Session));
    assert!(one > 0 && all == 2 * one, "{all} {one}");
    snapshot.page(Scope::All, Kind::Tool, NameStyle::Canonical, Lifecycle::Session, None).unwrap();
    assert_eq!(unwritten(Scope::All, Lifecycle::Session), 0);
    assert_eq!(unwritten(Scope::All, Lifecycle::SelfContained), all);
}
