//! Sign-ins to the console.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use url::Url;

use super::issuer::{ISSUER, Issuer, Key, TOKEN_ENDPOINT, claims};
use crate::{ClaimRules, SignInError, SignIns};

const SERVICE: &str = "https://mcp.example";

struct Console {
    issuer: Arc<Issuer>,
    key: Key,
    sign_ins: SignIns,
}

impl Console {
    fn new() -> Self {
        let key = Key::p256();
        let issuer = Issuer::with_keys(&[key.public("one")]);
        issuer.publish(json!({
            "issuer": ISSUER, "jwks_uri": "https://id.example/keys", "token_endpoint": TOKEN_ENDPOINT,
            "authorization_endpoint": "https://id.example/authorize?x=1",
            "authorization_response_iss_parameter_supported": true,
            "scopes_supported": ["openid", "mcp:user", "mcp:admin"],
        }));
        let verifier = Arc::new(issuer.verifier_as(Some("secret"), ClaimRules::default()));
        let redirect = format!("{SERVICE}/login/callback");
        let sign_ins = SignIns::new(&verifier, SERVICE, redirect).expect("there is a client");
        Self { issuer, key, sign_ins }
    }

    /// Begins a sign-in; what the page of the provider is asked.
    async fn begin(&self) -> HashMap<String, String> {
        let begun = self.sign_ins.begin(ISSUER, "/next").await.unwrap();
        let url = Url::parse(&begun.url).unwrap();
        assert!(begun.url.starts_with("https://id.example/authorize?x=1&"));
        let asked: HashMap<_, _> = url.query_pairs().into_owned().collect();
        assert_eq!(asked["state"], begun.state);
        asked
    }

    /// What the token endpoint answers: a good response, with other claims.
    fn answer(&self, nonce: &str, of_id: &Value, of_access: &Value) {
        let mut id = claims(&json!({"aud": "mcp", "nonce": nonce}));
        let mut access = claims(&json!({"aud": SERVICE, "scope": "mcp:operator"}));
        for (claims, others) in [(&mut id, of_id), (&mut access, of_access)] {
            others.as_object().unwrap().iter().for_each(|(name, value)| claims[name] = value.clone());
        }
        let header = json!({"alg": "ES256", "kid": "one", "typ": "JWT"});
        let id = self.key.token_with(&header, &id);
        let response = json!({"access_token": self.key.token("one", &access), "id_token": id, "refresh_token": "r1"});
        self.issuer.set_token_response(200, response);
    }

    async fn finish(&self, state: &str) -> Result<String, SignInError> {
        let query = format!("code=abc&state={state}&iss={ISSUER}");
        let (person, next) = self.sign_ins.finish(&query).await?;
        assert_eq!(next, "/next");
        Ok(person.principal().map(|principal| format!("{} {}", principal.id(), principal.role())).unwrap_or_default())
    }
}

#[tokio::test]
async fn a_person_signs_in_once() {
    let console = Console::new();
    let asked = console.begin().await;
    assert_eq!((asked["response_type"].as_str(), asked["client_id"].as_str()), ("code", "mcp"));
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["scope"], "openid mcp:user mcp:admin", "only what the provider knows");
    assert_eq!(asked["resource"], SERVICE);
    console.answer(&asked["nonce"], &json!({}), &json!({}));
    let signed_in = console.finish(&asked["state"]).await;
    assert_eq!(signed_in.as_deref(), Ok("oauth:https://id.example/team 42 operator"));
    let body = console.issuer.last_body();
    assert!(body.contains("code=abc") && body.contains("code_verifier="), "{body}");
    assert_eq!(console.finish(&asked["state"]).await, Err(SignInError::NotPending), "a code works once");
}

#[tokio::test]
async fn a_response_of_somebody_else_is_refused_and_the_attempt_stays() {
    let console = Console::new();
    let asked = console.begin().await;
    let (state, nonce) = (&asked["state"], &asked["nonce"]);
    for (query, expected) in [
        ("code=abc".to_owned(), SignInError::NotPending),
        ("code=abc&state=x&iss=y".to_owned(), SignInError::NotPending),
        (format!("code=abc&state={state}"), SignInError::WrongIssuer),
        (format!("error=x&state={state}&iss=https://evil.example"), SignInError::WrongIssuer),
    ] {
        assert_eq!(console.sign_ins.finish(&query).await.err(), Some(expected), "{query}");
    }
    console.answer(nonce, &json!({}), &json!({}));
    assert!(console.finish(state).await.is_ok());
    let asked = console.begin().await;
    let refused = format!("error=access_denied&state={}&iss={ISSUER}", asked["state"]);
    assert_eq!(console.sign_ins.finish(&refused).await.err(), Some(SignInError::Refused("access_denied".to_owned())));
}

#[tokio::test]
async fn tokens_must_fit_the_attempt_and_each_other() {
    let console = Console::new();
    for (of_id, of_access, why) in [
        (json!({"nonce": "other"}), json!({}), "another sign-in"),
        (json!({"aud": "other"}), json!({}), "another client"),
        (json!({"aud": ["mcp", "other"]}), json!({}), "another client"),
        (json!({"iss": "https://other.example"}), json!({}), "issuer"),
        (json!({"exp": 1}), json!({}), "expired"),
        (json!({"sub": "43"}), json!({}), "somebody else"),
        (json!({}), json!({"aud": "https://other.example"}), "audience"),
        (json!({}), json!({"exp": 1}), "expired"),
    ] {
        let asked = console.begin().await;
        console.answer(&asked["nonce"], &of_id, &of_access);
        let error = console.finish(&asked["state"]).await.unwrap_err().to_string();
        assert!(error.contains(why), "{of_id} {of_access}: {error}");
    }
    let asked = console.begin().await;
    console.answer(&asked["nonce"], &json!({"aud": ["mcp", "other"], "azp": "mcp"}), &json!({}));
    assert!(console.finish(&asked["state"]).await.is_ok());
}
