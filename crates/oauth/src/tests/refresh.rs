//! Refreshes: one at a time, never the same token twice, and nobody is signed out without need.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalog::{GrantType, OAuthSettings};
use serde_json::json;

use super::provider::{Process, TOKEN, answer, change, parameter, sign_in_required, signed_in};
use crate::grant::unix_now;
use crate::{ChangeKind, LoginState, Owner, RefreshMark, TokenError};

#[tokio::test]
async fn fifty_refused_requests_cause_one_refresh_and_all_get_its_token() {
    let (process, source) = signed_in().await;
    let used = source.header();
    let all: Vec<_> = (0..50)
        .map(|_| {
            let (source, used) = (Arc::clone(&source), used.clone());
            tokio::spawn(async move { source.after_unauthorized(used.as_ref(), &[]).await })
        })
        .collect();
    for one in all {
        assert_eq!(one.await.unwrap().unwrap(), "Bearer access-3-secret");
    }
    assert_eq!(process.provider.token_requests().len(), 2, "the sign-in and one refresh");
    let asked = process.provider.token_requests().remove(1);
    assert_eq!(asked.form("grant_type").as_deref(), Some("refresh_token"));
    assert_eq!(asked.form("refresh_token").as_deref(), Some("refresh-2-secret"));
    assert_eq!(asked.form("resource").as_deref(), Some(super::provider::SERVER));
    assert_eq!(process.grant().await.tokens.refresh_token, Some("refresh-3-secret".into()));
}

#[tokio::test]
async fn two_processes_share_one_refresh() {
    let (process, source) = signed_in().await;
    let other = Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default());
    let theirs = other.oauth.source(other.protected.clone());
    theirs.prepare().await;
    let used = source.header();
    process.provider.slow_down();
    let ours = tokio::spawn({
        let (source, used) = (Arc::clone(&source), used.clone());
        async move { source.after_unauthorized(used.as_ref(), &[]).await }
    });
    while process.grant().await.refresh.is_none() {
        tokio::task::yield_now().await;
    }
    let waiting = tokio::spawn(async move { theirs.after_unauthorized(used.as_ref(), &[]).await });
    process.provider.go_on.notify_one();
    assert_eq!(ours.await.unwrap().unwrap(), waiting.await.unwrap().unwrap());
    assert_eq!(process.provider.token_requests().len(), 2);
}

#[tokio::test]
async fn a_refresh_goes_on_when_whoever_asked_for_it_has_given_up() {
    let (process, source) = signed_in().await;
    process.provider.slow_down();
    let used = source.header();
    let asking = tokio::spawn({
        let source = Arc::clone(&source);
        async move { source.after_unauthorized(used.as_ref(), &[]).await }
    });
    while process.grant().await.refresh.is_none() {
        tokio::task::yield_now().await;
    }
    asking.abort();
    process.provider.go_on.notify_one();
    process.oauth.drain().await;
    assert_eq!(source.header().unwrap(), "Bearer access-3-secret");
    assert_eq!(process.grant().await.refresh, None);
}

