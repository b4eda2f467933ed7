//! A container is stopped or removed externally; the service is killed; the engine becomes unreachable.

use serde_json::{Value, json};
use testkit::engine::{IMAGE, Relay};
use testkit::http_client::HttpRequest;
use testkit::{Engine, Serve, Signal, wait_until};

use super::{ContainerFixture, id, on};
use crate::rest::expect;

#[test]
fn a_container_stopped_or_removed_from_outside_is_noticed_immediately() {
    let Some(fixture) = ContainerFixture::start() else { return };
    // No health check runs before the test is over.
    expect(200, &fixture.rest.patch("/settings", &json!({"health_check_interval_s": 3600})));
    let first = fixture.connected("box", &json!({}))["container"].clone();
    fixture.engine.ask("POST", &format!("/containers/{}/stop?t=0", id(&first)), None);
    fixture.wait_for_history("box", "stopped externally");
    let second = fixture.wait_for_another("box", &first);

    fixture.engine.ask("DELETE", &format!("/containers/{}?force=1", id(&second)), None);
    fixture.wait_for_history("box", "removed externally");
    fixture.wait_for_another("box", &second);
    let answer = fixture.rest.call("box.echo", &json!({"text": "hello"}));
    assert!(answer.body.contains("hello"), "{answer:?}");
    assert_eq!(fixture.containers().len(), 1);
    fixture.finish();
}

/// It runs again before a health check, but messages sent to it are lost.
#[test]
fn a_container_restarted_from_outside_is_not_mistaken_for_a_closed_output() {
    let Some(fixture) = ContainerFixture::start() else { return };
    expect(200, &fixture.rest.patch("/settings", &json!({"health_check_interval_s": 3600})));
    let first = fixture.connected("box", &json!({}))["container"].clone();
    fixture.engine.ask("POST", &format!("/containers/{}/restart?t=0", id(&first)), None);
    fixture.wait_for_another("box", &first);
    // Restarted or stopped, depending on how fast the engine is.
    fixture.wait_for_history("box", "ed externally");
    assert_eq!(fixture.containers().len(), 1);
    fixture.finish();
}

/// Whatever happens to it, over either transport, is noticed without a health check.
#[test]
fn a_container_is_missed_however_it_is_talked_to() {
    let Some(fixture) = ContainerFixture::start() else { return };
    expect(200, &fixture.rest.patch("/settings", &json!({"health_check_interval_s": 3600, "failure_threshold": 1000})));
    fixture.connected("pipe", &json!({}));
    fixture.connected_over_http("web", "http", None, &json!({}));
    fixture.connected_over_http("older", "sse", None, &json!({}));
    for name in ["pipe", "web", "older"] {
        for (method, action, words) in [
            ("POST", "/kill", "stopped externally: signal 9"),
            ("POST", "/stop?t=0", "stopped externally"),
            ("POST", "/pause", "paused externally"),
            ("DELETE", "?force=1", "removed externally"),
        ] {
            let container = fixture.rest.get(&format!("/servers/{name}")).json()["container"].clone();
            fixture.engine.ask(method, &format!("/containers/{}{action}", id(&container)), None);
            let another = fixture.wait_for_another(name, &container);
            fixture.wait_for_history(name, words);
            assert_ne!(another["id"], container["id"]);
        }
    }
    assert_eq!(fixture.containers().len(), 3);
    fixture.finish();
}

#[test]
fn a_call_to_a_server_over_http_reports_how_its_container_ended() {
    let Some(fixture) = ContainerFixture::start() else { return };
    expect(200, &fixture.rest.patch("/settings", &json!({"failure_threshold": 1000})));
    // Ends by itself with its own status, on request.
    let exits = r#"trap 'exit 7' USR1; "$@" & wait"#;
    // Uses more memory than allowed.
    let gorges = r#"trap 'more=xxxxxxxx; while :; do more=$more$more; done' USR1; "$@" & wait"#;
    for transport in ["http", "sse"] {
        for (shell, signal, words) in [
            (None, "KILL", "its container was stopped externally: signal 9"),
            (Some(exits), "USR1", "its container exited with status 7"),
            (Some(gorges), "USR1", "its container ran out of memory; the limit is 48 MB"),
        ] {
            let name = format!("{transport}-{}", words.len());
            let server = fixture.connected_over_http(&name, transport, shell, &json!({"memory": "48m"}));
            let (_, mut call) = fixture.rest.begin_to_hang(&name);
            fixture.engine.ask("POST", &format!("/containers/{}/kill?signal={signal}", id(&server["container"])), None);
            let answer = call.answer();
            assert!(answer.body.contains(words), "{name}: {answer:?}");
            expect(204, &fixture.rest.delete(&format!("/servers/{name}?force=true")));
        }
    }
    fixture.finish();
}

#[test]
fn an_engine_that_is_out_of_reach_for_a_while_is_found_again() {
    let Some(engine) = Engine::shared() else { return };
    let relay = Relay::to(&engine);
    let fixture = ContainerFixture::start_at(&engine, &relay.host());
    expect(200, &fixture.rest.patch("/settings", &json!({"failure_threshold": 1000, "health_check_interval_s": 3600})));
    let pipe = fixture.connected("pipe", &json!({}))["container"].clone();
    let web = fixture.connected_over_http("web", "http", None, &json!({}))["container"].clone();
    relay.cut();
    fixture.wait_for_history("pipe", "the container engine became unreachable");
    fixture.wait_for_history("web", "the container engine became unreachable");
    relay.mend();
    fixture.wait_for_another("pipe", &pipe);
    let web = fixture.wait_for_another("web", &web);
    assert_eq!(fixture.containers().len(), 2, "what was out of reach was removed");
    // The event stream is open again.
    fixture.engine.ask("POST", &format!("/containers/{}/pause", id(&web)), None);
    fixture.wait_for_another("web", &web);
    fixture.finish();
}

