//! Operations on servers. Each runs to its end, even if its caller is cancelled meanwhile: the registry and the fleet
//! are never left inconsistent.

use std::sync::Arc;
use std::time::Duration;

use executions::Error as CallError;
use registry::{Actor, AuditNote, ConnectionConfig, NewServer, Origin, ServerPatch, ServerRecord};
use serde_json::json;
use tokio::time::timeout;

use super::{Registration, Update};
use crate::context::ServiceContext;
use crate::supervisor::{SupervisorHandle, TargetState};
use crate::{Error, Event, Problem, containers, spec};

/// How long a registration waits for the connection and the tools.
const REGISTRATION_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long a change waits for earlier changes to be written. As long as the registry tries.
const STATUS_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

impl ServiceContext {
    pub(super) async fn register(
        self: Arc<Self>,
        by: Actor,
        new: Registration,
    ) -> Result<Arc<SupervisorHandle>, Error> {
        refuse(problems_with(&new))?;
        // One of that name may be in removal, and no longer in the registry.
        if self.find(&new.name).is_ok_and(|handle| handle.current().record.name == new.name) {
            return Err(Error::ServerAlreadyExists { name: new.name });
        }
        self.check_slots()?;
        let config = ConnectionConfig::from(new.connection_config);
        let new = NewServer {
            description: new.description,
            health_check_url: new.health_check_url,
            enabled: new.enabled,
            auto_connect: new.auto_connect,
            ..NewServer::new(new.name, new.transport_type, config)
        };
        let mut change = self.store.transaction("register a server").await?;
        let record = change.insert_server(new).await?;
        let details = json!({ "transport_type": record.transport });
        change.commit_audited(AuditNote::new(&by, "server.register", Some(&record.name), Some(details))).await?;
        let connects = record.enabled && record.auto_connect;
        let handle = self.add_new_server(record).await?;
        if connects {
            handle.wait_until_settled(REGISTRATION_TIMEOUT).await;
        }
        Ok(handle)
    }

    pub(super) async fn update(
        self: Arc<Self>,
        by: Actor,
        key: String,
        update: Update,
    ) -> Result<Arc<SupervisorHandle>, Error> {
        let handle = self.find(&key)?;
        let _changing = handle.changing.lock().await;
        let before = handle.current().record.clone();
        if before.origin == Origin::Config && !update.only_sets_enabled() {
            return Err(Error::ServerReadOnly { name: before.name });
        }
        let (patch, is_anew) = patch(&before, update)?;
        self.written_down(&handle).await;
        let switched = patch.enabled.filter(|&enabled| enabled != before.enabled);
        let mut change = self.store.transaction("change a server").await?;
        let record = change.update_server(before.id, patch).await?;
        let details = differences(&before, &record);
        change.commit_audited(AuditNote::new(&by, "server.update", Some(&before.name), Some(details))).await?;
        let (server_id, name) = (record.id.to_string(), record.name.clone());
        handle.update_config(record, is_anew).await;
        match switched {
            Some(true) => drop(timeout(REGISTRATION_TIMEOUT, handle.connect()).await),
            Some(false) => handle.end(TargetState::Disabled, false).await,
            None => {}
        }
        self.events.emit(Event::ServerUpdated { server_id, name });
        Ok(handle.clone())
    }

    pub(super) async fn remove(self: Arc<Self>, by: Actor, key: String, force: bool) -> Result<(), Error> {
        let handle = self.find(&key)?;
        let _changing = handle.changing.lock().await;
        let record = handle.current().record.clone();
        if record.origin == Origin::Config {
            return Err(Error::ServerReadOnly { name: record.name });
        }
        // First from the registry: if that fails, nothing is changed.
        let mut change = self.store.transaction("remove a server").await?;
        change.delete_server(record.id).await?;
        change.commit_audited(AuditNote::new(&by, "server.remove", Some(&record.name), None)).await?;
        handle.end(TargetState::Removed, force).await;
        self.events.emit(Event::ServerRemoved { server_id: record.id.to_string(), name: record.name });
        Ok(())
    }

    pub(super) async fn connect(self: Arc<Self>, by: Actor, key: String) -> Result<Arc<SupervisorHandle>, Error> {
        let handle = self.find(&key)?;
        let record = handle.current().record.clone();
        if !record.enabled {
            return Err(handle.unavailable("it is disabled; enable it first"));
        }
        self.audit(AuditNote::new(&by, "server.connect", Some(&record.name), None)).await?;
        connected(handle).await
    }

    pub(super) async fn restart(
        self: Arc<Self>,
        by: Actor,
        key: String,
        force: bool,
    ) -> Result<Arc<SupervisorHandle>, Error> {
        let handle = self.find(&key)?;
        let record = handle.current().record.clone();
        if !record.enabled {
            return Err(handle.unavailable("it is disabled; enable it first"));
        }
        let details = json!({ "force": force });
        self.audit(AuditNote::new(&by, "server.restart", Some(&record.name), Some(details))).await?;
        handle.end(TargetState::Disconnected, force).await;
        connected(handle).await
    }

    pub(super) async fn disconnect(
        self: Arc<Self>,
        by: Actor,
        key: String,
        force: bool,
    ) -> Result<Arc<SupervisorHandle>, Error> {
        let handle = self.find(&key)?;
        let (name, details) = (handle.current().record.name.clone(), json!({ "force": force }));
        self.audit(AuditNote::new(&by, "server.disconnect", Some(&name), Some(details))).await?;
        handle.end(TargetState::Disconnected, force).await;
        Ok(handle)
    }

