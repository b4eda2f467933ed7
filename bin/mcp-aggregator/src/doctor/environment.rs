//! Checks what servers and the service need: a port, the registry with its key, disk space, a container engine.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use containers::Engine;
use registry::Location;
use rustix::fs::{Access, access, statvfs};
use search::VectorStore;
use tokio::time::timeout;
use upstream::Holder;

use super::diagnosis::Diagnosis;
use crate::admission::check_exposure;
use crate::storage::{StorageArguments, with_causes};

/// The default address of `serve`.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:8808";
/// With less free space, the registry will soon be unable to write.
const LITTLE_ROOM: u64 = 100 << 20;
/// The timeout of checks over a network.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether `serve` would listen there, considering who could use it.
pub(crate) fn exposure(listen: SocketAddr, has_tokens: bool) -> Option<Diagnosis> {
    let failure = check_exposure(listen, has_tokens).err()?;
    let finding = Diagnosis::problem("port", failure.message);
    Some(finding.advise(failure.hint.unwrap_or_default()))
}

/// Whether `serve` could listen there. That the default port is in use only matters to a user who needs it.
pub(crate) fn port(listen: Option<SocketAddr>) -> Diagnosis {
    let address = listen.unwrap_or_else(|| DEFAULT_ADDRESS.parse().expect("the server uses a URL"));
    let message = match TcpListener::bind(address) {
        Ok(_) => return Diagnosis::ok("port", format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match Holder::of_port(address) {
            Some(holder) => format!("{holder} listens on {address}"),
            None => format!("another program listens on {address}"),
        },
        Err(error) => format!("could not listen on {address}: {error}"),
    };
    let finding =
        if listen.is_some() { Diagnosis::problem("port", message) } else { Diagnosis::warning("port", message) };
    finding.advise("`mcp-aggregator serve --listen PORT` uses another one")
}

/// Whether the registry can be opened with the existing key. This creates neither.
pub(crate) async fn registry(storage: &StorageArguments) -> Vec<Diagnosis> {
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

async fn opened(storage: &StorageArguments, location: &Location) -> Diagnosis {
    let store = match storage.open_existing().await {
        Ok(Some(store)) => store,
        Ok(None) => return Diagnosis::ok("registry", format!("there is none at {location} yet; `serve` creates it")),
        Err(failure) => return failed(&failure),
    };
    let pinged = store.ping().await;
    store.close().await;
    match pinged {
        Ok(()) => writable(location)
            .unwrap_or_else(|| Diagnosis::ok("registry", format!("{location} can be opened, and its key fits"))),
        Err(error) => Diagnosis::problem("registry", format!("{location} does not answer: {error}")),
    }
}

/// The finding about a file that can only be read.
fn writable(location: &Location) -> Option<Diagnosis> {
    let Location::File(file) = location else { return None };
    access(file, Access::WRITE_OK).is_err().then(|| {
        Diagnosis::problem("registry", format!("{} cannot be written", file.display()))
            .advise("change its owner or mode (`chown`, `chmod`), or use another folder with --data-dir")
    })
}

fn failed(failure: &crate::failure::Failure) -> Diagnosis {
    let finding = Diagnosis::problem("registry", failure.message.clone());
    match &failure.hint {
        Some(hint) => finding.advise(hint.clone()),
        None => finding,
    }
}

/// Whether a registry could be created.
fn room_for(file: &Path) -> Diagnosis {
    // Permissions do not tell everything: some file systems accept no files. This file has no name, and is removed at
    // once.
    match tempfile::tempfile_in(existing(file)) {
        Ok(_) => Diagnosis::ok("registry", format!("there is none yet; `serve` creates {}", file.display())),
        Err(_) => {
            Diagnosis::problem("registry", format!("{} cannot be created: its folder is not writable", file.display()))
                .advise("use another folder with --data-dir")
        }
    }
}

/// The path, or its closest existing ancestor.
fn existing(path: &Path) -> PathBuf {
    let above = path.ancestors().find(|path| !path.as_os_str().is_empty() && path.exists());
    above.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn disk(file: &Path) -> Option<Diagnosis> {
    let folder = existing(file);
    let disk = statvfs(&folder).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    (free < LITTLE_ROOM).then(|| {
        let message = format!("only {} MB are free for {}", free >> 20, folder.display());
        Diagnosis::warning("disk", message).advise("free space, or use another folder with --data-dir")
    })
}

/// The free disk space for the registry.
pub(crate) fn room(storage: &StorageArguments) -> Option<Diagnosis> {
    let Ok(Location::File(file)) = storage.location() else { return None };
    Some(disk(&file).unwrap_or_else(|| Diagnosis::ok("disk", format!("there is enough space for {}", file.display()))))
}

/// Whether a container engine answers.
pub(crate) async fn engine() -> Diagnosis {
    match Engine::find().await {
        Ok(_) => Diagnosis::ok("containers", "an engine answers"),
        Err(error) => Diagnosis::problem("containers", error.to_string())
            .advise("install or start Docker or Podman, or set DOCKER_HOST"),
    }
}

/// Whether the vector store answers.
pub(crate) async fn vectors(store: &dyn VectorStore) -> Diagnosis {
    let place = format!("{} at {}", store.name(), store.address());
    match timeout(PROBE_TIMEOUT, store.count()).await {
        Ok(Ok(count)) => Diagnosis::ok("vectors", format!("{place} answers, and stores {count}")),
        Ok(Err(error)) if is_missing(&error) => {
            Diagnosis::ok("vectors", format!("{place} answers; it stores none yet"))
        }
        Ok(Err(error)) => no_vectors(&place, &with_causes(&error)),
        Err(_) => no_vectors(&place, &format!("no answer within {} s", PROBE_TIMEOUT.as_secs())),
    }
}

/// Whether it is reachable but empty. `serve` creates what is missing.
fn is_missing(error: &search::StoreError) -> bool {
    let words = with_causes(error);
    words.contains("doesn't exist") || words.contains("does not exist")
}

fn no_vectors(place: &str, why: &str) -> Diagnosis {
    Diagnosis::problem("vectors", format!("{place}: {why}"))
        .advise("start Qdrant, check its address (with the gRPC port) and QDRANT_API_KEY, or do not use it")
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::Level;
    use super::*;

    #[test]
    fn a_port_in_use_is_a_problem_only_if_it_was_requested() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = port(Some(other.local_addr().unwrap()));
        assert_eq!(taken.level, Level::Problem);
        assert!(taken.advice.unwrap().contains("--listen"));
        assert_eq!(port(Some("127.0.0.1:0".parse().unwrap())).level, Level::Ok);
        let all = "0.0.0.0:1".parse().unwrap();
        assert!(
            exposure(all, true).is_none()
                && exposure(all, false).is_some_and(|finding| finding.level == Level::Problem)
        );
    }

    #[tokio::test]
    async fn read_only_checks_make_no_registry() {
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
