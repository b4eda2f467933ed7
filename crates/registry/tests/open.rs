//! Opening a registry: new, again, with the wrong key, by a program that is too old, by several at once.

use std::os::unix::fs::PermissionsExt as _;

use registry::{CredentialKey, Error, Location, OpenError, Page, PostgresLocation, ServerFilter, Store};
use testkit::Postgres;

use crate::fixture::{RegistryFixture, on_both, registered, server};

on_both! {
    what_was_kept_is_there_after_a_restart,
    a_registry_that_is_opened_as_existing_shows_its_content_and_needs_its_key,
    another_key_is_refused_when_opening,
    a_new_key_replaces_the_old_for_everybody,
    credentials_cannot_be_read_in_the_database,
    a_database_of_a_newer_program_is_refused,
    an_edited_migration_is_refused,
    several_programs_that_start_at_once_all_open,
    a_closed_store_says_so,
    clones_can_be_sent_to_other_tasks,
}

/// Runs SQL without the store.
async fn with_raw_connection(fixture: &RegistryFixture, sql: &str) -> Vec<String> {
    match &fixture.location {
        Location::File(path) => {
            let connection = rusqlite::Connection::open(path).unwrap();
            let mut statement = connection.prepare(&sql.replace("mcp.", "")).unwrap();
            let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
            rows.map(Result::unwrap).collect()
        }
        Location::Postgres(PostgresLocation { url, .. }) => {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            let driver = tokio::spawn(connection);
            let rows = client.query(sql, &[]).await.unwrap();
            let found = rows.iter().map(|row| row.get::<_, String>(0)).collect();
            drop(client);
            driver.await.unwrap().unwrap();
            found
        }
    }
}

async fn what_was_kept_is_there_after_a_restart(fixture: RegistryFixture) {
    let one = registered(&fixture.store, "one").await;
    fixture.store.close().await;
    assert_eq!(fixture.opened_again().await.server(one.id).await.unwrap(), one);
}

