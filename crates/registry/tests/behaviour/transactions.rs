//! A change and its entry in the audit log: both or none.

use std::collections::BTreeMap;

use registry::{
    AuditFilter, AuditNote, BindingId, Error, Existing, NewBinding, Page, RetentionPolicy, Secrets, Section,
    ServerFilter, ServerPatch, SkillRecord, Store, SuggestionRecord, Timestamp, ToolFilter,
};
use serde_json::json;

use crate::fixture::{RegistryFixture, on_both, registered, server, tool};

on_both! {
    a_change_and_its_audit_row_are_committed_together,
    a_transaction_that_is_dropped_leaves_neither_change_nor_audit_row,
    a_transaction_that_fails_leaves_no_audit_row,
    every_kind_of_change_can_be_audited_in_its_transaction,
    writers_at_the_same_time_leave_one_audit_row_for_each_change,
    that_executions_are_stopped_is_kept_apart_from_the_audit_log,
    a_long_audit_log_is_pruned_in_steps_while_others_write,
    a_long_history_is_pruned_for_each_server,
}

fn note(action: &str, target: &str) -> AuditNote {
    AuditNote { who: Some("ops".to_owned()), action: action.to_owned(), target: Some(target.to_owned()), details: None }
}

/// The entries of the audit log, oldest first: actions and targets.
async fn audited(store: &Store) -> Vec<(String, String)> {
    let rows = store.audit(&AuditFilter::default(), Page::ALL).await.unwrap().items;
    rows.into_iter().rev().map(|row| (row.action, row.target.unwrap_or_default())).collect()
}

fn skill(id: &str) -> SkillRecord {
    SkillRecord { id: id.into(), name: "A".into(), description: "b".into(), examples: vec![], enabled: true }
}

async fn a_change_and_its_audit_row_are_committed_together(RegistryFixture { store, .. }: RegistryFixture) {
    let mut change = store.transaction("register a server").await.unwrap();
    let record = change.insert_server(server("one")).await.unwrap();
    change.append_audit(note("server.register", "one")).await.unwrap();
    change.commit().await.unwrap();
    assert_eq!(store.server(record.id).await.unwrap().name, "one");
    assert_eq!(audited(&store).await, [("server.register".to_owned(), "one".to_owned())]);
}

async fn a_transaction_that_is_dropped_leaves_neither_change_nor_audit_row(
    RegistryFixture { store, .. }: RegistryFixture,
) {
    let mut change = store.transaction("register a server").await.unwrap();
    change.insert_server(server("one")).await.unwrap();
    change.append_audit(note("server.register", "one")).await.unwrap();
    drop(change);
    assert!(matches!(store.find_server("one").await, Err(Error::NotFound { .. })));
    assert!(audited(&store).await.is_empty());
    // Later writers are not blocked.
    registered(&store, "one").await;
}

async fn a_transaction_that_fails_leaves_no_audit_row(RegistryFixture { store, .. }: RegistryFixture) {
    registered(&store, "one").await;
    let mut change = store.transaction("register servers").await.unwrap();
    change.append_audit(note("server.register", "two")).await.unwrap();
    change.insert_server(server("two")).await.unwrap();
    assert!(matches!(change.insert_server(server("one")).await, Err(Error::AlreadyExists { .. })));
    drop(change);
    assert!(store.find_server("two").await.is_err() && audited(&store).await.is_empty());
}

async fn every_kind_of_change_can_be_audited_in_its_transaction(RegistryFixture { store, .. }: RegistryFixture) {
    let backup = store.export(Secrets::Revealed).await.unwrap();
    let one = registered(&store, "one").await;
    store.replace_tools(one.id, [tool("echo", "says it again")]).await.unwrap();
    let tool = store.tools(&ToolFilter::default(), Page::ALL).await.unwrap().items.remove(0);
    let suggestion = SuggestionRecord {
        id: "a".into(),
        name: "A".into(),
        description: "b".into(),
        tools: vec![],
        rejected: false,
        suggested_at: Timestamp::now(),
    };
    let section = Section::Heading { heading_text: "x".into() };
    let new = NewBinding { document: "a.md".into(), section, server_id: one.id, inherit_to_children: false };
    let mut change = store.transaction("change everything").await.unwrap();
    let patch = ServerPatch { enabled: Some(false), ..ServerPatch::default() };
    assert!(!change.update_server(one.id, patch).await.unwrap().enabled);
    change.set_tools_enabled(&[tool.id], false).await.unwrap();
    let settings = change.put_settings(BTreeMap::from([("limit".to_owned(), json!(5))])).await.unwrap();
    assert_eq!(settings.len(), 1);
    let binding = change.insert_binding(new).await.unwrap();
    change.put_skill(&skill("a")).await.unwrap();
    change.put_suggestion(&suggestion).await.unwrap();
    change.import(&backup, Existing::Kept).await.unwrap();
    change.append_audit(note("all", "of it")).await.unwrap();
    change.commit().await.unwrap();
    assert_eq!(store.disabled_tools(one.id).await.unwrap(), ["echo"]);
    assert_eq!(store.skills().await.unwrap(), [skill("a")]);
    assert_eq!(store.suggestions().await.unwrap().len(), 1);

    let mut change = store.transaction("take everything back").await.unwrap();
    change.delete_binding(binding.id).await.unwrap();
    assert!(matches!(change.delete_binding(BindingId(binding.id.0 + 1)).await, Err(Error::NotFound { .. })));
    assert!(change.delete_skill("a").await.unwrap() && change.delete_suggestion("a").await.unwrap());
    change.delete_server(one.id).await.unwrap();
    change.append_audit(note("none", "of it")).await.unwrap();
    change.commit().await.unwrap();
    assert_eq!(store.servers(&ServerFilter::default(), Page::ALL).await.unwrap().total, 0);
    assert_eq!(audited(&store).await.len(), 2);
}

