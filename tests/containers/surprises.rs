//! Somebody else stops or removes a container; we are killed; the engine goes away.

use serde_json::{Value, json};
use testkit::engine::{IMAGE, Relay};
use testkit::http_client::Ask;
use testkit::{Engine, Serve, Signal, wait_until};

use super::{House, id, on};
use crate::rest::expect;

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

/// It runs again before anybody can look, but what was said to it is lost.
#[test]
fn a_container_that_somebody_else_restarts_is_missed_and_not_taken_for_one_that_closed_its_output() {
    let Some(house) = House::start() else { return };
    expect(200, &house.rest.patch("/settings", &json!({"health_check_interval_s": 3600})));
    let first = house.connected("box", &json!({}))["container"].clone();
    house.engine.ask("POST", &format!("/containers/{}/restart?t=0", id(&first)), None);
    house.wait_for_another("box", &first);
    // Restarted or stopped: that is a matter of how fast the engine is.
    house.wait_for_history("box", "ed from outside");
    assert_eq!(house.containers().len(), 1);
    house.finish();
}

/// Whatever is done to it, in whichever way it is talked to: nobody looks whether it is well, and it is missed.
#[test]
fn a_container_is_missed_however_it_is_talked_to() {
    let Some(house) = House::start() else { return };
    expect(200, &house.rest.patch("/settings", &json!({"health_check_interval_s": 3600, "failure_threshold": 1000})));
    house.connected("pipe", &json!({}));
    house.connected_over_http("web", "http", None, &json!({}));
    house.connected_over_http("older", "sse", None, &json!({}));
    for name in ["pipe", "web", "older"] {
        for (method, deed, words) in [
            ("POST", "/kill", "stopped from outside: signal 9"),
            ("POST", "/stop?t=0", "stopped from outside"),
            ("POST", "/pause", "paused from outside"),
            ("DELETE", "?force=1", "removed from outside"),
        ] {
            let container = house.rest.get(&format!("/servers/{name}")).json()["container"].clone();
            house.engine.ask(method, &format!("/containers/{}{deed}", id(&container)), None);
            let another = house.wait_for_another(name, &container);
            house.wait_for_history(name, words);
            assert_ne!(another["id"], container["id"]);
        }
    }
    assert_eq!(house.containers().len(), 3);
    house.finish();
}

#[test]
fn a_call_to_a_server_over_http_hears_how_its_container_ended() {
    let Some(house) = House::start() else { return };
    expect(200, &house.rest.patch("/settings", &json!({"failure_threshold": 1000})));
    // Ends by itself, with a status of its own, when it is told so.
    let exits = r#"trap 'exit 7' USR1; "$@" & wait"#;
    // Takes more memory than there is.
    let gorges = r#"trap 'more=xxxxxxxx; while :; do more=$more$more; done' USR1; "$@" & wait"#;
    for transport in ["http", "sse"] {
        for (shell, signal, words) in [
            (None, "KILL", "its container was stopped from outside: signal 9"),
            (Some(exits), "USR1", "its container exited with status 7"),
            (Some(gorges), "USR1", "its container ran out of memory: it may use 48 MB"),
        ] {
            let name = format!("{transport}-{}", words.len());
            let server = house.connected_over_http(&name, transport, shell, &json!({"memory": "48m"}));
            let (_, mut call) = house.rest.begin_to_hang(&name);
            house.engine.ask("POST", &format!("/containers/{}/kill?signal={signal}", id(&server["container"])), None);
            let answer = call.answer();
            assert!(answer.body.contains(words), "{name}: {answer:?}");
            expect(204, &house.rest.delete(&format!("/servers/{name}?force=true")));
        }
    }
    house.finish();
}

#[test]
fn an_engine_that_is_out_of_reach_for_a_while_is_found_again() {
    let Some(engine) = Engine::shared() else { return };
    let relay = Relay::to(&engine);
    let house = House::start_at(&engine, &relay.host());
    expect(200, &house.rest.patch("/settings", &json!({"failure_threshold": 1000, "health_check_interval_s": 3600})));
    let pipe = house.connected("pipe", &json!({}))["container"].clone();
    let web = house.connected_over_http("web", "http", None, &json!({}))["container"].clone();
    relay.cut();
    house.wait_for_history("pipe", "the container engine went away");
    house.wait_for_history("web", "the container engine went away");
    relay.mend();
    house.wait_for_another("pipe", &pipe);
    let web = house.wait_for_another("web", &web);
    assert_eq!(house.containers().len(), 2, "what was out of reach was removed");
    // It is listened to again.
    house.engine.ask("POST", &format!("/containers/{}/pause", id(&web)), None);
    house.wait_for_another("web", &web);
    house.finish();
}