async fn a_registry_that_is_opened_as_existing_shows_its_content_and_needs_its_key(fixture: RegistryFixture) {
    let one = registered(&fixture.store, "one").await;
    let seen = Store::open_existing(&fixture.location, &fixture.key).await.unwrap().expect("it is there");
    assert_eq!(seen.server(one.id).await.unwrap(), one);
    let other = CredentialKey::generate().unwrap();
    let error = Store::open_existing(&fixture.location, &other).await.unwrap_err();
    assert!(matches!(error, OpenError::Store(Error::WrongKey)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_an_existing_registry_creates_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (location, key) = (Location::in_folder(folder.path()), CredentialKey::generate().unwrap());
    assert!(Store::open_existing(&location, &key).await.unwrap().is_none());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_an_existing_registry_creates_nothing_in_an_empty_postgres() {
    let Some(postgres) = tokio::task::spawn_blocking(Postgres::shared).await.unwrap() else { return };
    let url = postgres.database(&format!("empty-{}", uuid::Uuid::new_v4()));
    let key = CredentialKey::generate().unwrap();
    let seen = Store::open_existing(&Location::parse(&url).unwrap(), &key).await.unwrap();
    assert!(seen.is_none());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    let schemas = client.query("SELECT nspname FROM pg_namespace WHERE nspname = 'mcp'", &[]).await.unwrap();
    assert!(schemas.is_empty());
    drop(client);
    driver.await.unwrap().unwrap();
}

async fn another_key_is_refused_when_opening(fixture: RegistryFixture) {
    // Also before there are credentials: the first key is the key.
    let other = CredentialKey::generate().unwrap();
    let error = Store::open(&fixture.location, &other).await.unwrap_err();
    assert!(matches!(error, OpenError::Store(Error::WrongKey)), "{error}");
    assert!(error.hint().unwrap().contains("MCP_CREDENTIAL_KEY"));
}

async fn a_new_key_replaces_the_old_for_everybody(fixture: RegistryFixture) {
    let mut one = server("one");
    one.health_check_url = Some("http://localhost/health?token=swordfish".to_owned());
    let one = fixture.store.insert_server(one).await.unwrap();
    let elsewhere = fixture.opened_again().await;
    let new = CredentialKey::generate().unwrap();
    fixture.store.rekey(&new).await.unwrap();
    assert_eq!(fixture.store.server(one.id).await.unwrap(), one);
    assert_eq!(Store::open(&fixture.location, &new).await.unwrap().server(one.id).await.unwrap(), one);
    registered(&fixture.store, "two").await;

    // A program with the old key reads no garbage, and writes nothing unreadable.
    assert!(matches!(elsewhere.server(one.id).await, Err(Error::WrongKey)));
    assert!(matches!(elsewhere.insert_server(server("three")).await, Err(Error::WrongKey)));
    assert!(matches!(elsewhere.rekey(&fixture.key).await, Err(Error::WrongKey)));
    assert!(Store::open(&fixture.location, &fixture.key).await.is_err());
}

async fn credentials_cannot_be_read_in_the_database(fixture: RegistryFixture) {
    registered(&fixture.store, "one").await;
    let found = with_raw_connection(&fixture, "SELECT CAST(connection_config AS TEXT) FROM mcp.external_servers").await;
    let sealed: serde_json::Value = serde_json::from_str(&found[0]).unwrap();
    assert_eq!((&sealed["v"], &sealed["alg"]), (&1.into(), &"XChaCha20-Poly1305".into()));
    assert!(!found[0].contains("hunter2") && !found[0].contains("command"));
    let mut asked = server("asked");
    asked.health_check_url = Some("http://localhost/health?token=swordfish".to_owned());
    let asked = fixture.store.insert_server(asked).await.unwrap();
    let address = "SELECT health_check_url FROM mcp.external_servers WHERE name = 'asked'";
    assert!(!with_raw_connection(&fixture, address).await[0].contains("swordfish"));
    assert_eq!(fixture.store.server(asked.id).await.unwrap().health_check_url, asked.health_check_url);
    fixture.store.delete_server(asked.id).await.unwrap();
    let words = "SELECT status || ' ' || transport_type || ' ' || deployment_type FROM mcp.external_servers";
    assert_eq!(with_raw_connection(&fixture, words).await, ["DISCONNECTED STDIO MANAGED"]);
    if let Location::File(path) = &fixture.location {
        for file in std::fs::read_dir(path.parent().unwrap()).unwrap().map(Result::unwrap) {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
        }
    }
}

async fn a_database_of_a_newer_program_is_refused(fixture: RegistryFixture) {
    let future = "INSERT INTO mcp.schema_migrations SELECT 99, 'future', 'x', applied_at FROM mcp.schema_migrations \
        WHERE version = 1 RETURNING name";
    with_raw_connection(&fixture, future).await;
    let error = Store::open(&fixture.location, &fixture.key).await.unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
}

async fn an_edited_migration_is_refused(fixture: RegistryFixture) {
    with_raw_connection(&fixture, "UPDATE mcp.schema_migrations SET checksum = 'x' RETURNING name").await;
    let error = Store::open(&fixture.location, &fixture.key).await.unwrap_err();
    assert!(matches!(error, OpenError::ChangedMigration { version: 1 }), "{error}");
}

async fn several_programs_that_start_at_once_all_open(fixture: RegistryFixture) {
    // A location that does not exist yet.
    let location = match &fixture.location {
        Location::File(path) => Location::in_folder(&path.with_file_name("deep/fresh")),
        Location::Postgres(_) => {
            let postgres = Postgres::shared().unwrap();
            Location::postgres(postgres.database(&format!("fresh-{}", uuid::Uuid::new_v4())))
        }
    };
    let starts: Vec<_> = (0..6)
        .map(|number| {
            let (location, key) = (location.clone(), fixture.key.clone());
            tokio::spawn(async move {
                let store = Store::open(&location, &key).await.unwrap();
                store.insert_server(server(&format!("s{number}"))).await.unwrap();
                store
            })
        })
        .collect();
    for start in starts {
        start.await.unwrap();
    }
    let store = Store::open(&location, &fixture.key).await.unwrap();
    assert_eq!(store.servers(&ServerFilter::default(), Page::ALL).await.unwrap().total, 6);
}

async fn a_closed_store_says_so(fixture: RegistryFixture) {
    fixture.store.ping().await.unwrap();
    fixture.store.close().await;
    let error = fixture.store.clone().ping().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(matches!(fixture.store.insert_server(server("one")).await, Err(Error::Unavailable { .. })));
}

async fn clones_can_be_sent_to_other_tasks(fixture: RegistryFixture) {
    fn sendable<T: Send>(it: T) -> T {
        it
    }
    let store = fixture.store.clone();
    let id = sendable(store.insert_server(server("one"))).await.unwrap().id;
    sendable(store.replace_tools(id, [])).await.unwrap();
    sendable(store.rekey(&fixture.key)).await.unwrap();
    sendable(Store::open(&fixture.location, &fixture.key)).await.unwrap();
}

#[tokio::test]
async fn a_place_that_cannot_be_is_refused_by_name() {
    let key = CredentialKey::generate().unwrap();
    let error = Store::open(&Location::File("/proc/nowhere/registry.db".into()), &key).await.unwrap_err();
    assert_eq!(error.to_string(), "could not open `/proc/nowhere/registry.db`");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.db");
    std::fs::write(&path, "this is no database, but a text that is long enough to be taken for one".repeat(100))
        .unwrap();
    let error = Store::open(&Location::File(path), &key).await.unwrap_err();
    assert!(matches!(error, OpenError::File { .. }), "{error:?}");

    let error = Store::open(&Location::postgres("postgres://u:pw@h/d?nonsense=1"), &key).await.unwrap_err();
    assert!(matches!(&error, OpenError::Location { location, .. } if location == "postgres://u@h/d"), "{error:?}");

    let error = Store::open(&Location::postgres("postgres://u@127.0.0.1:1/d"), &key).await.unwrap_err();
    assert!(matches!(error, OpenError::Store(Error::Unavailable { .. })), "{error:?}");
}

async fn sqlite_at(path: &std::path::Path, key: &CredentialKey) -> Result<Store, OpenError> {
    Store::open(&Location::File(path.to_owned()), key).await
}

#[tokio::test]
async fn an_empty_file_is_refused_and_a_fresh_path_is_not() {
    let (folder, key) = (tempfile::tempdir().unwrap(), CredentialKey::generate().unwrap());
    let path = folder.path().join("registry.db");
    let store = sqlite_at(&path, &key).await.unwrap();
    store.close().await;
    assert!(std::fs::metadata(&path).unwrap().len() > 0, "what we make is never empty");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    std::fs::File::create(&path).unwrap();
    for error in [
        sqlite_at(&path, &key).await.unwrap_err(),
        Store::open_existing(&Location::File(path.clone()), &key).await.unwrap_err(),
        Store::check_reachable(&Location::File(path.clone())).await.unwrap_err(),
    ] {
        assert!(matches!(&error, OpenError::Empty { path: named } if *named == path), "{error:?}");
        assert!(error.hint().unwrap().contains("remove the file"));
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "it is left as it was");
    std::fs::remove_file(&path).unwrap();
    sqlite_at(&path, &key).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_alone() {
    let (folder, key) = (tempfile::tempdir().unwrap(), CredentialKey::generate().unwrap());
    let path = folder.path().join("other.db");
    // As in web frameworks.
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE schema_migrations (version TEXT); CREATE TABLE users (name TEXT)")
        .unwrap();
    for error in [
        sqlite_at(&path, &key).await.unwrap_err(),
        Store::open_existing(&Location::File(path.clone()), &key).await.unwrap_err(),
        Store::check_reachable(&Location::File(path.clone())).await.unwrap_err(),
    ] {
        assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    }
    let connection = rusqlite::Connection::open(&path).unwrap();
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 2);
}

#[tokio::test]
async fn a_file_that_is_lost_while_it_is_open_is_noticed_and_nothing_more_is_acknowledged() {
    let (folder, key) = (tempfile::tempdir().unwrap(), CredentialKey::generate().unwrap());
    let (path, aside) = (folder.path().join("registry.db"), folder.path().join("aside.db"));
    let store = sqlite_at(&path, &key).await.unwrap();
    registered(&store, "one").await;
    store.ping().await.unwrap();
    assert_eq!(store.file_error(), None);

    std::fs::rename(&path, &aside).unwrap();
    assert!(store.file_error().unwrap().contains("was deleted or moved"));
    let refused = store.insert_server(server("two")).await.unwrap_err();
    assert!(matches!(refused, Error::Lost { .. }) && refused.is_retryable(), "{refused}");
    assert!(store.ping().await.unwrap_err().to_string().contains(path.to_str().unwrap()));

    std::fs::copy(&aside, &path).unwrap();
    assert!(store.file_error().unwrap().contains("was replaced by another file"));
    assert!(matches!(store.ping().await, Err(Error::Lost { .. })));

    // After it is put back, everything works.
    std::fs::rename(&aside, &path).unwrap();
    store.ping().await.unwrap();
    registered(&store, "two").await;

    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    assert!(store.file_error().unwrap().contains("was emptied"));
    assert!(matches!(store.insert_server(server("three")).await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn a_file_with_something_else_in_it_is_noticed() {
    let (folder, key) = (tempfile::tempdir().unwrap(), CredentialKey::generate().unwrap());
    let (path, other) = (folder.path().join("registry.db"), folder.path().join("other.db"));
    let store = sqlite_at(&path, &key).await.unwrap();
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE users (name TEXT)").unwrap();
    // As `cp` does: the same file with other bytes. First the log is written into the file.
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    std::fs::write(&path, std::fs::read(&other).unwrap()).unwrap();
    let error = store.ping().await.unwrap_err();
    assert!(error.to_string().contains("is no longer a registry"), "{error}");
}
