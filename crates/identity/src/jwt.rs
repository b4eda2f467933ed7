//! A JSON Web Token in the compact form (RFC 7515): its parts, of which nothing is trusted before its signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::rejection::Rejection;

/// Longer tokens are not read.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The algorithms that are allowed. There is neither `none` nor a symmetric one, so a public key is never taken for a
/// shared secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }
}

/// A token that was read, and not verified.
pub(crate) struct Jwt<'t> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    /// What is signed.
    pub(crate) message: &'t [u8],
    pub(crate) signature: Vec<u8>,
    /// Anybody may have written them.
    pub(crate) unverified_claims: Map<String, Value>,
}

/// What a token looks like.
pub(crate) enum Shape<'t> {
    Jwt(Jwt<'t>),
    /// Only its issuer can say what it means.
    Opaque,
}

impl<'t> Shape<'t> {
    /// Reads a token. What begins like a JWT must be one.
    pub(crate) fn of(token: &'t str) -> Result<Self, Rejection> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Rejection::Malformed);
        }
        let parts: Vec<&str> = token.split('.').collect();
        let Some(header) = parts.first().and_then(|header| object(header)) else { return Ok(Self::Opaque) };
        let [_, claims, signature] = parts.as_slice() else { return Err(Rejection::Malformed) };
        let text = |name: &str| header.get(name).and_then(Value::as_str);
        let algorithm = text("alg").and_then(Algorithm::named).ok_or(Rejection::Algorithm)?;
        // Extensions that must be understood, and we know none.
        if header.contains_key("crit") || !header.get("typ").is_none_or(is_access_token) {
            return Err(Rejection::Type);
        }
        Ok(Self::Jwt(Jwt {
            algorithm,
            key_id: text("kid").map(str::to_owned),
            message: &token.as_bytes()[..token.len() - signature.len() - 1],
            signature: URL_SAFE_NO_PAD.decode(signature).map_err(|_| Rejection::Malformed)?,
            unverified_claims: object(claims).ok_or(Rejection::Malformed)?,
        }))
    }
}

/// Providers call an access token either what it is (RFC 9068) or just a JWT.
fn is_access_token(kind: &Value) -> bool {
    let Some(kind) = kind.as_str() else { return false };
    let kind = kind.to_ascii_lowercase();
    matches!(kind.strip_prefix("application/").unwrap_or(&kind), "jwt" | "at+jwt")
}

fn object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}
