//! Operations of administrators on servers.

mod connection_tests;
mod operations;
mod requests;
mod views;

use std::sync::Arc;
use std::time::Duration;

use catalog::Kind;
use registry::{Actor, AuditNote, HistoryEvent, Listed, Page, ServerRecord, Status};
use serde_json::Value;

pub(crate) use self::operations::differences;
pub use self::requests::{Registration, Update};
pub use self::views::{ServerHealth, ServerView, ServiceState, TestReport};
use crate::containers::{self, ContainerView};
use crate::supervisor::{Command, ServerStatus, SupervisorHandle};
use crate::usage::UsageView;
use crate::{Error, Service};

/// How long a reader waits for newly discovered tools to be written.
pub(crate) const STATUS_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

impl Service {
    /// Registers a server and, if requested, connects it: waits up to 1.5 s for its tools.
    pub async fn register(&self, by: &Actor, new: Registration) -> Result<ServerView, Error> {
        let handle = to_the_end(Arc::clone(&self.context).register(by.clone(), new)).await?;
        Ok(self.server_view(&handle))
    }

    /// All servers in the order of their names, and the total number.
    pub fn servers(&self, status: Option<Status>, page: Page) -> Listed<ServerView> {
        let mut views: Vec<ServerView> =
            self.visible_servers().iter().map(|handle| self.visible_view(handle)).collect();
        views.retain(|view| status.is_none_or(|status| view.record.status == status));
        views.sort_by(|one, other| one.record.name.cmp(&other.record.name));
        let total = views.len() as u64;
        let offset = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let items: Vec<ServerView> = views.into_iter().skip(offset).take(limit).collect();
        Listed { items, total }
    }

    /// Adds the current usage of the servers' processes. Containers are left out: their engine would have to be
    /// queried.
    pub fn measure_processes(&self, views: &mut [ServerView]) {
        for view in views {
            let usage_meter = self
                .context
                .find(&view.record.id.to_string())
                .ok()
                .and_then(|handle| handle.current().usage_meter.clone());
            view.usage = usage_meter.and_then(|usage_meter| usage_meter.read());
        }
    }

    /// Adds the current usage of these servers; of containers, as far as it is available within a few seconds.
    pub async fn measure(&self, views: &mut [ServerView]) {
        self.measure_processes(views);
        let container_handle =
            |view: &ServerView| self.context.find(&view.record.id.to_string()).ok()?.current().container_handle.clone();
        let container_handles = views
            .iter()
            .enumerate()
            .filter_map(|(slot_index, view)| Some((slot_index, container_handle(view)?)))
            .collect();
        for (slot_index, container) in containers::measured_at_once(container_handles).await {
            views[slot_index].usage = UsageView::of_container(&container);
            views[slot_index].container = Some(container);
        }
    }

    /// The view of a server, with the number of tools that can be seen.
    fn visible_view(&self, handle: &SupervisorHandle) -> ServerView {
        let mut view = self.server_view(handle);
        if let Some(count) = self.visible_tool_count(handle.slot_index) {
            view.record.tool_count = count;
            // Notices name items, and instructions may: those that do not are in the view.
            if let Some(info) = view.record.server_info.as_mut().and_then(Value::as_object_mut) {
                info.remove("notices");
                if !self.shows_instructions(handle.slot_index) {
                    info.remove("instructions");
                }
            }
        }
        view
    }

    /// One server, by id or name.
    pub async fn server(&self, id_or_name: &str) -> Result<ServerView, Error> {
        let handle = self.find(id_or_name)?;
        let mut view = self.visible_view(&handle);
        if let Some(container_handle) = &handle.current().container_handle {
            let container = ContainerView::measured(container_handle).await;
            view.usage = UsageView::of_container(&container);
            view.container = Some(container);
        } else if let Some(usage_meter) = &handle.current().usage_meter {
            view.usage = usage_meter.read();
        }
        Ok(view)
    }

    /// Changes a server; it is reconnected only if needed.
    pub async fn update(&self, by: &Actor, id_or_name: &str, update: Update) -> Result<ServerView, Error> {
        let key = id_or_name.to_owned();
        let before = self.context.find(id_or_name)?.current().record.name.clone();
        let handle = to_the_end(Arc::clone(&self.context).update(by.clone(), key, update)).await?;
        let after = handle.current().record.name.clone();
        if before != after {
            self.rename_pins(by, &before, &after).await?;
            self.executions.limits().rename_server(&before, &after);
        }
        Ok(self.server_view(&handle))
    }

    /// Removes a server and all its data. Running calls have up to 30 s.
    pub async fn remove(&self, by: &Actor, id_or_name: &str, force: bool) -> Result<(), Error> {
        to_the_end(Arc::clone(&self.context).remove(by.clone(), id_or_name.to_owned(), force)).await
    }

    /// Connects it, and waits for the result.
    pub async fn connect(&self, by: &Actor, id_or_name: &str) -> Result<ServerView, Error> {
        let handle = to_the_end(Arc::clone(&self.context).connect(by.clone(), id_or_name.to_owned())).await?;
        Ok(self.server_view(&handle))
    }

    /// Disconnects it: waits up to 30 s for running calls, or cancels them. Idempotent.
    pub async fn disconnect(&self, by: &Actor, id_or_name: &str, force: bool) -> Result<ServerView, Error> {
        let key = id_or_name.to_owned();
        let handle = to_the_end(Arc::clone(&self.context).disconnect(by.clone(), key, force)).await?;
        Ok(self.server_view(&handle))
    }

