//! Profiles are stored as they were written, and are part of an export.

use registry::{Existing, Secrets, Store};
use serde_json::{Value, json};

use crate::fixture::{RegistryFixture, on_both};

on_both! {
    profiles_are_stored_replaced_and_deleted,
    an_export_contains_profiles_and_an_import_keeps_existing_ones,
}

async fn put(store: &Store, name: &str, spec: &Value) {
    let mut change = store.transaction("store a profile").await.unwrap();
    change.put_profile(name, spec).await.unwrap();
    change.commit().await.unwrap();
}

async fn all(store: &Store) -> Vec<(String, Value)> {
    store.profiles().await.unwrap().into_iter().map(|profile| (profile.name, profile.spec)).collect()
}

async fn profiles_are_stored_replaced_and_deleted(fixture: RegistryFixture) {
    let store = &fixture.store;
    put(store, "ops", &json!({})).await;
    put(store, "dev", &json!({"tools": ["git.*"]})).await;
    put(store, "dev", &json!({"tools": ["git.*", "!git.push"]})).await;
    let expected = [("dev".to_owned(), json!({"tools": ["git.*", "!git.push"]})), ("ops".to_owned(), json!({}))];
    assert_eq!(all(&fixture.opened_again().await).await, expected);
    let mut change = store.transaction("remove a profile").await.unwrap();
    assert!(change.delete_profile("dev").await.unwrap() && !change.delete_profile("dev").await.unwrap());
    change.commit().await.unwrap();
    assert_eq!(all(store).await, expected[1..]);
}

async fn an_export_contains_profiles_and_an_import_keeps_existing_ones(fixture: RegistryFixture) {
    let store = &fixture.store;
    put(store, "dev", &json!({"tools": []})).await;
    put(store, "ops", &json!({})).await;
    let exported = store.export(Secrets::Masked).await.unwrap();
    assert_eq!(exported["profiles"], json!({"dev": {"tools": []}, "ops": {}}));
    let mut change = store.transaction("change").await.unwrap();
    change.delete_profile("ops").await.unwrap();
    change.put_profile("dev", &json!({"servers": []})).await.unwrap();
    change.commit().await.unwrap();
    assert_eq!(store.import(&exported, Existing::Kept).await.unwrap().profiles, 1);
    assert_eq!(all(store).await, [("dev".to_owned(), json!({"servers": []})), ("ops".to_owned(), json!({}))]);
    assert_eq!(store.import(&exported, Existing::Replaced).await.unwrap().profiles, 2);
    assert_eq!(all(store).await[0].1, json!({"tools": []}));
}
