//! Behaviour of profiles.

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::config::ConfigError;
use crate::names::{NameStyle, Separator};
use crate::offer::Hints;
use crate::server::ServerName;
use crate::snapshot::{Missing, Route, Scope, Snapshot};

fn item(kind: Kind, definition: &Value) -> Item {
    Item::read(kind, Bytes::from(definition.to_string())).unwrap()
}

fn entry(name: &str, items: &[(Kind, Value)]) -> ServerEntry {
    let mut offer = Offer::new(Lifecycle::Session);
    for kind in Kind::ALL {
        let of_kind = items.iter().filter(|(of, _)| *of == kind).map(|(_, definition)| item(kind, definition));
        offer.set_items(kind, of_kind.collect(), Hints::NONE);
    }
    ServerEntry { name: ServerName::new(name).unwrap(), state: ServerState::Running, offer: Arc::new(offer) }
}

fn tool(name: &str) -> (Kind, Value) {
    (Kind::Tool, json!({ "name": name }))
}

fn profile(spec: &Value) -> Arc<Profile> {
    Profile::new("dev", ProfileSpec::read(spec).unwrap())
}

fn names(entry: &ServerEntry, kind: Kind) -> Vec<String> {
    entry.offer.items(kind).iter().map(|item| item.id.to_string()).collect()
}

fn view(profile: &Arc<Profile>, servers: &[ServerEntry]) -> Snapshot {
    let whole = Snapshot::new(servers.to_vec(), ".".parse::<Separator>().unwrap());
    whole.narrowed_to(profile, servers.iter().map(|server| profile.narrowed(server)).collect())
}

#[test]
fn the_last_pattern_that_matches_decides() {
    let admitted = |patterns: &[&str]| {
        let written: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let patterns = Patterns::new(&written);
        let names = ["git.log", "git.push", "fs.read"];
        names.into_iter().filter(|name| patterns.admits(name)).collect::<Vec<_>>()
    };
    assert_eq!(admitted(&["git.*"]), ["git.log", "git.push"]);
    assert_eq!(admitted(&["git.*", "!git.push"]), ["git.log"]);
    assert_eq!(admitted(&["!git.push", "git.*"]), ["git.log", "git.push", "fs.read"], "the order counts");
    assert_eq!(admitted(&["!git.*"]), ["fs.read"], "an exclusion at the start begins with everything");
    assert_eq!(admitted(&["*", "!git.*", "git.push"]), ["git.push", "fs.read"]);
    assert_eq!(admitted(&["*.*h", "git.l*g"]), ["git.log", "git.push"]);
    assert_eq!(admitted(&["git", "GIT.log", "git.lo", "git.log*x"]), [""; 0]);
    assert_eq!(admitted(&[]), [""; 0], "an empty list admits nothing");
}

#[test]
fn a_pattern_with_many_stars_ends() {
    let patterns = Patterns::new(&["*a".repeat(200)]);
    assert!(!patterns.admits(&"a".repeat(199)));
    assert!(patterns.admits(&"a".repeat(2000)));
}

#[test]
fn a_server_that_is_hidden_leaves_an_empty_slot() {
    let secret = entry("secret", &[tool("t"), (Kind::Resource, json!({"uri": "x://1"}))]);
    let hidden = profile(&json!({"servers": ["git"]})).narrowed(&secret);
    assert_eq!(hidden.state, ServerState::Removed);
    assert!(Kind::ALL.into_iter().all(|kind| hidden.offer.items(kind).is_empty()));
}

#[test]
fn what_is_visible_completely_keeps_its_allocation() {
    let git = entry("git", &[tool("log")]);
    let narrowed = profile(&json!({"tools": ["git.*"], "prompts": ["git.*"]})).narrowed(&git);
    assert!(Arc::ptr_eq(&narrowed.offer, &git.offer));
}

#[test]
fn each_kind_has_its_own_patterns() {
    let server = entry(
        "s",
        &[
            tool("a"),
            tool("b"),
            (Kind::Prompt, json!({"name": "p"})),
            (Kind::Prompt, json!({"name": "q"})),
            (Kind::Resource, json!({"uri": "docs://1"})),
            (Kind::Resource, json!({"uri": "keys://1"})),
            (Kind::Template, json!({"uriTemplate": "docs://{page}"})),
            (Kind::Template, json!({"uriTemplate": "keys://{id}"})),
        ],
    );
    let narrowed =
        profile(&json!({"tools": ["s.a"], "prompts": ["!s.p"], "resources": ["docs://*"]})).narrowed(&server);
    let seen = Kind::ALL.map(|kind| names(&narrowed, kind).join(","));
    assert_eq!(seen, ["a", "q", "docs://1", "docs://{page}"]);
    assert_eq!(narrowed.state, ServerState::Running);
}

