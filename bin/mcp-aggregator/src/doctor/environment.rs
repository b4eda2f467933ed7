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

use super::diagnosis::Diagnosis;
use crate::admission::check_exposure;
use crate::storage::{StorageArguments, with_causes};

/// Where `serve` listens unless it is told otherwise.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:8808";
/// With less than this on the disk, the registry will soon be unable to write.
const LITTLE_ROOM: u64 = 100 << 20;
/// How long whoever is elsewhere may take to answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether `serve` would listen there, by who may come in.
pub(crate) fn exposure(listen: SocketAddr, has_tokens: bool) -> Option<Diagnosis> {
    let failure = check_exposure(listen, has_tokens).err()?;
    let finding = Diagnosis::problem("port", failure.message);
    Some(finding.advise(failure.hint.unwrap_or_default()))
}

/// Whether `serve` could listen there. That the usual port is taken matters only to who wants it.
pub(crate) fn port(listen: Option<SocketAddr>) -> Diagnosis {
    let address = listen.unwrap_or_else(|| DEFAULT_ADDRESS.parse().expect("it is an address"));
    let message = match TcpListener::bind(address) {
        Ok(_) => return Diagnosis::ok("port", format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match Holder::of_port(address) {
            Some(holder) => format!("{holder} listens at {address}"),
            None => format!("another program listens at {address}"),
        },
        Err(error) => format!("could not listen at {address}: {error}"),
    };
    let finding =
        if listen.is_some() { Diagnosis::problem("port", message) } else { Diagnosis::warning("port", message) };
    finding.advise("`mcp-aggregator serve --listen PORT` takes another one")
}

/// Whether the registry can be opened with the key there is. Where none is, none is made.
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
        Ok(None) => return Diagnosis::ok("registry", format!("there is none at {location} yet; `serve` will make it")),
        Err(failure) => return failed(&failure),
    };
    let pinged = store.ping().await;
    store.close().await;
    match pinged {
        Ok(()) => writable(location).unwrap_or_else(|| {
            Diagnosis::ok("registry", format!("{location} can be opened, and its key is the right one"))
        }),
        Err(error) => Diagnosis::problem("registry", format!("{location} does not answer: {error}")),
    }
}

/// What is wrong if a file can only be read.
fn writable(location: &Location) -> Option<Diagnosis> {
    let Location::File(file) = location else { return None };
    access(file, Access::WRITE_OK).is_err().then(|| {
        Diagnosis::problem("registry", format!("{} cannot be written", file.display()))
            .advise("make it yours (`chown`, `chmod`), or name another folder with --data-dir")
    })
}

fn failed(failure: &crate::failure::Failure) -> Diagnosis {
    let finding = Diagnosis::problem("registry", failure.message.clone());
    match &failure.hint {
        Some(hint) => finding.advise(hint.clone()),
        None => finding,
    }
}

/// Whether a registry could be made.
fn room_for(file: &Path) -> Diagnosis {
    // What the permissions say is not all: some file systems take no files. This one has no name, and goes at once.
    match tempfile::tempfile_in(existing(file)) {
        Ok(_) => Diagnosis::ok("registry", format!("there is none yet; `serve` will make {}", file.display())),
        Err(_) => Diagnosis::problem(
            "registry",
            format!("{} cannot be made: its folder is not ours to write", file.display()),
        )
        .advise("name another folder with --data-dir"),
    }
}

/// The path, or the first above it that is there.
fn existing(path: &Path) -> PathBuf {
    let above = path.ancestors().find(|path| !path.as_os_str().is_empty() && path.exists());
    above.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn disk(file: &Path) -> Option<Diagnosis> {
    let folder = existing(file);
    let disk = statvfs(&folder).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    (free < LITTLE_ROOM).then(|| {
        let message = format!("only {} MB are free where {} is", free >> 20, folder.display());
        Diagnosis::warning("disk", message).advise("make room, or name another folder with --data-dir")
    })
}

/// How much room there is for the registry.
pub(crate) fn room(storage: &StorageArguments) -> Option<Diagnosis> {
    let Ok(Location::File(file)) = storage.location() else { return None };
    Some(disk(&file).unwrap_or_else(|| Diagnosis::ok("disk", format!("there is room where {} is", file.display()))))
}

/// Whether a container engine answers.
pub(crate) async fn engine() -> Diagnosis {
    match Engine::find().await {
        Ok(_) => Diagnosis::ok("containers", "an engine answers"),
        Err(trouble) => Diagnosis::problem("containers", trouble.to_string())
            .advise("install or start Docker or Podman, or say where it is by DOCKER_HOST"),
    }
}

/// Whether the one that is to keep vectors answers.
pub(crate) async fn vectors(store: &dyn VectorStore) -> Diagnosis {
    let place = format!("{} at {}", store.name(), store.address());
    match timeout(PROBE_TIMEOUT, store.count()).await {
        Ok(Ok(count)) => Diagnosis::ok("vectors", format!("{place} answers, and keeps {count}")),
        Ok(Err(error)) if is_missing(&error) => Diagnosis::ok("vectors", format!("{place} answers; it keeps none yet")),
        Ok(Err(error)) => no_vectors(&place, &with_causes(&error)),
        Err(_) => no_vectors(&place, &format!("no answer within {} s", PROBE_TIMEOUT.as_secs())),
    }
}

/// Whether it is there, but has nothing of ours. `serve` makes what is missing.
fn is_missing(error: &search::StoreError) -> bool {
    let words = with_causes(error);
    words.contains("doesn't exist") || words.contains("does not exist")
}

fn no_vectors(place: &str, why: &str) -> Diagnosis {
    Diagnosis::problem("vectors", format!("{place}: {why}"))
        .advise("start Qdrant, look at its address (the port is that for gRPC) and at QDRANT_API_KEY, or leave it out")
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::Level;
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_a_problem_for_who_wants_it() {
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
