//! Handles the events of an instance's run: only its own clients are concerned.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use catalog::Offer;
use protocol::reply::code;
use protocol::{Envelope, Lifecycle};
use tokio::time::Instant;
use upstream::{Audience, Connection, Ending, ProcessInfo, Report, ResponseHandler, ServerRequest, UpstreamObserver};

use super::{Instance, Instances, Phase};
use crate::call;
use crate::client::Client;
use crate::fleet::{FAILURES_TARGET, Fleet, lock};
use crate::responder::Responder;

/// Observes one run of an instance.
pub(super) struct InstanceObserver {
    fleet: Arc<Fleet>,
    instances: Arc<Instances>,
    instance: Arc<Instance>,
    outcome: Mutex<RunOutcome>,
}

/// How a run went.
#[derive(Default)]
pub(super) struct RunOutcome {
    /// Since when it ran.
    pub(super) ran_since: Option<Instant>,
    pub(super) ending: Option<Arc<Ending>>,
    pub(super) report: Option<Report>,
}

impl InstanceObserver {
    pub(super) fn new(fleet: &Arc<Fleet>, instances: &Arc<Instances>, instance: &Arc<Instance>) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            instances: Arc::clone(instances),
            instance: Arc::clone(instance),
            outcome: Mutex::default(),
        }
    }

    /// How the run went, once it is over.
    pub(super) fn take_outcome(&self) -> RunOutcome {
        std::mem::take(&mut lock(&self.outcome))
    }

    /// The client that a server request goes to which is about none of its requests: any session of the identity.
    fn any_session(&self) -> Option<Arc<Client>> {
        let is_meant = |client: &Arc<Client>| client.is_in(&self.instance.audience) && client.has_initialize();
        self.fleet.clients().into_iter().rev().find(is_meant)
    }
}

impl UpstreamObserver for InstanceObserver {
    fn on_running(&self, index: usize, connection: &Arc<Connection>, offer: Offer) {
        lock(&self.outcome).ran_since = Some(Instant::now());
        {
            let mut current = lock(&self.instance.current);
            current.enter(Phase::Running);
            current.connection = Some(Arc::clone(connection));
        }
        let has_logs = self.fleet.view().snapshot.servers()[index].offer.has("logging");
        if has_logs && offer.lifecycle == Lifecycle::Session {
            self.fleet.set_level_of_new(connection);
        }
        let waiting = self.instance.waiting.open();
        self.instance.changed.notify_waiters();
        call::resume(waiting);
        // It may have run before, with subscriptions that must be renewed.
        self.fleet.resubscribe(connection);
    }

    fn on_offer_changed(&self, connection: &Arc<Connection>, _: Arc<Offer>) {
        // All clients see the catalog of the run in the slot.
        tracing::debug!(server = %connection.server(), "the lists of an instance have changed");
    }

    fn on_reinitialized(self: Arc<Self>, server: &Arc<Connection>) {
        if self.fleet.view().snapshot.servers()[server.index()].offer.has("logging") {
            self.fleet.set_level_of_new(server);
        }
        self.fleet.resubscribe(server);
    }

    fn on_notification(&self, server: &Arc<Connection>, method: &str, line: &Bytes, envelope: &Envelope) {
        (self.fleet.options.method_set.on_notification)(&self.fleet, server, method, line, envelope);
    }

    fn on_server_request(&self, _index: usize, request: ServerRequest) {
        let of_task = self.fleet.client_of_task(&request.server.key(), &request.line, &request.envelope.params);
        let Some(client) = of_task.or_else(|| self.any_session()) else {
            let text = "No client of this instance is connected, so nobody can answer";
            return request.refuse(code::METHOD_NOT_FOUND, text);
        };
        let handler = Responder::to(&client, Arc::clone(client.sink())) as Arc<dyn ResponseHandler>;
        let server = Arc::clone(&request.server);
        if !server.remember_server_request(&request, &handler) {
            return request.refuse(code::INVALID_REQUEST, "Too many requests are pending, or one with this id is");
        }
        client.server_requests.send_when_ready(&client, request);
    }

    fn on_ended(&self, _index: usize, ending: &Arc<Ending>) {
        lock(&self.outcome).ending.get_or_insert_with(|| Arc::clone(ending));
        let mut current = lock(&self.instance.current);
        // Requests that arrive from now on wait until it is decided whether the instance starts again.
        self.instance.waiting.close();
        current.enter(Phase::Ending);
        current.connection = None;
    }

    fn on_process(&self, _index: usize, process: ProcessInfo) {
        lock(&self.instance.current).process = process.process;
    }

    fn on_report(&self, _index: usize, report: Report) {
        let (server, identity) = (self.instances.name(), &self.instance.principal);
        match &self.instance.audience {
            Audience::Session(_) => {
                tracing::error!(target: FAILURES_TARGET, "the instance of server `{server}` for a session {report}");
            }
            _ => {
                tracing::error!(target: FAILURES_TARGET, "the instance of server `{server}` for `{identity}` {report}");
            }
        }
        lock(&self.outcome).report = Some(report);
    }
}

impl std::fmt::Debug for InstanceObserver {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("InstanceObserver").field("audience", &self.instance.audience).finish_non_exhaustive()
    }
}
