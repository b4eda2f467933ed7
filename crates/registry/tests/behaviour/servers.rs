//! Servers are registered, found, changed and removed.

use std::time::Duration;

use registry::{
    ConnectionConfig, Deployment, Error, EventKind, NewServer, Origin, Page, RetentionPolicy, ServerFilter, ServerId,
    ServerPatch, Status, StatusChange, Timestamp, ToolFilter, Transport,
};
use serde_json::json;

use crate::fixture::{RegistryFixture, config, on_both, registered, server, tool};

on_both! {
    a_registered_server_is_found_by_id_and_by_name,
    a_name_is_given_once,
    twenty_who_register_one_name_at_once_get_one_server,
    servers_are_listed_by_name_in_pages,
    a_patch_changes_what_it_names_and_nothing_else,
    a_renamed_server_renames_its_tools,
    a_removed_server_takes_everything_of_its_own_with_it,
    a_state_and_its_history_are_written_together,
    a_server_that_comes_up_is_connected_since_then,
    enabling_a_server_resets_its_failures,
    another_program_has_not_worked_yet_but_an_edited_server_has,
    after_an_end_that_nobody_noted_nothing_is_connected,
    histories_are_cut_by_age_and_by_number,
    names_that_cannot_be_kept_are_refused,
    messages_with_odd_characters_are_kept,
}

async fn a_registered_server_is_found_by_id_and_by_name(RegistryFixture { store, .. }: RegistryFixture) {
    let mut new = server("github");
    new.description = Some("code".to_owned());
    new.health_check_url = Some("https://example.com/health?token=sesame".to_owned());
    let kept = store.insert_server(new).await.unwrap();
    assert_eq!(kept.status, Status::Disconnected);
    assert_eq!(kept.deployment, Deployment::Managed);
    assert_eq!(store.server(kept.id).await.unwrap(), kept);
    assert_eq!(store.find_server("github").await.unwrap(), kept);
    assert_eq!(store.find_server(&kept.id.to_string()).await.unwrap(), kept);
    assert_eq!(kept.connection_config.reveal()["env"]["TOKEN"], "hunter2");

    let shown = serde_json::to_value(&kept).unwrap();
    assert_eq!(shown["transport_type"], "stdio");
    assert_eq!(shown["connection_config"]["env"]["TOKEN"], "***");
    assert!(!format!("{kept:?}").contains("hunter2"));

    for unknown in ["gitlab", &ServerId::fresh().to_string()] {
        let error = store.find_server(unknown).await.unwrap_err();
        assert!(matches!(&error, Error::NotFound { what: "server", key } if key == unknown), "{error}");
    }
}

async fn a_name_is_given_once(RegistryFixture { store, .. }: RegistryFixture) {
    registered(&store, "one").await;
    let error = store.insert_server(server("one")).await.unwrap_err();
    assert!(matches!(&error, Error::AlreadyExists { name } if name == "one"), "{error}");

    let two = registered(&store, "two").await;
    let rename = ServerPatch { name: Some("one".to_owned()), ..ServerPatch::default() };
    let error = store.update_server(two.id, rename).await.unwrap_err();
    assert!(matches!(&error, Error::AlreadyExists { name } if name == "one"), "{error}");
    assert_eq!(store.server(two.id).await.unwrap(), two);
}

