//! Which ports of the machine are whose, among servers that run in its own network.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::ContainerError;

/// All ports that are taken by servers of ours, or are about to be.
#[derive(Debug, Default)]
pub(crate) struct PortClaims {
    by_port: Mutex<HashMap<u16, String>>,
}

/// Ports that are somebody's until this is dropped.
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
                words: format!("server `{owner}` has it"),
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
    fn a_port_is_one_servers_until_that_one_is_gone() {
        let claims = Arc::new(PortClaims::default());
        let first = claims.take("one", &[80, 81]).unwrap();
        let told = claims.take("two", &[82, 81]).unwrap_err().to_string();
        assert_eq!(told, "port 81 is in use already: server `one` has it");
        drop(first);
        claims.take("two", &[82, 81]).unwrap();
    }
}
