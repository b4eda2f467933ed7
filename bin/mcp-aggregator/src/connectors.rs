//! The connectors for servers that are not local programs: remote ones, and those in containers.

use std::path::Path;
use std::sync::Arc;

use aggregator::cycle::Chain;
use containers::{Containers, Owner};
use oauth::{OAuth, Protected};
use registry::Location;
use upstream::Connector;

use crate::instance_lock::InstanceLock;

/// For the servers of a config, while one command runs. `oauth` has the sign-ins to them.
pub(crate) fn of_config(chain: &Chain, oauth: &Arc<OAuth>) -> Connector {
    Containers::new(Owner::of_config(&config_file(chain)))
        .connector_or(remote::connector(Arc::clone(oauth), Protected::of))
}

/// The config file of this program, which is the last one of the chain.
pub(crate) fn config_file(chain: &Chain) -> String {
    chain.as_value().to_string_lossy().lines().last().unwrap_or_default().to_owned()
}

/// For the servers of a service. Its instance id identifies its containers, also after its folder was moved.
pub(crate) fn containers_of(instance_lock: &InstanceLock, registry: &Location) -> Arc<Containers> {
    let home = match registry {
        Location::File(path) => absolute(path),
        elsewhere @ Location::Postgres(_) => elsewhere.to_string(),
    };
    Containers::new(Owner::alone(instance_lock.instance(), &home))
}

/// The same path for the same file, whatever the current folder is.
fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The file may not exist yet, but its folder usually does.
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name).display().to_string(),
        _ => path.display().to_string(),
    }
}