#[test]
fn classes_are_those_that_the_annotations_name() {
    let annotated = |name: &str, annotations: Value| (Kind::Tool, json!({"name": name, "annotations": annotations}));
    let server = entry(
        "s",
        &[
            tool("plain"),
            annotated("reads", json!({"readOnlyHint": true})),
            annotated("adds", json!({"destructiveHint": false})),
            annotated("deletes", json!({"readOnlyHint": false, "destructiveHint": true})),
            annotated("odd", json!("readOnlyHint")),
            annotated("text", json!({"readOnlyHint": "true"})),
        ],
    );
    let seen = |classes: Value| names(&profile(&json!({"classes": classes})).narrowed(&server), Kind::Tool);
    assert_eq!(seen(json!(["read_only"])), ["reads"]);
    assert_eq!(seen(json!(["non_destructive"])), ["reads", "adds"]);
    assert_eq!(seen(json!(["read_only", "non_destructive"])), ["reads", "adds"]);
}

#[test]
fn both_handshakes_of_a_server_show_the_same_items() {
    let (legacy, modern) = (
        entry("s", &[tool("a"), tool("b"), (Kind::Tool, json!({"name": "c", "annotations": {"readOnlyHint": true}}))]),
        entry("s", &[tool("b"), tool("c"), (Kind::Tool, json!({"name": "a", "annotations": {"readOnlyHint": true}}))]),
    );
    let both = Offer::clone(&legacy.offer).with_modern(&modern.offer).unwrap();
    let server = ServerEntry { offer: Arc::new(both), ..legacy };
    let seen = |spec: Value| {
        let narrowed = profile(&spec).narrowed(&server);
        let names = |lifecycle| {
            let items = narrowed.offer.for_lifecycle(lifecycle).items(Kind::Tool);
            items.iter().map(|item| item.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(Lifecycle::Session), names(Lifecycle::SelfContained));
        names(Lifecycle::Session)
    };
    assert_eq!(seen(json!({"tools": ["!s.b"]})), ["a", "c"]);
    assert_eq!(seen(json!({"classes": ["read_only"]})), [""; 0], "neither is read-only in both definitions");
}

#[test]
fn instructions_that_name_a_hidden_item_are_left_out() {
    let mut server = entry("s", &[tool("read"), tool("drop_table")]);
    let seen = |server: &ServerEntry| {
        let narrowed = profile(&json!({"tools": ["s.read"]})).narrowed(server);
        narrowed.offer.instructions.is_some()
    };
    Arc::make_mut(&mut server.offer).instructions = Some("Use read. Do not drop_tables.".into());
    assert!(seen(&server));
    Arc::make_mut(&mut server.offer).instructions = Some("Use `drop_table` with care.".into());
    assert!(!seen(&server));
}

#[test]
fn a_hidden_item_is_missing_like_one_that_never_existed() {
    let servers = [entry("git", &[tool("log"), tool("push")]), entry("secret", &[tool("t")])];
    let view = view(&profile(&json!({"servers": ["git"], "tools": ["!git.push"]})), &servers);
    let why = |name: &str| view.why_missing(Scope::All, Kind::Tool, name, NameStyle::Canonical);
    assert_eq!(view.resolve(Scope::All, Kind::Tool, "git.log"), Some(Route { server: 0, item: 0 }));
    for (hidden, never) in [("git.push", "git.nothing"), ("git__push", "git__nothing"), ("secret.t", "nobody.t")] {
        assert_eq!(view.resolve(Scope::All, Kind::Tool, hidden), None);
        assert_eq!(why(hidden), why(never), "{hidden}");
    }
    assert_eq!(why("secret.t"), Missing::UnknownServer);
    assert_eq!(view.resolve(Scope::One(1), Kind::Tool, "t"), None);
    assert_eq!((view.server_named("secret"), view.server_named("git")), (None, Some(0)));
}

#[test]
fn a_hidden_item_takes_no_name_away_from_a_visible_one() {
    // Both are called `a.b.c`.
    let servers = [entry("a", &[tool("b.c")]), entry("a.b", &[tool("c")])];
    let whole = Snapshot::new(servers.to_vec(), ".".parse().unwrap());
    assert_eq!(whole.resolve(Scope::All, Kind::Tool, "a.b.c").map(|route| route.server), Some(0));
    let narrowed = view(&profile(&json!({"servers": ["a.b"]})), &servers).following(&whole);
    assert_eq!(narrowed.resolve(Scope::All, Kind::Tool, "a.b.c").map(|route| route.server), Some(1));
    assert_eq!(narrowed.listed(Kind::Tool, NameStyle::Canonical).count(), 1);
}

#[test]
fn a_uri_that_is_hidden_belongs_to_nobody() {
    let template = (Kind::Template, json!({"uriTemplate": "docs://{page}"}));
    let mut server = entry("s", &[template, (Kind::Resource, json!({"uri": "docs://secret"}))]);
    Arc::make_mut(&mut server.offer).capabilities = Bytes::from_static(br#"{"resources":{}}"#);
    let servers = [server];
    let view = view(&profile(&json!({"resources": ["docs://*", "!docs://secret*"]})), &servers);
    let owners = |uri: &str| view.owners_of_uri(Scope::All, uri, &mut view.uri_budget(1));
    assert_eq!((owners("docs://1"), owners("docs://secret2")), (vec![0], vec![]));
    let others = |uri: &str| view.resource_servers(Scope::All, uri);
    assert_eq!((others("docs://x/y"), others("docs://secret"), others("keys://1")), (vec![0], vec![], vec![]));
}

#[test]
fn patterns_that_match_nothing_are_reported() {
    let mut servers = vec![entry("git", &[tool("log")]), entry("fs", &[tool("read")])];
    let unmatched = |servers: &[ServerEntry], spec: Value| -> Vec<(String, bool)> {
        let whole = Snapshot::new(servers.to_vec(), ".".parse().unwrap());
        let found = profile(&spec).unmatched(&whole);
        found.iter().map(|it| (it.problem.member.join("."), it.is_certain)).collect()
    };
    let spec = json!({"servers": ["git", "gti"], "tools": ["git.*", "!git.pusj", "fs.*"], "prompts": ["*"],
        "resources": ["x://*"], "pinned": ["git.log", "git.x"]});
    let expected = [("servers.1", true), ("tools.1", true), ("tools.2", true), ("prompts.0", true)];
    let expected = expected.into_iter().chain([("resources.0", false), ("pinned.1", true)]);
    let expected: Vec<(String, bool)> = expected.map(|(place, certain)| (place.to_owned(), certain)).collect();
    assert_eq!(unmatched(&servers, spec.clone()), expected);
    servers[0].state = ServerState::Stopped;
    let certain = unmatched(&servers, spec).into_iter().filter(|(_, is_certain)| *is_certain);
    assert_eq!(certain.map(|(place, _)| place).collect::<Vec<_>>(), ["servers.1"], "its tools are not known now");
}

#[test]
fn a_profile_is_written_as_it_was_read() {
    let written = json!({"servers": ["a*"], "tools": ["!a.b"], "prompts": [], "resources": ["x://*"],
        "classes": ["read_only"], "surface": "search", "pinned": ["a.c"]});
    assert_eq!(ProfileSpec::read(&written).unwrap().to_json(), written);
    assert_eq!(ProfileSpec::read(&json!({})).unwrap(), ProfileSpec::default());
}

#[test]
fn every_problem_of_a_profile_is_named() {
    let problems = |value: Value| -> Vec<String> {
        ProfileSpec::read(&value).unwrap_err().iter().map(ToString::to_string).collect()
    };
    assert_eq!(problems(json!([])), ["must be an object, not an array"]);
    assert_eq!(
        problems(json!({"server": [], "tools": "git.*", "prompts": [1, "", "!!a"], "classes": ["readonly"],
            "surface": "all", "pinned": [""]})),
        [
            "`server`: is no member of a profile; use `servers`, `tools`, `prompts`, `resources`, `classes`, `surface` \
             or `pinned`",
            "`tools`: must be an array of strings, not a string",
            "`prompts.0`: must be a string, not a number",
            "`prompts.1`: is empty; use a name, or a pattern with `*`",
            "`prompts.2`: begins with `!` twice; one excludes",
            "`classes.0`: `readonly` is no class of tools; use `read_only` or `non_destructive`",
            "`surface`: must be `full`, `search`, `grow` or `auto`",
            "`pinned.0`: is not the full name of a tool, such as `git.log`",
        ]
    );
    assert_eq!(
        problems(json!({"classes": []}))[0],
        "`classes`: is empty; leave it out, or use `tools` to hide all tools"
    );
    let many: Vec<String> = (0..=MAX_PATTERNS).map(|number| format!("s{number}")).collect();
    assert_eq!(problems(json!({ "servers": many })), ["`servers`: has 201 entries, and at most 200 are allowed"]);
    assert_eq!(
        problems(json!({ "tools": ["x".repeat(501)] })),
        ["`tools.0`: has 501 bytes, and at most 500 are allowed"]
    );
}

#[test]
fn a_config_file_has_profiles_beside_its_servers() {
    let file = br#"{"mcpServers": {}, "profiles": {"dev": {"tools": ["git.*"]}, // comments are fine
        "ops": {}}}"#;
    let profiles = profiles_of_config(file).unwrap();
    assert_eq!(profiles.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["dev", "ops"]);
    assert_eq!(profiles_of_config(br#"{"mcpServers": {}}"#), Ok(Vec::new()));
    let Err(ConfigError::Problems(problems)) =
        profiles_of_config(br#"{"profiles": {"a b": {}, "dev": {"tools": [1]}}}"#)
    else {
        panic!()
    };
    let shown: Vec<String> = problems.iter().map(|problem| format!("{} {}", problem.path, problem.message)).collect();
    assert_eq!(
        shown,
        [
            "$.profiles[\"a b\"] is not a name of a profile; use 1 to 64 letters, digits, `_`, `-` and `.`",
            "$.profiles.dev.tools[0] must be a string, not a number",
        ]
    );
}

#[test]
fn names_of_profiles_fit_into_addresses() {
    for name in ["dev", "read-only", "v1.2", "A_b"] {
        assert!(is_profile_name(name), "{name}");
    }
    for name in ["", ".", "..", "a b", "a/b", "@a", "ä", &"x".repeat(65)] {
        assert!(!is_profile_name(name), "{name}");
    }
}
