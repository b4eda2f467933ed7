//! Settings, bindings, the audit log, export and import.

use std::collections::BTreeMap;

use registry::{
    AuditFilter, AuditNote, BindingId, CallLimit, CallRate, Error, Existing, LimitKind, MAX_BINDINGS_OF_DOCUMENT,
    NewBinding, Origin, Page, RetentionPolicy, Secrets, Section, ServerId, ServerPatch,
};
use serde_json::{Value, json};

use crate::fixture::{RegistryFixture, config, on_both, registered, server};

on_both! {
    settings_are_set_together_and_taken_back_by_null,
    a_binding_is_made_and_removed,
    a_binding_that_makes_no_sense_is_refused,
    a_document_has_no_more_bindings_than_it_may_have,
    bindings_go_with_their_server,
    changes_are_noted_and_found,
    an_export_makes_the_same_registry_elsewhere,
    an_export_keeps_the_order_of_servers,
    an_export_without_secrets_has_none,
    an_import_is_all_or_nothing,
    an_import_keeps_or_replaces_as_requested,
}

async fn settings_are_set_together_and_taken_back_by_null(RegistryFixture { store, .. }: RegistryFixture) {
    assert!(store.settings().await.unwrap().is_empty());
    let changes = |changes: Value| serde_json::from_value::<BTreeMap<String, Value>>(changes).unwrap();
    let first = json!({"timeout_ms": 30000, "retry_backoff_ms": [1000, 5000], "x": {"deep": null}, "nul": "\0"});
    store.put_settings(changes(first)).await.unwrap();
    let now = store.put_settings(changes(json!({"timeout_ms": 5, "nul": null, "never": null}))).await.unwrap();
    assert_eq!(now, store.settings().await.unwrap());
    assert_eq!(json!(now), json!({"retry_backoff_ms": [1000, 5000], "timeout_ms": 5, "x": {"deep": null}}));
    assert_eq!(store.setting("timeout_ms").await.unwrap(), Some(json!(5)));
    assert_eq!(store.setting("nul").await.unwrap(), None);
}

fn binding(server_id: ServerId, section: Section) -> NewBinding {
    NewBinding { document: "notes/*.md".to_owned(), section, server_id, inherit_to_children: true }
}

fn heading(text: &str) -> Section {
    Section::Heading { heading_text: text.to_owned() }
}

async fn a_binding_is_made_and_removed(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    let block = Section::Block { block_id: "b1".to_owned() };
    let range = Section::Range { start_line: 3, end_line: 9 };
    let mut made = Vec::new();
    for section in [heading("## Tools"), block, range] {
        made.push(store.insert_binding(binding(id, section)).await.unwrap());
    }
    let listed = store.bindings(None, None, Page::ALL).await.unwrap();
    assert_eq!((listed.items, listed.total), (made.clone(), 3));
    assert_eq!(store.bindings(Some("other.md"), None, Page::ALL).await.unwrap().total, 0);
    assert_eq!(store.bindings(Some("notes/*.md"), Some(id), Page::ALL).await.unwrap().total, 3);
    let shown = serde_json::to_value(&made[2]).unwrap();
    assert_eq!((&shown["section_type"], &shown["start_line"]), (&json!("range"), &json!(3)));

    assert_eq!(store.binding(made[0].id).await.unwrap(), made[0]);
    store.delete_binding(made[0].id).await.unwrap();
    for gone in [
        store.binding(made[0].id).await.map(drop),
        store.delete_binding(made[0].id).await,
        store.delete_binding(BindingId(987)).await,
    ] {
        assert!(matches!(gone, Err(Error::NotFound { what: "binding", .. })));
    }
}

async fn a_binding_that_makes_no_sense_is_refused(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    let mut nowhere = binding(id, heading("x"));
    nowhere.document = String::new();
    for wrong in [
        nowhere,
        binding(id, heading(" ")),
        binding(id, Section::Range { start_line: 5, end_line: 5 }),
        binding(id, Section::Range { start_line: 0, end_line: 5 }),
    ] {
        assert!(matches!(store.insert_binding(wrong).await, Err(Error::Invalid { .. })));
    }
    let orphan = store.insert_binding(binding(ServerId::fresh(), heading("x"))).await;
    assert!(matches!(orphan, Err(Error::NotFound { what: "server", .. })));
}

