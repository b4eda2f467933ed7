//! Sign-ins to servers: stored by compare-and-swap, encrypted, removed with their server.

use registry::{CredentialKey, Error, GrantReplaced, Secrets, ServerPatch, Store};

use crate::fixture::{RegistryFixture, on_both, registered};

on_both! {
    a_sign_in_is_stored_replaced_and_removed,
    a_writer_with_an_old_version_changes_nothing,
    of_two_writers_exactly_one_succeeds,
    a_removed_sign_in_does_not_come_back_with_an_old_version,
    a_sign_in_is_removed_with_its_server_and_survives_a_rename,
    a_sign_in_of_a_server_that_is_gone_is_refused,
    a_sign_in_is_encrypted_and_opens_only_under_its_key,
    an_export_shows_nothing_of_a_sign_in,
}

const SECRET: &str = r#"{"refresh_token":"rt-hunter2"}"#;

async fn stored(store: &Store, key: &str, expected: Option<u64>, value: &str) -> u64 {
    match store.replace_oauth_grant(key, expected, Some(value)).await.unwrap() {
        GrantReplaced::Stored(version) => version,
        other => panic!("{other:?}"),
    }
}

async fn a_sign_in_is_stored_replaced_and_removed(fixture: RegistryFixture) {
    let store = &fixture.store;
    assert_eq!(store.oauth_grant("notion https://example.com/mcp").await.unwrap(), None);
    let key = "notion https://example.com/mcp";
    let first = stored(store, key, None, "one").await;
    let second = stored(store, key, Some(first), "two").await;
    assert!(second > first);
    let found = fixture.opened_again().await.oauth_grant(key).await.unwrap().unwrap();
    assert_eq!((found.version, found.value.as_str()), (second, "two"));
    assert_eq!(store.replace_oauth_grant(key, Some(second), None).await.unwrap(), GrantReplaced::Removed);
    assert_eq!(store.oauth_grant(key).await.unwrap(), None);
    assert_eq!(store.replace_oauth_grant(key, None, None).await.unwrap(), GrantReplaced::Removed);
}

async fn a_writer_with_an_old_version_changes_nothing(RegistryFixture { store, .. }: RegistryFixture) {
    let first = stored(&store, "key", None, "one").await;
    let second = stored(&store, "key", Some(first), "two").await;
    for (expected, value) in [
        (None, Some("three")),
        (Some(first), Some("three")),
        (Some(first), None),
        (None, None),
        (Some(second + 1), None),
    ] {
        let replaced = store.replace_oauth_grant("key", expected, value).await.unwrap();
        assert_eq!(replaced, GrantReplaced::Conflict, "{expected:?}");
    }
    assert_eq!(store.oauth_grant("key").await.unwrap().unwrap().value, "two");
}

async fn of_two_writers_exactly_one_succeeds(fixture: RegistryFixture) {
    // As two processes do: each has its own connections.
    let stores = [fixture.store.clone(), fixture.opened_again().await];
    let mut expected = None;
    for round in 0..20 {
        let writers = [0, 1].map(|number| {
            let (store, value) = (stores[number].clone(), format!("{round} {number}"));
            tokio::spawn(async move {
                let replaced = store.replace_oauth_grant("key", expected, Some(&value)).await.unwrap();
                (replaced, value)
            })
        });
        let mut winners = Vec::new();
        for writer in writers {
            match writer.await.unwrap() {
                (GrantReplaced::Stored(version), value) => winners.push((version, value)),
                (GrantReplaced::Conflict, _) => {}
                other => panic!("{other:?}"),
            }
        }
        let [(version, value)] = <[_; 1]>::try_from(winners).unwrap();
        let found = stores[1].oauth_grant("key").await.unwrap().unwrap();
        assert_eq!((found.version, found.value), (version, value));
        expected = Some(version);
    }
}

async fn a_removed_sign_in_does_not_come_back_with_an_old_version(RegistryFixture { store, .. }: RegistryFixture) {
    let old = stored(&store, "key", None, "before the logout").await;
    store.replace_oauth_grant("key", Some(old), None).await.unwrap();
    let new = stored(&store, "key", None, "after the next login").await;
    assert!(new > old);
    let late = store.replace_oauth_grant("key", Some(old), Some("a late refresh")).await.unwrap();
    assert_eq!(late, GrantReplaced::Conflict);
}

async fn a_sign_in_is_removed_with_its_server_and_survives_a_rename(RegistryFixture { store, .. }: RegistryFixture) {
    let (one, two) = (registered(&store, "one").await, registered(&store, "two").await);
    let of_config_file = format!("{} config", one.id);
    for key in [one.id.to_string(), of_config_file.clone(), two.id.to_string()] {
        stored(&store, &key, None, "grant").await;
    }
    let rename = ServerPatch { name: Some("first".to_owned()), ..ServerPatch::default() };
    store.update_server(one.id, rename).await.unwrap();
    assert!(store.oauth_grant(&one.id.to_string()).await.unwrap().is_some());
    store.delete_server(one.id).await.unwrap();
    assert_eq!(store.oauth_grant(&one.id.to_string()).await.unwrap(), None);
    assert_eq!(store.oauth_grant(&of_config_file).await.unwrap(), None);
    assert!(store.oauth_grant(&two.id.to_string()).await.unwrap().is_some());
}

async fn a_sign_in_of_a_server_that_is_gone_is_refused(RegistryFixture { store, .. }: RegistryFixture) {
    let one = registered(&store, "one").await;
    store.delete_server(one.id).await.unwrap();
    let refused = store.replace_oauth_grant(&one.id.to_string(), None, Some("late")).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "{refused}");
}

async fn a_sign_in_is_encrypted_and_opens_only_under_its_key(fixture: RegistryFixture) {
    let store = &fixture.store;
    let version = stored(store, "key", None, SECRET).await;
    assert!(!format!("{:?}", store.oauth_grant("key").await.unwrap()).contains("hunter2"));
    let new = CredentialKey::generate().unwrap();
    store.rekey(&new).await.unwrap();
    let found = store.oauth_grant("key").await.unwrap().unwrap();
    assert_eq!((found.version, found.value.as_str()), (version, SECRET));
    let again = Store::open(&fixture.location, &new).await.unwrap();
    assert_eq!(again.oauth_grant("key").await.unwrap().unwrap().value, SECRET);
}

async fn an_export_shows_nothing_of_a_sign_in(RegistryFixture { store, .. }: RegistryFixture) {
    let one = registered(&store, "one").await;
    stored(&store, &one.id.to_string(), None, SECRET).await;
    let export = store.export(Secrets::Masked).await.unwrap().to_string();
    assert!(!export.contains("hunter2") && !export.contains("oauth"), "{export}");
}
