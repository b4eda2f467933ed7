//! A PostgreSQL database in which another program has tables: one called `tools` is shared, and schemas are chosen.

use registry::{
    CredentialKey, Error, Location, OpenError, Page, PostgresLocation, RawJson, SchemaName, ServerPatch, Store,
    ToolFilter,
};
use testkit::Postgres;
use tokio_postgres::NoTls;
use uuid::Uuid;

use crate::fixture::{registered, tool};

/// The table of the program that the registry extends.
const SOURCE: &str = "
    CREATE SCHEMA mcp;
    CREATE TABLE mcp.tools (
        id SERIAL PRIMARY KEY,
        name VARCHAR(255) NOT NULL UNIQUE,
        description TEXT NOT NULL,
        input_schema JSONB NOT NULL,
        created_at TIMESTAMP DEFAULT now()
    );
    CREATE INDEX idx_tools_name ON mcp.tools (name);
    INSERT INTO mcp.tools (name, description, input_schema) VALUES ('own', 'ours', '{\"a\": 1}'), ('one.taken', '', '{}');";

/// A database after running `sql`.
async fn database_with(sql: &str) -> Option<String> {
    let postgres = tokio::task::spawn_blocking(Postgres::shared).await.unwrap()?;
    let url = postgres.database(&format!("adoption-{}", Uuid::new_v4()));
    run(&url, sql).await;
    Some(url)
}

async fn run(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    driver.await.unwrap().unwrap();
}

async fn texts(url: &str, sql: &str) -> Vec<String> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    let found = client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    drop(client);
    driver.await.unwrap().unwrap();
    found
}

