//! Finds the container engine, and the operations on it that are used repeatedly.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::RemoveContainerOptionsBuilder;
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::time::timeout;

use crate::error::{ContainerError, in_words, status};

/// The address of the engine, as for every Docker client: `unix:///path`, `tcp://host:port`.
pub(crate) const HOST_VARIABLE: &str = "DOCKER_HOST";

/// If set to anything, an engine at `tcp://` is used over TLS.
pub(crate) const TLS_VARIABLE: &str = "DOCKER_TLS_VERIFY";

/// The folder with `ca.pem`, `cert.pem` and `key.pem` for that; `~/.docker` if it is not set.
pub(crate) const CERTIFICATES_VARIABLE: &str = "DOCKER_CERT_PATH";

/// How long the engine may take to identify itself. One that is there and does not answer is rare; one that is slow because
/// the machine is busy is not.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take to remove a container, before that is left for later.
const REMOVAL: Duration = Duration::from_secs(10);
/// How long it may take to begin a response, in seconds. Starting and stopping takes a while on a busy machine.
const MAX_RESPONSE_TIME: u64 = 120;

/// A reachable engine.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) docker: Docker,
    /// Its address.
    pub(crate) address: Arc<str>,
}

impl Engine {
    /// The engine that `DOCKER_HOST` names, or else the first one at the usual addresses.
    pub async fn find() -> Result<Self, ContainerError> {
        let address = match value_of(HOST_VARIABLE)? {
            Some(host) => host,
            None => {
                let places = usual_places();
                let found = places.iter().find(|place| place.exists());
                let Some(found) = found else { return Err(ContainerError::NoEngine { looked_at: places }) };
                format!("unix://{}", found.display())
            }
        };
        Self::at(&address).await
    }

    /// The engine at that address.
    pub async fn at(address: &str) -> Result<Self, ContainerError> {
        let silent = |words: String| ContainerError::Unreachable { address: address.to_owned(), words };
        let is_over_tls =
            address.starts_with("https://") || (address.starts_with("tcp://") && value_of(TLS_VARIABLE)?.is_some());
        let docker = if let Some(socket) = address.strip_prefix("unix://") {
            if !Path::new(socket).exists() {
                return Err(ContainerError::NoEngine { looked_at: vec![socket.into()] });
            }
            Docker::connect_with_unix(socket, MAX_RESPONSE_TIME, API_DEFAULT_VERSION)
        } else if is_over_tls {
            over_tls(address, value_of(CERTIFICATES_VARIABLE)?.map(PathBuf::from))
        } else if address.starts_with("tcp://") || address.starts_with("http://") {
            Docker::connect_with_http(address, MAX_RESPONSE_TIME, API_DEFAULT_VERSION)
        } else {
            let known = "unix://, tcp://, http:// or https://";
            let more = if address.starts_with("ssh://") { "; forward its socket with `ssh -L` instead" } else { "" };
            return Err(silent(format!("{HOST_VARIABLE} must start with {known}{more}")));
        };
        let docker = docker.map_err(|error| silent(in_words(&error)))?;
        match timeout(ENGINE_TIMEOUT, docker.negotiate_version()).await {
            Ok(Ok(docker)) => Ok(Self { docker, address: address.into() }),
            Ok(Err(error)) if is_forbidden(&error) => Err(ContainerError::Forbidden { address: address.to_owned() }),
            Ok(Err(error)) => Err(silent(in_words(&error))),
            Err(_) => Err(silent(format!("it did not answer within {} s", ENGINE_TIMEOUT.as_secs()))),
        }
    }

    /// Ends a container, if it has not ended, and removes it with its anonymous volumes. A missing container is no
    /// error.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), ContainerError> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let failed = |words: String| ContainerError::Refused { operation: "remove the container", words };
        match timeout(REMOVAL, self.docker.remove_container(id, Some(options))).await {
            Ok(Ok(())) => Ok(()),
            // Another process is removing it, or has removed it.
            Ok(Err(error)) if matches!(status(&error), Some(404 | 409)) => Ok(()),
            Ok(Err(error)) => Err(failed(in_words(&error))),
            Err(_) => Err(failed(format!("no answer within {} s", REMOVAL.as_secs()))),
        }
    }
}

/// The value of a variable, if it is not empty. One that is not UTF-8 is an error, because it is set.
fn value_of(variable: &'static str) -> Result<Option<String>, ContainerError> {
    match std::env::var(variable) {
        Ok(value) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(ContainerError::BadVariable { variable }),
    }
}

fn over_tls(address: &str, certificates: Option<PathBuf>) -> Result<Docker, bollard::errors::Error> {
    let usual = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    let folder = certificates.or_else(usual).unwrap_or_default();
    let [key, own, authority] = ["key.pem", "cert.pem", "ca.pem"].map(|file| folder.join(file));
    Docker::connect_with_ssl(address, &key, &own, &authority, MAX_RESPONSE_TIME, API_DEFAULT_VERSION)
}

fn usual_places() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut places = vec![PathBuf::from("/var/run/docker.sock")];
    places.extend(runtime.as_ref().map(|runtime| runtime.join("docker.sock")));
    places.extend(home.map(|home| home.join(".docker/run/docker.sock")));
    places.extend(runtime.map(|runtime| runtime.join("podman/podman.sock")));
    places.push(PathBuf::from("/run/podman/podman.sock"));
    places
}

/// Whether a socket exists but access is denied.
fn is_forbidden(error: &bollard::errors::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() == std::io::ErrorKind::PermissionDenied;
        }
        cause = error.source();
    }
    false
}
