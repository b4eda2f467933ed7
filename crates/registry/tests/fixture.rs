//! A store for tests.

use registry::{
    ConnectionConfig, CredentialKey, ListedTool, Location, NewServer, RawJson, ServerRecord, Store, Transport,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::Postgres;
use uuid::Uuid;

/// A new store, and what is needed to open it again.
pub(crate) struct RegistryFixture {
    pub(crate) store: Store,
    pub(crate) location: Location,
    pub(crate) key: CredentialKey,
    /// Keeps the folder alive: the file is in it.
    _folder: TempDir,
}

impl RegistryFixture {
    pub(crate) async fn sqlite() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        Some(Self::at(Location::in_folder(folder.path()), folder).await)
    }

    pub(crate) async fn postgres() -> Option<Self> {
        // Starting a server takes seconds, which must not block the runtime.
        let postgres = tokio::task::spawn_blocking(Postgres::shared).await.unwrap()?;
        let url = postgres.database(&format!("story-{}", Uuid::new_v4()));
        Some(Self::at(Location::parse(&url).unwrap(), tempfile::tempdir().unwrap()).await)
    }

    async fn at(location: Location, folder: TempDir) -> Self {
        let key = CredentialKey::generate().unwrap();
        let store = Store::open(&location, &key).await.unwrap();
        Self { store, location, key, _folder: folder }
    }

    /// Opens the same store again.
    pub(crate) async fn opened_again(&self) -> Store {
        Store::open(&self.location, &self.key).await.unwrap()
    }
}

/// Runs each test on both databases.
macro_rules! on_both {
    ($($story:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $story() {
                if let Some(fixture) = $crate::fixture::RegistryFixture::sqlite().await {
                    super::$story(fixture).await;
                }
            })+
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $story() {
                if let Some(fixture) = $crate::fixture::RegistryFixture::postgres().await {
                    super::$story(fixture).await;
                }
            })+
        }
    };
}
pub(crate) use on_both;

pub(crate) fn config(config: Value) -> ConnectionConfig {
    serde_json::from_value(config).unwrap()
}

pub(crate) fn server(name: &str) -> NewServer {
    NewServer::new(name, Transport::Stdio, config(json!({"command": "run", "env": {"TOKEN": "hunter2"}})))
}

pub(crate) async fn registered(store: &Store, name: &str) -> ServerRecord {
    store.insert_server(server(name)).await.unwrap()
}

/// A listed tool whose definition has unusual spacing.
pub(crate) fn tool(name: &str, description: &str) -> ListedTool {
    let schema = RawJson::parse(r#"{"type" : "object",  "z":1.0, "a":1e2}"#).unwrap();
    let definition = format!(
        r#"{{ "name":{},"description":{},  "inputSchema":{} }}"#,
        json!(name),
        json!(description),
        schema.get()
    );
    ListedTool {
        original_name: name.to_owned(),
        description: Some(description.to_owned()),
        input_schema: Some(schema),
        definition: RawJson::parse(definition).unwrap(),
    }
}