    /// Disconnects it, as [`Service::disconnect`] does, and connects it again; waits for the result.
    pub async fn restart(&self, by: &Actor, id_or_name: &str, force: bool) -> Result<ServerView, Error> {
        let key = id_or_name.to_owned();
        let handle = to_the_end(Arc::clone(&self.context).restart(by.clone(), key, force)).await?;
        Ok(self.server_view(&handle))
    }

    /// Enables it, resets its failures, and connects it: waits up to 1.5 s for the result.
    pub async fn enable(&self, by: &Actor, id_or_name: &str) -> Result<ServerView, Error> {
        let handle = to_the_end(Arc::clone(&self.context).switch(by.clone(), id_or_name.to_owned(), true)).await?;
        Ok(self.server_view(&handle))
    }

    /// Disconnects and disables it.
    pub async fn disable(&self, by: &Actor, id_or_name: &str) -> Result<ServerView, Error> {
        let handle = to_the_end(Arc::clone(&self.context).switch(by.clone(), id_or_name.to_owned(), false)).await?;
        Ok(self.server_view(&handle))
    }

    /// Discovers its tools again, in the background.
    pub async fn refresh_tools(&self, by: &Actor, id_or_name: &str) -> Result<(), Error> {
        let handle = self.context.find(id_or_name)?;
        let shown = handle.current();
        if !shown.record.status.is_up() && !shown.is_lazy {
            return Err(handle.unavailable("its tools can only be discovered while it is"));
        }
        self.context.audit(AuditNote::new(by, "server.refresh_tools", Some(&shown.record.name), None)).await?;
        handle.command(Command::Refresh).await;
        Ok(())
    }

    /// The health of one server.
    pub async fn server_health(&self, id_or_name: &str) -> Result<ServerHealth, Error> {
        let handle = self.context.find(id_or_name)?;
        let shown = handle.current();
        let (record, health) = (&shown.record, &shown.health);
        Ok(ServerHealth {
            server_id: record.id.to_string(),
            name: record.name.clone(),
            status: record.status,
            is_healthy: record.status == Status::Connected && health.failures == 0,
            last_check: health.last_check,
            latency_ms: health.latency.map(in_milliseconds),
            consecutive_failures: health.failures.max(record.failure_count),
            failure_count: record.failure_count,
            retry_count: retries(record),
            next_retry_at: shown.status.retry_at(),
            error_message: record.error_message.clone(),
            warning: health.warning.clone(),
            instances: self.instances(&handle),
        })
    }

    /// The history of its connection, newest first.
    pub async fn history(&self, id_or_name: &str, page: Page) -> Result<Listed<HistoryEvent>, Error> {
        let handle = self.context.find(id_or_name)?;
        self.context.status_writer.wait_written(handle.id, STATUS_WRITE_TIMEOUT).await;
        Ok(self.store.history(handle.id, page).await?)
    }

    /// The state of the service. Needs no database access.
    pub fn state(&self) -> ServiceState {
        let mut state = ServiceState {
            total_servers: 0,
            connected_servers: 0,
            disconnected_servers: 0,
            connecting_servers: 0,
            asleep_servers: 0,
            disabled_servers: 0,
            sign_in_required_servers: 0,
            error_servers: 0,
            total_tools: 0,
            classified_tools: 0,
            unclassified_tools: 0,
            tool_states: self.finder.count_states(),
            last_sync: self.context.last_sync(),
            uptime_seconds: self.began.elapsed().as_secs_f64(),
            executions_stopped: self.executions_are_stopped(),
        };
        for handle in self.context.all() {
            state.total_servers += 1;
            let shown = handle.current();
            let counter = match shown.status {
                ServerStatus::Connected | ServerStatus::Degraded { .. } => &mut state.connected_servers,
                ServerStatus::Waiting { .. } | ServerStatus::Failed { .. } => &mut state.error_servers,
                ServerStatus::Connecting
                | ServerStatus::Asleep
                | ServerStatus::Disconnected
                | ServerStatus::Disabled { .. }
                | ServerStatus::SignInRequired { .. } => &mut state.disconnected_servers,
            };
            *counter += 1;
            match shown.status {
                ServerStatus::Connecting => state.connecting_servers += 1,
                ServerStatus::Asleep => state.asleep_servers += 1,
                ServerStatus::Disabled { .. } => state.disabled_servers += 1,
                ServerStatus::SignInRequired { .. } => state.sign_in_required_servers += 1,
                _ => {}
            }
        }
        let view = self.fleet.view();
        let offering = view.snapshot.servers().iter().filter(|server| server.state.offers());
        state.total_tools = offering.map(|server| server.offer.items(Kind::Tool).len() as u64).sum();
        // Newly discovered tools may not be in the index yet, and removed ones may still be.
        state.classified_tools = self.finder.classified_tools().min(state.total_tools);
        state.unclassified_tools = state.total_tools - state.classified_tools;
        state
    }

    /// The view of a server.
    fn server_view(&self, handle: &SupervisorHandle) -> ServerView {
        let shown = handle.current();
        ServerView {
            record: shown.record.clone(),
            retry_count: retries(&shown.record),
            next_retry_at: shown.status.retry_at(),
            lazy: shown.is_lazy,
            asleep: shown.status == ServerStatus::Asleep,
            instances: self.instances(handle),
            container: shown.container_handle.as_deref().map(ContainerView::of),
            usage: None,
            progress: shown.progress.clone(),
            tools: None,
        }
    }
}

/// Repeated attempts to connect: the first one does not count.
fn retries(record: &ServerRecord) -> u32 {
    record.failure_count.saturating_sub(1)
}

/// Rounded to the microsecond: more digits are noise.
pub(crate) fn in_milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// Runs `operation` to its end, even if the caller is cancelled meanwhile.
pub async fn to_the_end<T: Send + 'static>(operation: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(operation).await {
        Ok(done) => done,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}
