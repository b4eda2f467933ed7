//! What an administrator does with servers.

mod operations;
mod requests;
mod views;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use catalog::Kind;
use registry::{HistoryEvent, Listed, Page, ServerId, ServerRecord, Status, ToolFilter, ToolRecord};
use tokio::sync::oneshot;

pub(crate) use self::operations::differences;
pub use self::requests::{Registration, Update};
pub use self::views::{ServerHealth, ServerView, State, TestReport};
use crate::containers::{self, ContainerView};
pub use crate::spec::{SECRETS_ARE_MISSING, problems_with_config};
use crate::supervisor::{Command, SupervisorHandle};
use crate::tool_search::ToolView;
use crate::usage::UsageView;
use crate::{Actor, Error, Service, audit, spec, test_connection};

/// How long a reader waits for what was discovered just now to be written.
const STATUS_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

impl Service {
    /// Registers a server and, if wanted, connects it: waits up to 1.5 s for its tools.
    pub async fn register(&self, by: &Actor, new: Registration) -> Result<ServerView, Error> {
        let handle = to_the_end(Arc::clone(&self.context).register(by.clone(), new)).await?;
        Ok(self.view_with_tools(&handle).await)
    }

    /// All servers in the order of their names, and how many there are in all.
    pub async fn servers(
        &self,
        status: Option<Status>,
        with_tools: bool,
        page: Page,
    ) -> Result<Listed<ServerView>, Error> {
        let mut views: Vec<ServerView> = self.context.all().iter().map(|handle| view(handle)).collect();
        views.retain(|view| status.is_none_or(|status| view.record.status == status));
        views.sort_by(|one, other| one.record.name.cmp(&other.record.name));
        let total = views.len() as u64;
        let offset = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let mut items: Vec<ServerView> = views.into_iter().skip(offset).take(limit).collect();
        if with_tools {
            let mut tools: HashMap<ServerId, Vec<ToolView>> = HashMap::new();
            for tool in self.with_states(self.stored_tools(None).await?) {
                tools.entry(tool.record.source_server_id).or_default().push(tool);
            }
            for view in &mut items {
                view.tools = Some(tools.remove(&view.record.id).unwrap_or_default());
            }
        }
        Ok(Listed { items, total })
    }

    /// Adds what the processes of these servers use right now. Containers are left out: their engine would have to be asked.
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

    /// Adds what these servers use right now; of containers, as far as that can be learnt in a few seconds.
    pub async fn measure(&self, views: &mut [ServerView]) {
        self.measure_processes(views);
        let container_handle =
            |view: &ServerView| self.context.find(&view.record.id.to_string()).ok()?.current().container_handle.clone();
        let housings =
            views.iter().enumerate().filter_map(|(place, view)| Some((place, container_handle(view)?))).collect();
        for (place, container) in containers::measured_at_once(housings).await {
            views[place].usage = UsageView::of_container(&container);
            views[place].container = Some(container);
        }
    }

    /// One server, by id or name.
    pub async fn server(&self, id_or_name: &str) -> Result<ServerView, Error> {
        let handle = self.context.find(id_or_name)?;
        let mut view = view(&handle);
        if let Some(container_handle) = &handle.current().container_handle {
            let container = ContainerView::measured(container_handle).await;
            view.usage = UsageView::of_container(&container);
            view.container = Some(container);
        } else if let Some(usage_meter) = &handle.current().usage_meter {
            view.usage = usage_meter.read();
        }
        Ok(view)
    }

    /// Changes a server; it is connected anew only if that is needed.
    pub async fn update(&self, by: &Actor, id_or_name: &str, update: Update) -> Result<ServerView, Error> {
        let key = id_or_name.to_owned();
        let before = self.context.find(id_or_name)?.current().record.name.clone();
        let handle = to_the_end(Arc::clone(&self.context).update(by.clone(), key, update)).await?;
        let after = handle.current().record.name.clone();
        if before != after {
            self.rename_pins(by, &before, &after).await?;
        }
        Ok(view(&handle))
    }

    /// Removes a server with all that is known of it. Calls in flight have up to 30 s.
    pub async fn remove(&self, by: &Actor, id_or_name: &str, force: bool) -> Result<(), Error> {
        to_the_end(Arc::clone(&self.context).remove(by.clone(), id_or_name.to_owned(), force)).await
    }

    /// Connects it, and waits for how that goes.
    pub async fn connect(&self, by: &Actor, id_or_name: &str) -> Result<ServerView, Error> {
        let handle = to_the_end(Arc::clone(&self.context).connect(by.clone(), id_or_name.to_owned())).await?;
        Ok(self.view_with_tools(&handle).await)
    }

