//! The address that is asked for a server's health, as it is kept: sealed if there is something in it that is not shown.

use crate::ServerId;
use crate::config::masked_address;
use crate::database::Mismatch;
use crate::seal::Sealer;
use crate::store;

/// As it is kept.
pub(crate) fn sealed(sealer: &Sealer, id: ServerId, address: &str) -> String {
    if masked_address(address) == address {
        return address.to_owned();
    }
    sealer.seal(&id.to_string(), address).to_string()
}

/// As it was given.
pub(crate) fn opened(sealer: &Sealer, id: ServerId, kept: Option<String>) -> Result<Option<String>, Mismatch> {
    match kept {
        Some(sealed) if sealed.starts_with('{') => {
            let sealed = serde_json::from_str(&sealed).map_err(|_| Mismatch::Seal("it is not in the form we write"))?;
            store::opened(sealer, &id.to_string(), sealed).map(Some)
        }
        plain => Ok(plain),
    }
}
