//! Which server has which host port, among servers in the host network.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::ContainerError;

/// All ports that are taken by servers of ours, or are about to be.
#[derive(Debug, Default)]
pub(crate) struct PortClaims {
    by_port: Mutex<HashMap<u16, String>>,
}

/// Ports that are taken until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct PortClaim {
    ports: Vec<u16>,
    claims: Arc<PortClaims>,
}

impl PortClaims {
    /// Takes all of these ports for a server, or none.
    pub(crate) fn take(self: &Arc<Self>, server: &str, ports: &[u16]) -> Result<PortClaim, ContainerError> {
        let mut by_port = self.lock();
        if let Some((port, owner)) = ports.iter().find_map(|port| Some((port, by_port.get(port)?))) {
            return Err(ContainerError::PortTaken {
                port: port.to_string(),
                words: format!("server `{owner}` uses it"),
            });
        }
        by_port.extend(ports.iter().map(|port| (*port, server.to_owned())));
        Ok(PortClaim { ports: ports.to_vec(), claims: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, String>> {
        self.by_port.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PortClaim {
    fn drop(&mut self) {
        let mut by_port = self.claims.lock();
        for port in &self.ports {
            by_port.remove(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_belongs_to_one_server_until_that_is_removed() {
        let claims = Arc::new(PortClaims::default());
        let first = claims.take("one", &[80, 81]).unwrap();
        let error = claims.take("two", &[82, 81]).unwrap_err().to_string();
        assert_eq!(error, "port 81 is already in use: server `one` uses it");
        drop(first);
        claims.take("two", &[82, 81]).unwrap();
    }
}
