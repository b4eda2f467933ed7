//! One service in front of all servers, which real clients reach in many ways, and the expected answers.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::Value;

use super::tour::{Stop, Tour};
use crate::real::clients::{Client, EVERYTHING_A_CLIENT_HAS, Lifecycle, Mode, Plan, Session};
use crate::real::parts::{Part, Parts};
use crate::real::sandbox::Sandbox;
use crate::real::service::{self, Service};
use crate::real::steps::{list, other_lists, with_prefix};

/// One service in front of all servers, for all tests that run at the same time.
pub(super) struct World {
    pub(super) parts: Parts,
    pub(super) sandbox: Sandbox,
    pub(super) tour: Tour,
    pub(super) service: Service,
    /// The direct answers of each server to [`Tour::without_repetition`].
    without_us: Vec<Vec<Value>>,
    /// Held while a client runs; see [`World::run`].
    turn: Mutex<()>,
}

/// A way to connect to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// `/mcp`
    Http,
    /// `/sse`
    Sse,
    /// A process of its own, in front of some of the servers.
    Stdio,
    /// `/mcp/<server>` for each server
    OneByOneHttp,
    /// `/sse/<server>` for each server
    OneByOneSse,
}

impl World {
    /// The existing world, or a new one.
    #[track_caller]
    pub(super) fn enter() -> Option<Arc<Self>> {
        static WORLD: Mutex<Weak<World>> = Mutex::new(Weak::new());
        let parts = Parts::with(&[Part::Npm, Part::Python])?;
        // If one test failed to create a world, the next may try.
        let mut current = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(world) = current.upgrade() {
            return Some(world);
        }
        let sandbox = Sandbox::new();
        let tour = Tour::new(&parts, &sandbox);
        let servers: Vec<(&str, Value)> = tour.stops.iter().map(|stop| (stop.key, stop.behind_us())).collect();
        let service = Service::start(&servers, &sandbox.home());
        // In the meantime, the servers behind the service start.
        let without_us = tour_without_us(&parts, &sandbox, &tour);
        let world = Arc::new(Self { parts, sandbox, tour, service, without_us, turn: Mutex::new(()) });
        *current = Arc::downgrade(&world);
        Some(world)
    }

    /// The servers behind this front.
    pub(super) fn stops(&self, front: Front) -> Vec<&Stop> {
        match front {
            Front::Stdio => self.tour.highlights(),
            _ => self.tour.stops.iter().collect(),
        }
    }

    /// The sessions of a tour through this front: one, or one per server.
    pub(super) fn plans(&self, front: Front, mode: Mode, label: &str) -> Vec<Plan> {
        let plan = |server, steps| Plan { server, mode, offers: EVERYTHING_A_CLIENT_HAS, steps };
        let one_by_one = |endpoint: &dyn Fn(&str) -> Value| {
            let steps = |stop: &Stop| stop.lists_and_steps(label, &self.sandbox);
            self.stops(front).into_iter().map(|stop| plan(endpoint(stop.key), steps(stop))).collect()
        };
        let server = match front {
            Front::Http => self.service.mcp(),
            Front::Sse => self.service.sse(),
            Front::Stdio => self.command_line(label),
            Front::OneByOneHttp => return one_by_one(&|key| self.service.mcp_of(key)),
            Front::OneByOneSse => return one_by_one(&|key| self.service.sse_of(key)),
        };
        let stops = self.stops(front);
        let awaited = stops.iter().flat_map(|stop| {
            let prefix = stop.prefix();
            stop.awaited_tools().iter().map(move |tool| format!("{prefix}{tool}"))
        });
        let lists = std::iter::once(list(awaited)).chain(other_lists());
        let steps = stops.iter().flat_map(|stop| {
            let steps = stop.steps(label, &self.sandbox);
            steps.into_iter().map(|step| with_prefix(&stop.prefix(), step))
        });
        vec![plan(server, lists.chain(steps).collect())]
    }

    /// `mcp-aggregator stdio` in front of the highlights.
    fn command_line(&self, label: &str) -> Value {
        let servers: Vec<(&str, Value)> =
            self.tour.highlights().iter().map(|stop| (stop.key, stop.behind_us())).collect();
        let config = self.sandbox.path(&format!("{label}.json"));
        fs::write(&config, service::config_of(&servers).text()).expect("a temporary folder can be written");
        service::over_stdio(&config)
    }

    /// The answers of a direct session with this server, in the same kind of revision.
    #[track_caller]
    pub(super) fn expected_at(&self, stop: &Stop) -> &[Value] {
        let number = self.tour.without_repetition().iter().position(|other| other.is_like(stop));
        &self.without_us[number.expect("every stop is like one of them")]
    }

    /// Runs these plans of a client while no other client runs.
    ///
    /// A legacy server over stdio does not name the call to which a server request belongs. If several clients have
    /// calls there at that time, we refuse the request rather than send it to the wrong client.
    #[track_caller]
    pub(super) fn run(&self, client: Client, plans: &[Plan]) -> Vec<Session> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        client.run(&self.parts, &self.sandbox, plans)
    }
}

#[track_caller]
fn tour_without_us(parts: &Parts, sandbox: &Sandbox, tour: &Tour) -> Vec<Vec<Value>> {
    let plan = |stop: &&Stop| Plan {
        server: stop.direct(WITHOUT_US, sandbox),
        mode: if stop.lifecycle == Lifecycle::Modern { Mode::Modern } else { Mode::Legacy },
        offers: EVERYTHING_A_CLIENT_HAS,
        steps: stop.lists_and_steps(WITHOUT_US, sandbox),
    };
    let plans: Vec<Plan> = tour.without_repetition().iter().map(plan).collect();
    let sessions = Client::Python.run(parts, sandbox, &plans);
    let answers: Vec<Vec<Value>> = sessions.into_iter().map(|session| session.answers).collect();
    for (plan, answers) in plans.iter().zip(&answers) {
        assert_eq!(plan.steps.len(), answers.len(), "without us: {:?}", answers.last());
    }
    answers
}

/// The label of the direct tour.
pub(super) const WITHOUT_US: &str = "without-us";
