//! How servers live that are no programs of ours: elsewhere, or in containers.

use std::path::Path;
use std::sync::Arc;

use aggregator::cycle::Chain;
use containers::Containers;
use containers::labels::Owner;
use registry::Location;
use upstream::Connector;

use crate::instance_lock::InstanceLock;

/// For servers of a config, for the length of one command.
pub(crate) fn of_config(chain: &Chain) -> Connector {
    let chain = chain.as_value();
    let chain = chain.to_string_lossy();
    // The last one is our own.
    let config = chain.lines().last().unwrap_or_default();
    Containers::new(Owner::of_config(config)).connector_or(Arc::new(remote::connect))
}

/// All containers of the service that keeps its servers there. Its tenancy says who it is, wherever it is moved to.
pub(crate) fn containers_of(instance_lock: &InstanceLock, registry: &Location) -> Arc<Containers> {
    let home = match registry {
        Location::File(path) => absolute(path),
        elsewhere @ Location::Postgres(_) => elsewhere.to_string(),
    };
    Containers::new(Owner::alone(instance_lock.instance(), &home))
}

/// The same for the same file, wherever it is looked at from.
fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The file itself may not be there yet, but its folder usually is.
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name).display().to_string(),
        _ => path.display().to_string(),
    }
}