async fn a_document_has_no_more_bindings_than_it_may_have(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    // In several transactions, because each has a time limit.
    for first in (0..MAX_BINDINGS_OF_DOCUMENT).step_by(50) {
        let mut change = store.transaction("make bindings").await.unwrap();
        for place in first..first + 50 {
            change.insert_binding(binding(id, heading(&format!("h{place}")))).await.unwrap();
        }
        change.commit().await.unwrap();
    }
    let Err(Error::Invalid { what }) = store.insert_binding(binding(id, heading("x"))).await else { panic!("kept") };
    assert!(what.contains("has 1000 bindings, which is the limit"), "{what}");
    let elsewhere = NewBinding { document: "other.md".to_owned(), ..binding(id, heading("x")) };
    store.insert_binding(elsewhere).await.unwrap();
    let too_long = store.insert_binding(binding(id, heading(&"é".repeat(1_001)))).await;
    assert!(matches!(too_long, Err(Error::Invalid { what }) if what.contains("1000 characters")));
}

async fn bindings_go_with_their_server(RegistryFixture { store, .. }: RegistryFixture) {
    let id = registered(&store, "one").await.id;
    store.insert_binding(binding(id, heading("x"))).await.unwrap();
    store.delete_server(id).await.unwrap();
    assert_eq!(store.bindings(None, None, Page::ALL).await.unwrap().total, 0);
}

async fn changes_are_noted_and_found(RegistryFixture { store, .. }: RegistryFixture) {
    for (who, action) in [(Some("ops"), "server.register"), (None, "server.remove"), (Some("ops"), "settings.change")] {
        let note = AuditNote {
            who: who.map(str::to_owned),
            action: action.to_owned(),
            target: Some("one".to_owned()),
            details: Some(json!({"a": 1})),
        };
        store.append_audit(note).await.unwrap();
    }
    let all = store.audit(&AuditFilter::default(), Page::ALL).await.unwrap();
    assert_eq!((all.total, all.items[0].action.as_str()), (3, "settings.change"));
    let by_ops = AuditFilter { who: Some("ops".to_owned()), ..AuditFilter::default() };
    assert_eq!(store.audit(&by_ops, Page::first(1)).await.unwrap().total, 2);
    assert_eq!(store.prune_audit(RetentionPolicy { newest: Some(1), since: None }).await.unwrap(), 2);
    assert_eq!(store.audit(&AuditFilter::default(), Page::ALL).await.unwrap().items, all.items[..1]);
}

/// Fills a registry with data of every kind.
async fn fill(fixture: &RegistryFixture) -> ServerId {
    let store = &fixture.store;
    let id = registered(store, "one").await.id;
    let mut from_file = server("from-file");
    from_file.origin = Origin::Config;
    let from_file = store.insert_server(from_file).await.unwrap();
    store.put_settings(BTreeMap::from([("limit".to_owned(), json!(5))])).await.unwrap();
    let mut change = store.transaction("set a limit").await.unwrap();
    let limit = CallLimit { per_second: CallRate::per_second(0.5), ..CallLimit::default() };
    change.put_limit(LimitKind::Server, "one", limit).await.unwrap();
    change.commit().await.unwrap();
    for server in [id, from_file.id] {
        store.insert_binding(binding(server, heading("x"))).await.unwrap();
    }
    id
}

