//! The resource usage of a container.

use std::pin::Pin;
use std::time::Duration;

use bollard::models::ContainerStatsResponse;
use bollard::query_parameters::StatsOptionsBuilder;
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};
use upstream::{ContainerHandle, ContainerInfo, Usage};

use crate::engine::Engine;

/// The interval between two samples of the processor time.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);
/// How long the engine may take in total.
const STATS_TIMEOUT: Duration = Duration::from_secs(3);

/// A container that can be inspected.
#[derive(Debug)]
pub(crate) struct ContainerStats {
    engine: Engine,
    info: ContainerInfo,
}

impl ContainerStats {
    pub(crate) fn new(engine: Engine, info: ContainerInfo) -> Self {
        Self { engine, info }
    }

    pub(crate) fn id(&self) -> &str {
        &self.info.id
    }

    async fn look(&self) -> Option<ContainerStatsResponse> {
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        self.engine.docker.stats(&self.info.id, Some(options)).next().await?.ok()
    }

    async fn measure(&self) -> Option<Usage> {
        let before = self.look().await?;
        sleep(SAMPLE_INTERVAL).await;
        let after = self.look().await?;
        let memory = after.memory_stats.as_ref()?;
        // The page cache can be freed at any moment, and does not count as memory in use.
        let files = memory
            .stats
            .as_ref()
            .and_then(|stats| stats.get("total_inactive_file").or_else(|| stats.get("inactive_file")).copied());
        Some(Usage {
            cpu_percent: cpu_percent(&before, &after).unwrap_or_default(),
            memory: memory.usage?.saturating_sub(files.unwrap_or_default()),
            memory_limit: memory.limit.unwrap_or_default(),
        })
    }
}

impl ContainerHandle for ContainerStats {
    fn info(&self) -> &ContainerInfo {
        &self.info
    }

    fn usage(&self) -> Pin<Box<dyn Future<Output = Option<Usage>> + Send + '_>> {
        Box::pin(async { timeout(STATS_TIMEOUT, self.measure()).await.ok().flatten() })
    }
}

/// Of one processor, between two samples.
fn cpu_percent(before: &ContainerStatsResponse, after: &ContainerStatsResponse) -> Option<f64> {
    let used = |stats: &ContainerStatsResponse| stats.cpu_stats.as_ref()?.cpu_usage.as_ref()?.total_usage;
    let passed = |stats: &ContainerStatsResponse| stats.cpu_stats.as_ref()?.system_cpu_usage;
    let used = used(after)?.saturating_sub(used(before)?) as f64;
    let passed = passed(after)?.saturating_sub(passed(before)?) as f64;
    let processors = after.cpu_stats.as_ref()?.online_cpus.unwrap_or(1).max(1);
    (passed > 0.0).then(|| used / passed * f64::from(processors) * 100.0)
}
