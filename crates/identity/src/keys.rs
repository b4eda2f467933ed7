//! The public keys of an issuer (RFC 7517), and what they verify.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use serde_json::{Map, Value};

use crate::jwt::{Algorithm, Jwt};
use crate::rejection::Rejection;

/// Further keys of an issuer are not read.
const MAX_KEYS: usize = 100;
/// A token without a key id is tried with so many keys at most.
const MAX_TRIED: usize = 8;

/// The keys with which an issuer signs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySet(Vec<Key>);

#[derive(Debug, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    /// The only algorithm that it is for, if it says so.
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// The uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl KeySet {
    /// Reads a key set. Keys that are not for signatures, or of an unknown kind, are left out. `None` if it is no key
    /// set.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(body).ok()?;
        let keys = document.get("keys")?.as_array()?;
        Some(Self(keys.iter().filter_map(|key| Key::read(key.as_object()?)).take(MAX_KEYS).collect()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies the signature of a token. [`Rejection::Key`] if there is no key that it could be signed with.
    pub(crate) fn verify(&self, token: &Jwt<'_>) -> Result<(), Rejection> {
        let is_it = |key: &&Key| token.key_id.is_none() || key.id == token.key_id;
        let fitting = self.0.iter().filter(is_it).filter(|key| key.is_for(token.algorithm)).take(MAX_TRIED);
        let mut rejection = Rejection::Key;
        for key in fitting {
            if key.material.verifies(token) {
                return Ok(());
            }
            rejection = Rejection::Signature;
        }
        Err(rejection)
    }
}

impl Key {
    fn read(key: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| text(name).and_then(|value| URL_SAFE_NO_PAD.decode(value.trim_end_matches('=')).ok());
        let is_for_signatures = text("use").is_none_or(|usage| usage == "sig")
            && key.get("key_ops").and_then(Value::as_array).is_none_or(|all| all.iter().any(|it| it == "verify"));
        if !is_for_signatures {
            return None;
        }
        let point = |size: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == size && y.len() == size).then(|| [&[4][..], &x, &y].concat())
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => Material::Rsa { modulus: unsigned(bytes("n")?), exponent: unsigned(bytes("e")?) },
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x")?),
            _ => return None,
        };
        // A key for another algorithm verifies nothing.
        let algorithm = match text("alg") {
            Some(name) => Some(Algorithm::named(name)?),
            None => None,
        };
        Some(Self { id: text("kid").map(str::to_owned), algorithm, material })
    }

    /// Whether a token with that algorithm can be signed with this key.
    fn is_for(&self, algorithm: Algorithm) -> bool {
        self.algorithm.is_none_or(|own| own == algorithm) && self.material.fits(algorithm)
    }
}

impl Material {
    fn fits(&self, algorithm: Algorithm) -> bool {
        match self {
            Self::Rsa { .. } => rsa(algorithm).is_some(),
            Self::P256(_) => algorithm == Algorithm::Es256,
            Self::P384(_) => algorithm == Algorithm::Es384,
            Self::Ed25519(_) => algorithm == Algorithm::EdDsa,
        }
    }

    fn verifies(&self, token: &Jwt<'_>) -> bool {
        let by = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(token.message, &token.signature).is_ok()
        };
        match self {
            Self::Rsa { modulus, exponent } => rsa(token.algorithm).is_some_and(|parameters| {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, token.message, &token.signature).is_ok()
            }),
            Self::P256(point) => by(&signature::ECDSA_P256_SHA256_FIXED, point),
            Self::P384(point) => by(&signature::ECDSA_P384_SHA384_FIXED, point),
            Self::Ed25519(key) => by(&signature::ED25519, key),
        }
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return None,
    })
}

/// Without leading zeros, which some issuers write.
fn unsigned(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}
