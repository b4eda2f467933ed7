//! Somebody else stops or removes a container; we are killed; the engine goes away.

use serde_json::{Value, json};
use testkit::engine::IMAGE;
use testkit::{Engine, wait_until};

use super::{House, on};
use crate::rest::expect;

fn id(container: &Value) -> &str {
    container["id"].as_str().expect("a container has an id")
}

#[test]
fn a_container_that_is_stopped_or_removed_by_somebody_else_is_missed_at_once() {
    let Some(house) = House::start() else { return };
    // Nobody looks whether it is well before the test is over.
    expect(200, &house.rest.patch("/settings", &json!({"health_check_interval_s": 3600})));
    let first = house.connected("box", &json!({}))["container"].clone();
    house.engine.ask("POST", &format!("/containers/{}/stop?t=0", id(&first)), None);
    house.wait_for_history("box", "stopped from outside");
    let second = house.wait_for_another("box", &first);

    house.engine.ask("DELETE", &format!("/containers/{}?force=1", id(&second)), None);
    house.wait_for_history("box", "removed from outside");
    house.wait_for_another("box", &second);
    let answer = house.rest.call("box.echo", &json!({"text": "hello"}));
    assert!(answer.body.contains("hello"), "{answer:?}");
    assert_eq!(house.containers().len(), 1);
    house.finish();
}

#[test]
fn after_a_kill_the_next_start_removes_exactly_what_was_ours() {
    let Some(house) = House::start() else { return };
    let other = json!({"Image": IMAGE, "Cmd": ["/bin/sleep", "1000"],
        "Labels": {"io.mcp-aggregator.instance": "somebody else"}, "HostConfig": {"NetworkMode": "none"}});
    let other = house.engine.ask("POST", "/containers/create", Some(&other))["Id"].clone();
    let other = other.as_str().expect("it was made").to_owned();
    house.engine.ask("POST", &format!("/containers/{other}/start"), None);

    let named = json!({"containerName": "mcp-test-killed", "args": ["--ignore-eof"]});
    let kept = house.connected("kept", &named)["container"].clone();
    let gone = house.connected("gone", &json!({}))["container"].clone();
    let House { rest, engine } = house;
    let house = House { rest: rest.restarted_as(true, |launch| on(engine, launch)), engine };
    house.wait_for_another("kept", &kept);
    house.wait_for_another("gone", &gone);
    let ids: Vec<Value> = house.containers().iter().map(|seen| seen["Id"].clone()).collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    assert!(!ids.contains(&kept["id"]) && !ids.contains(&gone["id"]), "{ids:?}");

    let seen = house.engine.ask("GET", &format!("/containers/{other}/json"), None);
    assert_eq!(seen["State"]["Running"], true, "somebody else's was left alone");
    house.engine.ask("DELETE", &format!("/containers/{other}?force=1"), None);
    house.finish();
}

#[test]
fn two_programs_on_one_engine_leave_each_others_containers_alone() {
    let (Some(one), Some(two)) = (House::start(), House::start()) else { return };
    one.connected("box", &json!({}));
    two.connected("box", &json!({}));
    two.finish();
    assert_eq!(one.containers().len(), 1);
    assert_eq!(one.rest.call("box.echo", &json!({})).status, 200);
    one.finish();
}

#[test]
fn an_engine_that_is_restarted_under_us_is_found_again() {
    let Some(mut engine) = Engine::start() else { return };
    let house = House::start_on(&engine);
    expect(200, &house.rest.patch("/settings", &json!({"failure_threshold": 1000})));
    let container = house.connected("box", &json!({}))["container"].clone();
    let House { rest, .. } = house;
    engine.stop();
    wait_until("its loss is noticed", || {
        let status = rest.get("/servers/box").json()["status"].clone();
        (status != "connected").then_some(())
    });
    engine.start_again();
    let house = House { rest, engine: &engine };
    house.wait_for_another("box", &container);
    assert_eq!(house.containers().len(), 1, "what the old engine left was removed");
    house.finish();
}
