//! Handles the events of servers: they become ready, change, send requests and end, and clients are notified.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use catalog::{Offer, SIGN_IN_REQUIRED, ServerState, Unavailable};
use protocol::reply::code;
use protocol::{Envelope, Lifecycle};
use upstream::{
    Audience, Cause, Connection, ContainerHandle, Ending, Phase, ProcessInfo, Report, ResponseHandler, ServerRequest,
    Stop, UpstreamObserver,
};

use super::{FAILURES_TARGET, Fleet, UpstreamEvent, lock};
use crate::responder::Responder;

impl UpstreamObserver for Fleet {
    fn on_running(&self, index: usize, connection: &Arc<Connection>, offer: Offer) {
        let has_logs = offer.has("logging") && offer.lifecycle == Lifecycle::Session;
        let offer = Arc::new(offer);
        // The run that only provides the catalog is not in the view, so no request of a client can be sent to it.
        let serves_clients = *connection.audience() != Audience::Nobody;
        if !serves_clients {
            self.slots.at(index).set_catalog_connection(connection);
        }
        self.change(index, |server, slot| {
            server.state = ServerState::Running;
            server.offer = Arc::clone(&offer);
            *slot = serves_clients.then(|| Arc::clone(connection));
        });
        // The complete offer, not the one in the view: the supervisor stores it and must not lose disabled tools.
        self.slots.at(index).send_event(UpstreamEvent::Running(offer));
        if has_logs {
            self.set_level_of_new(connection);
        }
        // It may have run before, with subscriptions that must be renewed.
        if let Some(fleet) = self.itself.upgrade() {
            fleet.resubscribe(connection);
        }
    }

    fn on_offer_changed(&self, connection: &Arc<Connection>, offer: Arc<Offer>) {
        let index = connection.index();
        let mut is_current = false;
        self.change(index, |server, slot| {
            // It may have ended meanwhile, and another connection may be there.
            let of_catalog = || self.slots.at(index).catalog_connection();
            is_current = slot.clone().or_else(of_catalog).is_some_and(|current| Arc::ptr_eq(&current, connection));
            if is_current {
                server.offer = Arc::clone(&offer);
            }
        });
        if is_current {
            self.slots.at(index).send_event(UpstreamEvent::Changed(offer));
        }
    }

    fn on_reinitialized(self: Arc<Self>, server: &Arc<Connection>) {
        if self.view().snapshot.servers()[server.index()].offer.has("logging") {
            self.set_level_of_new(server);
        }
        self.resubscribe(server);
    }

    fn on_notification(&self, server: &Arc<Connection>, method: &str, line: &Bytes, envelope: &Envelope) {
        (self.options.method_set.on_notification)(self, server, method, line, envelope);
    }

    fn on_server_request(&self, _index: usize, request: ServerRequest) {
        let of_task = self.client_of_task(&request.server.key(), &request.line, &request.envelope.params);
        let alone = || self.clients().into_iter().find(|client| client.is_alone());
        let Some(client) = of_task.or_else(alone) else {
            let text = "No client has a call on this server, so nobody can answer";
            return request.refuse(code::METHOD_NOT_FOUND, text);
        };
        let handler = Responder::to(&client, Arc::clone(client.sink())) as Arc<dyn ResponseHandler>;
        let server = Arc::clone(&request.server);
        if !server.remember_server_request(&request, &handler) {
            return request.refuse(code::INVALID_REQUEST, "Too many requests are pending, or one with this id is");
        }
        client.server_requests.send_when_ready(&client, request);
    }

    fn has_large_offer(&self, index: usize) -> bool {
        self.is_large(index)
    }

    fn on_ended(&self, index: usize, ending: &Arc<Ending>) {
        let server_slot = self.slots.at(index);
        let stays_on_offer = server_slot.end() && *self.stop.borrow() == Stop::Never;
        drop(server_slot.take_catalog_connection());
        self.change(index, |server, slot| {
            *slot = None;
            if stays_on_offer && server.state.offers() {
                // The supervisor decides what happens next; until then calls wait.
                server.state = ServerState::Starting;
                return;
            }
            server.state = match &**ending {
                Ending::Stopped => ServerState::Stopped,
                Ending::Failed { cause: Cause::SignInRequired { why, command }, .. } => {
                    ServerState::Unavailable(waits_for_sign_in(why, command))
                }
                Ending::Failed { phase: phase @ (Phase::Startup | Phase::Initialization), cause } => {
                    ServerState::Failed(format!("{phase}: {cause}").into())
                }
                Ending::Failed { phase: Phase::Runtime, cause } => ServerState::Failed(cause.to_string().into()),
            };
            server.offer = Arc::new(Offer::new(Lifecycle::Session));
        });
        server_slot.send_event(UpstreamEvent::Ended(Arc::clone(ending)));
    }

    fn on_preparing(&self, index: usize, progress: &str) {
        self.slots.at(index).send_event(UpstreamEvent::Preparing(progress.to_owned()));
    }

    fn on_container(&self, index: usize, container: Arc<dyn ContainerHandle>) {
        self.slots.at(index).send_event(UpstreamEvent::ContainerStarted(container));
    }

    fn on_process(&self, index: usize, process_info: ProcessInfo) {
        self.slots.at(index).send_event(UpstreamEvent::ProcessStarted(process_info));
    }

    fn on_report(&self, index: usize, report: Report) {
        let view = self.view();
        tracing::error!(target: FAILURES_TARGET, "server `{}` {report}", view.snapshot.servers()[index].name);
        let report = Arc::new(report);
        lock(&self.reports).insert(index, Arc::clone(&report));
        self.slots.at(index).send_event(UpstreamEvent::Reported(report));
    }
}

/// The state of a server until a person signs in to it.
fn waits_for_sign_in(why: &str, command: &str) -> Arc<Unavailable> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Arc::new(Unavailable {
        status: SIGN_IN_REQUIRED,
        why: Some(why.into()),
        command: Some(command.into()),
        since,
        retry_at: None,
    })
}

/// Ensures that a server whose task ends is reported as ended. Usually it has been, and there is nothing to do; if its
/// task panicked, its calls fail instead of waiting forever.
pub(super) struct EndGuard {
    pub(super) fleet: Arc<Fleet>,
    pub(super) index: usize,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        let server_slot = self.fleet.slots.at(self.index);
        if !server_slot.has_ended() {
            self.end_if_running();
        }
        server_slot.close_events();
    }
}

impl EndGuard {
    fn end_if_running(&self) {
        let connection = self.fleet.connection(self.index);
        let ending = Arc::new(Ending::Failed { phase: Phase::Runtime, cause: Cause::Broken });
        UpstreamObserver::on_ended(&*self.fleet, self.index, &ending);
        if let Some(connection) = connection {
            connection.end(&ending);
        }
        self.fleet.on_report(
            self.index,
            Report { phase: Phase::Runtime, cause: Cause::Broken.to_string(), stderr_lines: Vec::new(), hint: None },
        );
    }
}