async fn an_export_makes_the_same_registry_elsewhere(fixture: RegistryFixture) {
    fill(&fixture).await;
    let exported = fixture.store.export(Secrets::Revealed).await.unwrap();
    let elsewhere = RegistryFixture::sqlite().await.unwrap();
    let report = elsewhere.store.import(&exported, Existing::Kept).await.unwrap();
    assert_eq!((report.added, report.settings, report.bindings), (vec!["one".to_owned()], 1, 1));
    assert_eq!(report.bindings_left_out, 1, "the server of a config file is not exported");
    let one = elsewhere.store.find_server("one").await.unwrap();
    assert_eq!(one.connection_config.reveal()["env"]["TOKEN"], "hunter2");
    assert_eq!(elsewhere.store.settings().await.unwrap()["limit"], 5);
    assert_eq!(elsewhere.store.bindings(None, Some(one.id), Page::ALL).await.unwrap().total, 1);

    let limits = elsewhere.store.limits().await.unwrap();
    assert_eq!((report.limits, limits[0].name.as_str()), (1, "one"));
    assert_eq!(limits[0].limit.per_second, CallRate::per_second(0.5));

    assert_eq!(elsewhere.store.import(&exported, Existing::Kept).await.unwrap().limits, 0);
    let again = elsewhere.store.import(&exported, Existing::Replaced).await.unwrap();
    assert_eq!((again.replaced, again.bindings, again.limits), (vec!["one".to_owned()], 0, 1));
}

async fn an_export_keeps_the_order_of_servers(RegistryFixture { store, .. }: RegistryFixture) {
    for name in ["zoo", "bar", "moo"] {
        registered(&store, name).await;
    }
    let exported = store.export(Secrets::Masked).await.unwrap();
    let names: Vec<_> = exported["servers"].as_array().unwrap().iter().map(|server| &server["name"]).collect();
    assert_eq!(names, ["zoo", "bar", "moo"]);
}

async fn an_export_without_secrets_has_none(fixture: RegistryFixture) {
    let id = fill(&fixture).await;
    let exported = fixture.store.export(Secrets::Masked).await.unwrap();
    assert!(!exported.to_string().contains("hunter2"));

    let report = fixture.store.import(&exported, Existing::Replaced).await.unwrap();
    assert!(report.without_secrets.is_empty());
    let one = fixture.store.server(id).await.unwrap();
    assert_eq!(one.connection_config.reveal()["env"]["TOKEN"], "hunter2");

    let elsewhere = RegistryFixture::sqlite().await.unwrap();
    let report = elsewhere.store.import(&exported, Existing::Kept).await.unwrap();
    assert_eq!(report.without_secrets, ["one"]);
    assert!(!elsewhere.store.find_server("one").await.unwrap().enabled);
}

async fn an_import_is_all_or_nothing(fixture: RegistryFixture) {
    fill(&fixture).await;
    let mut exported = fixture.store.export(Secrets::Revealed).await.unwrap();
    exported["servers"][0]["name"] = "new".into();
    exported["settings"]["limit"] = 6.into();
    exported["bindings"][1] =
        json!({"document": "a", "section_type": "range", "start_line": 9, "end_line": 1, "server": "new"});
    let error = fixture.store.import(&exported, Existing::Replaced).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert!(matches!(fixture.store.find_server("new").await, Err(Error::NotFound { .. })));
    assert_eq!(fixture.store.settings().await.unwrap()["limit"], 5);

    for wrong in [json!({}), json!([]), json!({"format": "mcp-aggregator registry", "version": 99})] {
        let error = fixture.store.import(&wrong, Existing::Kept).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
}

async fn an_import_keeps_or_replaces_as_requested(fixture: RegistryFixture) {
    let id = fill(&fixture).await;
    let exported = fixture.store.export(Secrets::Revealed).await.unwrap();
    let patch = ServerPatch {
        description: Some(Some("mine".to_owned())),
        connection_config: Some(config(json!({"command": "other"}))),
        ..ServerPatch::default()
    };
    fixture.store.update_server(id, patch).await.unwrap();
    let report = fixture.store.import(&exported, Existing::Kept).await.unwrap();
    assert_eq!(report.kept, ["one"]);
    assert_eq!(fixture.store.server(id).await.unwrap().description.as_deref(), Some("mine"));
    fixture.store.import(&exported, Existing::Replaced).await.unwrap();
    let one = fixture.store.server(id).await.unwrap();
    assert_eq!((one.description, one.connection_config.reveal()["command"].clone()), (None, json!("run")));
}
