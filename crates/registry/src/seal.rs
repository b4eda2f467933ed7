//! Encrypts credentials with XChaCha20-Poly1305.
//!
//! Its nonces are long enough to be random. Encrypted data is bound to its owner: a config that is copied to the row of
//! another server cannot be decrypted there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::key::CredentialKey;

const VERSION: u32 = 1;
const ALGORITHM: &str = "XChaCha20-Poly1305";
const NONCE_LENGTH: usize = 24;

/// Why decryption failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    /// It was encrypted with another key.
    #[error("it was encrypted with another key")]
    OtherKey,
    /// The format is unknown, or it was tampered with.
    #[error("it cannot be decrypted: {0}")]
    Damaged(&'static str),
}

impl CredentialKey {
    /// Encrypts a text that belongs to `owner`. It cannot be decrypted as that of another owner.
    pub fn seal(&self, owner: &str, text: &str) -> serde_json::Value {
        Sealer::new(self).seal(owner, text)
    }

    /// Decrypts a text that belongs to `owner`.
    pub fn unseal(&self, owner: &str, sealed: serde_json::Value) -> Result<String, UnsealError> {
        Sealer::new(self).open(owner, sealed)
    }
}

/// The stored form: `{"v":1,"alg":...,"key":...,"nonce":...,"data":...}`.
#[derive(Serialize, Deserialize)]
struct Sealed {
    v: u32,
    alg: String,
    /// Identifies the key: the start of a digest.
    key: String,
    nonce: String,
    data: String,
}

/// Encrypts and decrypts.
pub(crate) struct Sealer {
    cipher: XChaCha20Poly1305,
    key_id: String,
}

impl Sealer {
    pub(crate) fn new(key: &CredentialKey) -> Self {
        let digest =
            Sha256::new().chain_update(b"mcp-aggregator credential key id").chain_update(key.bytes()).finalize();
        Self {
            cipher: XChaCha20Poly1305::new(key.bytes().into()),
            key_id: digest[..8].iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Encrypts a text that belongs to `owner`.
    pub(crate) fn seal(&self, owner: &str, text: &str) -> serde_json::Value {
        let mut nonce = [0; NONCE_LENGTH];
        getrandom::fill(&mut nonce).expect("a system that made our ids has random bytes");
        let payload = Payload { msg: text.as_bytes(), aad: owner.as_bytes() };
        let data = self.cipher.encrypt(&XNonce::from(nonce), payload).expect("a config is far below 256 GB");
        let sealed = Sealed {
            v: VERSION,
            alg: ALGORITHM.to_owned(),
            key: self.key_id.clone(),
            nonce: STANDARD.encode(nonce),
            data: STANDARD.encode(data),
        };
        serde_json::to_value(sealed).expect("strings and a number can be written")
    }

    /// Decrypts a text that belongs to `owner`.
    pub(crate) fn open(&self, owner: &str, sealed: serde_json::Value) -> Result<String, UnsealError> {
        let damaged = UnsealError::Damaged;
        let sealed: Sealed = serde_json::from_value(sealed).map_err(|_| damaged("its format is unknown"))?;
        if sealed.v != VERSION || sealed.alg != ALGORITHM {
            return Err(damaged("its version or algorithm is unknown"));
        }
        if sealed.key != self.key_id {
            return Err(UnsealError::OtherKey);
        }
        let nonce = STANDARD.decode(sealed.nonce).ok().and_then(|nonce| <[u8; NONCE_LENGTH]>::try_from(nonce).ok());
        let (Some(nonce), Ok(data)) = (nonce, STANDARD.decode(sealed.data)) else {
            return Err(damaged("its format is unknown"));
        };
        let payload = Payload { msg: &data, aad: owner.as_bytes() };
        let text =
            self.cipher.decrypt(&XNonce::from(nonce), payload).map_err(|_| damaged("it was changed or moved"))?;
        String::from_utf8(text).map_err(|_| damaged("it is not text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(byte: &str) -> Sealer {
        Sealer::new(&CredentialKey::parse(&byte.repeat(32)).unwrap())
    }

    #[test]
    fn what_was_sealed_opens_for_its_owner() {
        let sealed = sealer("ab").seal("me", "a secret");
        assert!(!sealed.to_string().contains("a secret"));
        assert_eq!(sealer("ab").open("me", sealed).unwrap(), "a secret");
    }

    #[test]
    fn the_same_text_is_sealed_differently_each_time() {
        assert_ne!(sealer("ab").seal("me", "a secret"), sealer("ab").seal("me", "a secret"));
    }

    #[test]
    fn another_key_is_distinguished_from_damage() {
        let sealed = sealer("ab").seal("me", "a secret");
        assert_eq!(sealer("cd").open("me", sealed).unwrap_err(), UnsealError::OtherKey);
    }

    #[test]
    fn what_was_moved_or_changed_does_not_open() {
        let sealed = sealer("ab").seal("me", "a secret");
        assert!(matches!(sealer("ab").open("you", sealed.clone()), Err(UnsealError::Damaged(_))));
        let mut changed = sealed.clone();
        changed["data"] = sealer("ab").seal("me", "a secret")["data"].clone();
        assert!(matches!(sealer("ab").open("me", changed), Err(UnsealError::Damaged(_))));
        let mut unknown = sealed;
        unknown["v"] = 2.into();
        assert!(matches!(sealer("ab").open("me", unknown), Err(UnsealError::Damaged(_))));
    }
}
