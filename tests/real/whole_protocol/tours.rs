//! On a tour, a client receives the same through us as directly.

use std::fs;

use serde_json::Value;
use testkit::wait_until;

use super::comparison::{Precision, assert_same, assert_same_items, items, put_together};
use super::fixture::{Front, WITHOUT_US, World};
use super::tour::Stop;
use crate::real::clients::{Client, Lifecycle, Mode, Session};

/// What is listed before any other step.
const LISTS: [&str; 4] = ["tools", "resources", "templates", "prompts"];

/// Runs a tour through these fronts, and compares the answers with the direct ones.
#[track_caller]
fn same_through_us(client: Client, mode: Mode, fronts: &[Front]) {
    let Some(world) = World::enter() else { return };
    for front in fronts {
        let label = format!("{client:?}-{mode:?}-{front:?}");
        let mut plans = world.plans(*front, mode, &label);
        plans.iter_mut().flat_map(|plan| &mut plan.steps).for_each(|step| leave_out_what_may_get_lost(client, step));
        let sessions = match front {
            // No other client uses these servers.
            Front::Stdio => client.run(&world.parts, &world.sandbox, &plans),
            _ => world.run(client, &plans),
        };
        let seen = Seen { world: &world, label, front: *front, client, mode };
        seen.check_sessions(&sessions);
        match front {
            Front::OneByOneHttp | Front::OneByOneSse => seen.compare_one_by_one(&sessions),
            Front::Http | Front::Sse | Front::Stdio => seen.compare_together(&sessions[0].answers),
        }
        seen.wait_for_cancellations();
    }
}

/// Clients in TypeScript drop progress that arrives together with the result, with us or without us.
///
/// So progress is compared only for calls that are cancelled.
fn leave_out_what_may_get_lost(client: Client, step_or_answer: &mut Value) {
    let is_given_up = ["cancelAfter", "cancelled"].iter().any(|member| step_or_answer.get(member).is_some());
    if client == Client::Python || is_given_up {
        return;
    }
    if let Some(members) = step_or_answer.as_object_mut() {
        members.remove("progress");
    }
}

/// The answers of a client on one tour.
struct Seen<'a> {
    world: &'a World,
    label: String,
    front: Front,
    client: Client,
    mode: Mode,
}

impl Seen<'_> {
    /// Checks the negotiated revision, and that every step ended.
    #[track_caller]
    fn check_sessions(&self, sessions: &[Session]) {
        let revision = match self.mode.lifecycle() {
            Lifecycle::Legacy => "2025-11-25",
            Lifecycle::Modern => "2026-07-28",
        };
        for session in sessions {
            assert_eq!(session.revision, revision, "{}", self.label);
            let last = session.answers.last().expect("there is a step");
            let log = self.world.service.stderr_text();
            assert!(last.get("timedOut").is_none(), "{}: {last}\n{log}", self.label);
        }
    }

    /// Each server alone: lists and answers are equal.
    #[track_caller]
    fn compare_one_by_one(&self, sessions: &[Session]) {
        for (stop, session) in self.world.stops(self.front).into_iter().zip(sessions) {
            let expected = self.world.expected_at(stop);
            let (lists, steps) = session.answers.split_at(LISTS.len());
            for (what, (seen, expected)) in LISTS.iter().zip(lists.iter().zip(expected)) {
                assert_same_items(seen, items(expected), &format!("{} lists {what} of {}", self.label, stop.key));
            }
            self.compare_steps(stop, steps);
        }
    }

    /// All servers together: their lists are merged, and the answers are equal.
    #[track_caller]
    fn compare_together(&self, answers: &[Value]) {
        let stops = self.world.stops(self.front);
        let (lists, mut steps) = answers.split_at(LISTS.len());
        for (number, (what, seen)) in LISTS.iter().zip(lists).enumerate() {
            let each = stops.iter().map(|stop| (*stop, &self.world.expected_at(stop)[number]));
            assert_same_items(seen, &put_together(each), &format!("{} lists {what}", self.label));
        }
        for stop in stops {
            let (of_this_stop, rest) = steps.split_at(self.world.expected_at(stop).len() - LISTS.len());
            self.compare_steps(stop, of_this_stop);
            steps = rest;
        }
    }

    #[track_caller]
    fn compare_steps(&self, stop: &Stop, seen: &[Value]) {
        let expected = &self.world.expected_at(stop)[LISTS.len()..];
        let steps = stop.steps(&self.label, &self.world.sandbox);
        // With only one client, a server's request can be assigned.
        let asker = if matches!(self.front, Front::OneByOneHttp | Front::OneByOneSse) { "" } else { stop.key };
        // The direct answers were recorded with the Python client.
        let is_alike = self.client == Client::Python && self.mode.lifecycle() == stop.lifecycle;
        for (step, (seen, expected)) in steps.iter().zip(seen.iter().zip(expected)) {
            let context = format!("{}: {} {step}", self.label, stop.key);
            let mut expected = expected.clone();
            leave_out_what_may_get_lost(self.client, &mut expected);
            // A URI does not name a server: another server may have it, too.
            let is_certain = step.get("read").is_none() && step["complete"].get("uri").is_none();
            let precision = if is_alike && is_certain { Precision::All } else { Precision::WhatAllHave };
            assert_same(&context, (WITHOUT_US, &expected), (&self.label, seen), asker, precision);
        }
    }

    /// Every server that records cancellations was notified that the call was cancelled.
    #[track_caller]
    fn wait_for_cancellations(&self) {
        let counting = self.world.stops(self.front).iter().filter(|stop| stop.notes_cancellations()).count();
        wait_until(&format!("{counting} calls of {} are cancelled at their servers", self.label), || {
            let journal = fs::read_to_string(self.world.sandbox.journal()).unwrap_or_default();
            (journal.lines().filter(|line| *line == self.label).count() == counting).then_some(())
        });
    }
}

#[test]
fn the_legacy_python_client_sees_what_it_sees_directly() {
    same_through_us(Client::Python, Mode::Legacy, &[Front::Http, Front::Sse, Front::Stdio, Front::OneByOneHttp]);
}

#[test]
fn the_probing_python_client_sees_what_it_sees_directly() {
    same_through_us(Client::Python, Mode::Auto, &[Front::Http]);
}

#[test]
fn the_modern_python_client_sees_what_it_sees_directly() {
    same_through_us(Client::Python, Mode::Modern, &[Front::Http, Front::Stdio, Front::OneByOneHttp]);
}

#[test]
fn the_typescript_client_v1_sees_what_it_sees_without_us() {
    same_through_us(Client::TypeScriptV1, Mode::Legacy, &[Front::Http, Front::Sse, Front::Stdio, Front::OneByOneSse]);
}

#[test]
fn the_legacy_typescript_client_v2_sees_what_it_sees_directly() {
    same_through_us(Client::TypeScriptV2, Mode::Legacy, &[Front::Http]);
}

#[test]
fn the_probing_typescript_client_v2_sees_what_it_sees_directly() {
    same_through_us(Client::TypeScriptV2, Mode::Auto, &[Front::Http]);
}

#[test]
fn the_modern_typescript_client_v2_sees_what_it_sees_directly() {
    same_through_us(Client::TypeScriptV2, Mode::Modern, &[Front::Http, Front::Stdio, Front::OneByOneHttp]);
}
