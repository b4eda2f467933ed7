//! What the fleet uses instances for: which connection serves a client, and when instances begin and end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catalog::{ServerSpec, ServerState, Share};
use tokio::time::Instant;
use upstream::{Audience, CallError, Connection, Ending, Stop, UpstreamKey};

use super::{InstanceView, Instances};
use crate::client::Client;
use crate::fleet::{Fleet, View, lock};

impl Fleet {
    /// Sets how the server at `index` is shared, before it starts. Instances of another config end first; their calls
    /// may take as long as `drain_timeout`.
    pub async fn share(&self, index: usize, spec: &ServerSpec, drain_timeout: Duration) {
        let is_same = |instances: &Arc<Instances>| *lock(&instances.spec) == *spec;
        if self.instances_of(index).as_ref().is_some_and(is_same) {
            return;
        }
        self.end_instances(index, drain_timeout).await;
        let instances = (spec.sharing.share != Share::All).then(|| Arc::new(Instances::new(index, spec.clone())));
        *lock(&self.slots.at(index).instances) = instances;
    }

    /// Ends all instances of the server at `index`, and waits until they have ended. Their calls may take as long as
    /// `drain_timeout`.
    pub async fn end_instances(&self, index: usize, drain_timeout: Duration) {
        self.drain_instances(index, drain_timeout).await;
        let instances = lock(&self.slots.at(index).instances).clone();
        if let Some(instances) = instances {
            instances.end_all().await;
        }
    }

    /// Starts no further instances of the server at `index`, and waits until their calls are answered, but not longer
    /// than `timeout`.
    pub async fn drain_instances(&self, index: usize, timeout: Duration) {
        let instances = lock(&self.slots.at(index).instances).clone();
        if let Some(instances) = instances {
            instances.drain(self, Instant::now() + timeout).await;
        }
    }

    /// Ends the instances of the server at `index` that use this sign-in. They start again when they are needed.
    pub fn end_instances_with_grant(&self, index: usize, grant_key: &str) {
        let Some(instances) = self.instances_of(index) else { return };
        let Some(of_server) = lock(&instances.spec).grant_key.clone() else { return };
        for instance in instances.all() {
            if crate::grant_key_of(&of_server, &instance.principal) == grant_key {
                instance.leave(Stop::Gently);
            }
        }
    }

    /// Sets how long an instance may be idle before it ends.
    pub fn set_instance_idle_timeout(&self, timeout: Duration) {
        let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.instance_idle_ms.store(milliseconds, Ordering::Relaxed);
    }

    pub(super) fn instance_idle_timeout(&self) -> Duration {
        Duration::from_millis(self.instance_idle_ms.load(Ordering::Relaxed))
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow() > Stop::Never
    }

    /// The instances of the server at `index`, for people.
    pub fn instance_views(&self, index: usize) -> Vec<InstanceView> {
        let instances = lock(&self.slots.at(index).instances).clone();
        instances.map(|instances| instances.views()).unwrap_or_default()
    }

    /// How many requests are in progress at the instances of the server at `index`.
    pub fn calls_of_instances(&self, index: usize) -> usize {
        self.instance_views(index).iter().map(|instance| instance.calls).sum()
    }

    /// The instances of a server that not everybody shares, unless they are ending.
    pub(crate) fn instances_of(&self, index: usize) -> Option<Arc<Instances>> {
        let instances = lock(&self.slots.at(index).instances).clone();
        instances.filter(|instances| !lock(&instances.table).is_closed)
    }

    /// The connection of a server that serves `client`, if it runs.
    pub(crate) fn connection_for(&self, view: &View, client: &Client, server: usize) -> Option<Arc<Connection>> {
        match &view.connections[server] {
            Some(connection) => Some(Arc::clone(connection)),
            None if view.snapshot.servers()[server].state == ServerState::Removed => None,
            None => self.instances_of(server)?.running(client),
        }
    }

    /// Whether requests of clients can be sent to a server, now or when an instance has started.
    pub(crate) fn is_reachable(&self, view: &View, server: usize) -> bool {
        view.connections[server].is_some()
            || view.snapshot.servers()[server].state.offers() && self.instances_of(server).is_some()
    }

    /// The same connection, for whoever can wait until it runs.
    pub(crate) async fn reach(&self, client: &Client, server: usize) -> Result<Arc<Connection>, CallError> {
        if let Some(connection) = &self.view().connections[server] {
            return Ok(Arc::clone(connection));
        }
        match (self.instances_of(server), self.itself.upgrade()) {
            (Some(instances), Some(fleet)) => instances.reach(&fleet, client).await,
            _ => {
                let server = self.view().snapshot.servers()[server].name.clone();
                Err(CallError::Ended { server, ending: Arc::new(Ending::Stopped), said: None })
            }
        }
    }

