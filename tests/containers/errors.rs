//! What keeps a container from being made or from lasting, and what people hear of it.

use std::net::TcpListener;

use serde_json::json;
use testkit::engine::IMAGE;

use super::ContainerFixture;
use crate::rest::{Rest, expect};

#[test]
fn without_an_engine_it_is_said_where_it_was_looked_for() {
    let rest = Rest::start_as(|launch| launch.env("DOCKER_HOST", "unix:///nowhere/engine.sock"));
    let config = json!({"docker": {"image": IMAGE}});
    let body = json!({"name": "box", "transport_type": "stdio", "connection_config": config});
    let server = expect(201, &rest.post("/servers", &body));
    let told = server["error_message"].as_str().expect("it failed at once").to_owned();
    assert!(told.contains("no container engine was found; looked at /nowhere/engine.sock"), "{told}");
    assert!(told.contains("DOCKER_HOST"), "a hint: {told}");
    assert_eq!((&server["status"], &server["failure_count"]), (&json!("error"), &json!(1)));
    assert!(server["next_retry_at"].is_string(), "it is tried again: {server}");
}

#[test]
fn an_image_that_is_not_there_is_reported_with_the_words_of_the_engine() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let told = fixture.failing("never", "stdio", &json!({"image": "nobody/nothing:1"}));
    assert!(told.contains("there is no image `nobody/nothing:1` here"), "{told}");
    let told = fixture.failing("missing", "stdio", &json!({"image": "localhost:1/nothing", "pull": "missing"}));
    assert!(told.contains("image `localhost:1/nothing` could not be pulled: "), "{told}");
    assert!(told.contains("refused"), "the engine's own words: {told}");
    fixture.finish();
}

#[test]
fn a_name_that_is_taken_is_told_and_its_owner_left_alone() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let other = json!({"Image": IMAGE, "Cmd": ["/bin/sleep", "1000"]});
    fixture.engine.ask("POST", "/containers/create?name=mcp-test-taken", Some(&other));
    let docker = json!({"command": "/bin/fake-server", "containerName": "mcp-test-taken"});
    let told = fixture.failing("box", "stdio", &docker);
    assert!(told.contains("there is another container named `mcp-test-taken`"), "{told}");
    assert!(told.contains("already in use"), "the engine's own words: {told}");
    assert!(told.contains(&format!("of image `{IMAGE}` has it, and it does not run")), "who has it: {told}");
    assert!(told.contains("containerName"), "a hint: {told}");
    fixture.engine.ask("DELETE", "/containers/mcp-test-taken", None);
    fixture.rest.order("/servers/box/enable");
    fixture.rest.wait_for_status("box", "connected");
    fixture.finish();
}

#[test]
fn a_port_that_is_taken_is_told_before_anything_is_started() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("the loopback has ports");
    let port = taken.local_addr().expect("it is bound").port();
    let docker = json!({"command": "/bin/fake-http-server", "network": "host", "ports": [port]});
    let told = fixture.failing("web", "http", &docker);
    assert!(told.contains(&format!("port {port} is in use already")), "{told}");
    assert!(told.contains(&format!("process {} (`", std::process::id())), "who has it: {told}");
    fixture.finish();
}

#[test]
fn an_image_without_the_command_is_reported_by_both() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let told = fixture.failing("none", "stdio", &json!({}));
    assert!(told.contains(&format!("image `{IMAGE}` cannot run anything")), "{told}");
    let told = fixture.failing("wrong", "stdio", &json!({"command": "/bin/nothing"}));
    assert!(told.contains(&format!("image `{IMAGE}` cannot run `/bin/nothing`")), "{told}");
    fixture.finish();
}

#[test]
fn a_container_that_exits_at_once_is_reported_with_its_status_and_its_last_words() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let docker = json!({"command": "/bin/sh", "args": ["-c", "echo out of milk >&2; exit 4"]});
    fixture.register("box", "stdio", &docker);
    fixture.wait_for_history("box", "its container exited with status 4; it said: out of milk");
    let server = fixture.rest.wait_for_status("box", "disabled");
    assert_eq!(server["auto_disabled"], true);
    fixture.finish();
}

#[test]
fn what_a_server_does_itself_is_blamed_on_nobody_else() {
    let Some(fixture) = ContainerFixture::start() else { return };
    for (name, script, told) in [
        ("minus-one", "exit 255", "its container exited with status 255"),
        ("crash", "kill -SEGV $$", "its server was ended by signal 11 (SIGSEGV)"),
        ("no-helper", "/bin/no-such-helper; exit 127", "its container exited with status 127; it said: "),
    ] {
        fixture.register(name, "stdio", &json!({"command": "/bin/sh", "args": ["-c", script]}));
        fixture.wait_for_history(name, told);
    }
    fixture.finish();
}

#[test]
fn a_folder_that_is_not_there_is_told_and_not_made() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let misspelt = folder.path().join("ntoes");
    let volume = format!("{}:/notes", misspelt.display());
    let told = fixture.failing("box", "stdio", &json!({"command": "/bin/fake-server", "volumes": [volume]}));
    assert!(told.contains("ntoes") && told.contains("make that folder first"), "{told}");
    assert!(!misspelt.exists(), "nothing was made on this machine");
    std::fs::create_dir(&misspelt).expect("a folder can be made");
    fixture.rest.order("/servers/box/enable");
    fixture.rest.wait_for_status("box", "connected");
    fixture.finish();
}

#[test]
fn a_server_whose_child_ran_out_of_memory_tells_how_it_ended_itself() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let script = "(more=xxxxxxxx; while :; do more=$more$more; done); exec /bin/fake-server";
    fixture.register("box", "stdio", &json!({"memory": "48m", "command": "/bin/sh", "args": ["-c", script]}));
    fixture.rest.wait_for_status("box", "connected");
    let answer = fixture.rest.call("box.crash", &json!({"code": 3}));
    assert!(
        answer.body.contains("its container exited with status 3, after something in it had run out"),
        "{answer:?}"
    );
    fixture.finish();
}

#[test]
fn a_crash_is_told_and_the_server_gets_another_container() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let container = fixture.connected("box", &json!({}))["container"].clone();
    let answer = fixture.rest.call("box.crash", &json!({"code": 3}));
    assert!(answer.body.contains("its container exited with status 3"), "{answer:?}");
    fixture.wait_for_another("box", &container);
    assert_eq!(fixture.containers().len(), 1);
    fixture.finish();
}

#[test]
fn a_server_that_runs_out_of_memory_is_told_its_limit() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let container = fixture.connected("greedy", &json!({"memory": "48m"}))["container"].clone();
    let answer = fixture.rest.call("greedy.blob", &json!({"bytes": 400_000_000}));
    assert!(answer.body.contains("ran out of memory: it may use 48 MB"), "{:.500}", answer.body);
    fixture.wait_for_another("greedy", &container);
    fixture.finish();
}