async fn writers_at_the_same_time_leave_one_audit_row_for_each_change(RegistryFixture { store, .. }: RegistryFixture) {
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..25 {
                    let name = format!("s{writer}-{number}");
                    let mut change = store.transaction("register a server").await.unwrap();
                    change.insert_server(server(&name)).await.unwrap();
                    change.append_audit(note("server.register", &name)).await.unwrap();
                    change.commit().await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let mut names: Vec<String> = audited(&store).await.into_iter().map(|(_, target)| target).collect();
    names.sort();
    let servers = store.servers(&ServerFilter::default(), Page::ALL).await.unwrap().items;
    assert_eq!(names, servers.into_iter().map(|server| server.name).collect::<Vec<_>>());
    assert_eq!(names.len(), 100);
}

async fn that_executions_are_stopped_is_kept_apart_from_the_audit_log(fixture: RegistryFixture) {
    let store = &fixture.store;
    assert_eq!(store.executions_stopped().await.unwrap(), None);
    for is_stopped in [true, false, true] {
        let mut change = store.transaction("stop executions").await.unwrap();
        change.set_executions_stopped(is_stopped).await.unwrap();
        change.append_audit(note("executions.stop", "")).await.unwrap();
        change.commit().await.unwrap();
        store.prune_audit(RetentionPolicy { newest: Some(0), since: None }).await.unwrap();
        assert_eq!(fixture.opened_again().await.executions_stopped().await.unwrap(), Some(is_stopped));
    }
}

async fn a_long_audit_log_is_pruned_in_steps_while_others_write(RegistryFixture { store, .. }: RegistryFixture) {
    // Short transactions: each has a time limit, and the machine may be busy.
    for _ in 0..45 {
        let mut change = store.transaction("write many rows").await.unwrap();
        for number in 0..100 {
            change.append_audit(note("x", &number.to_string())).await.unwrap();
        }
        change.commit().await.unwrap();
    }
    let pruning = tokio::spawn({
        let store = store.clone();
        async move { store.prune_audit(RetentionPolicy { newest: Some(10), since: None }).await.unwrap() }
    });
    // Concurrent writers get a turn between two steps, and lose nothing.
    for number in 0..20 {
        store.append_audit(note("meanwhile", &number.to_string())).await.unwrap();
    }
    assert!(pruning.await.unwrap() >= 4490);
    let left = audited(&store).await;
    let meanwhile = left.iter().filter(|(action, _)| action == "meanwhile").count();
    assert_eq!(meanwhile, 20.min(left.len()));
    store.prune_audit(RetentionPolicy { newest: Some(10), since: None }).await.unwrap();
    let left = audited(&store).await;
    assert_eq!(
        left.iter().map(|(_, target)| target.as_str()).collect::<Vec<_>>(),
        ["10", "11", "12", "13", "14", "15", "16", "17", "18", "19"]
    );
    let tomorrow = Timestamp::from_micros(Timestamp::now().as_micros() + 86_400_000_000);
    assert_eq!(store.prune_audit(RetentionPolicy { newest: None, since: Some(tomorrow) }).await.unwrap(), 10);
}

async fn a_long_history_is_pruned_for_each_server(RegistryFixture { store, .. }: RegistryFixture) {
    let (one, two) = (registered(&store, "one").await.id, registered(&store, "two").await.id);
    for (id, count) in [(one, 7), (two, 3)] {
        for number in 0..count {
            let patch = ServerPatch { enabled: Some(number % 2 == 1), ..ServerPatch::default() };
            store.update_server(id, patch).await.unwrap();
        }
    }
    let newest = store.history(one, Page::first(4)).await.unwrap().items;
    assert_eq!(store.prune_history(RetentionPolicy { newest: Some(4), since: None }).await.unwrap(), 3);
    assert_eq!(store.history(one, Page::ALL).await.unwrap().items, newest);
    assert_eq!(store.history(two, Page::ALL).await.unwrap().total, 3);
    assert_eq!(store.prune_history(RetentionPolicy { newest: Some(0), since: None }).await.unwrap(), 7);
}
