//! Whole sign-ins at providers with ways of their own.

use catalog::{OAuthSettings, TokenEndpointAuthMethod};
use serde_json::json;

use super::provider::{Process, TOKEN, answer, basic, parameter, sign_in_required};
use crate::{CallbackError, TokenError};

fn own_app(settings: OAuthSettings) -> OAuthSettings {
    OAuthSettings { client_id: Some("app".into()), client_secret: Some("app-secret".into()), ..settings }
}

#[tokio::test]
async fn slack_answers_errors_as_successes_and_has_its_token_elsewhere() {
    let redirect_uri = "https://me.example/oauth/callback";
    let settings = own_app(OAuthSettings {
        redirect_uri: Some(redirect_uri.into()),
        scopes: Some(vec!["search:read".into(), "chat:write".into()]),
        ..OAuthSettings::default()
    });
    let process = Process::with_settings(settings);
    process.provider.metadata("registration_endpoint", json!(null));
    process.provider.metadata("token_endpoint_auth_methods_supported", json!(["client_secret_post"]));
    // The first code has expired.
    process.provider.once(TOKEN, Ok(answer(200, r#"{"ok":false,"error":"invalid_code"}"#)));
    let error = process.sign_in().await.unwrap_err();
    assert!(matches!(&error, CallbackError::Failed { .. }) && error.to_string().contains("invalid_code"), "{error}");
    let issued = json!({
        "ok": true,
        "app_id": "A1",
        "authed_user": {
            "id": "U1",
            "scope": "search:read,chat:write",
            "access_token": "xoxe.xoxp-1-secret",
            "token_type": "user",
            "refresh_token": "xoxe-1-secret",
            "expires_in": 43200,
        },
        "error": null,
    });
    process.provider.always(TOKEN, Ok(answer(200, issued.to_string())));
    let attempt = process.begin().await;
    assert_eq!(parameter(&attempt.authorization_url, "redirect_uri").as_deref(), Some(redirect_uri));
    let signed_in = process.sign_in().await.unwrap();
    assert_eq!(signed_in.scopes, ["search:read", "chat:write"]);
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    let header = source.header().unwrap();
    assert_eq!(header, "Bearer xoxe.xoxp-1-secret");
    // Refreshed tokens are not under `authed_user`.
    let refreshed = json!({
        "ok": true,
        "access_token": "xoxe.xoxp-2-secret",
        "token_type": "user",
        "refresh_token": "xoxe-2-secret",
        "expires_in": 43200,
    });
    process.provider.always(TOKEN, Ok(answer(200, refreshed.to_string())));
    let header = source.after_unauthorized(Some(&header), &[]).await.unwrap();
    assert_eq!(header, "Bearer xoxe.xoxp-2-secret");
    let refresh = process.provider.token_requests().remove(2);
    assert_eq!(refresh.form("refresh_token").as_deref(), Some("xoxe-1-secret"));
    assert_eq!(refresh.form("client_secret").as_deref(), Some("app-secret"));
    process.provider.always(TOKEN, Ok(answer(200, r#"{"ok":false,"error":"ratelimited"}"#)));
    let error = source.after_unauthorized(Some(&header), &[]).await.unwrap_err();
    assert!(matches!(error, TokenError::Unavailable(_)), "{error:?}");
    process.provider.always(TOKEN, Ok(answer(200, r#"{"ok":false,"error":"bad_client_secret"}"#)));
    let error = source.after_unauthorized(Some(&header), &[]).await.unwrap_err();
    assert!(matches!(error, TokenError::Failed(_)), "{error:?}");
    process.provider.always(TOKEN, Ok(answer(200, r#"{"ok":false,"error":"invalid_refresh_token"}"#)));
    let error = source.after_unauthorized(Some(&header), &[]).await.unwrap_err();
    assert!(sign_in_required(&error).contains("invalid_refresh_token"), "{error}");
}

#[tokio::test]
async fn a_confidential_client_authenticates_at_every_token_request() {
    // Google offers both, Asana only parameters of the body, and others say nothing.
    for (offered, configured, is_basic) in [
        (json!(["client_secret_post", "client_secret_basic"]), None, true),
        (json!(["client_secret_post"]), None, false),
        (json!(null), None, true),
        (json!(["client_secret_basic"]), Some(TokenEndpointAuthMethod::ClientSecretPost), false),
    ] {
        let settings = own_app(OAuthSettings { token_endpoint_auth_method: configured, ..OAuthSettings::default() });
        let process = Process::with_settings(settings);
        process.provider.metadata("registration_endpoint", json!(null));
        process.provider.metadata("token_endpoint_auth_methods_supported", offered.clone());
        process.sign_in().await.unwrap();
        let source = process.oauth.source(process.protected.clone());
        source.prepare().await;
        source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap();
        let requests = process.provider.token_requests();
        assert_eq!(requests.len(), 2);
        for (request, grant_type) in requests.iter().zip(["authorization_code", "refresh_token"]) {
            assert_eq!(request.form("grant_type").as_deref(), Some(grant_type));
            let sent = (request.headers.get("authorization").cloned(), request.form("client_secret"));
            let expected =
                if is_basic { (Some(basic("app", "app-secret")), None) } else { (None, Some("app-secret".into())) };
            assert_eq!(sent, expected, "{offered} {grant_type}");
            assert_eq!(request.form("client_id").as_deref(), (!is_basic).then_some("app"));
            assert!(request.form("code_verifier").is_some() == (grant_type == "authorization_code"));
        }
        assert!(!process.grant().await.to_json().contains("app-secret"));
    }
}
