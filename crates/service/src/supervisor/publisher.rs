//! Publishes the status of a server to the server table, the fleet, the registry, and listeners.

use std::sync::Arc;

use aggregator::UpstreamEvent;
use catalog::{Kind, Offer, ServerState, login_command};
use executions::ServerEntry;
use registry::{Deployment, ServerRecord, Status, StatusChange, Timestamp};
use serde_json::json;

use super::tool_records::server_info;
use super::{CurrentState, ServerStatus, SupervisorHandle};
use crate::Event;
use crate::context::ServiceContext;
use crate::usage::UsageMeter;

/// Holds the status of a server, and publishes its changes.
pub(super) struct StatusPublisher {
    context: Arc<ServiceContext>,
    handle: Arc<SupervisorHandle>,
    pub(super) current: CurrentState,
    /// Its last offer.
    pub(super) known: Option<Arc<Offer>>,
    /// Attempts in a row that failed; a connection that did not last counts as one.
    pub(super) failures: u32,
}

impl StatusPublisher {
    pub(super) fn new(
        context: Arc<ServiceContext>,
        handle: Arc<SupervisorHandle>,
        current: CurrentState,
        known: Option<Arc<Offer>>,
    ) -> Self {
        let publisher = Self { context, handle, current, known, failures: 0 };
        publisher.publish();
        publisher
    }

    /// Its status.
    pub(super) fn status(&self) -> &ServerStatus {
        &self.current.status
    }

    /// Its registration, with the status.
    pub(super) fn record(&self) -> &ServerRecord {
        &self.current.record
    }

    /// Sets and publishes the status.
    pub(super) fn set(&mut self, status: ServerStatus) {
        self.set_with(status, |_| {});
    }

    /// The same, with more to be stored.
    pub(super) fn set_with(&mut self, status: ServerStatus, more: impl FnOnce(&mut StatusChange)) {
        debug_assert!(self.current.status.can_become(&status), "{:?} cannot become {status:?}", self.current.status);
        let mut change = status.change();
        more(&mut change);
        let now = Timestamp::now();
        let record = &mut self.current.record;
        let previous = record.status;
        let failures = match change.status {
            Status::Connected | Status::Degraded => 0,
            Status::Connecting | Status::Error => self.failures,
            Status::Disabled if change.auto_disabled == Some(true) => self.failures,
            // An administrator's decision is no failure, and neither is a missing sign-in.
            Status::Disconnected | Status::Disabled | Status::SignInRequired => record.failure_count,
        };
        let is_same = previous == change.status
            && record.error_message == change.error_message
            && record.failure_count == failures
            && change.enabled.is_none_or(|enabled| enabled == record.enabled);
        *record = apply_change(record.clone(), &change, failures, now);
        self.current.status = status;
        if previous != change.status {
            self.current.since = now;
        }
        let (status, error_message) = (change.status, change.error_message.clone());
        if !is_same || change.server_info.is_some() || change.worked_at.is_some() {
            self.context.status_writer.change(self.handle.id, StatusChange { failure_count: Some(failures), ..change });
        }
        // Readers may wait for it to be written, so it is queued by then.
        self.publish();
        if previous != status {
            self.emit_status_changed(previous, status, error_message);
            if status == Status::SignInRequired {
                self.emit_sign_in_required();
            }
        }
    }

    /// It failed too often: disables it until an administrator enables it again.
    pub(super) fn auto_disable(&mut self, why: &str) {
        let failures = self.failures;
        let attempts = if failures == 1 { "attempt" } else { "attempts" };
        let sentence = format!(
            "disabled after {failures} failed {attempts}; enable it to retry (`mcp-aggregator enable {}`); the last error: {why}",
            self.current.record.name
        );
        self.set_with(ServerStatus::Disabled { why: Some(sentence.clone()) }, |change| {
            change.enabled = Some(false);
            change.auto_disabled = Some(true);
            change.details = Some(json!({ "auto_disabled": true, "failures": failures }));
        });
        let record = &self.current.record;
        let message = format!("server `{}` was {sentence}", record.name);
        self.context.notice(record, message);
    }

    /// Removes its offer from the lists; calls fail with its status.
    pub(super) async fn withdraw_offer(&self) {
        self.withdraw_offer_since(&self.current.status, self.current.since).await;
    }

    /// The same before the status is published: calls fail with the status that is about to be set.
    pub(super) async fn withdraw_offer_as(&self, status: &ServerStatus) {
        self.withdraw_offer_since(status, Timestamp::now()).await;
    }

    async fn withdraw_offer_since(&self, status: &ServerStatus, since: Timestamp) {
        let state = ServerState::Unavailable(Arc::new(status.unavailable(since)));
        self.context.fleet.set_state(self.handle.slot_index, state, None).await;
    }

    /// It is connected, with this offer. The tools are visible as soon as the status is.
    pub(super) fn mark_connected(&mut self, offer: &Arc<Offer>) {
        let is_news = self.update_tools(offer);
        // A remote server has worked as soon as it responds. A program that is started for it and responds may still
        // crash at once.
        let worked_at = (self.current.record.deployment == Deployment::External).then(Timestamp::now);
        let server_info = Some(server_info(offer));
        self.set_with(ServerStatus::Connected, |change| {
            (change.server_info, change.worked_at) = (server_info, worked_at);
        });
        if is_news {
            self.emit_tools_changed();
        }
    }

