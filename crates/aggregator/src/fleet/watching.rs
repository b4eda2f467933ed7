//! What becomes of servers: they run, change, ask and end, and everybody concerned hears of it.

use std::sync::Arc;

use bytes::Bytes;
use catalog::{Offer, ServerState};
use protocol::reply::code;
use protocol::{Envelope, Era};
use upstream::failure::Cause;
use upstream::{Caller, Connection, Ending, Housing, Phase, Question, Report, Signs, Stop, Watcher};

use super::{FAILURES, Fleet, Happening, lock};
use crate::answering::Answering;

impl Watcher for Fleet {
    fn running(&self, index: usize, connection: &Arc<Connection>, offer: Offer) {
        let has_logs = offer.has("logging") && offer.era == Era::Legacy;
        let offer = Arc::new(offer);
        self.change(index, |server, slot| {
            server.state = ServerState::Running;
            server.offer = Arc::clone(&offer);
            *slot = Some(Arc::clone(connection));
        });
        // The whole of it, and not what is left in the view: who keeps it must not forget what is switched off.
        self.places.at(index).tell(Happening::Running(offer));
        if has_logs {
            self.set_level_of_new(connection);
        }
        // It may have lived before, and been followed then.
        if let Some(fleet) = self.itself.upgrade() {
            fleet.follow_anew(connection);
        }
    }

    fn changed(&self, connection: &Arc<Connection>, offer: Arc<Offer>) {
        let index = connection.index();
        let mut is_current = false;
        self.change(index, |server, slot| {
            // It may have ended meanwhile, and another may be there.
            is_current = slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection));
            if is_current {
                server.offer = Arc::clone(&offer);
            }
        });
        if is_current {
            self.places.at(index).tell(Happening::Changed(offer));
        }
    }

    fn introduced_anew(self: Arc<Self>, server: &Arc<Connection>) {
        if self.view().snapshot.servers()[server.index()].offer.has("logging") {
            self.set_level_of_new(server);
        }
        self.follow_anew(server);
    }

    fn heard(&self, server: &Arc<Connection>, method: &str, line: &Bytes, envelope: &Envelope) {
        (self.options.reach.heard)(self, server, method, line, envelope);
    }

    fn asked(&self, index: usize, question: Question) {
        let of_task = self.client_of_task(index, &question.line, &question.envelope);
        let alone = || self.clients().into_iter().find(|client| client.is_alone());
        let Some(client) = of_task.or_else(alone) else {
            let text = "No client is waiting for this server, so there is nobody to ask";
            return question.refuse(code::METHOD_NOT_FOUND, text);
        };
        let caller = Answering::to(&client, Arc::clone(client.way())) as Arc<dyn Caller>;
        let server = Arc::clone(&question.server);
        if !server.remember_question(&question, &caller) {
            return question.refuse(code::INVALID_REQUEST, "Too many questions, or one under that id, are open");
        }
        client.questions.put_when_ready(&client, question);
    }

    fn ended(&self, index: usize, ending: &Arc<Ending>) {
        let place = self.places.at(index);
        let stays_on_offer = place.end() && *self.stop.borrow() == Stop::Never;
        self.change(index, |server, slot| {
            *slot = None;
            if stays_on_offer && server.state.offers() {
                // Whoever keeps it decides next; until then calls wait.
                server.state = ServerState::Waking;
                return;
            }
            server.state = match &**ending {
                Ending::Stopped => ServerState::Stopped,
                Ending::Failed { phase: phase @ (Phase::Startup | Phase::Initialization), cause } => {
                    ServerState::Failed(format!("{phase}: {cause}").into())
                }
                Ending::Failed { phase: Phase::Runtime, cause } => ServerState::Failed(cause.to_string().into()),
            };
            server.offer = Arc::new(Offer::new(Era::Legacy));
        });
        place.tell(Happening::Ended(Arc::clone(ending)));
    }

    fn preparing(&self, index: usize, progress: &str) {
        self.places.at(index).tell(Happening::Preparing(progress.to_owned()));
    }

    fn housed(&self, index: usize, housing: Arc<dyn Housing>) {
        self.places.at(index).tell(Happening::Housed(housing));
    }

    fn signs_of_life(&self, index: usize, signs: Signs) {
        self.places.at(index).tell(Happening::Signs(signs));
    }

    fn reported(&self, index: usize, report: Report) {
        let view = self.view();
        tracing::error!(target: FAILURES, "server `{}` {report}", view.snapshot.servers()[index].name);
        let report = Arc::new(report);
        lock(&self.reports).insert(index, Arc::clone(&report));
        self.places.at(index).tell(Happening::Reported(report));
    }
}

/// Makes sure that a server whose task ends has ended for everybody. Usually it has, and there is nothing to do; if its
/// task broke, its calls fail instead of waiting for ever.
pub(super) struct Mourner {
    pub(super) fleet: Arc<Fleet>,
    pub(super) index: usize,
}

impl Drop for Mourner {
    fn drop(&mut self) {
        let place = self.fleet.places.at(self.index);
        if !place.has_ended() {
            self.mourn();
        }
        place.fall_silent();
    }
}

impl Mourner {
    fn mourn(&self) {
        let connection = self.fleet.view().connections[self.index].clone();
        let ending = Arc::new(Ending::Failed { phase: Phase::Runtime, cause: Cause::Broken });
        Watcher::ended(&*self.fleet, self.index, &ending);
        if let Some(connection) = connection {
            connection.end(&ending);
        }
        self.fleet.reported(
            self.index,
            Report { phase: Phase::Runtime, cause: Cause::Broken.to_string(), last_words: Vec::new(), hint: None },
        );
    }
}
