//! The health check URL of a server as it is stored: encrypted if it contains a secret.

use crate::ServerId;
use crate::config::masked_address;
use crate::database::Mismatch;
use crate::seal::Sealer;
use crate::store;

/// The stored form.
pub(crate) fn sealed(sealer: &Sealer, id: ServerId, address: &str) -> String {
    if masked_address(address) == address {
        return address.to_owned();
    }
    sealer.seal(&id.to_string(), address).to_string()
}

/// The original form.
pub(crate) fn opened(sealer: &Sealer, id: ServerId, kept: Option<String>) -> Result<Option<String>, Mismatch> {
    match kept {
        Some(sealed) if sealed.starts_with('{') => {
            let sealed = serde_json::from_str(&sealed).map_err(|_| Mismatch::Seal("its format is unknown"))?;
            store::opened(sealer, &id.to_string(), sealed).map(Some)
        }
        plain => Ok(plain),
    }
}