#[test]
fn an_unresponsive_engine_delays_nothing() {
    let Some(engine) = Engine::shared() else { return };
    let relay = Relay::to(&engine);
    let fixture = ContainerFixture::start_at(&engine, &relay.host());
    expect(200, &fixture.rest.patch("/settings", &json!({"health_check_interval_s": 3600})));
    fixture.connected("one", &json!({}));
    fixture.connected("two", &json!({}));
    fixture.rest.register("child", &[]);
    relay.freeze();
    // The request is answered in the end, although the container cannot be removed now.
    let answer = fixture.rest.order("/servers/one/disconnect");
    assert!(answer.status < 500, "{answer:?}");
    assert_eq!(fixture.rest.call("child.echo", &json!({"text": "x"})).status, 200);
    // The service ends, too, and the next start removes the leftovers.
    let ContainerFixture { rest, engine, lease } = fixture;
    let fixture = ContainerFixture { rest: rest.restarted_as(false, |launch| on(engine, launch)), engine, lease };
    fixture.rest.wait_for_status("two", "connected");
    fixture.finish();
}

#[test]
fn after_a_kill_the_next_start_removes_exactly_what_was_ours() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let other = json!({"Image": IMAGE, "Cmd": ["/bin/sleep", "1000"],
        "Labels": {"io.mcp-aggregator.instance": "somebody else", "io.mcp-aggregator.home": fixture.home()},
        "HostConfig": {"NetworkMode": "none"}});
    let other = fixture.engine.ask("POST", "/containers/create", Some(&other))["Id"].clone();
    let other = other.as_str().expect("it was made").to_owned();
    fixture.engine.ask("POST", &format!("/containers/{other}/start"), None);

    let named = json!({"containerName": "mcp-test-killed", "args": ["--ignore-eof"]});
    let kept = fixture.connected("kept", &named)["container"].clone();
    let gone = fixture.connected("gone", &json!({}))["container"].clone();
    let ContainerFixture { rest, engine, lease } = fixture;
    let fixture = ContainerFixture { rest: rest.restarted_as(true, |launch| on(engine, launch)), engine, lease };
    fixture.wait_for_another("kept", &kept);
    fixture.wait_for_another("gone", &gone);
    let ids: Vec<Value> = fixture.containers().iter().map(|seen| seen["Id"].clone()).collect();
    assert_eq!(ids.len(), 3, "two of ours, and one of a service that has its registry at the same path: {ids:?}");
    assert!(!ids.contains(&kept["id"]) && !ids.contains(&gone["id"]), "{ids:?}");

    let seen = fixture.engine.ask("GET", &format!("/containers/{other}/json"), None);
    assert_eq!(seen["State"]["Running"], true, "somebody else's was left alone");
    fixture.engine.ask("DELETE", &format!("/containers/{other}?force=1"), None);
    fixture.finish();
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
    serve.fetch(&HttpRequest::post("/api/v1/aggregator/servers", body.to_string()));
    let connected = |serve: &Serve| {
        wait_until("the server is connected", || {
            let server = serve.fetch(&HttpRequest::new("GET", "/api/v1/aggregator/servers/box")).json();
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
fn leftovers_are_removed_as_soon_as_the_engine_is_reachable_again() {
    let Some(engine) = Engine::shared() else { return };
    let relay = Relay::to(&engine);
    let fixture = ContainerFixture::start_at(&engine, &relay.host());
    expect(200, &fixture.rest.patch("/settings", &json!({"failure_threshold": 1, "health_check_interval_s": 3600})));
    fixture.connected("box", &json!({}));
    relay.cut();
    fixture.wait_for_history("box", "the container engine became unreachable");
    expect(204, &fixture.rest.delete("/servers/box?force=true"));
    assert_eq!(fixture.containers().len(), 1, "nobody can remove it now");
    relay.mend();
    wait_until("nothing of it is left", || fixture.containers().is_empty().then_some(()));
    fixture.finish();
}

#[test]
fn two_programs_on_one_engine_leave_each_others_containers_alone() {
    let (Some(one), Some(two)) = (ContainerFixture::start(), ContainerFixture::start()) else { return };
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
    let fixture = ContainerFixture::start_on(&engine);
    expect(200, &fixture.rest.patch("/settings", &json!({"failure_threshold": 1000})));
    let container = fixture.connected("box", &json!({}))["container"].clone();
    let ContainerFixture { rest, .. } = fixture;
    engine.stop();
    wait_until("its loss is noticed", || {
        let status = rest.get("/servers/box").json()["status"].clone();
        (status != "connected").then_some(())
    });
    engine.start_again();
    let fixture = ContainerFixture { rest, engine: &engine, lease: None };
    fixture.wait_for_another("box", &container);
    assert_eq!(fixture.containers().len(), 1, "what the old engine left was removed");
    fixture.finish();
}
