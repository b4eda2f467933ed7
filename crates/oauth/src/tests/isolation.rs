//! Secrets go where they belong, whatever a server says.

use catalog::{GrantType, OAuthSettings, TokenEndpointAuthMethod};
use serde_json::json;

use super::provider::{
    ISSUER, Process, REDIRECT, RESOURCE_METADATA, SERVER, answer, basic, challenge, change, parameter,
    sign_in_required, signed_in,
};
use crate::{CallbackError, LoginState, Network, Protected, Redirects, TokenError};

const ASK: &str = "POST https://mcp.example/a/mcp";
const REGISTER: &str = "POST https://as.example/register";
const EVIL_TOKEN: &str = "POST https://evil.example/token";

fn robot() -> OAuthSettings {
    OAuthSettings {
        grant: GrantType::ClientCredentials,
        client_id: Some("robot".into()),
        client_secret: Some("robot-secret".into()),
        ..OAuthSettings::default()
    }
}

#[tokio::test]
async fn the_credentials_of_a_client_stay_at_its_authorization_server() {
    let process = Process::with_settings(robot());
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    let header = source.after_unauthorized(None, &["Bearer".into()]).await.unwrap();
    process.provider.name_another_issuer();
    let error = source.after_unauthorized(Some(&header), &["Bearer".into()]).await.unwrap_err();
    assert!(matches!(error, TokenError::Failed(_)), "{error:?}");
    assert!(error.to_string().contains(ISSUER) && error.to_string().contains("evil.example"), "{error}");
    assert!(process.provider.requests_to(EVIL_TOKEN).is_empty());
    // The user says that it is right.
    let settings = OAuthSettings { issuer: Some("https://evil.example".into()), ..robot() };
    let source = process.oauth.source(Protected { settings, ..process.protected.clone() });
    source.prepare().await;
    assert_eq!(source.after_unauthorized(Some(&header), &["Bearer".into()]).await.unwrap(), "Bearer evil");
    // The user says that it is another one, from the beginning.
    let process = Process::with_settings(OAuthSettings { issuer: Some(ISSUER.into()), ..robot() });
    process.provider.name_another_issuer();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    source.after_unauthorized(None, &["Bearer".into()]).await.unwrap();
    assert!(process.provider.requests_to(EVIL_TOKEN).is_empty());
}