    /// Disconnects it: waits up to 30 s for calls in flight, or cancels them. Doing it again is fine.
    pub async fn disconnect(&self, by: &Actor, id_or_name: &str, force: bool) -> Result<ServerView, Error> {
        let key = id_or_name.to_owned();
        let handle = to_the_end(Arc::clone(&self.context).disconnect(by.clone(), key, force)).await?;
        Ok(view(&handle))
    }

    /// Disconnects it, as [`Service::disconnect`] does, and connects it again; waits for how that goes.
    pub async fn restart(&self, by: &Actor, id_or_name: &str, force: bool) -> Result<ServerView, Error> {
        let key = id_or_name.to_owned();
        let handle = to_the_end(Arc::clone(&self.context).restart(by.clone(), key, force)).await?;
        Ok(self.view_with_tools(&handle).await)
    }

    /// Allows it to be connected, forgets failures, and connects it: waits up to 1.5 s for how that goes.
    pub async fn enable(&self, by: &Actor, id_or_name: &str) -> Result<ServerView, Error> {
        let handle = to_the_end(Arc::clone(&self.context).switch(by.clone(), id_or_name.to_owned(), true)).await?;
        Ok(view(&handle))
    }

    /// Disconnects it and keeps it so.
    pub async fn disable(&self, by: &Actor, id_or_name: &str) -> Result<ServerView, Error> {
        let handle = to_the_end(Arc::clone(&self.context).switch(by.clone(), id_or_name.to_owned(), false)).await?;
        Ok(view(&handle))
    }

    /// Tries a connection of its own beside the one there may be.
    pub async fn test(&self, id_or_name: &str) -> Result<TestReport, Error> {
        let spec = spec::resolve(&self.context.find(id_or_name)?.current().record);
        Ok(self.test_server(spec).await)
    }

    /// Tries what is not registered.
    pub async fn test_unregistered(&self, new: Registration) -> Result<TestReport, Error> {
        let problems = operations::problems_with(&new);
        if !problems.is_empty() {
            return Err(Error::Validation { problems });
        }
        let spec = spec::resolve_parts(&new.name, new.transport_type, &new.connection_config);
        Ok(self.test_server(spec).await)
    }

    /// A trial. If nobody waits for it any more it ends, in its own time.
    async fn test_server(&self, spec: Result<catalog::ServerSpec, String>) -> TestReport {
        let context = Arc::clone(&self.context);
        let (asking, asker) = oneshot::channel();
        let report = to_the_end(async move { test_connection::test_connection(&context, spec, asker).await }).await;
        drop(asking);
        report
    }

    /// Has its tools discovered anew, in the background.
    pub async fn refresh_tools(&self, by: &Actor, id_or_name: &str) -> Result<(), Error> {
        let handle = self.context.find(id_or_name)?;
        let shown = handle.current();
        if !shown.record.status.is_up() && !shown.is_lazy {
            return Err(handle.unavailable("its tools can only be discovered while it is"));
        }
        self.context.audit(audit::note(by, "server.refresh_tools", Some(&shown.record.name), None)).await?;
        handle.command(Command::Refresh).await;
        Ok(())
    }

    /// The tools of one server or of all; of connected servers only, unless one is asked for by name.
    pub async fn tools(&self, server: Option<&str>) -> Result<Vec<ToolRecord>, Error> {
        let Some(server) = server else {
            let offering = self.offering();
            let tools = self.stored_tools(None).await?;
            return Ok(tools.into_iter().filter(|tool| offering.contains(&tool.source_server_id)).collect());
        };
        let handle = self.context.find(server)?;
        self.stored_tools(Some(handle.id)).await
    }

    /// A part of the same, and how many there are in all. Only the part is read.
    pub async fn tools_page(&self, server: Option<&str>, page: Page) -> Result<Listed<ToolRecord>, Error> {
        let mut handles = match server {
            Some(server) => vec![self.context.find(server)?],
            None => {
                let offering = self.offering();
                self.context.all().into_iter().filter(|handle| offering.contains(&handle.id)).collect()
            }
        };
        // The order of the registry's own list.
        handles.sort_by_cached_key(|handle| handle.current().record.name.clone());
        self.context.status_writer.wait_all_written(STATUS_WRITE_TIMEOUT).await;
        let mut part = Listed { items: Vec::new(), total: 0 };
        let mut skip = page.offset;
        for handle in handles {
            let count = u64::from(handle.current().record.tool_count);
            part.total += count;
            let room = page.limit.saturating_sub(u32::try_from(part.items.len()).unwrap_or(u32::MAX));
            if skip >= count || room == 0 {
                skip = skip.saturating_sub(count);
                continue;
            }
            let filter = ToolFilter { server: Some(handle.id), ..ToolFilter::default() };
            part.items.extend(self.store.tools(&filter, Page { limit: room, offset: skip }).await?.items);
            skip = 0;
        }
        Ok(part)
    }

