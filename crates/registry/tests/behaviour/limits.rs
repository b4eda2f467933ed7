//! Limits of calls and the counts of a day, which are kept apart from them.

use registry::{CallLimit, CallRate, Error, LimitCount, LimitKind, LimitRecord, ServerPatch, Store};

use crate::fixture::{RegistryFixture, on_both, registered};

on_both! {
    a_limit_is_stored_replaced_and_deleted,
    counts_replace_earlier_ones_and_those_of_earlier_days_are_deleted,
    counts_go_with_the_last_limit_they_count_against,
    limits_and_counts_follow_a_renamed_server,
    there_are_at_most_so_many_limits,
}

fn limit(per_second: f64, per_day: u64) -> CallLimit {
    let per_second = CallRate::per_second(per_second);
    CallLimit { per_second, burst: Some(7), concurrent: None, per_day: Some(per_day) }
}

async fn put(store: &Store, kind: LimitKind, name: &str, limit: CallLimit) -> Result<LimitRecord, Error> {
    let mut change = store.transaction("store a limit").await.unwrap();
    let record = change.put_limit(kind, name, limit).await?;
    change.commit().await.unwrap();
    Ok(record)
}

async fn delete(store: &Store, kind: LimitKind, name: &str) -> Result<(), Error> {
    let mut change = store.transaction("delete a limit").await.unwrap();
    change.delete_limit(kind, name).await?;
    change.commit().await
}

fn count(kind: LimitKind, name: &str, day: u64, calls: u64) -> LimitCount {
    LimitCount { kind, name: name.to_owned(), day, calls }
}

/// The kinds and names of all limits.
async fn names(store: &Store) -> Vec<(LimitKind, String)> {
    store.limits().await.unwrap().into_iter().map(|record| (record.kind, record.name)).collect()
}

/// The names and calls that are counted on a day.
async fn counted(store: &Store, day: u64) -> Vec<(String, u64)> {
    let counts = store.limit_counts(day).await.unwrap();
    let mut counts: Vec<_> = counts.into_iter().map(|count| (count.name, count.calls)).collect();
    counts.sort();
    counts
}

async fn a_limit_is_stored_replaced_and_deleted(fixture: RegistryFixture) {
    let store = &fixture.store;
    let ann = "oauth:https://id.example ann";
    put(store, LimitKind::Identity, ann, limit(0.5, 10)).await.unwrap();
    let everybody = CallLimit { concurrent: Some(3), ..CallLimit::default() };
    let everybody = put(store, LimitKind::Identity, "*", everybody).await.unwrap();
    let of_tool = put(store, LimitKind::Tool, "git.log", limit(2.675, u64::from(u32::MAX) + 1)).await.unwrap();
    let replaced = put(store, LimitKind::Identity, ann, limit(100_000.0, 20)).await.unwrap();
    let kept = fixture.opened_again().await.limits().await.unwrap();
    assert_eq!(kept, [everybody, replaced, of_tool]);
    delete(store, LimitKind::Identity, ann).await.unwrap();
    let error = delete(store, LimitKind::Identity, ann).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { what: "limit", .. }), "{error:?}");
    let error = delete(store, LimitKind::Server, "*").await.unwrap_err();
    assert!(matches!(error, Error::NotFound { what: "limit", .. }), "another kind: {error:?}");
    assert_eq!(store.limits().await.unwrap().len(), 2);
}

async fn counts_replace_earlier_ones_and_those_of_earlier_days_are_deleted(fixture: RegistryFixture) {
    let store = &fixture.store;
    let counts = [count(LimitKind::Identity, "ann", 7, 1), count(LimitKind::Server, "ann", 7, 2)];
    store.put_limit_counts(&counts).await.unwrap();
    store.put_limit_counts(&[count(LimitKind::Identity, "ann", 7, 5)]).await.unwrap();
    store.put_limit_counts(&[count(LimitKind::Identity, "ben", 8, 9)]).await.unwrap();
    let again = fixture.opened_again().await;
    assert_eq!(counted(&again, 7).await, [("ann".to_owned(), 2), ("ann".to_owned(), 5)]);
    store.put_limit_counts(&[count(LimitKind::Identity, "ann", 8, 1)]).await.unwrap();
    store.prune_limit_counts(8).await.unwrap();
    assert_eq!(counted(store, 7).await, []);
    assert_eq!(counted(store, 8).await, [("ann".to_owned(), 1), ("ben".to_owned(), 9)]);
}

async fn counts_go_with_the_last_limit_they_count_against(RegistryFixture { store, .. }: RegistryFixture) {
    put(&store, LimitKind::Identity, "*", limit(1.0, 10)).await.unwrap();
    put(&store, LimitKind::Identity, "ann", limit(1.0, 10)).await.unwrap();
    let counts = ["ann", "ben"].map(|name| count(LimitKind::Identity, name, 7, 1));
    store.put_limit_counts(&counts).await.unwrap();
    store.put_limit_counts(&[count(LimitKind::Server, "ann", 7, 4)]).await.unwrap();
    delete(&store, LimitKind::Identity, "*").await.unwrap();
    assert_eq!(counted(&store, 7).await, [("ann".to_owned(), 1), ("ann".to_owned(), 4)], "`ann` has a limit");
    delete(&store, LimitKind::Identity, "ann").await.unwrap();
    assert_eq!(counted(&store, 7).await, [("ann".to_owned(), 4)], "those of other kinds stay");
}

async fn limits_and_counts_follow_a_renamed_server(RegistryFixture { store, .. }: RegistryFixture) {
    let server = registered(&store, "old").await;
    for (kind, name) in [
        (LimitKind::Server, "old"),
        (LimitKind::Server, "new"),
        (LimitKind::Server, "older"),
        (LimitKind::Tool, "old.a.b"),
        (LimitKind::Tool, "new.a.b"),
        (LimitKind::Tool, "older.a"),
        (LimitKind::Identity, "old"),
    ] {
        put(&store, kind, name, limit(1.0, 10)).await.unwrap();
        store.put_limit_counts(&[count(kind, name, 7, 3)]).await.unwrap();
    }
    let patch = ServerPatch { name: Some("new".to_owned()), ..ServerPatch::default() };
    store.update_server(server.id, patch).await.unwrap();
    let expected = [
        (LimitKind::Identity, "old"),
        (LimitKind::Server, "new"),
        (LimitKind::Server, "older"),
        (LimitKind::Tool, "new.a.b"),
        (LimitKind::Tool, "older.a"),
    ];
    assert_eq!(names(&store).await, expected.map(|(kind, name)| (kind, name.to_owned())));
    let mut expected = expected.map(|(_, name)| (name.to_owned(), 3));
    expected.sort();
    assert_eq!(counted(&store, 7).await, expected);
}

async fn there_are_at_most_so_many_limits(RegistryFixture { store, .. }: RegistryFixture) {
    let mut change = store.transaction("store limits").await.unwrap();
    for number in 0..1_000 {
        change.put_limit(LimitKind::Identity, &format!("i{number}"), limit(1.0, 1)).await.unwrap();
    }
    change.commit().await.unwrap();
    let error = put(&store, LimitKind::Identity, "more", limit(1.0, 1)).await.unwrap_err();
    assert!(error.to_string().contains("there are 1000 limits"), "{error}");
    put(&store, LimitKind::Identity, "i7", limit(2.0, 2)).await.expect("it replaces one");
}
