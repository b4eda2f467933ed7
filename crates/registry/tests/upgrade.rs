//! A registry of an earlier version is migrated with all its data.

use registry::{Batch, CredentialKey, ExecutionFilter, ExecutionId, ExecutionStatus, Location, Page, Store};

/// What the first version left: its tables, and the record of its migration.
const FIRST: &str = concat!(
    include_str!("../migrations/sqlite/0001_registry.sql"),
    "CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
        applied_at INTEGER NOT NULL) STRICT;
    INSERT INTO schema_migrations VALUES
        (1, '0001_registry', '4c53b6673f99823a2f0d0e5f7d4eec1371a4999c0a9850b9da42567fc7424677', 0);"
);

#[tokio::test]
async fn calls_recorded_by_the_first_schema_version_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.db");
    let id = ExecutionId::fresh();
    let made_at = id.made_at().unwrap();
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(FIRST).unwrap();
    let insert = "INSERT INTO executions (id, server_name, tool_name, source, status, submitted_at, completed_at)
        VALUES (?1, 'one', 'echo', 'REST', 'SUCCESS', ?2, ?2)";
    old.execute(insert, (id.to_string(), made_at.as_micros())).unwrap();
    old.close().unwrap();

    let store = Store::open(&Location::File(path), &CredentialKey::generate().unwrap()).await.unwrap();
    let found = store.execution(id).await.unwrap();
    assert_eq!((found.status, found.submitted_at), (ExecutionStatus::Success, made_at));
    assert_eq!(store.executions(&ExecutionFilter::default(), Page::first(5)).await.unwrap().total, 1);
    store.record(&Batch::of([&found], [&found])).await.unwrap();
    assert_eq!(store.executions(&ExecutionFilter::default(), Page::first(5)).await.unwrap().total, 1, "it is the same");
}
