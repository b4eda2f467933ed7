//! What a refresh that fails costs: a grant ends only if the authorization server says so, or if the request may have
//! been carried out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catalog::{OAuthSettings, TokenEndpointAuthMethod};

use super::provider::{Process, TOKEN, answer, change, sign_in_required, signed_in};
use crate::{FetchError, LoginState, TokenError, TokenSource};

/// A process that is signed in with a client of these settings, and its source.
async fn signed_in_with(settings: OAuthSettings) -> (Process, Arc<TokenSource>) {
    let process = Process::with_settings(settings);
    process.sign_in().await.unwrap();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    (process, source)
}

fn confidential(secret: &str) -> OAuthSettings {
    OAuthSettings { client_id: Some("mine".into()), client_secret: Some(secret.into()), ..OAuthSettings::default() }
}

#[tokio::test]
async fn a_provider_that_is_unreachable_or_answers_an_error_signs_nobody_out() {
    let answered = |status: u16, body: &str| Ok(answer(status, body));
    for failure in [
        // Nothing was sent.
        Err(FetchError::Unsent("connection refused".into())),
        // It says that it was not carried out.
        answered(408, ""),
        answered(429, ""),
        answered(500, r#"{"error":"server_error"}"#),
        answered(502, "<html>bad gateway</html>"),
        answered(503, "down"),
        answered(504, ""),
        answered(200, r#"{"ok":false,"error":"internal_error"}"#),
        // It was not the authorization server that answered.
        answered(302, ""),
        answered(400, "<html>blocked</html>"),
        answered(403, "<html>your request looks like an attack</html>"),
        answered(403, r#"{"message":"Forbidden"}"#),
        answered(404, r#"{"status":404,"error":"Not Found"}"#),
    ] {
        let (process, source) = signed_in().await;
        process.provider.once(TOKEN, failure.clone());
        let used = source.header();
        let error = source.after_unauthorized(used.as_ref(), &[]).await.unwrap_err();
        assert!(matches!(error, TokenError::Unavailable(_)), "{failure:?}: {error:?}");
        let grant = process.grant().await;
        assert_eq!((grant.refresh, grant.sign_in_required), (None, None), "{failure:?}");
        assert!(matches!(process.oauth.login_state("key").await.unwrap(), LoginState::SignedIn { .. }));
        source.after_unauthorized(used.as_ref(), &[]).await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_may_have_been_carried_out_is_never_repeated() {
    for (failure, said) in [
        (Err(FetchError::Lost("connection reset".into())), "connection reset"),
        (Ok(answer(200, "<html>welcome</html>")), "not JSON"),
        (Ok(answer(200, "{}")), "no `access_token`"),
    ] {
        let (process, source) = signed_in().await;
        process.provider.once(TOKEN, failure);
        for _ in 0..3 {
            let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
            assert!(sign_in_required(&error).contains(said), "{error}");
            assert!(source.header().is_some(), "the access token may be used until it expires");
        }
        assert_eq!(process.provider.token_requests().len(), 2);
    }
}

#[tokio::test]
async fn a_grant_that_the_authorization_server_refuses_is_not_tried_again() {
    for (status, body, said) in [
        (400, r#"{"error":"invalid_grant","error_description":"expired"}"#, "invalid_grant (expired)"),
        (200, r#"{"ok":false,"error":"invalid_refresh_token"}"#, "invalid_refresh_token"),
        (403, r#"{"error":"unauthorized_client","error_description":"refresh_token is invalid"}"#, "refresh_token is"),
        (400, r#"{"error":"interaction_required"}"#, "interaction_required"),
    ] {
        let (process, source) = signed_in().await;
        process.provider.always(TOKEN, Ok(answer(status, body)));
        for _ in 0..3 {
            let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
            assert!(sign_in_required(&error).contains(said), "{error}");
        }
        assert_eq!(process.provider.token_requests().len(), 2);
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_made_costs_nothing() {
    let file = std::env::temp_dir().join(format!("mcp-oauth-no-key-{}.pem", std::process::id()));
    let with_key = OAuthSettings {
        client_id: Some("mine".into()),
        token_endpoint_auth_method: Some(TokenEndpointAuthMethod::PrivateKeyJwt),
        private_key_file: Some(file.display().to_string()),
        ..OAuthSettings::default()
    };
    let without_secret = OAuthSettings {
        token_endpoint_auth_method: Some(TokenEndpointAuthMethod::ClientSecretPost),
        ..OAuthSettings { client_id: Some("mine".into()), ..OAuthSettings::default() }
    };
    for (settings, said) in [(with_key, "private key file"), (without_secret, "`oauth.client_secret`")] {
        let (process, source) = signed_in().await;
        let method = settings.token_endpoint_auth_method.unwrap();
        change(&process, |grant| {
            grant.client.id = "mine".into();
            grant.client.source = crate::ClientSource::Configured;
            grant.client.auth_method = method;
        })
        .await;
        drop(source);
        let process = Process::with(process.provider, process.store, settings);
        let source = process.oauth.source(process.protected.clone());
        source.prepare().await;
        let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
        assert!(matches!(error, TokenError::Failed(_)) && error.to_string().contains(said), "{error:?}");
        let grant = process.grant().await;
        assert_eq!((grant.refresh, grant.sign_in_required), (None, None), "{said}");
        assert_eq!(process.provider.token_requests().len(), 1, "the sign-in");
    }
    let (process, source) = signed_in().await;
    process.provider.once(TOKEN, Err(FetchError::Refused("it is in a private network".into())));
    let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    assert!(matches!(error, TokenError::Failed(_)), "{error:?}");
    source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap();
    assert_eq!(process.grant().await.sign_in_required, None);
}

#[tokio::test]
async fn a_wrong_secret_costs_nothing_and_works_after_it_is_corrected() {
    let (process, source) = signed_in_with(confidential("old-secret")).await;
    process.provider.once(TOKEN, Ok(answer(401, r#"{"error":"invalid_client"}"#)));
    let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    assert!(matches!(error, TokenError::Failed(_)), "{error:?}");
    assert!(error.to_string().contains("correct `oauth.client_secret`"), "{error}");
    let grant = process.grant().await;
    assert_eq!((grant.refresh, grant.sign_in_required), (None, None));
    let corrected = crate::Protected { settings: confidential("new-secret"), ..process.protected.clone() };
    let source = process.oauth.source(corrected);
    source.prepare().await;
    source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap();
    let header = process.provider.token_requests().remove(2).headers["authorization"].clone();
    assert_eq!(header, super::provider::basic("mine", "new-secret"));
}

#[tokio::test]
async fn settings_that_the_authorization_server_refuses_can_be_corrected() {
    let (process, source) = signed_in().await;
    process.provider.once(TOKEN, Ok(answer(400, r#"{"error":"invalid_target"}"#)));
    let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    assert!(matches!(error, TokenError::Failed(_)) && error.to_string().contains("`oauth.resource`"), "{error:?}");
    assert_eq!(process.grant().await.sign_in_required, None);
}

#[tokio::test]
async fn a_mark_that_was_stored_although_the_store_failed_costs_nothing() {
    let (process, source) = signed_in().await;
    process.store.loses_an_answer.store(true, Ordering::Relaxed);
    let used = source.header();
    let error = source.after_unauthorized(used.as_ref(), &[]).await.unwrap_err();
    assert!(matches!(error, TokenError::Unavailable(_)), "{error:?}");
    assert!(process.grant().await.refresh.is_some(), "the mark was stored");
    assert_eq!(process.provider.token_requests().len(), 1, "nothing was sent");
    let header = source.after_unauthorized(used.as_ref(), &[]).await.unwrap();
    assert_eq!(header, "Bearer access-3-secret");
    let grant = process.grant().await;
    assert_eq!((grant.refresh, grant.sign_in_required), (None, None));
}

#[tokio::test(start_paused = true)]
async fn other_processes_do_not_wait_for_a_mark_that_means_nothing() {
    let (process, source) = signed_in().await;
    process.store.loses_an_answer.store(true, Ordering::Relaxed);
    source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    let other = Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default());
    let theirs = other.oauth.source(other.protected.clone());
    theirs.prepare().await;
    // The first process removes it by itself.
    assert_eq!(theirs.after_unauthorized(theirs.header().as_ref(), &[]).await.unwrap(), "Bearer access-3-secret");
}

#[tokio::test(start_paused = true)]
async fn a_token_endpoint_may_be_slow_and_not_too_slow() {
    let (process, source) = signed_in().await;
    let other = Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default());
    let theirs = other.oauth.source(other.protected.clone());
    theirs.prepare().await;
    let used = source.header();
    let renew = |source: &Arc<TokenSource>| {
        let (source, used) = (Arc::clone(source), used.clone());
        tokio::spawn(async move { source.after_unauthorized(used.as_ref(), &[]).await })
    };
    process.provider.slow_down();
    let ours = renew(&source);
    while process.grant().await.refresh.is_none() {
        tokio::task::yield_now().await;
    }
    let waiting = renew(&theirs);
    tokio::time::sleep(Duration::from_secs(59)).await;
    process.provider.go_on.notify_one();
    let header = ours.await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), header, "whoever waits gets the same");
    assert_eq!(process.provider.token_requests().len(), 2);
    // A minute is the limit. Then it may have been carried out.
    let error = source.after_unauthorized(Some(&header), &[]).await.unwrap_err();
    assert!(sign_in_required(&error).contains("did not answer in time"), "{error}");
    source.after_unauthorized(Some(&header), &[]).await.unwrap_err();
    assert_eq!(process.provider.token_requests().len(), 3);
}
