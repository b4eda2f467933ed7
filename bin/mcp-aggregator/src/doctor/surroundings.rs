//! What servers and service need around them: a port, a registry with its key, room on the disk, a container engine.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use containers::engine::Engine;
use registry::Location;
use rustix::fs::{Access, access, statvfs};
use search::VectorStore;
use tokio::time::timeout;
use upstream::Holder;

use super::finding::Finding;
use crate::admission::check_door;
use crate::storage::{StorageArguments, with_causes};

/// Where `serve` listens unless it is told otherwise.
pub(crate) const USUAL_ADDRESS: &str = "127.0.0.1:8808";
/// With less than this on the disk, the registry will soon be unable to write.
const LITTLE_ROOM: u64 = 100 << 20;
/// How long whoever is elsewhere may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether `serve` would listen there, by who may come in.
pub(crate) fn door(listen: SocketAddr, has_tokens: bool) -> Option<Finding> {
    let failure = check_door(listen, has_tokens).err()?;
    let finding = Finding::problem("port", failure.message);
    Some(finding.advise(failure.hint.unwrap_or_default()))
}

/// Whether `serve` could listen there. That the usual port is taken matters only to who wants it.
pub(crate) fn port(listen: Option<SocketAddr>) -> Finding {
    let address = listen.unwrap_or_else(|| USUAL_ADDRESS.parse().expect("it is an address"));
    let message = match TcpListener::bind(address) {
        Ok(_) => return Finding::ok("port", format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match Holder::of_port(address) {
            Some(holder) => format!("{holder} listens at {address}"),
            None => format!("another program listens at {address}"),
        },
        Err(error) => format!("could not listen at {address}: {error}"),
    };
    let finding = if listen.is_some() { Finding::problem("port", message) } else { Finding::warning("port", message) };
    finding.advise("`mcp-aggregator serve --listen PORT` takes another one")
}

/// Whether the registry can be opened with the key there is. Where none is, none is made.
pub(crate) async fn registry(storage: &StorageArguments) -> Vec<Finding> {
    let location = match storage.location() {
        Ok(location) => location,
        Err(failure) => return vec![failed(&failure)],
    };
    let file = match &location {
        Location::File(file) => Some(file.clone()),
        Location::Postgres(_) => None,
    };
    let mut findings = Vec::new();
    match &file {
        Some(file) if !file.exists() => findings.push(room_for(file)),
        _ => findings.push(opened(storage, &location).await),
    }
    findings.extend(file.as_deref().and_then(disk));
    findings
}

async fn opened(storage: &StorageArguments, location: &Location) -> Finding {
    let store = match storage.look().await {
        Ok(Some(store)) => store,
        Ok(None) => return Finding::ok("registry", format!("there is none at {location} yet; `serve` will make it")),
        Err(failure) => return failed(&failure),
    };
    let pinged = store.ping().await;
    store.close().await;
    match pinged {
        Ok(()) => writable(location).unwrap_or_else(|| {
            Finding::ok("registry", format!("{location} can be opened, and its key is the right one"))
        }),
        Err(error) => Finding::problem("registry", format!("{location} does not answer: {error}")),
    }
}

/// What is wrong if a file can only be read.
fn writable(location: &Location) -> Option<Finding> {
    let Location::File(file) = location else { return None };
    access(file, Access::WRITE_OK).is_err().then(|| {
        Finding::problem("registry", format!("{} cannot be written", file.display()))
            .advise("make it yours (`chown`, `chmod`), or name another folder with --data-dir")
    })
}

fn failed(failure: &crate::failure::Failure) -> Finding {
    let finding = Finding::problem("registry", failure.message.clone());
    match &failure.hint {
        Some(hint) => finding.advise(hint.clone()),
        None => finding,
    }
}

/// Whether a registry could be made.
fn room_for(file: &Path) -> Finding {
    // What the permissions say is not all: some file systems take no files. This one has no name, and goes at once.
    match tempfile::tempfile_in(existing(file)) {
        Ok(_) => Finding::ok("registry", format!("there is none yet; `serve` will make {}", file.display())),
        Err(_) => {
            Finding::problem("registry", format!("{} cannot be made: its folder is not ours to write", file.display()))
                .advise("name another folder with --data-dir")
        }
    }
}

/// The path, or the first above it that is there.
fn existing(path: &Path) -> PathBuf {
    let above = path.ancestors().find(|path| !path.as_os_str().is_empty() && path.exists());
    above.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn disk(file: &Path) -> Option<Finding> {
    let folder = existing(file);
    let disk = statvfs(&folder).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    (free < LITTLE_ROOM).then(|| {
        let message = format!("only {} MB are free where {} is", free >> 20, folder.display());
        Finding::warning("disk", message).advise("make room, or name another folder with --data-dir")
    })
}

/// How much room there is for the registry.
pub(crate) fn room(storage: &StorageArguments) -> Option<Finding> {
    let Ok(Location::File(file)) = storage.location() else { return None };
    Some(disk(&file).unwrap_or_else(|| Finding::ok("disk", format!("there is room where {} is", file.display()))))
}

/// Whether a container engine answers.
pub(crate) async fn engine() -> Finding {
    match Engine::find().await {
        Ok(_) => Finding::ok("containers", "an engine answers"),
        Err(trouble) => Finding::problem("containers", trouble.to_string())
            .advise("install or start Docker or Podman, or say where it is by DOCKER_HOST"),
    }
}

/// Whether the one that is to keep vectors answers.
pub(crate) async fn vectors(store: &dyn VectorStore) -> Finding {
    let place = format!("{} at {}", store.name(), store.address());
    match timeout(PATIENCE, store.count()).await {
        Ok(Ok(count)) => Finding::ok("vectors", format!("{place} answers, and keeps {count}")),
        Ok(Err(error)) if is_missing(&error) => Finding::ok("vectors", format!("{place} answers; it keeps none yet")),
        Ok(Err(error)) => no_vectors(&place, &with_causes(&error)),
        Err(_) => no_vectors(&place, &format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

/// Whether it is there, but has nothing of ours. `serve` makes what is missing.
fn is_missing(error: &search::StoreError) -> bool {
    let words = with_causes(error);
    words.contains("doesn't exist") || words.contains("does not exist")
}

fn no_vectors(place: &str, why: &str) -> Finding {
    Finding::problem("vectors", format!("{place}: {why}"))
        .advise("start Qdrant, look at its address (the port is that for gRPC) and at QDRANT_API_KEY, or leave it out")
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_a_problem_for_who_wants_it() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = port(Some(other.local_addr().unwrap()));
        assert_eq!(taken.level, Level::Problem);
        assert!(taken.advice.unwrap().contains("--listen"));
        assert_eq!(port(Some("127.0.0.1:0".parse().unwrap())).level, Level::Ok);
        let all = "0.0.0.0:1".parse().unwrap();
        assert!(door(all, true).is_none() && door(all, false).is_some_and(|finding| finding.level == Level::Problem));
    }

    #[tokio::test]
    async fn looking_for_a_registry_makes_none() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("not/yet");
        let storage = StorageArguments { data_dir: Some(data.clone()), database: None, database_schema: None };
        let findings = registry(&storage).await;
        assert_eq!(findings[0].level, Level::Ok, "{findings:?}");
        assert!(!data.exists());
        let storage = StorageArguments {
            data_dir: Some("/proc/nobody/can/make/this".into()),
            database: None,
            database_schema: None,
        };
        assert_eq!(registry(&storage).await[0].level, Level::Problem);
    }
}