    pub(super) async fn switch(
        self: Arc<Self>,
        by: Actor,
        key: String,
        on: bool,
    ) -> Result<Arc<SupervisorHandle>, Error> {
        let handle = self.find(&key)?;
        let _changing = handle.changing.lock().await;
        self.written_down(&handle).await;
        let patch = ServerPatch { enabled: Some(on), ..ServerPatch::default() };
        let mut change = self.store.transaction("enable or disable a server").await?;
        let record = change.update_server(handle.id, patch).await?;
        let action = if on { "server.enable" } else { "server.disable" };
        change.commit_audited(AuditNote::new(&by, action, Some(&record.name), None)).await?;
        handle.update_config(record, false).await;
        if on {
            drop(timeout(REGISTRATION_TIMEOUT, handle.connect()).await);
        } else {
            handle.end(TargetState::Disabled, false).await;
        }
        Ok(handle.clone())
    }
}

/// Connects a server; returns why that failed, if it did.
async fn connected(handle: Arc<SupervisorHandle>) -> Result<Arc<SupervisorHandle>, Error> {
    let Err(why) = handle.connect().await else { return Ok(handle) };
    let record = handle.current().record.clone();
    Err(Error::Call(CallError::ConnectionFailed {
        server_id: record.id.to_string(),
        name: record.name,
        status: record.status,
        why,
    }))
}

impl ServiceContext {
    /// Waits until earlier changes of a server are written: they must not overtake what is written next.
    async fn written_down(&self, handle: &SupervisorHandle) {
        if !self.status_writer.wait_written(handle.id, STATUS_WRITE_TIMEOUT).await {
            tracing::warn!(server = %handle.current().record.name, "the status history of the server is not written yet");
        }
    }
}

impl SupervisorHandle {
    /// The error that the server is not available.
    pub(super) fn unavailable(&self, why: &str) -> Error {
        let record = self.current().record.clone();
        Error::Call(CallError::ServerUnavailable {
            server_id: record.id.to_string(),
            sentence: format!("server `{}` is not connected: {why}", record.name),
            name: record.name,
            status: record.status,
        })
    }
}

/// All problems with a registration.
pub(super) fn problems_with(new: &Registration) -> Vec<Problem> {
    let mut problems: Vec<Problem> = spec::problem_with_name(&new.name).into_iter().collect();
    problems.extend(new.description.as_deref().and_then(spec::problem_with_description));
    problems.extend(new.health_check_url.as_deref().and_then(spec::problem_with_health_url));
    match containers::problem_with_deployment(new.deployment_type, new.transport_type, &new.connection_config) {
        Some(problem) => problems.push(problem),
        None => problems.extend(spec::problems_with_config(new.transport_type, &new.connection_config)),
    }
    problems
}

/// The stored part of a change, and whether the server must be reconnected for it.
fn patch(before: &ServerRecord, mut update: Update) -> Result<(ServerPatch, bool), Error> {
    let mut problems = Vec::new();
    // A masked value that is sent back unchanged stays.
    let shown = before.health_check_url.as_deref().map(registry::masked_address);
    update.health_check_url = update.health_check_url.filter(|url| url.is_none() || *url != shown);
    let new_name = update.name.filter(|name| *name != before.name);
    problems.extend(new_name.as_deref().and_then(spec::problem_with_name));
    problems.extend(update.health_check_url.iter().flatten().filter_map(|url| spec::problem_with_health_url(url)));
    let transport = update.transport_type.unwrap_or(before.transport);
    let config = update.connection_config.map(|config| before.connection_config.updated_with(config.into()));
    let is_reached_otherwise =
        transport != before.transport || config.as_ref().is_some_and(|config| *config != before.connection_config);
    if is_reached_otherwise {
        let config = config.as_ref().unwrap_or(&before.connection_config);
        problems.extend(spec::problems_with_config(transport, config.reveal()));
    }
    let new_config = config.as_ref().unwrap_or(&before.connection_config);
    problems.extend(containers::problem_with_deployment(update.deployment_type, transport, new_config.reveal()));
    refuse(problems)?;
    let deployment = NewServer::new("", transport, new_config.clone()).deployment;
    let patch = ServerPatch {
        name: new_name,
        description: update.description,
        transport: update.transport_type,
        connection_config: config,
        health_check_url: update.health_check_url,
        deployment: is_reached_otherwise.then_some(deployment),
        enabled: update.enabled,
        auto_connect: update.auto_connect,
        origin: None,
    };
    Ok((patch, is_reached_otherwise))
}

/// The changed fields, for the audit log. Never the content of the config.
pub(crate) fn differences(before: &ServerRecord, after: &ServerRecord) -> serde_json::Value {
    let mut changed = Vec::new();
    let mut note = |is_different: bool, what: &str| {
        if is_different {
            changed.push(what.to_owned());
        }
    };
    note(before.name != after.name, "name");
    note(before.description != after.description, "description");
    note(before.transport != after.transport, "transport_type");
    note(before.connection_config != after.connection_config, "connection_config");
    note(before.health_check_url != after.health_check_url, "health_check_url");
    note(before.enabled != after.enabled, "enabled");
    note(before.auto_connect != after.auto_connect, "auto_connect");
    json!({ "changed": changed, "name": after.name })
}

fn refuse(problems: Vec<Problem>) -> Result<(), Error> {
    if problems.is_empty() { Ok(()) } else { Err(Error::Validation { problems }) }
}