#[tokio::test]
async fn scopes_that_a_client_was_missing_are_asked_for_every_time() {
    let process = Process::with_settings(robot());
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    let mut header = source.after_unauthorized(None, &["Bearer scope=\"run\"".into()]).await.unwrap();
    let more = [r#"Bearer error="insufficient_scope", scope="write""#.to_owned()];
    source.after_insufficient_scope(Some(&header), &more).await.unwrap().unwrap_err();
    for number in 1..3 {
        header = source.after_unauthorized(Some(&header), &[]).await.unwrap();
        assert_eq!(process.provider.token_requests()[number].form("scope").as_deref(), Some("run write"));
    }
}

#[tokio::test]
async fn a_configured_secret_is_sent_for_the_configured_client_only() {
    // The sign-in is one of a registered client with a secret of its own.
    let (process, _) = signed_in().await;
    change(&process, |grant| {
        grant.client.secret = Some("registered-secret".into());
        grant.client.auth_method = TokenEndpointAuthMethod::ClientSecretBasic;
    })
    .await;
    let settings = OAuthSettings { grant: GrantType::AuthorizationCode, ..robot() };
    let process = Process::with(process.provider, process.store, settings);
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap();
    let refresh = process.provider.token_requests().remove(1);
    assert_eq!(refresh.headers["authorization"], basic("client-1", "registered-secret"));
    // The sign-in is one of a client that was configured before.
    change(&process, |grant| {
        grant.client.secret = None;
        grant.client.source = crate::ClientSource::Configured;
        grant.client.id = "before".into();
        grant.authorization_server.revocation_endpoint = Some("https://as.example/revoke".into());
    })
    .await;
    source.take_up_stored().await;
    let error = source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap_err();
    assert!(sign_in_required(&error).contains("another client is configured"), "{error}");
    assert_eq!(process.grant().await.sign_in_required, None, "the settings may be put back");
    assert_eq!(process.provider.token_requests().len(), 2);
    process.oauth.logout(&process.protected).await.unwrap();
    assert!(process.provider.requests_to("POST https://as.example/revoke").is_empty());
}

#[tokio::test]
async fn a_private_key_is_read_only_by_those_who_sign_with_it() {
    let (process, source) = signed_in().await;
    drop(source);
    let settings = OAuthSettings { private_key_file: Some("/nonexistent/key.pem".into()), ..OAuthSettings::default() };
    let process = Process::with(process.provider, process.store, settings);
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap();
}

#[tokio::test]
async fn every_request_of_a_sign_in_stays_within_the_network() {
    let process = Process::new();
    let protected = process.protected.clone().with_network(Network::Public);
    let attempt = process.oauth.begin(&protected, REDIRECT).await.unwrap();
    let state = parameter(&attempt.authorization_url, "state").unwrap();
    process.oauth.finish(&format!("code=c&state={state}")).await.unwrap();
    let asked = process.provider.all_asked();
    assert!(asked.len() >= 5 && asked.iter().all(|asked| asked.network == Network::Public), "{asked:?}");
    let probe = asked.iter().find(|asked| asked.line == ASK).unwrap();
    assert_eq!(probe.redirects, Redirects::Return);
}

#[tokio::test]
async fn two_servers_of_one_provider_have_clients_of_their_own() {
    let process = Process::new();
    let client = |attempt: &crate::Attempt| parameter(&attempt.authorization_url, "client_id").unwrap();
    let first = client(&process.begin().await);
    let other_site = Protected { key: "other".into(), ..process.protected.clone() };
    let second = client(&process.oauth.begin(&other_site, REDIRECT).await.unwrap());
    assert_ne!(first, second);
    assert_eq!(client(&process.begin().await), first, "an attempt that was not finished leaves its registration");
    assert_eq!(process.provider.requests_to(REGISTER).len(), 2);
    let moved = Protected { url: "https://mcp.example/a/mcp/b".into(), ..process.protected.clone() };
    let document = json!({"resource": SERVER, "authorization_servers": [ISSUER]}).to_string();
    process.provider.always("POST https://mcp.example/a/mcp/b", Ok(challenge("Bearer")));
    process
        .provider
        .always("GET https://mcp.example/.well-known/oauth-protected-resource/a/mcp/b", Ok(answer(200, document)));
    assert_ne!(client(&process.oauth.begin(&moved, REDIRECT).await.unwrap()), first);
}

#[tokio::test]
async fn a_redirect_of_another_issuer_changes_nothing_and_the_true_one_still_works() {
    let process = Process::new();
    process.provider.metadata("authorization_response_iss_parameter_supported", true.into());
    let attempt = process.begin().await;
    let state = parameter(&attempt.authorization_url, "state").unwrap();
    for foreign in ["&iss=https://evil.example", "", "&iss=https://evil.example&error=access_denied"] {
        let error = process.oauth.finish(&format!("code=evil&state={state}{foreign}")).await.unwrap_err();
        assert!(matches!(error, CallbackError::ForeignIssuer { .. }), "{error}");
        assert!(matches!(process.oauth.login_state("key").await.unwrap(), LoginState::Pending { .. }));
    }
    assert!(process.provider.token_requests().is_empty());
    process.oauth.finish(&format!("code=c&state={state}&iss={ISSUER}")).await.unwrap();
    assert!(matches!(process.oauth.login_state("key").await.unwrap(), LoginState::SignedIn { .. }));
}

#[tokio::test]
async fn what_a_server_said_counts_for_its_address_and_until_a_logout() {
    let process = Process::new();
    let source = process.oauth.source(process.protected.clone());
    let header = "Bearer scope=\"old\", resource_metadata=\"https://old.example/meta\"";
    source.after_unauthorized(None, &[header.into()]).await.unwrap_err();
    // The address changes.
    let moved = Protected { url: "https://mcp.example/".into(), ..process.protected.clone() };
    let document = json!({"resource": "https://mcp.example/", "authorization_servers": [ISSUER]}).to_string();
    process.provider.always("POST https://mcp.example/", Ok(challenge("Bearer scope=\"new\"")));
    process.provider.always("GET https://mcp.example/.well-known/oauth-protected-resource", Ok(answer(200, document)));
    let attempt = process.oauth.begin(&moved, REDIRECT).await.unwrap();
    assert_eq!(parameter(&attempt.authorization_url, "scope").as_deref(), Some("new"));
    assert!(process.provider.requests_to("GET https://old.example/meta").is_empty());
    // A logout.
    process.oauth.logout(&process.protected).await.unwrap();
    let attempt = process.begin().await;
    assert_eq!(parameter(&attempt.authorization_url, "scope").as_deref(), Some("read"));
    assert!(process.provider.requests_to("GET https://old.example/meta").is_empty());
}

#[tokio::test]
async fn the_scopes_of_one_call_do_not_replace_those_of_the_server() {
    let process = Process::new();
    let source = process.oauth.source(process.protected.clone());
    source.after_unauthorized(None, &["Bearer scope=\"read list\"".into()]).await.unwrap_err();
    process.sign_in().await.unwrap();
    source.prepare().await;
    let narrow = [r#"Bearer error="insufficient_scope", scope="write""#.to_owned()];
    source.after_insufficient_scope(source.header().as_ref(), &narrow).await.unwrap().unwrap_err();
    let scope = |attempt: crate::Attempt| parameter(&attempt.authorization_url, "scope");
    assert_eq!(scope(process.begin().await).as_deref(), Some("read list write"));
    // Without the sign-in, nothing is left of that call.
    let (version, _) = crate::GrantStore::load(&*process.store, "key").await.unwrap().unwrap();
    crate::GrantStore::replace(&*process.store, "key", Some(version), None).await.unwrap();
    assert_eq!(scope(process.begin().await).as_deref(), Some("read list"));
    assert!(!process.provider.requests_to(RESOURCE_METADATA).is_empty());
}

#[tokio::test]
async fn no_secret_of_a_registration_is_ever_shown() {
    for (status, body) in [
        (201, "client_id=c&client_secret=fresh-secret"),
        (200, r#"["fresh-secret"]"#),
        (201, r#"{"client_secret":"fresh-secret"}"#),
        (409, r#"{"client_secret":"fresh-secret"}"#),
        (400, r#"{"error":"odd fresh-secret","registration_access_token":"fresh-secret"}"#),
    ] {
        let process = Process::new();
        process.provider.always(REGISTER, Ok(answer(status, body)));
        let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err();
        assert!(!error.to_string().contains("fresh"), "{body}: {error}");
    }
}