const COLUMNS: &str =
    "SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'mcp' AND table_name = 'tools'";

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_tools_that_is_there_is_extended_and_its_rows_stay() {
    let Some(url) = database_with(SOURCE).await else { return };
    let (location, key) = (Location::postgres(&url), CredentialKey::generate().unwrap());
    let store = Store::open(&location, &key).await.unwrap();
    let one = registered(&store, "one").await;
    let long = "t".repeat(500);
    let mut bare = tool("bare", "");
    (bare.description, bare.input_schema) = (None, None);
    bare.definition = RawJson::parse(r#"{"name":"bare"}"#).unwrap();
    let mut odd = tool("odd", "é");
    odd.input_schema = Some(RawJson::parse(r#"{"const":"\u0000"}"#).unwrap());
    odd.definition = RawJson::parse(r#"{"name":"odd","description":"é","inputSchema":{"const":"\u0000"}}"#).unwrap();
    let listed = [tool("usual", "What it does"), tool(&long, "Long"), bare, odd, tool("taken", "Twice")];
    let changes = store.replace_tools(one.id, &listed[..]).await.unwrap();
    assert_eq!(changes.left_out, 1, "the name of the last is another's: {changes:?}");
    store.close().await;

    let store = Store::open(&location, &key).await.unwrap();
    let kept = store.tools(&ToolFilter::default(), Page::ALL).await.unwrap().items;
    assert_eq!(kept.len(), 4, "rows of others are none of ours");
    for (kept, listed) in kept.iter().zip(&listed) {
        assert_eq!((&kept.description, &kept.input_schema), (&listed.description, &listed.input_schema));
        assert_eq!((&kept.definition, kept.is_external), (&listed.definition, true));
    }
    let counts = store.tool_counts().await.unwrap();
    assert_eq!((counts.total, counts.classified), (4, 0));
    store.set_tools_enabled(&[kept[0].id], false).await.unwrap();
    store.update_server(one.id, ServerPatch { name: Some("two".to_owned()), ..ServerPatch::default() }).await.unwrap();
    let usual = ToolFilter { name: Some("two.usual".to_owned()), ..ToolFilter::default() };
    assert!(!store.tools(&usual, Page::ALL).await.unwrap().items[0].enabled);
    store.delete_server(one.id).await.unwrap();
    store.close().await;
    let left = texts(&url, "SELECT name || description || input_schema::text FROM mcp.tools ORDER BY id").await;
    assert_eq!(left, [r#"ownours{"a": 1}"#, "one.taken{}"]);

    // It has every column of our own table.
    let Some(fresh) = database_with("SELECT").await else { return };
    Store::open(&Location::postgres(&fresh), &key).await.unwrap().close().await;
    let adopted = texts(&url, COLUMNS).await;
    for column in texts(&fresh, COLUMNS).await {
        assert!(adopted.contains(&column), "{column} is missing in {adopted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_cannot_be_renamed_to_where_another_program_has_a_tool() {
    let Some(url) = database_with(SOURCE).await else { return };
    let store = Store::open(&Location::postgres(&url), &CredentialKey::generate().unwrap()).await.unwrap();
    let two = registered(&store, "two").await;
    store.replace_tools(two.id, [tool("free", "a"), tool("taken", "b")]).await.unwrap();
    let rename = |name: &str| ServerPatch { name: Some(name.to_owned()), ..ServerPatch::default() };
    let error = store.update_server(two.id, rename("one")).await.unwrap_err();
    assert!(matches!(error, Error::ToolNameTaken { .. }), "{error:?}");
    for part in ["`mcp.tools`", "`one.taken`"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(store.find_server("two").await.unwrap().id, two.id, "nothing changed");
    store.update_server(two.id, rename("three")).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_are_not_stored_are_counted_until_their_names_are_free() {
    let Some(url) = database_with(SOURCE).await else { return };
    let store = Store::open(&Location::postgres(&url), &CredentialKey::generate().unwrap()).await.unwrap();
    let one = registered(&store, "one").await;
    let tools = [tool("free", "a"), tool("taken", "b")];
    store.replace_tools(one.id, tools.clone()).await.unwrap();
    let conflicts = store.name_conflicts(|_| true).unwrap();
    assert_eq!((conflicts.tools, conflicts.table.as_str()), (1, "mcp.tools"));
    assert_eq!(store.tool_counts_of_servers().await.unwrap(), [(one.id, 1)].into(), "only what is stored counts");
    assert_eq!(store.server(one.id).await.unwrap().tool_count, 2);
    run(&url, "DELETE FROM mcp.tools WHERE name = 'one.taken'").await;
    store.replace_tools(one.id, tools.clone()).await.unwrap();
    assert_eq!(store.name_conflicts(|_| true), None);
    run(&url, "INSERT INTO mcp.tools (name, description, input_schema) VALUES ('one.other', '', '{}')").await;
    store.replace_tools(one.id, [tool("other", "c")]).await.unwrap();
    assert!(store.name_conflicts(|_| true).is_some());
    assert_eq!(store.name_conflicts(|server| server != one.id), None, "a removed server has none");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_of_another_program_are_none_of_ours() {
    let key = CredentialKey::generate().unwrap();
    for theirs in [
        "CREATE TABLE mcp.schema_migrations (version VARCHAR PRIMARY KEY, dirty BOOL); \
         INSERT INTO mcp.schema_migrations VALUES ('20240131', false);",
        "CREATE TABLE mcp.schema_migrations (version BIGINT PRIMARY KEY, name TEXT, checksum TEXT, applied_at \
         TIMESTAMPTZ); INSERT INTO mcp.schema_migrations VALUES (1, 'init', 'x', now()), (99, 'more', 'y', now());",
        "CREATE VIEW mcp.schema_migrations AS SELECT 1 AS version;",
    ] {
        let Some(url) = database_with(&format!("{SOURCE}{theirs}")).await else { return };
        let versions = "SELECT version::text FROM mcp.schema_migrations ORDER BY 1";
        let before = texts(&url, versions).await;
        let location = Location::postgres(&url);
        let store = Store::open(&location, &key).await.unwrap();
        registered(&store, "one").await;
        store.close().await;
        let store = Store::open(&location, &key).await.unwrap();
        assert_eq!(store.find_server("one").await.unwrap().name, "one", "the second start takes no step again");
        store.close().await;
        assert_eq!(texts(&url, versions).await, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_reconciled_is_refused_by_table_and_column_and_nothing_is_changed() {
    let table = |columns: &str| format!("CREATE SCHEMA mcp; CREATE TABLE mcp.tools ({columns});");
    for (sql, parts) in [
        (table("id UUID PRIMARY KEY, name TEXT"), ["`mcp.tools`", "`id`", "uuid"]),
        (table("id INT PRIMARY KEY, name TEXT"), ["`mcp.tools`", "`id`", "no default"]),
        (table("id SERIAL, name TEXT, source_server_id INT"), ["`mcp.tools`", "`source_server_id`", "int4"]),
        (table("id SERIAL, name TEXT, category TEXT NOT NULL"), ["`mcp.tools`", "`category`", "no default"]),
        (table("id SERIAL, name TEXT, embedding BYTEA NOT NULL"), ["`mcp.tools`", "`embedding`", "NULL"]),
        (
            table("id SERIAL, name VARCHAR(9)") + "CREATE VIEW mcp.names AS SELECT name FROM mcp.tools;",
            ["`mcp.tools`", "`name`", "view"],
        ),
        ("CREATE SCHEMA mcp; CREATE VIEW mcp.tools AS SELECT 1 AS id;".to_owned(), ["`mcp.tools`", "view", ""]),
        (
            "CREATE SCHEMA mcp; CREATE TABLE mcp.external_servers (id UUID);".to_owned(),
            ["`mcp.external_servers`", "", ""],
        ),
    ] {
        let Some(url) = database_with(&sql).await else { return };
        let all = "SELECT table_name::text || column_name FROM information_schema.columns WHERE table_schema = 'mcp' \
                   ORDER BY 1";
        let before = texts(&url, all).await;
        let error = Store::open(&Location::postgres(&url), &CredentialKey::generate().unwrap()).await.unwrap_err();
        assert!(matches!(error, OpenError::UnfitTable { .. }), "{sql}: {error:?}");
        let message = error.to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(error.hint().unwrap().contains("--database-schema"), "{error}");
        assert_eq!(texts(&url, all).await, before, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_in_its_own_schema_does_not_touch_the_default_one() {
    let Some(url) = database_with("CREATE SCHEMA mcp; CREATE TABLE mcp.tools (id UUID PRIMARY KEY);").await else {
        return;
    };
    let key = CredentialKey::generate().unwrap();
    let at = |schema: &str| {
        let schema: SchemaName = schema.parse().unwrap();
        Location::Postgres(PostgresLocation { url: url.clone(), schema })
    };
    assert!(Store::open_existing(&at("team-A"), &key).await.unwrap().is_none());
    let store = Store::open(&at("team-A"), &key).await.unwrap();
    let one = registered(&store, "one").await;
    store.replace_tools(one.id, [tool("a", "A"), tool("b", "B")]).await.unwrap();
    store.close().await;
    let other = Store::open(&at("other"), &key).await.unwrap();
    assert_eq!(other.tool_counts().await.unwrap().total, 0);
    other.close().await;
    let again = Store::open_existing(&at("team-A"), &key).await.unwrap().expect("it is there");
    assert_eq!(again.tool_counts().await.unwrap().total, 2);
    again.close().await;
    assert_eq!(texts(&url, COLUMNS).await, ["id"]);
}
