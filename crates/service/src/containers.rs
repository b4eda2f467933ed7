//! Servers in containers of ours: validation of their config, and their view.

use std::sync::Arc;
use std::time::Duration;

use registry::{Deployment, Transport};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use upstream::ContainerHandle;

use crate::Problem;

/// The part of a connection config that describes a container.
const BLOCK: &str = "docker";
/// How long measuring all containers may take, and how many are measured concurrently.
const STATS_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_PARALLEL_STATS: usize = 32;

/// The container a server runs in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContainerView {
    /// Its id at the engine.
    pub id: String,
    /// Its name at the engine.
    pub name: String,
    /// The image as it was configured.
    pub image: String,
    /// The exact digest of that image.
    pub image_digest: String,
    /// Its usage of one processor; only on request.
    pub cpu_percent: Option<f64>,
    /// Bytes of memory it uses; only on request.
    pub memory_bytes: Option<u64>,
    /// Bytes of memory it may use.
    pub memory_limit_bytes: Option<u64>,
}

impl ContainerView {
    /// What is known without querying the engine.
    pub(crate) fn of(container_handle: &dyn ContainerHandle) -> Self {
        let info = container_handle.info().clone();
        Self {
            id: info.id,
            name: info.name,
            image: info.image,
            image_digest: info.digest,
            cpu_percent: None,
            memory_bytes: None,
            memory_limit_bytes: None,
        }
    }

    /// The same, with its current usage.
    pub(crate) async fn measured(container_handle: &Arc<dyn ContainerHandle>) -> Self {
        let view = Self::of(&**container_handle);
        let Some(usage) = container_handle.usage().await else { return view };
        Self {
            cpu_percent: Some(usage.cpu_percent),
            memory_bytes: Some(usage.memory),
            memory_limit_bytes: Some(usage.memory_limit),
            ..view
        }
    }
}

/// The current usage of these containers, by slot index. A slow engine is not waited for: containers without a result
/// are shown without usage.
pub(crate) async fn measured_at_once(
    container_handles: Vec<(usize, Arc<dyn ContainerHandle>)>,
) -> Vec<(usize, ContainerView)> {
    let deadline = Instant::now() + STATS_TIMEOUT;
    let places = Arc::new(Semaphore::new(MAX_PARALLEL_STATS));
    let mut looks = JoinSet::new();
    for (slot_index, container_handle) in container_handles {
        let places = Arc::clone(&places);
        looks.spawn(async move {
            let _turn = places.acquire().await;
            (slot_index, ContainerView::measured(&container_handle).await)
        });
    }
    let mut measured = Vec::new();
    while let Ok(Some(look)) = timeout_at(deadline, looks.join_next()).await {
        measured.extend(look.ok());
    }
    measured
}

/// Whether a server is to run in a container.
pub(crate) fn is_contained(config: &Map<String, Value>) -> bool {
    config.contains_key(BLOCK)
}

/// Whether a given deployment type is possible. It is optional, because it follows from the rest.
pub(crate) fn problem_with_deployment(
    stated: Option<Deployment>,
    transport: Transport,
    config: &Map<String, Value>,
) -> Option<Problem> {
    let problem = |path: &[&str], kind, msg: &str| {
        let loc = std::iter::once("body").chain(path.iter().copied()).map(str::to_owned).collect();
        Some(Problem { loc, msg: msg.to_owned(), kind })
    };
    match stated? {
        Deployment::External if is_contained(config) => problem(
            &["deployment_type"],
            "value_error",
            "a server in a container is managed by mcp-aggregator: it is `managed`",
        ),
        Deployment::External if transport == Transport::Stdio => {
            problem(&["deployment_type"], "value_error", "a STDIO server is started by mcp-aggregator: it is `managed`")
        }
        Deployment::Managed if is_contained(config) => None,
        Deployment::Managed if transport == Transport::Stdio && config.contains_key("command") => None,
        Deployment::Managed => {
            let msg = match transport {
                Transport::Stdio => "a managed STDIO server needs `docker`, or a `command`",
                Transport::Sse | Transport::Http => "a managed server that is reached over HTTP needs `docker`",
            };
            problem(&["connection_config", BLOCK], "missing", msg)
        }
        Deployment::External => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_deployment_of_a_server_must_match_its_connection() {
        let problem_of = |stated, transport, config: Value| {
            let Value::Object(config) = config else { panic!("an object is a config") };
            problem_with_deployment(Some(stated), transport, &config).map(|problem| problem.loc.join("."))
        };
        let (managed, external) = (Deployment::Managed, Deployment::External);
        let (docker, url) = (json!({"docker": {"image": "a"}}), json!({"url": "http://x"}));
        for transport in [Transport::Stdio, Transport::Sse, Transport::Http] {
            assert_eq!(problem_of(managed, transport, docker.clone()), None);
            assert_eq!(problem_of(external, transport, docker.clone()).as_deref(), Some("body.deployment_type"));
            assert_eq!(problem_of(managed, transport, url.clone()).as_deref(), Some("body.connection_config.docker"));
        }
        assert_eq!(problem_of(external, Transport::Sse, url.clone()), None);
        assert_eq!(problem_of(managed, Transport::Stdio, json!({"command": "x"})), None);
        assert_eq!(problem_of(external, Transport::Stdio, url).as_deref(), Some("body.deployment_type"));
    }
}
