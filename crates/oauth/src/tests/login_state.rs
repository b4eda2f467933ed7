//! How far a sign-in is, as the console and REST show it.

use std::sync::Arc;

use catalog::OAuthSettings;

use super::provider::{Process, parameter};
use crate::{ChangeKind, LoginState};

async fn state(process: &Process) -> LoginState {
    process.oauth.login_state("key").await.unwrap()
}

/// Lets the person refuse an attempt.
async fn refuse(process: &Process) {
    let attempt = process.begin().await;
    let state = parameter(&attempt.authorization_url, "state").unwrap();
    process.oauth.finish(&format!("error=access_denied&state={state}")).await.unwrap_err();
}

#[tokio::test]
async fn a_sign_in_settles_the_other_attempts_of_its_server() {
    let process = Process::new();
    let abandoned = process.begin().await;
    let other = crate::Protected { key: "other".into(), ..process.protected.clone() };
    process.oauth.begin(&other, super::provider::REDIRECT).await.unwrap();
    process.sign_in().await.unwrap();
    assert!(matches!(state(&process).await, LoginState::SignedIn { .. }));
    assert!(matches!(process.oauth.login_state("other").await.unwrap(), LoginState::Pending { .. }));
    let late = parameter(&abandoned.authorization_url, "state").unwrap();
    process.oauth.finish(&format!("code=c&state={late}")).await.unwrap_err();
    assert!(matches!(state(&process).await, LoginState::SignedIn { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_sign_in_of_another_process_settles_the_attempts_of_this_one() {
    let process = Process::new();
    let source = process.oauth.source(process.protected.clone());
    source.after_unauthorized(None, &["Bearer".into()]).await.unwrap_err();
    process.begin().await;
    assert!(matches!(state(&process).await, LoginState::Pending { .. }));
    let mut changes = process.oauth.subscribe();
    let other = Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default());
    other.sign_in().await.unwrap();
    assert_eq!(changes.recv().await.unwrap().kind, ChangeKind::SignedIn);
    assert!(matches!(state(&process).await, LoginState::SignedIn { .. }));
}

#[tokio::test]
async fn a_failed_attempt_counts_only_without_a_sign_in() {
    let process = Process::new();
    refuse(&process).await;
    assert!(matches!(state(&process).await, LoginState::Failed { .. }));
    // Somebody signs in with another process, and this one has not noticed yet.
    let other = Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default());
    other.sign_in().await.unwrap();
    assert!(matches!(state(&process).await, LoginState::SignedIn { .. }));
    refuse(&process).await;
    assert!(matches!(state(&process).await, LoginState::SignedIn { .. }), "the sign-in can still be used");
    // The newest attempt says more than the end of the sign-in.
    super::provider::change(&process, |grant| grant.sign_in_required = Some("it has expired".into())).await;
    let LoginState::Failed { error } = state(&process).await else { panic!("it has ended") };
    assert!(error.contains("access_denied"), "{error}");
    process.sign_in().await.unwrap();
    super::provider::change(&process, |grant| grant.sign_in_required = Some("it has expired".into())).await;
    assert_eq!(state(&process).await, LoginState::Failed { error: "it has expired".into() });
}

#[tokio::test]
async fn an_attempt_is_pending_until_its_tokens_are_there() {
    let process = Process::new();
    process.provider.slow_down();
    let attempt = process.begin().await;
    let query = format!("code=c&state={}", parameter(&attempt.authorization_url, "state").unwrap());
    let mut finishing = std::pin::pin!(process.oauth.finish(&query));
    let first = std::future::poll_fn(|context| std::task::Poll::Ready(finishing.as_mut().poll(context))).await;
    assert!(first.is_pending(), "the token endpoint has not answered");
    assert!(matches!(state(&process).await, LoginState::Pending { .. }));
    process.oauth.finish(&query).await.unwrap_err();
    assert!(matches!(state(&process).await, LoginState::Pending { .. }), "a redirect that comes twice changes nothing");
    process.provider.go_on.notify_one();
    finishing.await.unwrap();
    assert!(matches!(state(&process).await, LoginState::SignedIn { .. }));
}

#[tokio::test]
async fn an_attempt_whose_redirect_is_dropped_is_not_pending_any_more() {
    let process = Process::new();
    process.provider.slow_down();
    let attempt = process.begin().await;
    let query = format!("code=c&state={}", parameter(&attempt.authorization_url, "state").unwrap());
    {
        let mut finishing = std::pin::pin!(process.oauth.finish(&query));
        let first = std::future::poll_fn(|context| std::task::Poll::Ready(finishing.as_mut().poll(context))).await;
        assert!(first.is_pending());
    }
    assert_eq!(state(&process).await, LoginState::None);
}
