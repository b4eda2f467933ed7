//! How a client authenticates at the token endpoint.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use catalog::{OAuthSettings, TokenEndpointAuthMethod};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use serde_json::json;
use url::form_urlencoded;

use crate::error::{FlowError, Step};
use crate::grant::{ClientIdentity, unix_now};
use crate::random;
use crate::secret::Secret;

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// For how many seconds an assertion is valid.
const ASSERTION_LIFETIME: u64 = 300;

/// Who sends a token request, and with which credentials.
pub(crate) struct Client<'a> {
    pub(crate) identity: &'a ClientIdentity,
    pub(crate) settings: &'a OAuthSettings,
    /// The issuer of the authorization server: the audience of an assertion.
    pub(crate) issuer: &'a str,
    /// The contents of the configured private key file.
    pub(crate) private_key: Option<&'a Secret>,
}

/// What authenticates a request: parameters of its body, and perhaps a header.
pub(crate) struct Authentication {
    pub(crate) parameters: Vec<(&'static str, Secret)>,
    pub(crate) header: Option<Secret>,
}

impl Client<'_> {
    /// The credentials for one request.
    pub(crate) fn authenticate(&self, step: Step) -> Result<Authentication, FlowError> {
        let id = || ("client_id", Secret::from(self.identity.id.as_str()));
        match self.identity.auth_method {
            TokenEndpointAuthMethod::None => Ok(Authentication { parameters: vec![id()], header: None }),
            TokenEndpointAuthMethod::ClientSecretBasic => {
                let secret = self.secret(step)?;
                // RFC 6749, 2.3.1: both are form-encoded first.
                let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encoded(&self.identity.id), encoded(secret.reveal()));
                let header = format!("Basic {}", STANDARD.encode(pair)).into();
                Ok(Authentication { parameters: Vec::new(), header: Some(header) })
            }
            TokenEndpointAuthMethod::ClientSecretPost => {
                let parameters = vec![id(), ("client_secret", self.secret(step)?)];
                Ok(Authentication { parameters, header: None })
            }
            TokenEndpointAuthMethod::PrivateKeyJwt => {
                let fail = |problem: String| FlowError::new(step, problem);
                let missing =
                    || fail("there is no private key to sign with".to_owned()).hint("set `oauth.private_key_file`");
                let key = self.private_key.ok_or_else(missing)?;
                let assertion =
                    assertion(&self.identity.id, self.issuer, key).map_err(|problem| fail(problem.into()))?;
                let parameters =
                    vec![id(), ("client_assertion_type", ASSERTION_TYPE.into()), ("client_assertion", assertion)];
                Ok(Authentication { parameters, header: None })
            }
        }
    }

    fn secret(&self, step: Step) -> Result<Secret, FlowError> {
        let configured = self.settings.client_secret.as_deref().map(Secret::from);
        configured.or_else(|| self.identity.secret.clone()).ok_or_else(|| {
            let method = self.identity.auth_method.as_str();
            let problem = format!("{method} needs a client secret, and there is none");
            FlowError::new(step, problem)
                .hint("set `oauth.client_secret`, or another `oauth.token_endpoint_auth_method`")
        })
    }
}

/// A signed assertion (RFC 7523) of that client for that audience.
fn assertion(client_id: &str, audience: &str, pem: &Secret) -> Result<Secret, &'static str> {
    let key = SigningKey::from_pem(pem.reveal())?;
    let now = unix_now();
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + ASSERTION_LIFETIME,
        "jti": random(),
    });
    let header = json!({ "alg": key.algorithm(), "typ": "JWT" });
    let encoded = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encoded(header), encoded(claims));
    let signature = key.sign(message.as_bytes())?;
    Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)).into())
}

enum SigningKey {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

impl SigningKey {
    /// Any PKCS #8 key that we can sign with.
    fn from_pem(pem: &str) -> Result<Self, &'static str> {
        let (_, rest) = pem
            .split_once("-----BEGIN PRIVATE KEY-----")
            .ok_or("the private key file is not a PKCS #8 key in PEM (`-----BEGIN PRIVATE KEY-----`); convert it with `openssl pkcs8 -topk8 -nocrypt`")?;
        let (body, _) = rest.split_once("-----END PRIVATE KEY-----").ok_or("the private key file has no end")?;
        let text: String = body.split_whitespace().collect();
        let der = STANDARD.decode(text).map_err(|_| "the private key file is not valid base64")?;
        let random = SystemRandom::new();
        let ecdsa = |algorithm| EcdsaKeyPair::from_pkcs8(algorithm, &der, &random);
        if let Ok(key) = ecdsa(&signature::ECDSA_P256_SHA256_FIXED_SIGNING) {
            return Ok(Self::Es256(key));
        }
        if let Ok(key) = ecdsa(&signature::ECDSA_P384_SHA384_FIXED_SIGNING) {
            return Ok(Self::Es384(key));
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der) {
            return Ok(Self::EdDsa(key));
        }
        RsaKeyPair::from_pkcs8(&der)
            .map(Self::Rs256)
            .map_err(|_| "the private key is neither EC (P-256 or P-384) nor Ed25519 nor RSA with 2048 bits or more")
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::Es384(_) => "ES384",
            Self::EdDsa(_) => "EdDSA",
            Self::Rs256(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, &'static str> {
        let random = SystemRandom::new();
        match self {
            Self::Es256(key) | Self::Es384(key) => {
                let signature = key.sign(&random, message).map_err(|_| "the assertion could not be signed")?;
                Ok(signature.as_ref().to_vec())
            }
            Self::EdDsa(key) => Ok(key.sign(message).as_ref().to_vec()),
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map_err(|_| "the assertion could not be signed")?;
                Ok(signature)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{KeyPair as _, UnparsedPublicKey};

    use super::*;
    use crate::grant::ClientSource;

    fn identity(id: &str, auth_method: TokenEndpointAuthMethod) -> ClientIdentity {
        ClientIdentity {
            id: id.to_owned(),
            secret: None,
            secret_expires_at: None,
            auth_method,
            source: ClientSource::Configured,
            redirect_uri: None,
        }
    }

    #[test]
    fn id_and_secret_are_form_encoded_before_base64() {
        let settings = OAuthSettings { client_secret: Some("p:w/ä +".into()), ..OAuthSettings::default() };
        let identity = identity("a b:c", TokenEndpointAuthMethod::ClientSecretBasic);
        let client = Client { identity: &identity, settings: &settings, issuer: "https://as", private_key: None };
        let header = client.authenticate(Step::TokenRequest).unwrap().header.unwrap();
        let pair = STANDARD.decode(header.reveal().strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(String::from_utf8(pair).unwrap(), "a+b%3Ac:p%3Aw%2F%C3%A4+%2B");
    }

    #[test]
    fn an_assertion_is_signed_for_the_issuer() {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let body = STANDARD.encode(document.as_ref());
        let pem = Secret::from(format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"));
        let jwt = assertion("me", "https://as", &pem).unwrap();
        let (message, signature) = jwt.reveal().rsplit_once('.').unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        let public =
            UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, key.unwrap().public_key().as_ref().to_vec());
        public.verify(message.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let claims = URL_SAFE_NO_PAD.decode(message.split_once('.').unwrap().1).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(
            (&claims["iss"], &claims["sub"], &claims["aud"]),
            (&json!("me"), &json!("me"), &json!("https://as"))
        );
        for bad in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"] {
            assert!(assertion("me", "https://as", &bad.into()).is_err());
        }
    }
}
