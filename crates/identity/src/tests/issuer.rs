//! An issuer that signs tokens, and answers requests from memory.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use oauth::{Fetch, FetchError, HttpRequest, HttpResponse};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

use crate::verifier::now;
use crate::{ClaimRules, ClientSettings, IssuerSettings, Verifier};

pub(super) const ISSUER: &str = "https://id.example/team";
pub(super) const RESOURCE: &str = "https://mcp.example/mcp";
const JWKS: &str = "https://id.example/keys";
const INTROSPECTION: &str = "https://id.example/introspect";
pub(super) const TOKEN_ENDPOINT: &str = "https://id.example/token";

/// What is published, and which requests came.
#[derive(Debug, Default)]
pub(super) struct Issuer {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    metadata: HashMap<String, Value>,
    keys: Vec<Value>,
    tokens: HashMap<String, Value>,
    requests: Vec<(String, String)>,
    is_unreachable: bool,
    /// The status and the body of the token endpoint.
    token_response: (u16, Value),
}

/// A key that signs.
pub(super) enum Key {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(&'static str),
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Key {
    pub(super) fn p256() -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self::P256(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).unwrap())
    }

    pub(super) fn p384() -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &random).unwrap();
        Self::P384(EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, made.as_ref(), &random).unwrap())
    }

    pub(super) fn ed25519() -> Self {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap())
    }

    /// The same key every time, for RS256 or PS256.
    pub(super) fn rsa(algorithm: &'static str) -> Self {
        Self::Rsa(algorithm)
    }

    fn rsa_pair() -> RsaKeyPair {
        RsaKeyPair::from_pkcs8(include_bytes!("rsa.pk8")).unwrap()
    }

    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::P384(_) => "ES384",
            Self::Ed(_) => "EdDSA",
            Self::Rsa(algorithm) => algorithm,
        }
    }

    /// As it stands in a key set.
    pub(super) fn public(&self, id: &str) -> Value {
        let point = |key: &[u8], curve: &str| {
            let half = (key.len() - 1) / 2;
            let (x, y) = (encoded(&key[1..=half]), encoded(&key[half + 1..]));
            json!({"kty": "EC", "crv": curve, "x": x, "y": y, "kid": id, "use": "sig"})
        };
        match self {
            Self::P256(key) => point(key.public_key().as_ref(), "P-256"),
            Self::P384(key) => point(key.public_key().as_ref(), "P-384"),
            Self::Ed(key) => json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(key.public_key()), "kid": id}),
            Self::Rsa(_) => {
                let parts: PublicKeyComponents<Vec<u8>> = Self::rsa_pair().public().into();
                json!({"kty": "RSA", "n": encoded(parts.n), "e": encoded(parts.e), "kid": id})
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::P256(key) | Self::P384(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
            Self::Rsa(algorithm) => {
                let pair = Self::rsa_pair();
                let mut signature = vec![0; pair.public().modulus_len()];
                let padding: &'static dyn ring::signature::RsaEncoding =
                    if *algorithm == "RS256" { &RSA_PKCS1_SHA256 } else { &RSA_PSS_SHA256 };
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// A token with this key id and these claims.
    pub(super) fn token(&self, id: &str, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.algorithm(), "kid": id, "typ": "at+jwt"}), claims)
    }

    pub(super) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        let signature = self.sign(message.as_bytes());
        format!("{message}.{}", encoded(signature))
    }
}

/// The part of a token that is signed.
pub(super) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()))
}

/// The claims of a token that is accepted, with some others.
pub(super) fn claims(others: &Value) -> Value {
    let mut claims = json!({"iss": ISSUER, "sub": "42", "aud": RESOURCE, "exp": now() + 300});
    for (name, value) in others.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

pub(super) fn is_audience(audience: &str) -> bool {
    audience == RESOURCE
}

impl Issuer {
    pub(super) fn with_keys(keys: &[Value]) -> Arc<Self> {
        let issuer = Arc::new(Self::default());
        issuer.publish(json!({"issuer": ISSUER, "jwks_uri": JWKS, "introspection_endpoint": INTROSPECTION}));
        issuer.set_keys(keys);
        issuer
    }

    /// Publishes metadata at the first well-known address.
    pub(super) fn publish(&self, metadata: Value) {
        self.publish_at("https://id.example/.well-known/oauth-authorization-server/team", metadata);
    }

    pub(super) fn publish_at(&self, address: &str, metadata: Value) {
        self.state.lock().unwrap().metadata.insert(address.to_owned(), metadata);
    }

    pub(super) fn set_keys(&self, keys: &[Value]) {
        self.state.lock().unwrap().keys = keys.to_vec();
    }

    pub(super) fn set_token(&self, token: &str, answer: Value) {
        self.state.lock().unwrap().tokens.insert(token.to_owned(), answer);
    }

    pub(super) fn set_token_response(&self, status: u16, body: Value) {
        self.state.lock().unwrap().token_response = (status, body);
    }

    pub(super) fn set_unreachable(&self, is_unreachable: bool) {
        self.state.lock().unwrap().is_unreachable = is_unreachable;
    }

    /// How often an address was requested whose end is this.
    pub(super) fn requests(&self, end: &str) -> usize {
        self.state.lock().unwrap().requests.iter().filter(|(url, _)| url.ends_with(end)).count()
    }

    pub(super) fn last_body(&self) -> String {
        self.state.lock().unwrap().requests.last().unwrap().1.clone()
    }

    pub(super) fn verifier(self: &Arc<Self>, rules: ClaimRules) -> Verifier {
        self.verifier_as(None, rules)
    }

    pub(super) fn verifier_as(self: &Arc<Self>, secret: Option<&str>, rules: ClaimRules) -> Verifier {
        let client = secret.map(|secret| ClientSettings { id: "mcp".to_owned(), secret: Some(secret.into()) });
        let fetch = Arc::clone(self) as Arc<dyn Fetch>;
        Verifier::new(vec![IssuerSettings { issuer: ISSUER.to_owned(), client }], rules, &fetch)
    }

    fn answer(&self, request: &HttpRequest) -> Result<HttpResponse, FetchError> {
        let mut state = self.state.lock().unwrap();
        let body = String::from_utf8(request.body.to_vec()).unwrap();
        state.requests.push((request.url.clone(), body.clone()));
        if state.is_unreachable {
            return Err(FetchError::Unsent("connection refused".to_owned()));
        }
        let mut status = None;
        let found = match request.url.as_str() {
            TOKEN_ENDPOINT => {
                let (response_status, body) = state.token_response.clone();
                status = Some(response_status);
                Some(body)
            }
            JWKS => Some(json!({"keys": state.keys})),
            INTROSPECTION => {
                let token = body.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap();
                Some(state.tokens.get(token).cloned().unwrap_or(json!({"active": false})))
            }
            other => state.metadata.get(other).cloned(),
        };
        let status = status.unwrap_or(if found.is_some() { 200 } else { 404 });
        Ok(HttpResponse {
            status,
            content_type: "application/json".to_owned(),
            www_authenticate: Vec::new(),
            body: found.unwrap_or_default().to_string().into(),
        })
    }
}

impl Fetch for Issuer {
    fn fetch(
        &self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, FetchError>> + Send + '_>> {
        let answer = self.answer(&request);
        Box::pin(async move { answer })
    }
}