    /// Its connection has become stable: from now on it is retried without end.
    pub(super) fn note_worked(&mut self) {
        if self.current.record.worked_at.is_none() {
            self.set_with(self.current.status.clone(), |change| change.worked_at = Some(Timestamp::now()));
        }
    }

    /// Records its new offer.
    pub(super) fn note_offer(&mut self, offer: &Arc<Offer>) {
        let is_news = self.update_tools(offer);
        self.publish();
        if is_news {
            self.emit_tools_changed();
        }
    }

    /// Records the status after a check.
    pub(super) fn note_health(&mut self, status: ServerStatus) {
        let at = self.current.health.last_check;
        if status != self.current.status {
            return self.set_with(status, |change| change.last_health_check = at);
        }
        self.current.record.last_health_check = at;
        self.publish();
        if let Some(at) = at {
            self.context.status_writer.health_checked(self.handle.id, at);
        }
    }

    /// Stores its offer. Returns whether its tools have changed.
    fn update_tools(&mut self, offer: &Arc<Offer>) -> bool {
        let tools = offer.items(Kind::Tool);
        let is_news = self.known.as_ref().is_none_or(|known| known.items(Kind::Tool) != tools);
        self.current.record.tool_count = u32::try_from(tools.len()).unwrap_or(u32::MAX);
        self.known = Some(Arc::clone(offer));
        self.context.note_sync();
        self.context.status_writer.tools(self.handle.id, Arc::clone(offer));
        is_news
    }

    fn emit_tools_changed(&self) {
        let record = &self.current.record;
        self.context.events.emit(Event::ToolsChanged {
            server_id: record.id.to_string(),
            name: record.name.clone(),
            tool_count: record.tool_count as usize,
        });
    }

    /// Records its container, or the progress before there is one.
    pub(super) fn note_startup(&mut self, event: UpstreamEvent) {
        match event {
            UpstreamEvent::Preparing(message) => {
                let record = &self.current.record;
                self.context.events.emit(Event::ServerProgress {
                    server_id: record.id.to_string(),
                    name: record.name.clone(),
                    message: message.clone(),
                });
                self.current.progress = Some(message);
            }
            UpstreamEvent::ContainerStarted(container_handle) => {
                (self.current.container_handle, self.current.progress) = (Some(container_handle), None);
            }
            UpstreamEvent::ProcessStarted(signs) => {
                self.current.usage_meter = signs.process.map(|process| Arc::new(UsageMeter::new(process)));
                if let Some(before) = &self.current.tail {
                    signs.tail.follows(before);
                }
                self.current.tail = Some(signs.tail);
            }
            _ => return,
        }
        self.publish();
    }

    /// Its container or its process has ended. That becomes visible with the next change.
    pub(super) fn clear_process_info(&mut self) {
        (self.current.container_handle, self.current.progress, self.current.usage_meter) = (None, None, None);
    }

    /// Publishes the current state.
    pub(super) fn publish(&self) {
        let CurrentState { record, status, since, is_lazy, .. } = &self.current;
        self.context.server_table.put(ServerEntry {
            id: record.id,
            name: record.name.as_str().into(),
            slot_index: self.handle.slot_index,
            status: record.status,
            since: *since,
            retry_at: status.retry_at(),
            why: record.error_message.clone(),
            is_lazy: *is_lazy,
        });
        self.handle.set_current(self.current.clone());
    }

    fn emit_sign_in_required(&self) {
        let record = &self.current.record;
        self.context.events.emit(Event::ServerSignInRequired {
            server_id: record.id.to_string(),
            name: record.name.clone(),
            error_message: record.error_message.clone(),
            command: login_command(&record.name),
        });
    }

    fn emit_status_changed(&self, previous: Status, status: Status, error_message: Option<String>) {
        let record = &self.current.record;
        tracing::info!(server = %record.name, %previous, %status, error = error_message.as_deref(), "server status changed");
        self.context.events.emit(Event::ServerStatusChanged {
            server_id: record.id.to_string(),
            name: record.name.clone(),
            previous,
            status,
            error_message,
        });
    }
}

/// The same change that the registry makes.
fn apply_change(old: ServerRecord, change: &StatusChange, failure_count: u32, now: Timestamp) -> ServerRecord {
    let has_come_up = change.status.is_up() && !old.status.is_up();
    ServerRecord {
        status: change.status,
        error_message: change.error_message.clone(),
        failure_count,
        enabled: change.enabled.unwrap_or(old.enabled),
        auto_disabled: change.auto_disabled.unwrap_or(old.auto_disabled),
        auto_disabled_at: match change.auto_disabled {
            Some(true) => Some(now),
            Some(false) => None,
            None => old.auto_disabled_at,
        },
        worked_at: change.worked_at.or(old.worked_at),
        server_info: change.server_info.clone().or(old.server_info),
        last_health_check: change.last_health_check.or(old.last_health_check),
        connected_at: if has_come_up { Some(now) } else { old.connected_at.filter(|_| change.status.is_up()) },
        last_connected_at: if has_come_up { Some(now) } else { old.last_connected_at },
        updated_at: now,
        ..old
    }
}
