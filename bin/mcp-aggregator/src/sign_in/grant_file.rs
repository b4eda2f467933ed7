//! Sign-ins in a file of the data directory: encrypted, changed by compare-and-swap, and durable when a change returns.
//!
//! A change holds a lock, writes a new file and renames it, so that a reader sees the old or the new sign-ins, and a
//! crash loses nothing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use oauth::{Grant, GrantStore, Replaced, StoreError, StoreFuture, Version};
use registry::{CredentialKey, KEY_VARIABLE};
use serde_json::{Value, json};

use crate::environment;
use crate::storage::with_causes;

const FILE: &str = "sign-ins.json";
/// Locked during a change. Not the file itself, which a change replaces.
const LOCK_FILE: &str = "sign-ins.lock";
/// The format of the file.
const FORMAT: u64 = 1;

/// The sign-ins in a file.
#[derive(Debug, Clone)]
pub(super) struct GrantFile {
    /// The data directory, or why there is none.
    folder: Result<PathBuf, String>,
}

/// The content of the file.
#[derive(Debug, Default)]
struct Content {
    /// No version is used twice, not even after a sign-out.
    last_version: i64,
    grants: BTreeMap<String, Stored>,
}

#[derive(Debug)]
struct Stored {
    version: i64,
    sealed: Value,
}

impl GrantFile {
    pub(super) fn new(folder: Result<PathBuf, String>) -> Self {
        Self { folder }
    }

    fn folder(&self) -> Result<&Path, StoreError> {
        self.folder.as_deref().map_err(|why| StoreError(why.clone()))
    }

    fn load_now(&self, key: &str) -> Result<Option<(Version, Grant)>, StoreError> {
        // Without a data directory nobody has signed in.
        let Ok(folder) = &self.folder else { return Ok(None) };
        let path = folder.join(FILE);
        let Some(content) = read(&path)? else { return Ok(None) };
        let Some(Stored { version, sealed }) = content.grants.get(key) else { return Ok(None) };
        let unusable = |why: String| {
            StoreError(format!("the sign-in in `{}` cannot be used: {why}; sign in again", path.display()))
        };
        let text = credential_key(folder)?.unseal(&owner(key), sealed.clone());
        let grant = Grant::from_json(&text.map_err(|error| unusable(error.to_string()))?);
        Ok(Some((Version(*version), grant.map_err(|error| unusable(error.to_string()))?)))
    }

    fn replace_now(&self, key: &str, expected: Option<Version>, grant: Option<&Grant>) -> Result<Replaced, StoreError> {
        let folder = self.folder()?;
        let path = folder.join(FILE);
        let failed = |operation: &str, error: &io::Error| {
            StoreError(format!("could not {operation} `{}`: {error}", path.display()))
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| failed("create", &error))?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.join(LOCK_FILE));
        let lock = lock.map_err(|error| failed("lock", &error))?;
        lock.lock().map_err(|error| failed("lock", &error))?;
        let mut content = read(&path)?.unwrap_or_default();
        if content.grants.get(key).map(|stored| Version(stored.version)) != expected {
            return Ok(Replaced::Conflict);
        }
        let stored = match grant {
            Some(grant) => {
                let sealed = credential_key(folder)?.seal(&owner(key), &grant.to_json());
                content.last_version += 1;
                let version = content.last_version;
                content.grants.insert(key.to_owned(), Stored { version, sealed });
                Some(Version(version))
            }
            None if content.grants.remove(key).is_none() => return Ok(Replaced::Stored(None)),
            None => None,
        };
        write(folder, &path, &content).map_err(|error| failed("write", &error))?;
        Ok(Replaced::Stored(stored))
    }
}

impl GrantStore for GrantFile {
    fn load<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<(Version, Grant)>> {
        let (file, key) = (self.clone(), key.to_owned());
        Box::pin(off_the_runtime(move || file.load_now(&key)))
    }

    fn replace<'a>(
        &'a self,
        key: &'a str,
        expected: Option<Version>,
        grant: Option<Grant>,
    ) -> StoreFuture<'a, Replaced> {
        let (file, key) = (self.clone(), key.to_owned());
        Box::pin(off_the_runtime(move || file.replace_now(&key, expected, grant.as_ref())))
    }
}

/// A lock may be held by another process, and a disk may be slow.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(StoreError(format!("the sign-ins could not be used: {error}"))),
    }
}

/// The key that also encrypts the credentials of the registry.
fn credential_key(folder: &Path) -> Result<CredentialKey, StoreError> {
    let variable = environment::text(KEY_VARIABLE).map_err(|failure| StoreError(failure.message))?;
    CredentialKey::find(variable.as_deref(), folder)
        .map_err(|error| StoreError(format!("{}; {}", with_causes(&error), error.hint())))
}

/// Binds an encrypted sign-in to its key, and to this kind of file.
fn owner(key: &str) -> String {
    format!("sign-in {key}")
}

