//! Access tokens that expire: refreshed ahead, once, and never with a token that was used before.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Driver, wait_until};

use super::home::{HINT, Home, asks_to_sign_in};
use super::person::Person;
use super::provider::Provider;
use super::sign_in::text;

/// How many calls are made at once.
const AT_ONCE: usize = 50;

/// How many processes share one file of sign-ins.
const PROCESSES: usize = 3;

/// How often a process is killed in the middle of a refresh.
const KILLS: usize = 100;

#[test]
fn tokens_are_refreshed_ahead_while_nobody_calls() {
    let Some(provider) = Provider::start() else { return };
    provider.set(&json!({"access_ttl": 2}));
    let home = Home::with(&provider.entry());
    home.login(&mut Person::new("ada"));
    let mut client = home.stdio();
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    let before = provider.refreshes().len();
    provider.wait_for_refreshes(before + 3);
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    assert!(provider.refreshes().iter().all(|refresh| refresh["resource"] == provider.server.as_str()));
    provider.expect_no_reuse();
}

#[test]
fn fifty_calls_that_are_refused_at_once_cause_one_refresh() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    home.login(&mut Person::new("ada"));
    let mut client = home.stdio();
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    for round in 1..=3 {
        provider.forget_access_tokens();
        // None is told before all have come: all of them used the old token.
        provider.set(&json!({"unauthorized_together": AT_ONCE}));
        call_at_once(&mut client);
        assert_eq!(provider.refreshes().len(), round, "{:?}", provider.refreshes());
    }
    let refused = provider
        .journal("request")
        .into_iter()
        .filter(|request| request["method"] == "tools/call" && request["status"] == 401);
    assert_eq!(refused.count(), 3 * AT_ONCE);
    provider.expect_no_reuse();
}

#[test]
fn several_processes_with_one_file_refresh_once() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    home.login(&mut Person::new("ada"));
    let mut clients: Vec<Driver> = (0..PROCESSES).map(|_| home.stdio()).collect();
    for client in &mut clients {
        assert_eq!(text(client, "whoami", json!({})), "ada");
    }
    for round in 1..=5 {
        provider.forget_access_tokens();
        provider.set(&json!({"unauthorized_together": PROCESSES * AT_ONCE}));
        let calls: Vec<Vec<u64>> = clients.iter_mut().map(start_calls).collect();
        for (client, calls) in clients.iter_mut().zip(calls) {
            expect_answers(client, calls);
        }
        assert_eq!(provider.refreshes().len(), round, "{:?}", provider.refreshes());
        provider.expect_no_reuse();
    }
}

/// Makes all calls, which must succeed.
#[track_caller]
fn call_at_once(client: &mut Driver) {
    let calls = start_calls(client);
    expect_answers(client, calls);
}

#[track_caller]
fn start_calls(client: &mut Driver) -> Vec<u64> {
    let start = |number: usize| client.start_call("protected.write", json!({"text": number.to_string()}));
    (0..AT_ONCE).map(start).collect()
}

#[track_caller]
fn expect_answers(client: &mut Driver, calls: Vec<u64>) {
    for (number, call) in calls.into_iter().enumerate() {
        let answer = client.response(call);
        assert_eq!(answer["result"]["content"][0]["text"], format!("wrote {number}"), "{answer}");
    }
}

#[test]
fn a_provider_that_is_unreachable_signs_nobody_out() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    home.login(&mut Person::new("ada"));
    let mut client = home.stdio();
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    for (round, (down, up)) in [
        (json!({"unreachable": true}), json!({"unreachable": false})),
        (json!({"broken": 503}), json!({"broken": null})),
    ]
    .iter()
    .enumerate()
    {
        provider.set(down);
        provider.forget_access_tokens();
        let answer = client.call("protected.whoami", json!({}));
        assert!(!answer["error"].is_null() && !asks_to_sign_in(&answer), "{answer}");
        let call = home.run(&["call", "protected.whoami"]);
        assert!(!call.status.success() && !call.stderr.contains(HINT), "{call:?}");
        provider.set(up);
        wait_until("the call succeeds again", || {
            let answer = client.call("protected.whoami", json!({}));
            assert!(!asks_to_sign_in(&answer), "{answer}");
            (answer["result"]["content"][0]["text"] == "ada").then_some(())
        });
        assert_eq!(provider.refreshes().len(), round + 1);
    }
    assert_eq!(provider.journal("registered").len(), 1);
    provider.expect_no_reuse();
}

