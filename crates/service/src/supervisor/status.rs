//! How everybody hears how things stand with a server: the roster, the fleet, the registry, and whoever listens.

use std::sync::Arc;
use std::time::Duration;

use aggregator::fleet::UpstreamEvent;
use catalog::{Downtime, Kind, Offer, ServerState};
use registry::{Deployment, ServerRecord, Status, StatusChange, Timestamp};
use serde_json::json;

use super::Supervisor;
use super::tool_records::server_info;
use crate::Event;
use crate::server_table::ServerEntry;
use crate::usage::UsageMeter;

impl Supervisor {
    /// Things stand like this from now on.
    pub(super) fn set_status(&mut self, status: Status, why: Option<String>, retry_in: Option<Duration>) {
        self.apply_status(StatusChange { error_message: why, ..StatusChange::to(status) }, retry_in);
    }

    /// The same, with more to be kept of it.
    pub(super) fn apply_status(&mut self, change: StatusChange, retry_in: Option<Duration>) {
        let now = Timestamp::now();
        let record = &mut self.current.record;
        let previous = record.status;
        let failures = match change.status {
            Status::Connected | Status::Degraded => 0,
            Status::Connecting | Status::Error => self.failures,
            Status::Disabled if change.auto_disabled == Some(true) => self.failures,
            // Somebody wants it so, which is no failure.
            Status::Disconnected | Status::Disabled => record.failure_count,
        };
        let is_same = previous == change.status
            && record.error_message == change.error_message
            && record.failure_count == failures
            && change.enabled.is_none_or(|enabled| enabled == record.enabled);
        *record = apply_change(record.clone(), &change, failures, now);
        self.current.retry_at = retry_in.map(|delay| now.later_by(delay));
        if previous != change.status {
            self.current.since = now;
        }
        let (status, error_message) = (change.status, change.error_message.clone());
        if !is_same || change.server_info.is_some() || change.worked_at.is_some() {
            self.context.status_writer.change(self.handle.id, StatusChange { failure_count: Some(failures), ..change });
        }
        // Who sees it may wait for it to be written, so it is on its way by then.
        self.publish();
        if previous != status {
            self.emit_status_changed(previous, status, error_message);
        }
    }

    /// It failed too often: switches it off until somebody switches it on again.
    pub(super) fn auto_disable(&mut self, why: &str) {
        let attempts = if self.failures == 1 { "attempt" } else { "attempts" };
        let sentence = format!(
            "switched off after {} failed {attempts}, enable it to try again (`mcp-aggregator enable {}`); the last: {why}",
            self.failures, self.current.record.name
        );
        self.apply_status(
            StatusChange {
                error_message: Some(sentence.clone()),
                enabled: Some(false),
                auto_disabled: Some(true),
                details: Some(json!({ "auto_disabled": true, "failures": self.failures })),
                ..StatusChange::to(Status::Disabled)
            },
            None,
        );
        let record = &self.current.record;
        let message = format!("server `{}` was {sentence}", record.name);
        self.context.notice(record, message);
    }

    /// Nothing of it is on offer; whoever needs it is told how things stand.
    pub(super) fn withdraw_offer(&self) {
        let record = &self.current.record;
        let since_1970 = |moment: Timestamp| Duration::from_micros(moment.as_micros().try_into().unwrap_or(0));
        let downtime = Downtime {
            status: record.status.as_str(),
            why: record.error_message.as_deref().map(Arc::from),
            since: since_1970(self.current.since),
            retry_at: self.current.retry_at.map(since_1970),
        };
        self.context.fleet.set_state(self.handle.place, ServerState::Down(Arc::new(downtime)), None);
    }

    /// It is up, and offers this. Whoever sees that it is up sees its tools, too.
    pub(super) fn mark_connected(&mut self, offer: &Arc<Offer>) {
        let is_news = self.update_tools(offer);
        // What runs elsewhere has worked as soon as it answers. A program that is started for it and answers may still be
        // one that crashes at once.
        let worked_at = (self.current.record.deployment == Deployment::External).then(Timestamp::now);
        let server_info = Some(server_info(offer));
        self.apply_status(StatusChange { server_info, worked_at, ..StatusChange::to(Status::Connected) }, None);
        if is_news {
            self.emit_tools_changed();
        }
    }

    /// Its connection has stood long enough to be a good one: from now on it is retried without end.
    pub(super) fn note_worked(&mut self) {
        let record = &self.current.record;
        if record.worked_at.is_some() {
            return;
        }
        let (status, error_message) = (record.status, record.error_message.clone());
        let worked_at = Some(Timestamp::now());
        self.apply_status(StatusChange { error_message, worked_at, ..StatusChange::to(status) }, None);
    }

    /// It offers this now.
    pub(super) fn note_offer(&mut self, offer: &Arc<Offer>) {
        let is_news = self.update_tools(offer);
        self.publish();
        if is_news {
            self.emit_tools_changed();
        }
    }

    /// Keeps what it offers; whether it has other tools than before.
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

    /// What is known of the house it lives in, or of what has to be done before there is one.
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

    /// Its container or its process is gone. Everybody sees that with what comes next.
    pub(super) fn clear_process_info(&mut self) {
        (self.current.container_handle, self.current.progress, self.current.usage_meter) = (None, None, None);
    }

    /// Lets everybody see how things are.
    pub(super) fn publish(&self) {
        let record = &self.current.record;
        self.context.server_table.put(ServerEntry {
            id: record.id,
            name: record.name.as_str().into(),
            place: self.handle.place,
            status: record.status,
            since: self.current.since,
            retry_at: self.current.retry_at,
            why: record.error_message.clone(),
            is_lazy: self.current.is_lazy,
        });
        self.handle.set_current(self.current.clone());
    }

    fn emit_status_changed(&self, previous: Status, status: Status, error_message: Option<String>) {
        let record = &self.current.record;
        tracing::info!(server = %record.name, %previous, %status, error = error_message.as_deref(), "server stands otherwise");
        self.context.events.emit(Event::ServerStatusChanged {
            server_id: record.id.to_string(),
            name: record.name.clone(),
            previous,
            status,
            error_message,
        });
    }
}

/// What the registry will make of it, too.
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
