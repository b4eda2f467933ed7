//! How a client authenticates at the token endpoint.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use catalog::{OAuthSettings, TokenEndpointAuthMethod};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use serde_json::json;
use url::form_urlencoded;

use crate::error::{FlowError, Step};
use crate::grant::{ClientIdentity, ClientSource, unix_now};
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
        // The configured secret belongs to the client that is configured now, and to no other.
        let secret = match self.identity.source {
            ClientSource::Configured => {
                let is_meant = self.settings.client_id.as_ref() == Some(&self.identity.id);
                self.settings.client_secret.as_deref().filter(|_| is_meant).map(Secret::from)
            }
            ClientSource::MetadataDocument | ClientSource::Registered => self.identity.secret.clone(),
        };
        secret.ok_or_else(|| {
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
    use ring::signature::{KeyPair as _, UnparsedPublicKey, VerificationAlgorithm};

    use super::*;

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
        let settings = OAuthSettings {
            client_id: Some("a b:c".into()),
            client_secret: Some("p:w/ä +".into()),
            ..OAuthSettings::default()
        };
        let identity = identity("a b:c", TokenEndpointAuthMethod::ClientSecretBasic);
        let client = Client { identity: &identity, settings: &settings, issuer: "https://as", private_key: None };
        let header = client.authenticate(Step::TokenRequest).unwrap().header.unwrap();
        let pair = STANDARD.decode(header.reveal().strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(String::from_utf8(pair).unwrap(), "a+b%3Ac:p%3Aw%2F%C3%A4+%2B");
    }

    /// As OpenSSL writes it, like those below. They are used nowhere else.
    const P384_KEY: &str = concat!(
        "MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDDgAbQdH5cpg76UgAS2b28RvK38lZS2oDu5V4ZSxybw+cc0M0u5f7mJIfy9OaRk",
        "DpqhZANiAASyJVht7ja7qqWiecw1lEFpHEdNccgPrVZp1/b9vZCgjOolPnTLTrzsvjGozHNkWDNEAipNL6qzC4Nn3bG4ZKDgKh1nohL6dCuc",
        "Hy3F2XdiUJguO2pCnUsGs1w5gcFlEF4=",
    );
    /// One without its public half.
    const ED25519_KEY: &str = "MC4CAQAwBQYDK2VwBCIEIJblpURyH1H8y17uOcVCaCijSz5ueEhcF/lDCGXNvk0H";
    /// 2048 bits.
    const RSA_KEY: &str = concat!(
        "MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQDn8bRmJfR75aHKue2bOq0qL1DO3DVlNqhtJlUEOIeLN01uPQkXhfFY0Qm1",
        "NCjJlSLXCiccrE+eFEyBRHD05fIll4M8KfQiD9wESiYyvSNWJQLDwh4U1akWkypGZLZ58Lnk9jfumoXMyQicabfW5QLy22OL9KJgZmUxnVUn",
        "IMS3sOIOrDQqsWV26/Ky/fZQcjn9wTlXfu3XbBwxPZ9Hec2XygM6M9NLLkSbdyqy4hxwuwEvwJObXqyScTy5irNOP8QckTXFGgjhbQ+g4MsG",
        "GY9JSO0DFU9qOd+tOf4lNLTA+/WiNmhPSGdUx288XUEw8FtHIuKHlapv2yhvAwaZAai3AgMBAAECggEAGJqjMFLGZH4vc3nVoqnOxLLQN6FU",
        "aLArnah7TD9S4Ym0RQVkeYJT38AM75Pg38FaOMVy8K+2omY012GTOedKkIJKAY/RvetAw5O6CZfWr8StTmbBGiSwExz5Vw5H7ReEIK2dsUni",
        "9547s5vjTIBul6R+ItKIhwFVqrWt2sC3HWUKYwZQ7g+4bIip/CkClKCVR+sZgANbFdDXve/y8pJSHhJ2NoeCd5oHz54h++8YUJR3ba8X94eY",
        "JTaqg4NcFPvn3emGPP2JtczonThhtqy7e/1Nc+BWKyvyoHtmqM4bh/doFVx0ZK3bM9mLldfGWwktIHohfn8lchrYRKiqDSDYQQKBgQD09ecD",
        "GxUnrTxXSsuHDcQKyYo7GYJ3QW83dNBsENzK10KNHYVf7p29arwLUx+M/9q2nqkikOFvDpVkUfnLSjzFRWYfu3TbLdFRnrIih5umpIDKsBhb",
        "xGxXbK73Tb9aE3Sqxc+z7CyzhfT6SVcoPcwmp/EBnKjsQD89QbjebVi1awKBgQDyZaH9WKUih1zhowFIwYhoCqnU4nvoQUujrR6C9G5K6Zpz",
        "uAPYcG5gicX2pPMC7skEq11Yo/zPdJVysLP6RIcWoq4GxgtzGi1UK/pCmabHCJ6LJ8O5x07wX9em8cvN7x081u5yW12x+j8ukIGr2PClY7b2",
        "GutrXBToizrium4g5QKBgCg17XP/EBvxPgR+TKagxduXdc95wobdAOqzjDsREY1ihJQxkmFLBC3BxZh+TqGQplBv/wejjL30QOW05zJNv2gK",
        "mlb/KJGKFeA2ErvEUvKp8lJTUcxOlBJNzvLdmlmo8+/MhOneDQBzLuGfBGWgr1BxJQjEtJ4Ddd4SWcx5WqR9AoGAfGsMXcTtZi7CzxJjK1wj",
        "TvwCNkJWRV2WnJnUqnUaU5taawFN//+duDGfij0aeyvjxGDNVh0+O6Hkv+zRRKl+CXFRECsBX4BVOfokx6CkiU70SgsMHMSf0SPwxkEgUkDk",
        "6gCMfehFzH/dhGIqHPIKe2oWVHZ21jF6je5BOHVm570CgYAX3rx0B6mViOugZjWp39odSfTdovDrW8L/agJNHLVK0mZyCKf5RLP+vAFqFYGY",
        "j1TEW41Qa9Na3rZCAp/YUoms93AzMqrgPTKHS4lczfq4o7WGOR36WTBGwdO2wg5B5mvG1Vt3NH4nO9jC0n3QOPVG0y33+Lf3Vaexr4UVMAVL",
        "dA==",
    );

    fn pem(body: &str) -> Secret {
        format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n").into()
    }

    /// The header and the claims of a token whose signature is valid.
    fn verified(
        jwt: &Secret,
        algorithm: &'static dyn VerificationAlgorithm,
        public: &[u8],
    ) -> (serde_json::Value, serde_json::Value) {
        let (message, signature) = jwt.reveal().rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        UnparsedPublicKey::new(algorithm, public).verify(message.as_bytes(), &signature).unwrap();
        let decoded = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        let (header, claims) = message.split_once('.').unwrap();
        (decoded(header), decoded(claims))
    }

    #[test]
    fn every_kind_of_key_signs_for_the_issuer() {
        let random = SystemRandom::new();
        let p256 = EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let p256 = STANDARD.encode(p256.as_ref());
        let der = |body: &str| STANDARD.decode(body).unwrap();
        let ec = |algorithm, body: &str| EcdsaKeyPair::from_pkcs8(algorithm, &der(body), &random).unwrap();
        let public_256 = ec(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &p256).public_key().as_ref().to_vec();
        let public_384 = ec(&signature::ECDSA_P384_SHA384_FIXED_SIGNING, P384_KEY).public_key().as_ref().to_vec();
        let ed25519 = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der(ED25519_KEY)).unwrap();
        let rsa = RsaKeyPair::from_pkcs8(&der(RSA_KEY)).unwrap();
        let kinds: [(_, _, &'static dyn VerificationAlgorithm, _); 4] = [
            ("ES256", p256.as_str(), &signature::ECDSA_P256_SHA256_FIXED, public_256),
            ("ES384", P384_KEY, &signature::ECDSA_P384_SHA384_FIXED, public_384),
            ("EdDSA", ED25519_KEY, &signature::ED25519, ed25519.public_key().as_ref().to_vec()),
            ("RS256", RSA_KEY, &signature::RSA_PKCS1_2048_8192_SHA256, rsa.public_key().as_ref().to_vec()),
        ];
        for (name, body, algorithm, public) in kinds {
            let jwt = assertion("me", "https://as", &pem(body)).unwrap();
            let (header, claims) = verified(&jwt, algorithm, &public);
            assert_eq!((&header["alg"], &header["typ"]), (&json!(name), &json!("JWT")));
            for (claim, value) in [("iss", "me"), ("sub", "me"), ("aud", "https://as")] {
                assert_eq!(claims[claim], value, "{name}");
            }
            assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), ASSERTION_LIFETIME);
            let (_, again) = verified(&assertion("me", "https://as", &pem(body)).unwrap(), algorithm, &public);
            assert_ne!(claims["jti"], again["jti"], "each is used once");
        }
        for bad in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"] {
            assert!(assertion("me", "https://as", &bad.into()).is_err());
        }
    }
}
