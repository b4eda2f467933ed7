//! A person signs in with another process while a server of this one waits.

use std::sync::Arc;
use std::time::Duration;

use catalog::OAuthSettings;

use super::provider::{Process, answer};
use crate::{ChangeKind, GrantStore as _, TokenError};

/// Another process with the same store.
fn other(process: &Process) -> Process {
    Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default())
}

#[tokio::test(start_paused = true)]
async fn a_sign_in_of_another_process_is_reported_when_nobody_is_connected_any_more() {
    let process = Process::new();
    let source = process.oauth.source(process.protected.clone());
    let error = source.after_unauthorized(None, &["Bearer".into()]).await.unwrap_err();
    assert!(matches!(error, TokenError::SignInRequired { .. }), "{error}");
    drop(source);
    let mut changes = process.oauth.subscribe();
    other(&process).sign_in().await.unwrap();
    let change = changes.recv().await.unwrap();
    assert_eq!((change.key.as_str(), change.kind), ("key", ChangeKind::SignedIn));
    assert!(!process.oauth.is_watching(), "nobody waits any more");
}

#[tokio::test(start_paused = true)]
async fn a_sign_in_that_has_ended_is_reported_when_another_process_renews_it() {
    let process = Process::new();
    process.sign_in().await.unwrap();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    let denied = answer(400, r#"{"error":"invalid_grant"}"#);
    process.provider.once("POST https://as.example/token", Ok(denied));
    source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    let mut changes = process.oauth.subscribe();
    other(&process).sign_in().await.unwrap();
    assert_eq!(changes.recv().await.unwrap().kind, ChangeKind::SignedIn);
    assert_eq!(source.header(), process.grant().await.tokens.header(), "it has the new token already");
}

#[tokio::test(start_paused = true)]
async fn a_sign_in_that_the_server_refuses_is_not_reported_again_and_again() {
    let process = Process::new();
    process.sign_in().await.unwrap();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    source.after_refusal(&source.header().unwrap());
    let mut changes = process.oauth.subscribe();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(changes.try_recv().is_err());
    other(&process).sign_in().await.unwrap();
    assert_eq!(changes.recv().await.unwrap().kind, ChangeKind::SignedIn);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone_is_no_longer_watched() {
    let process = Process::new();
    let source = process.oauth.source(process.protected.clone());
    source.after_unauthorized(None, &["Bearer".into()]).await.unwrap_err();
    assert!(process.oauth.is_watching());
    process.oauth.forget("key");
    let mut changes = process.oauth.subscribe();
    other(&process).sign_in().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(changes.try_recv().is_err() && !process.oauth.is_watching());
}

#[tokio::test]
async fn more_scopes_of_another_process_are_taken_up_after_a_refusal() {
    let process = Process::new();
    process.sign_in().await.unwrap();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    let challenge = [r#"Bearer error="insufficient_scope", scope="write""#.to_owned()];
    let used = source.header();
    source.after_insufficient_scope(used.as_ref(), &challenge).await.unwrap().unwrap_err();
    other(&process).sign_in().await.unwrap();
    let header = source.after_insufficient_scope(used.as_ref(), &challenge).await.unwrap().unwrap();
    assert_eq!(Some(&header), process.grant().await.tokens.header().as_ref());
    source.after_insufficient_scope(Some(&header), &challenge).await.unwrap().unwrap_err();
}

#[tokio::test]
async fn recording_scopes_does_not_hide_tokens_that_another_process_has_stored() {
    let process = Process::new();
    process.sign_in().await.unwrap();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    let used = source.header();
    other(&process).sign_in().await.unwrap();
    source.add_missing_scopes(&["write".into()]).await.unwrap();
    assert_eq!(source.header(), used);
    source.take_up_stored().await;
    assert_eq!(source.header(), process.store.load("key").await.unwrap().unwrap().1.tokens.header());
}
