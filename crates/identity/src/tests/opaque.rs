//! Tokens about which the issuer must be asked.

use serde_json::json;

use super::issuer::{ISSUER, Issuer, Key, RESOURCE, is_audience};
use crate::verifier::now;
use crate::{ClaimRules, Rejection};

#[tokio::test]
async fn the_issuer_is_asked_about_a_token_and_the_answer_counts_for_a_while() {
    let issuer = Issuer::with_keys(&[Key::p256().public("one")]);
    issuer.set_token("opaque", json!({"active": true, "sub": "42", "aud": RESOURCE, "scope": "mcp:operator"}));
    let verifier = issuer.verifier_as(Some("secret"), ClaimRules::default());
    for _ in 0..3 {
        let verified = verifier.verify("opaque", is_audience).await.unwrap();
        assert_eq!(verified.principal().role(), catalog::Role::Operator);
        assert_eq!(verifier.verify("unknown", is_audience).await.unwrap_err(), Rejection::Inactive);
    }
    assert_eq!(issuer.requests("introspect"), 2);
    assert_eq!(issuer.last_body(), "token=unknown&token_type_hint=access_token");
}

#[tokio::test]
async fn an_answer_must_fit_like_a_token() {
    let issuer = Issuer::with_keys(&[Key::p256().public("one")]);
    let verifier = issuer.verifier_as(Some("secret"), ClaimRules::default());
    for (name, answer, expected) in [
        ("a", json!({"active": true, "sub": "42"}), Rejection::Audience),
        ("b", json!({"active": true, "sub": "42", "aud": "https://other.example"}), Rejection::Audience),
        ("c", json!({"active": true, "aud": RESOURCE}), Rejection::Subject),
        ("d", json!({"active": true, "sub": "42", "aud": RESOURCE, "exp": now() - 100}), Rejection::Expired),
        ("e", json!({"active": true, "sub": "42", "aud": RESOURCE, "iss": "https://other.example"}), Rejection::Issuer),
        ("f", json!({"active": "true", "sub": "42", "aud": RESOURCE, "iss": ISSUER}), Rejection::Inactive),
    ] {
        issuer.set_token(name, answer);
        assert_eq!(verifier.verify(name, is_audience).await.unwrap_err(), expected, "{name}");
    }
}

#[tokio::test]
async fn without_a_secret_nobody_is_asked() {
    let issuer = Issuer::with_keys(&[Key::p256().public("one")]);
    let verifier = issuer.verifier(ClaimRules::default());
    assert_eq!(verifier.verify("opaque", is_audience).await.unwrap_err(), Rejection::Unknown);
    assert_eq!(issuer.requests(""), 0);
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_says_nothing_about_a_token() {
    let issuer = Issuer::with_keys(&[Key::p256().public("one")]);
    let verifier = issuer.verifier_as(Some("secret"), ClaimRules::default());
    verifier.start().await.unwrap();
    issuer.set_token("opaque", json!({"active": true, "sub": "42", "aud": RESOURCE}));
    issuer.set_unreachable(true);
    assert_eq!(verifier.verify("opaque", is_audience).await.unwrap_err(), Rejection::Unavailable);
    issuer.set_unreachable(false);
    assert!(verifier.verify("opaque", is_audience).await.is_ok());
}