#[tokio::test]
async fn a_token_without_rotation_keeps_its_refresh_token() {
    let (process, source) = signed_in().await;
    process.provider.always(TOKEN, Ok(answer(200, r#"{"access_token":"new","expires_in":60}"#)));
    source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap();
    assert_eq!(process.grant().await.tokens.refresh_token, Some("refresh-2-secret".into()));
}

#[tokio::test]
async fn an_abandoned_refresh_is_never_repeated() {
    let (process, source) = signed_in().await;
    let mut changes = process.oauth.subscribe();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let gone = serde_json::to_value(Owner::new()).map(|mut owner| {
        owner["pid"] = child.id().into();
        owner
    });
    child.wait().unwrap();
    let owner: Owner = serde_json::from_value(gone.unwrap()).unwrap();
    change(&process, |grant| grant.refresh = Some(RefreshMark { owner, began: unix_now() })).await;
    let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    assert!(sign_in_required(&error).contains("interrupted"), "{error}");
    assert_eq!(process.provider.token_requests().len(), 1, "only the sign-in");
    let grant = process.grant().await;
    assert!(grant.refresh.is_none() && grant.sign_in_required.is_some());
    assert!(source.header().is_some(), "the access token may be used until it expires");
    assert_eq!(changes.recv().await.unwrap().kind, ChangeKind::SignInRequired);
    assert!(matches!(process.oauth.login_state("key").await.unwrap(), LoginState::Failed { .. }));
    process.sign_in().await.unwrap();
    assert!(process.grant().await.sign_in_required.is_none());
    assert_eq!(source.header(), process.grant().await.tokens.header());
}

#[tokio::test]
async fn an_old_refresh_of_another_machine_counts_as_abandoned() {
    let (process, source) = signed_in().await;
    let mut owner = serde_json::to_value(Owner::new()).unwrap();
    owner["machine"] = "elsewhere".into();
    let owner: Owner = serde_json::from_value(owner).unwrap();
    change(&process, |grant| grant.refresh = Some(RefreshMark { owner, began: unix_now() - 1000 })).await;
    let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    sign_in_required(&error);
    assert_eq!(process.provider.token_requests().len(), 1);
}

#[tokio::test]
async fn an_invalid_grant_reads_the_store_first() {
    let (process, source) = signed_in().await;
    process.provider.slow_down();
    process.provider.always(TOKEN, Ok(answer(400, r#"{"error":"invalid_grant"}"#)));
    let used = source.header();
    let asking = tokio::spawn({
        let source = Arc::clone(&source);
        async move { source.after_unauthorized(used.as_ref(), &[]).await }
    });
    while process.grant().await.refresh.is_none() {
        tokio::task::yield_now().await;
    }
    // Another process has rotated meanwhile.
    change(&process, |grant| {
        grant.tokens.access_token = "theirs".into();
        grant.refresh = None;
    })
    .await;
    process.provider.go_on.notify_one();
    assert_eq!(asking.await.unwrap().unwrap(), "Bearer theirs");
    assert!(process.grant().await.sign_in_required.is_none());
}

#[tokio::test]
async fn a_client_that_is_no_longer_known_is_registered_again() {
    let (process, source) = signed_in().await;
    process.provider.once(TOKEN, Ok(answer(401, r#"{"error":"invalid_client"}"#)));
    let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    sign_in_required(&error);
    process.sign_in().await.unwrap();
    assert_eq!(process.provider.requests_to("POST https://as.example/register").len(), 2);
}

#[tokio::test]
async fn a_token_is_for_the_origin_of_its_sign_in_only() {
    let (process, _) = signed_in().await;
    let moved = crate::Protected { url: "https://evil.example/mcp".into(), ..process.protected.clone() };
    let source = process.oauth.source(moved);
    source.prepare().await;
    assert_eq!(source.header(), None);
    let error = source.after_unauthorized(None, &["Bearer".into()]).await.unwrap_err();
    assert!(sign_in_required(&error).contains("address has changed"), "{error}");
    assert_eq!(process.provider.token_requests().len(), 1);
}

#[tokio::test]
async fn more_scopes_are_asked_for_at_the_next_sign_in() {
    let (process, source) = signed_in().await;
    let header = r#"Bearer error="insufficient_scope", scope="write""#;
    let used = source.header();
    let error = source.after_insufficient_scope(used.as_ref(), &[header.into()]).await.unwrap().unwrap_err();
    assert!(sign_in_required(&error).contains("write"), "{error}");
    assert!(source.header().is_some(), "other calls go on");
    let about_something_else = ["Bearer error=\"invalid_token\"".into()];
    assert!(source.after_insufficient_scope(used.as_ref(), &about_something_else).await.is_none());
    // Also by a process that has not seen the response.
    let other = Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default());
    let attempt = other.begin().await;
    assert_eq!(parameter(&attempt.authorization_url, "scope").as_deref(), Some("read write"));
}

#[tokio::test]
async fn a_server_without_a_challenge_may_offer_no_sign_in() {
    let process = Process::new();
    process.provider.always("GET https://mcp.example/.well-known/oauth-protected-resource/a/mcp", Ok(answer(404, "")));
    let source = process.oauth.source(process.protected.clone());
    assert_eq!(source.after_unauthorized(None, &[]).await.unwrap_err(), TokenError::NotOffered);
    let basic = source.after_unauthorized(None, &["Basic realm=\"x\"".into()]).await;
    assert_eq!(basic.unwrap_err(), TokenError::NotOffered);
    let bearer = source.after_unauthorized(None, &["Bearer".into()]).await.unwrap_err();
    sign_in_required(&bearer);
    // With metadata, no challenge is needed.
    let process = Process::new();
    let source = process.oauth.source(process.protected.clone());
    sign_in_required(&source.after_unauthorized(None, &[]).await.unwrap_err());
}

#[tokio::test]
async fn a_client_signs_in_by_itself_with_its_own_credentials() {
    let settings = OAuthSettings {
        grant: GrantType::ClientCredentials,
        client_id: Some("robot".into()),
        client_secret: Some("robot-secret".into()),
        ..OAuthSettings::default()
    };
    let process = Process::with_settings(settings);
    process.provider.metadata("token_endpoint_auth_methods_supported", json!(["client_secret_basic"]));
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    let header = source.after_unauthorized(None, &["Bearer scope=\"run\"".into()]).await.unwrap();
    assert_eq!(header, "Bearer access-1-secret");
    let asked = process.provider.token_requests().remove(0);
    assert_eq!(asked.form("grant_type").as_deref(), Some("client_credentials"));
    assert_eq!(asked.form("scope").as_deref(), Some("run"));
    assert!(asked.headers["authorization"].starts_with("Basic "));
    // There is nothing to refresh with: another one is requested.
    process.provider.always(TOKEN, Ok(answer(200, r#"{"access_token":"second"}"#)));
    assert_eq!(source.after_unauthorized(Some(&header), &[]).await.unwrap(), "Bearer second");
    process.provider.always(TOKEN, Ok(answer(401, r#"{"error":"invalid_client"}"#)));
    let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    assert!(matches!(error, TokenError::Failed(_)) && !error.to_string().contains("robot-secret"), "{error}");
}

#[tokio::test]
async fn a_token_is_refreshed_ahead_of_its_end() {
    let (process, source) = signed_in().await;
    change(&process, |grant| grant.tokens.issued_at -= 3400).await;
    let first = source.header();
    let other = Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default());
    let theirs = other.oauth.source(other.protected.clone());
    assert_ne!(first, None);
    theirs.prepare().await;
    // The margin of 300 s has begun, so this happens by itself.
    while process.provider.token_requests().len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    other.oauth.drain().await;
    assert_eq!(theirs.header(), process.grant().await.tokens.header());
    assert_ne!(theirs.header(), first);
}

#[tokio::test(start_paused = true)]
async fn a_sign_in_of_another_process_is_noticed() {
    let process = Process::new();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    let mut changes = process.oauth.subscribe();
    let other = Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default());
    other.sign_in().await.unwrap();
    assert_eq!(changes.recv().await.unwrap().kind, ChangeKind::SignedIn);
    assert!(source.header().is_some());
}

#[tokio::test]
async fn a_token_that_is_refused_at_once_is_not_refreshed_again_and_again() {
    let (process, source) = signed_in().await;
    let header = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap();
    sign_in_required(&source.after_refusal(&header));
    sign_in_required(&source.after_unauthorized(Some(&header), &[]).await.unwrap_err());
    assert_eq!(process.provider.token_requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refreshed_token_that_cannot_be_stored_is_kept_and_not_used() {
    let (process, source) = signed_in().await;
    let used = source.header();
    process.provider.slow_down();
    let asking = tokio::spawn({
        let (source, used) = (Arc::clone(&source), used.clone());
        async move { source.after_unauthorized(used.as_ref(), &[]).await }
    });
    while process.grant().await.refresh.is_none() {
        tokio::task::yield_now().await;
    }
    process.store.is_broken.store(true, Ordering::Relaxed);
    process.provider.go_on.notify_one();
    let error = asking.await.unwrap().unwrap_err();
    assert!(matches!(error, TokenError::Unavailable(_)) && error.to_string().contains("disk is full"), "{error}");
    assert_eq!(source.header(), used, "what is not stored is not used");
    process.store.is_broken.store(false, Ordering::Relaxed);
    let header = source.after_unauthorized(used.as_ref(), &[]).await.unwrap();
    assert_eq!(header, "Bearer access-3-secret");
    assert_eq!(process.provider.token_requests().len(), 2, "the sign-in and one refresh");
    let grant = process.grant().await;
    assert_eq!((grant.refresh, grant.tokens.header()), (None, Some(header)));
}

#[tokio::test]
async fn tokens_of_a_refresh_that_a_logout_has_overtaken_are_revoked() {
    let (process, source) = signed_in().await;
    change(&process, |grant| {
        grant.authorization_server.revocation_endpoint = Some("https://as.example/revoke".into());
    })
    .await;
    process.provider.slow_down();
    let used = source.header();
    let asking = tokio::spawn({
        let source = Arc::clone(&source);
        async move { source.after_unauthorized(used.as_ref(), &[]).await }
    });
    while process.grant().await.refresh.is_none() {
        tokio::task::yield_now().await;
    }
    // In another process, which does not wait for this one.
    let other = Process::with(Arc::clone(&process.provider), Arc::clone(&process.store), OAuthSettings::default());
    other.oauth.logout(&other.protected).await.unwrap();
    process.provider.go_on.notify_one();
    sign_in_required(&asking.await.unwrap().unwrap_err());
    let revoked = process.provider.requests_to("POST https://as.example/revoke");
    let revoked: Vec<_> = revoked.iter().filter_map(|asked| asked.form("token")).collect();
    assert_eq!(revoked, ["refresh-2-secret", "refresh-3-secret"]);
    assert_eq!(process.oauth.login_state("key").await.unwrap(), LoginState::None);
}

#[tokio::test]
async fn a_sign_in_during_a_refresh_wins() {
    let (process, source) = signed_in().await;
    process.provider.slow_down();
    let used = source.header();
    let asking = tokio::spawn({
        let source = Arc::clone(&source);
        async move { source.after_unauthorized(used.as_ref(), &[]).await }
    });
    while process.grant().await.refresh.is_none() {
        tokio::task::yield_now().await;
    }
    change(&process, |grant| {
        grant.refresh = None;
        grant.tokens.access_token = "signed-in-again".into();
        grant.tokens.refresh_token = Some("another-family".into());
    })
    .await;
    process.provider.go_on.notify_one();
    assert_eq!(asking.await.unwrap().unwrap(), "Bearer signed-in-again");
    assert_eq!(process.grant().await.tokens.refresh_token, Some("another-family".into()));
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_refused_are_not_tried_again_in_a_hurry() {
    let settings = OAuthSettings {
        grant: GrantType::ClientCredentials,
        client_id: Some("robot".into()),
        client_secret: Some("robot-secret".into()),
        ..OAuthSettings::default()
    };
    let process = Process::with_settings(settings);
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    source.after_unauthorized(None, &["Bearer".into()]).await.unwrap();
    change(&process, |grant| grant.tokens.issued_at -= 3500).await;
    process.provider.always(TOKEN, Ok(answer(401, r#"{"error":"invalid_client"}"#)));
    // The source reads the store every 30 s, and finds the token due.
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let requests = process.provider.token_requests().len();
    assert!((2..25).contains(&requests), "{requests}");
}

#[tokio::test]
async fn an_error_that_repeats_what_was_sent_shows_no_secret() {
    let (process, source) = signed_in().await;
    let body = r#"{"error":"invalid_grant","error_description":"unknown token refresh-2-secret"}"#;
    process.provider.always(TOKEN, Ok(answer(400, body)));
    let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    assert!(error.to_string().contains("unknown token ***"), "{error}");
    process.provider.always(TOKEN, Ok(answer(400, "<html>bad code code-secret</html>")));
    let error = process.sign_in().await.unwrap_err();
    assert!(error.to_string().contains("bad code ***"), "{error}");
}