#[test]
fn an_engine_that_does_not_answer_holds_nobody_up() {
    let Some(engine) = Engine::shared() else { return };
    let relay = Relay::to(&engine);
    let house = House::start_at(&engine, &relay.host());
    expect(200, &house.rest.patch("/settings", &json!({"health_check_interval_s": 3600})));
    house.connected("one", &json!({}));
    house.connected("two", &json!({}));
    house.rest.register("child", &[]);
    relay.freeze();
    // Answered in the end, although the container cannot be removed now.
    let answer = house.rest.order("/servers/one/disconnect");
    assert!(answer.status < 500, "{answer:?}");
    assert_eq!(house.rest.call("child.echo", &json!({"text": "x"})).status, 200);
    // It ends, too, and the next start removes what was left behind.
    let House { rest, engine, lease } = house;
    let house = House { rest: rest.restarted_as(false, |launch| on(engine, launch)), engine, lease };
    house.rest.wait_for_status("two", "connected");
    house.finish();
}

#[test]
fn after_a_kill_the_next_start_removes_exactly_what_was_ours() {
    let Some(house) = House::start() else { return };
    let other = json!({"Image": IMAGE, "Cmd": ["/bin/sleep", "1000"],
        "Labels": {"io.mcp-aggregator.instance": "somebody else", "io.mcp-aggregator.home": house.home()},
        "HostConfig": {"NetworkMode": "none"}});
    let other = house.engine.ask("POST", "/containers/create", Some(&other))["Id"].clone();
    let other = other.as_str().expect("it was made").to_owned();
    house.engine.ask("POST", &format!("/containers/{other}/start"), None);

    let named = json!({"containerName": "mcp-test-killed", "args": ["--ignore-eof"]});
    let kept = house.connected("kept", &named)["container"].clone();
    let gone = house.connected("gone", &json!({}))["container"].clone();
    let House { rest, engine, lease } = house;
    let house = House { rest: rest.restarted_as(true, |launch| on(engine, launch)), engine, lease };
    house.wait_for_another("kept", &kept);
    house.wait_for_another("gone", &gone);
    let ids: Vec<Value> = house.containers().iter().map(|seen| seen["Id"].clone()).collect();
    assert_eq!(ids.len(), 3, "two of ours, and one of a service that has its registry at the same path: {ids:?}");
    assert!(!ids.contains(&kept["id"]) && !ids.contains(&gone["id"]), "{ids:?}");

    let seen = house.engine.ask("GET", &format!("/containers/{other}/json"), None);
    assert_eq!(seen["State"]["Running"], true, "somebody else's was left alone");
    house.engine.ask("DELETE", &format!("/containers/{other}?force=1"), None);
    house.finish();
}

#[test]
fn a_registry_that_was_moved_knows_its_containers_again() {
    let Some(lease) = Engine::shared() else { return };
    let engine = lease.engine();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    let mut serve = Serve::in_folder(&before, |launch| on(engine, launch));
    let docker = json!({"image": IMAGE, "pull": "never", "containerName": "mcp-test-moved", "command": "/bin/fake-server",
        "args": ["--ignore-eof"]});
    let body = json!({"name": "box", "transport_type": "stdio", "connection_config": {"docker": docker}});
    serve.fetch(&Ask::post("/api/v1/aggregator/servers", body.to_string()));
    let connected = |serve: &Serve| {
        wait_until("the server is connected", || {
            let server = serve.fetch(&Ask::new("GET", "/api/v1/aggregator/servers/box")).json();
            (server["status"] == "connected").then(|| server["container"].clone())
        })
    };
    let first = connected(&serve);
    serve.signal(Signal::KILL);
    serve.wait_exit();
    std::fs::rename(&before, &after).expect("a folder can be renamed");
    let mut serve = Serve::in_folder(&after, |launch| on(engine, launch));
    let second = connected(&serve);
    assert_ne!(first["id"], second["id"], "what was left behind is gone, and its name is free");
    serve.signal(Signal::TERM);
    serve.wait_exit();
}

#[test]
fn what_could_not_be_removed_goes_as_soon_as_the_engine_is_back() {
    let Some(engine) = Engine::shared() else { return };
    let relay = Relay::to(&engine);
    let house = House::start_at(&engine, &relay.host());
    expect(200, &house.rest.patch("/settings", &json!({"failure_threshold": 1, "health_check_interval_s": 3600})));
    house.connected("box", &json!({}));
    relay.cut();
    house.wait_for_history("box", "the container engine went away");
    expect(204, &house.rest.delete("/servers/box?force=true"));
    assert_eq!(house.containers().len(), 1, "nobody can remove it now");
    relay.mend();
    wait_until("nothing of it is left", || house.containers().is_empty().then_some(()));
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
    let house = House { rest, engine: &engine, lease: None };
    house.wait_for_another("box", &container);
    assert_eq!(house.containers().len(), 1, "what the old engine left was removed");
    house.finish();
}
