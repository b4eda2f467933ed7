//! Where the sign-in of one identity to a server is stored.

use catalog::Principal;
use sha2::{Digest, Sha256};

/// Separates the key of a server's sign-in from the identity that it belongs to.
const OF_IDENTITY: &str = " as ";

/// Where the sign-in of one identity to a server is stored, if that of the server itself is stored under `grant_key`.
/// The local user has no sign-in of its own.
///
/// The identity is a digest: what an issuer calls a person may be long, and may contain anything.
pub fn grant_key_of(grant_key: &str, principal: &Principal) -> String {
    if principal.is_local() {
        return grant_key.to_owned();
    }
    format!("{grant_key}{OF_IDENTITY}{}", digest(principal.id().as_bytes()))
}

/// 32 hexadecimal digits that stand for a text.
pub(crate) fn digest(text: &[u8]) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The key of the server itself in the key of a sign-in, whoever it belongs to.
pub fn grant_key_of_server(key: &str) -> &str {
    key.rsplit_once(OF_IDENTITY).map_or(key, |(of_server, _)| of_server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::Role;

    #[test]
    fn each_identity_has_its_own_sign_in() {
        let person = |subject: &str| Principal::of_identity("https://id.example", subject, "ann", Role::User, None);
        let [ann, ben] = ["1 config", "2"].map(person);
        let key = grant_key_of("7 config", &ann);
        assert_ne!(key, grant_key_of("7 config", &ben));
        assert_eq!(grant_key_of_server(&key), "7 config");
        assert_eq!(grant_key_of_server("7"), "7");
        assert!(!grant_key_of("7", &ann).contains("config"), "an identity does not look like an origin");
        assert_eq!(grant_key_of("7", &Principal::local()), "7");
    }
}
