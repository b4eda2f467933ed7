//! The life of one server, for as long as it is registered: connected, lost, tried again, switched off, removed.
//!
//! Where a server stands in its life is where the code stands: [`Keeper::run`] goes from step to step, and each step is
//! a function that waits for what may happen in it. Orders of administrators arrive in a mailbox that every step reads.
//!
//! - here: the steps in which the server does not live
//! - `living`: those in which it does
//! - `watching`: what is watched meanwhile
//! - `handle`: the keeper as everybody else sees it, and the orders it takes
//! - `standing`: how everybody hears of it
//! - `backoff`: when to try again; `health`: whether it is well; [`catalogue`]: what it offers, kept

mod backoff;
pub(crate) mod catalogue;
mod handle;
mod health;
mod living;
mod standing;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use catalog::{Offer, ServerName, ServerState};
use registry::{ServerRecord, Status, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use crate::household::Household;
use crate::spec;
pub(crate) use handle::{Adoption, End, Goal, Handle, Order, Reply, Shown};
pub(crate) use health::Pulse;

/// Keeps one server.
pub(crate) struct Keeper {
    house: Arc<Household>,
    handle: Arc<Handle>,
    orders: mpsc::Receiver<Order>,
    stopping: watch::Receiver<bool>,
    shown: Shown,
    /// What it last offered.
    known: Option<Arc<Offer>>,
    /// Attempts in a row that failed; a connection that did not last counts as one.
    failures: u32,
    /// Connections in a row that were given up because the server was not well, and never had been while they stood.
    illnesses: u32,
    /// Who wants to know how the attempt goes.
    awaiting: Vec<Reply>,
}

/// What comes next.
enum Step {
    /// Connect it; what it is known to offer stays on offer meanwhile.
    Connect(Option<Arc<Offer>>),
    /// Wait for orders.
    Rest(Rest),
    /// Wait until it is needed.
    Doze,
    /// Try again after a while.
    Wait(Duration),
    /// It is removed.
    Leave(Vec<oneshot::Sender<()>>),
    /// Everything ends.
    Stop,
}

/// How it rests.
struct Rest {
    status: Status,
    why: Option<String>,
    /// Who waits for it.
    done: Vec<oneshot::Sender<()>>,
}

impl Keeper {
    pub(crate) fn new(
        house: &Arc<Household>,
        place: usize,
        record: ServerRecord,
        known: Option<Arc<Offer>>,
    ) -> (Self, Arc<Handle>) {
        let shown = Shown {
            is_lazy: spec::is_lazy(record.connection_config.reveal()),
            is_asleep: false,
            since: Timestamp::now(),
            retry_at: None,
            pulse: Pulse { last_check: record.last_health_check, ..Pulse::default() },
            housing: None,
            progress: None,
            gauge: None,
            tail: None,
            record,
        };
        let (handle, orders) = Handle::new(place, shown.clone());
        let keeper = Self {
            house: Arc::clone(house),
            handle: Arc::clone(&handle),
            orders,
            stopping: house.stopping.subscribe(),
            shown,
            known,
            failures: 0,
            illnesses: 0,
            awaiting: Vec::new(),
        };
        keeper.publish();
        (keeper, handle)
    }

    /// Keeps the server until it is removed or everything ends.
    pub(crate) async fn run(mut self) {
        let mut step = self.first();
        loop {
            step = match step {
                Step::Connect(known) => self.connect(known).await,
                Step::Rest(rest) => self.rest(rest).await,
                Step::Doze => {
                    let next = self.doze().await;
                    self.shown.is_asleep = false;
                    next
                }
                Step::Wait(delay) => self.wait(delay).await,
                Step::Leave(done) => return self.leave(done),
                Step::Stop => return self.stop(),
            };
        }
    }

    fn first(&self) -> Step {
        let record = &self.shown.record;
        if !record.enabled {
            let why = record.error_message.clone();
            return Step::Rest(Rest { status: Status::Disabled, why, done: Vec::new() });
        }
        match record.auto_connect {
            true if self.shown.is_lazy && self.known.is_some() => Step::Doze,
            true => Step::Connect(None),
            false => Step::Rest(Rest { status: Status::Disconnected, why: None, done: Vec::new() }),
        }
    }

    /// It is not connected, and stays so until somebody says otherwise.
    async fn rest(&mut self, rest: Rest) -> Step {
        let Rest { status, why, done } = rest;
        self.stand(status, why, None);
        self.lie_down();
        self.answer(Err("it was not connected"));
        tell(done);
        loop {
            match self.next_order().await {
                Order::Connect(reply) => {
                    if let Some(step) = self.begin_anew(reply) {
                        return step;
                    }
                }
                Order::End(end) => return self.after_ends(vec![end]),
                Order::Adopt(adoption) => {
                    let is_anew = self.adopt(adoption);
                    if is_anew && self.shown.record.status == Status::Error {
                        self.forgive();
                        return Step::Connect(None);
                    }
                    // Its name, or whether it may be connected, may have changed.
                    self.lie_down();
                }
                Order::Refresh => {}
                Order::Stop => return Step::Stop,
            }
        }
    }

    /// It sleeps, and what it is known to offer is on offer. Whoever needs it wakes it.
    async fn doze(&mut self) -> Step {
        let Some(known) = self.known.clone() else { return Step::Connect(None) };
        self.shown.is_asleep = true;
        self.stand(Status::Disconnected, None, None);
        self.house.fleet.stand(self.handle.place, ServerState::Dormant, Some(Arc::clone(&known)));
        self.answer(Ok(()));
        let (house, place) = (Arc::clone(&self.house), self.handle.place);
        loop {
            // Who came while it was on its way has told so, too.
            if house.fleet.is_awaited(place) {
                return Step::Connect(Some(known));
            }
            let order = tokio::select! {
                () = house.fleet.needed(place) => continue,
                order = self.next_order() => order,
            };
            match order {
                Order::Connect(reply) => {
                    self.awaiting.push(reply);
                    return Step::Connect(Some(known));
                }
                Order::End(end) => return self.after_ends(vec![end]),
                Order::Adopt(adoption) => {
                    let is_anew = self.adopt(adoption);
                    if is_anew {
                        self.known = None;
                        return Step::Connect(None);
                    }
                }
                Order::Refresh => return Step::Connect(Some(known)),
                Order::Stop => return Step::Stop,
            }
        }
    }

    /// It failed, and is tried again after a while.
    async fn wait(&mut self, delay: Duration) -> Step {
        let mut pause = std::pin::pin!(sleep(delay));
        loop {
            let order = tokio::select! {
                () = &mut pause => return Step::Connect(None),
                order = self.next_order() => order,
            };
            match order {
                Order::Connect(reply) => {
                    if let Some(step) = self.begin_anew(reply) {
                        return step;
                    }
                }
                Order::End(end) => return self.after_ends(vec![end]),
                Order::Adopt(adoption) => {
                    if self.adopt(adoption) {
                        self.forgive();
                        return Step::Connect(None);
                    }
                }
                Order::Refresh => {}
                Order::Stop => return Step::Stop,
            }
        }
    }

    /// An administrator wants it connected: what failed before does not count.
    fn begin_anew(&mut self, reply: Reply) -> Option<Step> {
        if !self.shown.record.enabled {
            // Whoever asked may be gone.
            drop(reply.send(Err("it is disabled; enable it first".to_owned())));
            return None;
        }
        self.awaiting.push(reply);
        self.forgive();
        Some(Step::Connect(None))
    }

    /// What failed before does not count any more.
    fn forgive(&mut self) {
        (self.failures, self.illnesses) = (0, 0);
    }

    /// What comes after it was ended by somebody's will.
    fn after_ends(&mut self, ends: Vec<End>) -> Step {
        let goal = ends.iter().map(|end| end.goal).max().unwrap_or(Goal::Disconnected);
        let done = ends.into_iter().map(|end| end.done).collect();
        match goal {
            Goal::Removed => Step::Leave(done),
            Goal::Disabled => Step::Rest(Rest { status: Status::Disabled, why: None, done }),
            Goal::Disconnected => {
                let status = if self.shown.record.enabled { Status::Disconnected } else { Status::Disabled };
                let why = self.shown.record.error_message.clone().filter(|_| status == Status::Disabled);
                Step::Rest(Rest { status, why, done })
            }
        }
    }

    /// Takes over another registration; whether the server must be connected anew.
    fn adopt(&mut self, adoption: Adoption) -> bool {
        let Adoption { record, anew, done } = adoption;
        let ServerRecord {
            name,
            description,
            transport,
            connection_config,
            health_check_url,
            deployment,
            origin,
            enabled,
            auto_connect,
            auto_disabled,
            auto_disabled_at,
            worked_at,
            updated_at,
            ..
        } = *record;
        if enabled && !self.shown.record.enabled {
            self.forgive();
            self.shown.record.failure_count = 0;
        }
        let kept = &mut self.shown.record;
        let is_renamed = kept.name != name;
        *kept = ServerRecord {
            name,
            description,
            transport,
            connection_config,
            health_check_url,
            deployment,
            origin,
            enabled,
            auto_connect,
            auto_disabled,
            auto_disabled_at,
            // An edit may have made the registry forget that another program worked.
            worked_at: if anew { worked_at } else { kept.worked_at },
            updated_at,
            ..kept.clone()
        };
        self.shown.is_lazy = spec::is_lazy(self.shown.record.connection_config.reveal());
        if is_renamed && let Ok(name) = ServerName::new(&self.shown.record.name) {
            self.house.fleet.rename(self.handle.place, &name);
        }
        self.publish();
        tell(vec![done]);
        anew
    }

    /// The next order. Once everything ends, that is the only one.
    async fn next_order(&mut self) -> Order {
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|&is_stopping| is_stopping) => Order::Stop,
            order = self.orders.recv() => order.unwrap_or(Order::Stop),
        }
    }

    fn leave(self, done: Vec<oneshot::Sender<()>>) {
        self.house.fleet.remove(self.handle.place);
        self.house.forget(self.handle.place);
        self.house.records.forget(self.handle.id);
        tell(done);
    }

    fn stop(mut self) {
        if self.shown.record.status != Status::Disabled {
            self.stand(Status::Disconnected, None, None);
        }
    }

    /// Tells everybody who waits for how the attempt goes.
    fn answer(&mut self, outcome: Result<(), &str>) {
        for reply in self.awaiting.drain(..) {
            // Whoever asked may be gone.
            drop(reply.send(outcome.map_err(str::to_owned)));
        }
    }
}

/// Tells everybody who waits that it is done. Some may be gone.
fn tell(waiting: Vec<oneshot::Sender<()>>) {
    for done in waiting {
        done.send(()).ok();
    }
}