async fn twenty_who_register_one_name_at_once_get_one_server(RegistryFixture { store, .. }: RegistryFixture) {
    let tries: Vec<_> = (0..20)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.insert_server(server("one")).await })
        })
        .collect();
    let mut registered = 0;
    for attempt in tries {
        match attempt.await.unwrap() {
            Ok(_) => registered += 1,
            Err(Error::AlreadyExists { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(registered, 1);
    assert_eq!(store.servers(&ServerFilter::default(), Page::ALL).await.unwrap().total, 1);
}

async fn servers_are_listed_by_name_in_pages(RegistryFixture { store, .. }: RegistryFixture) {
    for name in ["b", "Z", "a_x", "a-x", "c"] {
        registered(&store, name).await;
    }
    let mut from_file = server("d");
    from_file.origin = Origin::Config;
    from_file.enabled = false;
    store.insert_server(from_file).await.unwrap();
    let names = |filter: ServerFilter, page: Page| {
        let store = store.clone();
        async move {
            let listed = store.servers(&filter, page).await.unwrap();
            (listed.items.into_iter().map(|server| server.name).collect::<Vec<_>>(), listed.total)
        }
    };
    let all = ServerFilter::default();
    let expected: Vec<String> = ["Z", "a-x", "a_x", "b", "c", "d"].map(String::from).to_vec();
    assert_eq!(names(all.clone(), Page::ALL).await, (expected.clone(), 6));
    assert_eq!(names(all.clone(), Page { limit: 2, offset: 1 }).await, (expected[1..3].to_vec(), 6));
    assert_eq!(names(all.clone(), Page { limit: 10, offset: 4 }).await, (expected[4..].to_vec(), 6));
    assert_eq!(names(all.clone(), Page { limit: 10, offset: 60 }).await, (vec![], 6));
    assert_eq!(names(all, Page { limit: 0, offset: 0 }).await, (vec![], 6));
    let disabled = ServerFilter { status: Some(Status::Disabled), ..ServerFilter::default() };
    assert_eq!(names(disabled, Page::ALL).await, (vec!["d".to_owned()], 1));
    let from_file = ServerFilter { origin: Some(Origin::Config), ..ServerFilter::default() };
    assert_eq!(names(from_file, Page::ALL).await, (vec!["d".to_owned()], 1));
    assert_eq!(store.server_counts().await.unwrap(), [(Status::Disabled, 1), (Status::Disconnected, 5)]);
}

async fn a_patch_changes_what_it_names_and_nothing_else(RegistryFixture { store, .. }: RegistryFixture) {
    let mut new = server("one");
    new.description = Some("old".to_owned());
    new.health_check_url = Some("http://old".to_owned());
    let old = store.insert_server(new).await.unwrap();
    let patch = ServerPatch {
        description: Some(None),
        transport: Some(Transport::Http),
        connection_config: Some(config(json!({"url": "http://new"}))),
        ..ServerPatch::default()
    };
    let new = store.update_server(old.id, patch).await.unwrap();
    assert_eq!(store.server(old.id).await.unwrap(), new);
    assert_eq!(new.description, None);
    assert_eq!(new.transport, Transport::Http);
    assert_eq!(new.connection_config.reveal()["url"], "http://new");
    assert_eq!(new.health_check_url, old.health_check_url);
    assert_eq!(new.registered_at, old.registered_at);
    assert!(new.updated_at > old.updated_at);

    let error = store.update_server(ServerId::fresh(), ServerPatch::default()).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

async fn a_renamed_server_renames_its_tools(RegistryFixture { store, .. }: RegistryFixture) {
    let one = registered(&store, "one").await;
    let other = registered(&store, "other").await;
    for id in [one.id, other.id] {
        store.replace_tools(id, [tool("a.b", "x"), tool("c", "y")]).await.unwrap();
    }
    let rename = ServerPatch { name: Some("uno".to_owned()), ..ServerPatch::default() };
    store.update_server(one.id, rename).await.unwrap();
    let tools = store.tools(&ToolFilter::default(), Page::ALL).await.unwrap().items;
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["other.a.b", "other.c", "uno.a.b", "uno.c"]);
    assert_eq!(tools[2].server_name, "uno");
}

async fn a_removed_server_takes_everything_of_its_own_with_it(RegistryFixture { store, .. }: RegistryFixture) {
    let one = registered(&store, "one").await;
    store.replace_tools(one.id, [tool("a", "x")]).await.unwrap();
    store.set_status(one.id, StatusChange::to(Status::Connected)).await.unwrap();
    store.delete_server(one.id).await.unwrap();
    assert!(matches!(store.server(one.id).await, Err(Error::NotFound { .. })));
    assert_eq!(store.tools(&ToolFilter::default(), Page::ALL).await.unwrap().total, 0);
    assert_eq!(store.history(one.id, Page::ALL).await.unwrap().total, 0);
    assert!(matches!(store.delete_server(one.id).await, Err(Error::NotFound { .. })));
    registered(&store, "one").await;
}

async fn a_state_and_its_history_are_written_together(RegistryFixture { store, .. }: RegistryFixture) {
    let one = registered(&store, "one").await;
    store.set_status(one.id, StatusChange::to(Status::Connecting)).await.unwrap();
    let failed = StatusChange {
        error_message: Some("refused".to_owned()),
        failure_count: Some(2),
        details: Some(json!({"attempt": 2})),
        ..StatusChange::to(Status::Error)
    };
    let changed = store.set_status(one.id, failed).await.unwrap();
    assert_eq!(changed.previous, Status::Connecting);
    assert_eq!(changed.server, store.server(one.id).await.unwrap());
    assert_eq!(changed.server.failure_count, 2);
    assert_eq!(changed.server.error_message.as_deref(), Some("refused"));

    // The same status again writes no event, unless one is given.
    store.set_status(one.id, StatusChange::to(Status::Error)).await.unwrap();
    let retry = StatusChange { event: Some(EventKind::Reconnect), ..StatusChange::to(Status::Error) };
    store.set_status(one.id, retry).await.unwrap();

    let history = store.history(one.id, Page::ALL).await.unwrap();
    let kinds: Vec<EventKind> = history.items.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Reconnect, EventKind::Error, EventKind::Connect], "newest first");
    let details = history.items[1].details.as_ref().unwrap();
    assert_eq!(*details, json!({"from": "connecting", "to": "error", "error": "refused", "attempt": 2}));
    let second = store.history(one.id, Page { limit: 1, offset: 1 }).await.unwrap();
    assert_eq!((second.items, second.total), (history.items[1..2].to_vec(), 3));

    let nobody = store.set_status(ServerId::fresh(), StatusChange::to(Status::Error)).await;
    assert!(matches!(nobody, Err(Error::NotFound { .. })));
}

async fn a_server_that_comes_up_is_connected_since_then(RegistryFixture { store, .. }: RegistryFixture) {
    let one = registered(&store, "one").await;
    let info = json!({"serverInfo": {"name": "x"}});
    let up = StatusChange { server_info: Some(info.clone()), ..StatusChange::to(Status::Connected) };
    let up = store.set_status(one.id, up).await.unwrap().server;
    assert!(up.connected_at.is_some() && up.connected_at == up.last_connected_at);
    let degraded = store.set_status(one.id, StatusChange::to(Status::Degraded)).await.unwrap().server;
    assert_eq!(degraded.connected_at, up.connected_at);
    let down = store.set_status(one.id, StatusChange::to(Status::Disconnected)).await.unwrap().server;
    assert_eq!((down.connected_at, down.last_connected_at), (None, up.last_connected_at));
    assert_eq!(down.server_info, Some(info));

    let looked = Timestamp::now();
    store.note_health_check(one.id, looked).await.unwrap();
    assert_eq!(store.server(one.id).await.unwrap().last_health_check, Some(looked));
}

async fn enabling_a_server_resets_its_failures(RegistryFixture { store, .. }: RegistryFixture) {
    let one = registered(&store, "one").await;
    let gave_up = StatusChange {
        error_message: Some("too often".to_owned()),
        failure_count: Some(3),
        auto_disabled: Some(true),
        enabled: Some(false),
        ..StatusChange::to(Status::Disabled)
    };
    store.set_status(one.id, gave_up).await.unwrap();
    let on = ServerPatch { enabled: Some(true), ..ServerPatch::default() };
    let on = store.update_server(one.id, on).await.unwrap();
    assert_eq!((on.enabled, on.auto_disabled, on.failure_count), (true, false, 0));
    assert_eq!((on.status, on.error_message.clone()), (Status::Disconnected, None));
    assert_eq!(store.server(one.id).await.unwrap(), on);

    let off = ServerPatch { enabled: Some(false), ..ServerPatch::default() };
    assert_eq!(store.update_server(one.id, off).await.unwrap().status, Status::Disabled);
}

async fn another_program_has_not_worked_yet_but_an_edited_server_has(RegistryFixture { store, .. }: RegistryFixture) {
    let elsewhere = |url: &str, key: &str| json!({ "url": url, "headers": { "Authorization": key } });
    let program = |arg: &str, value: &str| json!({ "command": "serve", "args": [arg], "env": { "KEY": value } });
    let cases = [
        ("address", Transport::Http, elsewhere("http://a/", "1"), elsewhere("http://b/", "2"), true),
        ("environment", Transport::Stdio, program("--one", "1"), program("--one", "2"), true),
        ("arguments", Transport::Stdio, program("--one", "1"), program("--two", "1"), false),
    ];
    for (name, transport, before, after, has_worked) in cases {
        let as_config = |value: &serde_json::Value| ConnectionConfig::from(value.as_object().unwrap().clone());
        let kept = store.insert_server(NewServer::new(name, transport, as_config(&before))).await.unwrap();
        let worked = StatusChange { worked_at: Some(Timestamp::now()), ..StatusChange::to(Status::Connected) };
        store.set_status(kept.id, worked).await.unwrap();
        let edit = ServerPatch { connection_config: Some(as_config(&after)), ..ServerPatch::default() };
        let edited = store.update_server(kept.id, edit).await.unwrap();
        assert_eq!(edited.worked_at.is_some(), has_worked, "{name}");
        assert_eq!(store.server(kept.id).await.unwrap().worked_at, edited.worked_at, "{name}");
    }
}

async fn after_an_end_that_nobody_noted_nothing_is_connected(RegistryFixture { store, .. }: RegistryFixture) {
    for (name, status) in [("a", Status::Connected), ("b", Status::Disabled), ("c", Status::Disconnected)] {
        let id = registered(&store, name).await.id;
        store.set_status(id, StatusChange::to(status)).await.unwrap();
    }
    assert_eq!(store.reset_connections().await.unwrap(), 1);
    assert_eq!(store.server_counts().await.unwrap(), [(Status::Disabled, 1), (Status::Disconnected, 2)]);
    assert_eq!(store.find_server("a").await.unwrap().connected_at, None);
}

async fn histories_are_cut_by_age_and_by_number(RegistryFixture { store, .. }: RegistryFixture) {
    let (one, two) = (registered(&store, "one").await.id, registered(&store, "two").await.id);
    for id in [one, two] {
        for status in [Status::Connecting, Status::Connected, Status::Error] {
            store.set_status(id, StatusChange::to(status)).await.unwrap();
        }
    }
    assert_eq!(store.prune_history(RetentionPolicy::default()).await.unwrap(), 0);
    assert_eq!(store.prune_history(RetentionPolicy { newest: Some(2), since: None }).await.unwrap(), 2);
    let left = store.history(two, Page::ALL).await.unwrap();
    assert_eq!((left.total, left.items[0].kind), (2, EventKind::Error));
    let tomorrow = Timestamp::now().later_by(Duration::from_secs(86_400));
    assert_eq!(store.prune_history(RetentionPolicy { newest: None, since: Some(tomorrow) }).await.unwrap(), 4);
}

async fn names_that_cannot_be_kept_are_refused(RegistryFixture { store, .. }: RegistryFixture) {
    for name in [String::new(), "x".repeat(256), "a\0b".to_owned()] {
        let error = store.insert_server(server(&name)).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    registered(&store, &"ü".repeat(255)).await;
}

async fn messages_with_odd_characters_are_kept(RegistryFixture { store, .. }: RegistryFixture) {
    let one = registered(&store, "one").await;
    let odd = StatusChange {
        error_message: Some("a\0b \u{1f980} \\u0000".to_owned()),
        details: Some(json!({"stderr": "x\0y", "k\0": ["\0"]})),
        ..StatusChange::to(Status::Error)
    };
    store.set_status(one.id, odd).await.unwrap();
    let message = store.server(one.id).await.unwrap().error_message.unwrap();
    assert_eq!(message, "a\u{fffd}b \u{1f980} \\u0000");
    let details = store.history(one.id, Page::ALL).await.unwrap().items[0].details.clone().unwrap();
    assert_eq!((&details["stderr"], &details["k\u{fffd}"]), (&json!("x\u{fffd}y"), &json!(["\u{fffd}"])));
}
