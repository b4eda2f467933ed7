//! JWTs: what is accepted, and everything that is not.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

use super::issuer::{ISSUER, Issuer, Key, RESOURCE, claims, is_audience, unsigned};
use crate::provider::UNKNOWN_KEY_INTERVAL;
use crate::verifier::now;
use crate::{ClaimRules, Rejection, Verifier};

async fn verify(verifier: &Verifier, token: &str) -> Result<String, Rejection> {
    let verified = verifier.verify(token, is_audience).await;
    verified.map(|verified| verified.principal().id().to_string())
}

#[tokio::test]
async fn every_allowed_algorithm_is_verified() {
    for key in [Key::p256(), Key::p384(), Key::ed25519(), Key::rsa("RS256"), Key::rsa("PS256")] {
        let issuer = Issuer::with_keys(&[key.public("one")]);
        let verifier = issuer.verifier(ClaimRules::default());
        let id = verify(&verifier, &key.token("one", &claims(&json!({})))).await;
        assert_eq!(id.as_deref(), Ok("oauth:https://id.example/team 42"), "{}", key.algorithm());
        let changed = key.token("one", &claims(&json!({}))).replacen("eyJ", "eyK", 2);
        assert!(verify(&verifier, &changed).await.is_err(), "{}", key.algorithm());
    }
}

#[tokio::test]
async fn claims_that_do_not_fit_are_rejected() {
    let key = Key::p256();
    let issuer = Issuer::with_keys(&[key.public("one")]);
    let verifier = issuer.verifier(ClaimRules::default());
    let now = now();
    for (others, expected) in [
        (json!({"exp": now - 31}), Err(Rejection::Expired)),
        (json!({"exp": now - 5}), Ok(())),
        (json!({"exp": now as f64 + 100.5}), Ok(())),
        (json!({"exp": null}), Err(Rejection::Expired)),
        (json!({"exp": "tomorrow"}), Err(Rejection::Expired)),
        (json!({"nbf": now + 60}), Err(Rejection::NotYetValid)),
        (json!({"nbf": now + 5}), Ok(())),
        (json!({"aud": "https://other.example"}), Err(Rejection::Audience)),
        (json!({"aud": ["https://other.example", RESOURCE]}), Ok(())),
        (json!({"aud": null}), Err(Rejection::Audience)),
        (json!({"iss": "https://id.example/team/"}), Err(Rejection::Issuer)),
        (json!({"iss": null}), Err(Rejection::Issuer)),
        (json!({"sub": ""}), Err(Rejection::Subject)),
        (json!({"sub": 42}), Err(Rejection::Subject)),
        (json!({"sub": "a\nb"}), Err(Rejection::Subject)),
        (json!({"sub": "x".repeat(600)}), Err(Rejection::Subject)),
    ] {
        let token = key.token("one", &claims(&others));
        assert_eq!(verify(&verifier, &token).await.map(drop), expected, "{others}");
    }
}

#[tokio::test]
async fn forged_tokens_are_rejected() {
    let (key, other) = (Key::rsa("RS256"), Key::p256());
    let issuer = Issuer::with_keys(&[key.public("one"), other.public("two")]);
    let verifier = issuer.verifier(ClaimRules::default());
    let claims = claims(&json!({}));
    let header = |alg: &str| json!({"alg": alg, "kid": "one"});

    let none = format!("{}.", unsigned(&header("none"), &claims));
    assert_eq!(verify(&verifier, &none).await, Err(Rejection::Algorithm));
    assert_eq!(verify(&verifier, &format!("{}.", unsigned(&header("None"), &claims))).await, Err(Rejection::Algorithm));
    // The public key, as whoever forges it has it, as the shared secret.
    for secret in [key.public("one").to_string(), key.public("one")["n"].as_str().unwrap().to_owned()] {
        let message = unsigned(&header("HS256"), &claims);
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes());
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
        assert_eq!(verify(&verifier, &token).await, Err(Rejection::Algorithm));
    }
    // Signed by somebody else, who says that it was the issuer.
    let token = Key::p256().token("two", &claims);
    assert_eq!(verify(&verifier, &token).await, Err(Rejection::Signature));
    // A key of the issuer, for an algorithm that it is not for.
    let token = other.token_with(&header("ES256"), &claims);
    assert_eq!(verify(&verifier, &token).await, Err(Rejection::Key));
    // The claims of another token.
    let (good, admin) = (key.token("one", &claims), self::claims_of_an_admin());
    let parts: Vec<&str> = good.split('.').collect();
    let token = format!("{}.{}", unsigned(&json!({"alg": "RS256", "kid": "one", "typ": "at+jwt"}), &admin), parts[2]);
    assert_eq!(verify(&verifier, &token).await, Err(Rejection::Signature));
    for (changed, expected) in [
        (format!("{}.{}", parts[0], parts[1]), Rejection::Malformed),
        (format!("{good}.x"), Rejection::Malformed),
        (format!("{good}="), Rejection::Malformed),
        (format!("{}..{}", parts[0], parts[2]), Rejection::Malformed),
        (format!("{}{}", parts[0], "x".repeat(20_000)), Rejection::Malformed),
    ] {
        assert_eq!(verify(&verifier, &changed).await, Err(expected), "{changed:.80}");
    }
    for header in [
        json!({"alg": "RS256", "kid": "one", "typ": "logout+jwt"}),
        json!({"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": false}),
    ] {
        assert_eq!(verify(&verifier, &key.token_with(&header, &claims)).await, Err(Rejection::Type));
    }
    assert!(verify(&verifier, &good).await.is_ok());
}