    /// How well one server is.
    pub async fn server_health(&self, id_or_name: &str) -> Result<ServerHealth, Error> {
        let shown = self.context.find(id_or_name)?.current();
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
            next_retry_at: shown.retry_at,
            error_message: record.error_message.clone(),
            warning: health.warning.clone(),
        })
    }

    /// What happened to its connection, newest first.
    pub async fn history(&self, id_or_name: &str, page: Page) -> Result<Listed<HistoryEvent>, Error> {
        let handle = self.context.find(id_or_name)?;
        self.context.status_writer.wait_written(handle.id, STATUS_WRITE_TIMEOUT).await;
        Ok(self.store.history(handle.id, page).await?)
    }

    /// How everything stands. Known without a look at the database.
    pub fn state(&self) -> State {
        let mut state = State {
            total_servers: 0,
            connected_servers: 0,
            disconnected_servers: 0,
            connecting_servers: 0,
            asleep_servers: 0,
            disabled_servers: 0,
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
            match shown.record.status {
                Status::Connected | Status::Degraded => state.connected_servers += 1,
                Status::Error => state.error_servers += 1,
                Status::Disconnected | Status::Connecting | Status::Disabled => state.disconnected_servers += 1,
            }
            match shown.record.status {
                Status::Connecting => state.connecting_servers += 1,
                Status::Disabled => state.disabled_servers += 1,
                Status::Disconnected if shown.is_asleep => state.asleep_servers += 1,
                _ => {}
            }
        }
        let view = self.fleet.view();
        let offering = view.snapshot.servers().iter().filter(|server| server.state.offers());
        state.total_tools = offering.map(|server| server.offer.items(Kind::Tool).len() as u64).sum();
        // What was just discovered may not be in the library yet, and what is gone may still be.
        state.classified_tools = self.finder.classified_tools().min(state.total_tools);
        state.unclassified_tools = state.total_tools - state.classified_tools;
        state
    }

    /// Servers whose tools are on offer.
    fn offering(&self) -> HashSet<ServerId> {
        let view = self.fleet.view();
        let is_on_offer = |place: usize| view.snapshot.servers()[place].state.offers();
        self.context.all().iter().filter(|handle| is_on_offer(handle.place)).map(|handle| handle.id).collect()
    }

    /// Tools as they are kept, with what was discovered last.
    async fn stored_tools(&self, server: Option<ServerId>) -> Result<Vec<ToolRecord>, Error> {
        match server {
            Some(server) => self.context.status_writer.wait_written(server, STATUS_WRITE_TIMEOUT).await,
            None => self.context.status_writer.wait_all_written(STATUS_WRITE_TIMEOUT).await,
        };
        Ok(self.store.tools(&ToolFilter { server, ..ToolFilter::default() }, Page::ALL).await?.items)
    }

    /// A server as it is shown, with its tools if they have been discovered. That it is connected does not depend on
    /// whether its tools can be read.
    async fn view_with_tools(&self, handle: &SupervisorHandle) -> ServerView {
        let mut view = view(handle);
        if view.record.status.is_up() {
            let tools = self.stored_tools(Some(handle.id)).await;
            let tools = tools.inspect_err(|error| tracing::warn!(%error, "could not read its tools")).ok();
            view.tools = tools.map(|tools| self.with_states(tools));
        }
        view
    }
}

/// A server as it is shown.
fn view(handle: &SupervisorHandle) -> ServerView {
    let shown = handle.current();
    ServerView {
        record: shown.record.clone(),
        retry_count: retries(&shown.record),
        next_retry_at: shown.retry_at,
        lazy: shown.is_lazy,
        asleep: shown.is_asleep,
        container: shown.container_handle.as_deref().map(ContainerView::of),
        usage: None,
        progress: shown.progress.clone(),
        tools: None,
    }
}

/// Attempts to connect again: the first one is none.
fn retries(record: &ServerRecord) -> u32 {
    record.failure_count.saturating_sub(1)
}

/// To the microsecond: more digits are noise.
pub(crate) fn in_milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// Does something to its end, even if whoever asked for it is gone meanwhile.
pub async fn to_the_end<T: Send + 'static>(deed: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(deed).await {
        Ok(done) => done,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}