#[test]
fn a_sign_in_that_was_revoked_is_asked_for_again_and_taken_up() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    let mut person = Person::new("ada");
    home.login(&mut person);
    let mut client = home.stdio();
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
    provider.forget_sign_ins();
    for _ in 0..3 {
        let answer = client.call("protected.whoami", json!({}));
        assert!(asks_to_sign_in(&answer), "{answer}");
    }
    assert_eq!(provider.refreshes().len(), 1, "a refresh that was refused is not repeated");
    home.login(&mut person);
    assert_eq!(text(&mut client, "whoami", json!({})), "ada");
}

/// A moment of a refresh.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The provider has the request, and has done nothing yet.
    Asked,
    /// The refresh token was rotated, and the answer is on its way.
    Rotated,
    /// The answer was sent so long ago.
    Answered(Duration),
    /// The refusal came so long ago: the refresh is about to begin, or has begun.
    Refused(Duration),
}

impl Moment {
    /// Another one for each round.
    fn of(round: usize) -> Self {
        let nth = u64::try_from(round / 4).expect("there are few rounds");
        match round % 4 {
            0 => Self::Asked,
            1 => Self::Rotated,
            2 => Self::Answered(Duration::from_micros(nth * 400)),
            _ => Self::Refused(Duration::from_micros(nth * 400)),
        }
    }

    /// Waits for it, after a call was sent whose token is refused.
    fn wait(self, provider: &Provider, before: Before) {
        match self {
            Self::Asked | Self::Rotated => drop(provider.wait_for("held", before.held + 1)),
            Self::Answered(time) => {
                provider.wait_for_refreshes(before.refreshes + 1);
                std::thread::sleep(time);
            }
            Self::Refused(time) => {
                provider.wait_for("request", before.requests + 1);
                std::thread::sleep(time);
            }
        }
    }

    fn hold(self) -> Value {
        match self {
            Self::Asked => json!("before"),
            Self::Rotated => json!("after"),
            Self::Answered(_) | Self::Refused(_) => Value::Null,
        }
    }
}

/// What was in the journal before a round.
#[derive(Clone, Copy)]
struct Before {
    held: usize,
    refreshes: usize,
    requests: usize,
}

#[test]
fn killed_in_the_middle_of_refreshes_nobody_uses_a_refresh_token_twice() {
    let Some(provider) = Provider::start() else { return };
    let home = Home::with(&provider.entry());
    let mut person = Person::new("ada");
    home.login(&mut person);
    let mut lost = 0;
    for round in 0..KILLS {
        let moment = Moment::of(round);
        let mut client = home.stdio();
        assert_eq!(text(&mut client, "whoami", json!({})), "ada", "round {round}");
        provider.set(&json!({"hold": moment.hold()}));
        provider.forget_access_tokens();
        let before = Before {
            held: provider.journal("held").len(),
            refreshes: provider.refreshes().len(),
            requests: provider.journal("request").len(),
        };
        client.start_call("protected.whoami", json!({}));
        moment.wait(&provider, before);
        client.kill_hard();
        client.wait_exit();
        provider.set(&json!({"hold": null}));

        let mut client = home.stdio();
        let answer = client.call("protected.whoami", json!({}));
        provider.expect_no_reuse();
        if answer["result"]["content"][0]["text"] != "ada" {
            assert!(asks_to_sign_in(&answer), "round {round}, {moment:?}: {answer}\n{}", client.stderr_text());
            lost += 1;
            home.login(&mut person);
        }
    }
    // A refresh that was begun is never repeated: that costs a sign-in, but not in every round.
    assert!(lost <= KILLS * 3 / 4, "{lost} of {KILLS} kills cost the sign-in");
    provider.expect_no_reuse();
}