fn claims_of_an_admin() -> Value {
    claims(&json!({"sub": "root", "scope": "mcp:admin"}))
}

#[tokio::test]
async fn a_token_is_accepted_only_where_it_is_meant_for() {
    let key = Key::p256();
    let issuer = Issuer::with_keys(&[key.public("one")]);
    let verifier = issuer.verifier(ClaimRules::default());
    let token = key.token("one", &claims(&json!({})));
    assert!(verify(&verifier, &token).await.is_ok());
    let elsewhere = verifier.verify(&token, |audience| audience == "https://mcp.example/mcp/git").await;
    assert_eq!(elsewhere.unwrap_err(), Rejection::Audience);
    assert_eq!(verifier.recall(&token, |_| false).unwrap().unwrap_err(), Rejection::Audience);
}

#[tokio::test]
async fn a_signature_is_checked_once_and_keys_are_fetched_once() {
    let key = Key::p256();
    let issuer = Issuer::with_keys(&[key.public("one")]);
    let verifier = issuer.verifier(ClaimRules::default());
    let token = key.token("one", &claims(&json!({})));
    assert!(verifier.recall(&token, is_audience).is_none());
    for _ in 0..3 {
        assert!(verify(&verifier, &token).await.is_ok());
        assert!(verifier.recall(&token, is_audience).unwrap().is_ok());
    }
    assert_eq!((issuer.requests("oauth-authorization-server/team"), issuer.requests("keys")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn keys_rotate_without_a_restart_and_unknown_ones_are_asked_for_once_a_minute() {
    let (old, new, newest) = (Key::p256(), Key::p256(), Key::p256());
    let issuer = Issuer::with_keys(&[old.public("old")]);
    let verifier = issuer.verifier(ClaimRules::default());
    let token = old.token("old", &claims(&json!({})));
    assert!(verify(&verifier, &token).await.is_ok());

    issuer.set_keys(&[new.public("new")]);
    assert!(verify(&verifier, &new.token("new", &claims(&json!({})))).await.is_ok());
    assert_eq!(issuer.requests("keys"), 2);
    assert_eq!(verify(&verifier, &token).await, Err(Rejection::Key), "its key was withdrawn");

    issuer.set_keys(&[newest.public("newest")]);
    let token = newest.token("newest", &claims(&json!({})));
    for unknown in ["a", "b", "c"] {
        assert_eq!(verify(&verifier, &newest.token(unknown, &claims(&json!({})))).await, Err(Rejection::Key));
    }
    assert_eq!(verify(&verifier, &token).await, Err(Rejection::Key));
    assert_eq!(issuer.requests("keys"), 2, "not more often than once a minute");
    tokio::time::advance(UNKNOWN_KEY_INTERVAL).await;
    assert!(verify(&verifier, &token).await.is_ok());
    assert_eq!(issuer.requests("keys"), 3);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_issuer_takes_back_no_token_and_gives_none() {
    let key = Key::p256();
    let issuer = Issuer::with_keys(&[key.public("one")]);
    issuer.set_unreachable(true);
    let verifier = issuer.verifier(ClaimRules::default());
    assert_eq!(verifier.start().await, Ok(()), "it may come back");
    assert_eq!(verifier.unusable(), [ISSUER]);
    let token = key.token("one", &claims(&json!({})));
    assert_eq!(verify(&verifier, &token).await, Err(Rejection::Unavailable));
    assert_eq!(issuer.requests("oauth-authorization-server/team"), 1, "it is not tried for every request");
    issuer.set_unreachable(false);
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    assert!(verify(&verifier, &token).await.is_ok());
    issuer.set_unreachable(true);
    assert!(verify(&verifier, &key.token("one", &claims(&json!({"jti": "other"})))).await.is_ok());
    assert_eq!(verify(&verifier, &key.token("two", &claims(&json!({})))).await, Err(Rejection::Key));
}

#[tokio::test]
async fn a_token_without_a_key_id_is_tried_with_every_key() {
    let (one, other) = (Key::p256(), Key::p256());
    let issuer = Issuer::with_keys(&[one.public("one"), Key::ed25519().public("ed"), other.public("other")]);
    let verifier = issuer.verifier(ClaimRules::default());
    let token = other.token_with(&json!({"alg": "ES256"}), &claims(&json!({})));
    assert!(verify(&verifier, &token).await.is_ok());
}

#[tokio::test]
async fn keys_that_are_not_for_signatures_verify_nothing() {
    let key = Key::p256();
    for (name, value) in [("use", json!("enc")), ("key_ops", json!(["encrypt"])), ("alg", json!("ES384"))] {
        let mut public = key.public("one");
        public.as_object_mut().unwrap().remove("use");
        public[name] = value;
        let issuer = Issuer::with_keys(&[public, Key::ed25519().public("other")]);
        let verifier = issuer.verifier(ClaimRules::default());
        assert_eq!(verify(&verifier, &key.token("one", &claims(&json!({})))).await, Err(Rejection::Key), "{name}");
    }
}

#[tokio::test]
async fn an_issuer_that_cannot_be_used_is_named_at_the_start() {
    let started = async |metadata: Value, keys: &[Value]| {
        let issuer = Issuer::with_keys(keys);
        issuer.publish(metadata);
        let error = issuer.verifier(ClaimRules::default()).start().await.unwrap_err();
        assert!(!error.is_temporary && !error.hint.is_empty(), "{error:?}");
        error.to_string()
    };
    let key = [Key::p256().public("one")];
    let message =
        started(json!({"issuer": "https://id.example/team/", "jwks_uri": "https://id.example/keys"}), &key).await;
    assert!(message.contains("https://id.example/team cannot be used") && message.contains("exactly"), "{message}");
    assert!(message.contains("openid-configuration: status 404"), "{message}");
    let message = started(json!({"issuer": ISSUER}), &key).await;
    assert!(message.contains("no `jwks_uri`"), "{message}");
    let message = started(json!({"issuer": ISSUER, "jwks_uri": "http://id.example/keys"}), &key).await;
    assert!(message.contains("not an https address"), "{message}");
    let message = started(json!({"issuer": ISSUER, "jwks_uri": "https://id.example/keys"}), &[]).await;
    assert!(message.contains("no keys at https://id.example/keys"), "{message}");
}

#[tokio::test]
async fn metadata_of_openid_connect_is_found_as_well() {
    let key = Key::p256();
    let issuer = Issuer::with_keys(&[key.public("one")]);
    issuer.publish(Value::Null);
    let metadata = json!({"issuer": ISSUER, "jwks_uri": "https://id.example/keys"});
    issuer.publish_at("https://id.example/team/.well-known/openid-configuration", metadata);
    let verifier = issuer.verifier(ClaimRules::default());
    assert_eq!(verifier.start().await, Ok(()));
    assert!(verify(&verifier, &key.token("one", &claims(&json!({})))).await.is_ok());
}

#[test]
fn issuers_are_checked() {
    for good in ["https://id.example", "https://id.example/a/b", "http://127.0.0.1:9", "http://localhost:9/x"] {
        assert_eq!(crate::check_issuer(good), Ok(()), "{good}");
    }
    for bad in ["id.example", "http://id.example", "https://id.example?x", "https://a b", "ftp://x", "https://u@x"] {
        assert!(crate::check_issuer(bad).is_err(), "{bad}");
    }
}