    /// Whether the catalog of a server with instances is needed.
    pub(in crate::fleet) fn wants_catalog(&self, index: usize) -> bool {
        self.instances_of(index).is_some_and(|instances| instances.wants_catalog())
    }

    /// Which run of a server serves `client`.
    pub(crate) fn key_for(&self, client: &Client, server: usize) -> UpstreamKey {
        match self.instances_of(server) {
            Some(instances) => instances.key(&client.audience(instances.share)),
            None => UpstreamKey::of_all(server),
        }
    }

    /// The connection of that run, if it runs.
    pub(crate) fn connection_of(&self, key: &UpstreamKey) -> Option<Arc<Connection>> {
        match &key.audience {
            Audience::Everybody => self.view().connections[key.server].clone(),
            Audience::Nobody => None,
            audience => self.instances_of(key.server)?.running_for(audience),
        }
    }

    /// Serialises changes of the subscriptions of that run.
    pub(crate) fn subscribing(&self, key: &UpstreamKey) -> Arc<tokio::sync::Mutex<()>> {
        let slot = self.slots.at(key.server);
        let instances = lock(&slot.instances).clone();
        let instance = instances.and_then(|instances| lock(&instances.table).instances.get(&key.audience).cloned());
        instance.map_or_else(|| Arc::clone(&slot.subscribing), |instance| Arc::clone(&instance.subscribing))
    }

    /// The connection of the run in the slot, even if that serves no client.
    pub fn connection(&self, index: usize) -> Option<Arc<Connection>> {
        let in_view = self.view().connections[index].clone();
        in_view.or_else(|| self.slots.at(index).catalog_connection())
    }

    /// The time limit of a call by the configuration of the server, as far as it is known.
    pub fn call_limit(&self, index: usize) -> Option<Duration> {
        if let Some(connection) = self.view().connections.get(index)? {
            return connection.limit();
        }
        lock(&self.instances_of(index)?.spec).timeout
    }

    /// The connections to all instances of all servers.
    pub(in crate::fleet) fn connections_to_instances(&self) -> Vec<Arc<Connection>> {
        let mut connections = Vec::new();
        self.slots.for_each(|slot| {
            if let Some(instances) = &*lock(&slot.instances) {
                connections.extend(instances.connections());
            }
        });
        connections
    }

    /// Cancels a request that waits until its server or instance runs. Returns whether there was one.
    pub(crate) fn cancel_waiting(&self, client: u64, id: &[u8]) -> bool {
        self.slots.any(|slot| {
            let instances = || lock(&slot.instances).clone();
            slot.waiting.cancel(client, id) || instances().is_some_and(|instances| instances.cancel(client, id))
        })
    }

    /// Cancels all requests of a client that wait until their server or instance runs.
    pub(crate) fn cancel_all_waiting(&self, client: u64) {
        self.slots.for_each(|slot| {
            slot.waiting.cancel_all(client);
            if let Some(instances) = lock(&slot.instances).clone() {
                instances.cancel_all(client);
            }
        });
    }

    /// Ends the instances of a client's session.
    pub(crate) fn end_instances_of_session(&self, client: u64) {
        self.slots.for_each(|slot| {
            if let Some(instances) = lock(&slot.instances).clone() {
                instances.end_session(client);
            }
        });
    }

    /// Renames the server's instances.
    pub(in crate::fleet) fn rename_instances(&self, index: usize, name: &catalog::ServerName) {
        let Some(instances) = self.instances_of(index) else { return };
        lock(&instances.spec).name = name.clone();
        instances.connections().iter().for_each(|connection| connection.rename(name.clone()));
    }
}

impl crate::fleet::slots::ServerSlot {
    /// The connection of the run that provides the catalog of a server with instances.
    pub(in crate::fleet) fn catalog_connection(&self) -> Option<Arc<Connection>> {
        lock(&self.instances).as_ref().and_then(|instances| lock(&instances.catalog).clone())
    }

    pub(in crate::fleet) fn set_catalog_connection(&self, connection: &Arc<Connection>) {
        if let Some(instances) = &*lock(&self.instances) {
            instances.is_listed.store(true, Ordering::Relaxed);
            *lock(&instances.catalog) = Some(Arc::clone(connection));
        }
    }

    pub(in crate::fleet) fn take_catalog_connection(&self) -> Option<Arc<Connection>> {
        lock(&self.instances).as_ref().and_then(|instances| lock(&instances.catalog).take())
    }
}