/// `None` if there is no file.
fn read(path: &Path) -> Result<Option<Content>, StoreError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError(format!("could not read `{}`: {error}", path.display()))),
    };
    let malformed =
        || StoreError(format!("`{}` is not a file of sign-ins; move it away, and sign in again", path.display()));
    let document: Value = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
    if document["format"] != FORMAT {
        return Err(malformed());
    }
    let last_version = document["last_version"].as_i64().ok_or_else(malformed)?;
    let members = document["sign_ins"].as_object().ok_or_else(malformed)?;
    let stored =
        |value: &Value| Some(Stored { version: value["version"].as_i64()?, sealed: value.get("sealed")?.clone() });
    let grants = members.iter().map(|(key, value)| Some((key.clone(), stored(value)?))).collect::<Option<_>>();
    Ok(Some(Content { last_version, grants: grants.ok_or_else(malformed)? }))
}

/// Returns when the content is on the disk.
fn write(folder: &Path, path: &Path, content: &Content) -> io::Result<()> {
    let grants: serde_json::Map<String, Value> = content
        .grants
        .iter()
        .map(|(key, stored)| (key.clone(), json!({"version": stored.version, "sealed": stored.sealed})))
        .collect();
    let document = json!({"format": FORMAT, "last_version": content.last_version, "sign_ins": grants});
    // Readable by its user only, as temporary files are.
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(draft, "{document:#}")?;
    draft.as_file().sync_all()?;
    draft.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::*;

    fn grant(access_token: &str) -> Grant {
        let grant = json!({
            "server_url": "https://mcp.example/mcp",
            "authorization_server": {
                "issuer": "https://as.example", "token_endpoint": "https://as.example/token", "revocation_endpoint": null,
            },
            "client": {
                "id": "client", "secret": null, "secret_expires_at": null, "auth_method": "none",
                "source": "registered", "redirect_uri": null,
            },
            "resource": null,
            "requested_scopes": [],
            "tokens": {
                "access_token": access_token, "refresh_token": "refresh-secret", "issued_at": 1, "lifetime": 3600,
                "scopes": [],
            },
        });
        Grant::from_json(&grant.to_string()).unwrap()
    }

    #[tokio::test]
    async fn a_sign_in_is_stored_encrypted_and_for_its_user_only() {
        let folder = tempfile::tempdir().unwrap();
        let store = GrantFile::new(Ok(folder.path().join("data")));
        assert_eq!(store.load("a").await.unwrap(), None);
        assert!(!folder.path().join("data").exists(), "reading makes nothing");
        let Replaced::Stored(Some(first)) = store.replace("a", None, Some(grant("access-secret"))).await.unwrap()
        else {
            panic!("there was no other")
        };
        assert_eq!(store.load("a").await.unwrap(), Some((first, grant("access-secret"))));
        let path = folder.path().join("data").join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // Copied to another server it is not a sign-in there.
        fs::write(&path, text.replace("\"a\"", "\"b\"")).unwrap();
        let error = store.load("b").await.unwrap_err().to_string();
        assert!(error.contains("sign in again"), "{error}");
    }

    #[tokio::test]
    async fn a_change_needs_the_stored_version_and_no_version_is_used_twice() {
        let folder = tempfile::tempdir().unwrap();
        let store = GrantFile::new(Ok(folder.path().to_owned()));
        let Replaced::Stored(first) = store.replace("a", None, Some(grant("1"))).await.unwrap() else { panic!() };
        assert_eq!(store.replace("a", None, Some(grant("2"))).await.unwrap(), Replaced::Conflict);
        let Replaced::Stored(second) = store.replace("a", first, Some(grant("2"))).await.unwrap() else { panic!() };
        assert_eq!(store.replace("a", first, None).await.unwrap(), Replaced::Conflict);
        assert_eq!(store.replace("a", second, None).await.unwrap(), Replaced::Stored(None));
        assert_eq!(store.load("a").await.unwrap(), None);
        let Replaced::Stored(third) = store.replace("a", None, Some(grant("3"))).await.unwrap() else { panic!() };
        assert!(third != first && third != second, "{third:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn of_many_writers_with_the_same_version_one_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(GrantFile::new(Ok(folder.path().to_owned())));
        let writers = (0..16).map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.replace("a", None, Some(grant(&number.to_string()))).await.unwrap() })
        });
        let mut stored = 0;
        for writer in writers.collect::<Vec<_>>() {
            stored += usize::from(matches!(writer.await.unwrap(), Replaced::Stored(_)));
        }
        assert_eq!(stored, 1);
    }

    #[tokio::test]
    async fn a_file_that_is_something_else_is_named_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        fs::write(&path, "{\"format\": 2}").unwrap();
        let store = GrantFile::new(Ok(folder.path().to_owned()));
        for failed in [store.load("a").await.map(drop), store.replace("a", None, Some(grant("1"))).await.map(drop)] {
            let error = failed.unwrap_err().to_string();
            assert!(error.contains(FILE) && error.contains("move it away"), "{error}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"format\": 2}");
    }
}
