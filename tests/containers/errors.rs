//! Why a container cannot be created or ends, and the messages about it.

use std::net::TcpListener;

use serde_json::json;
use testkit::engine::IMAGE;

use super::ContainerFixture;
use crate::rest::{Rest, expect};

#[test]
fn without_an_engine_the_searched_paths_are_reported() {
    let rest = Rest::start_as(|launch| launch.env("DOCKER_HOST", "unix:///nowhere/engine.sock"));
    let config = json!({"docker": {"image": IMAGE}});
    let body = json!({"name": "box", "transport_type": "stdio", "connection_config": config});
    let server = expect(201, &rest.post("/servers", &body));
    let message = server["error_message"].as_str().expect("it failed at once").to_owned();
    assert!(message.contains("no container engine was found; looked at /nowhere/engine.sock"), "{message}");
    assert!(message.contains("DOCKER_HOST"), "a hint: {message}");
    assert_eq!((&server["status"], &server["failure_count"]), (&json!("error"), &json!(1)));
    assert!(server["next_retry_at"].is_string(), "it is tried again: {server}");
}

#[test]
fn a_missing_image_is_reported_with_the_engines_message() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let message = fixture.failing("never", "stdio", &json!({"image": "nobody/nothing:1"}));
    assert!(message.contains("image `nobody/nothing:1` does not exist locally"), "{message}");
    let message = fixture.failing("missing", "stdio", &json!({"image": "localhost:1/nothing", "pull": "missing"}));
    assert!(message.contains("failed to pull image `localhost:1/nothing`: "), "{message}");
    assert!(message.contains("refused"), "the engine's own words: {message}");
    fixture.finish();
}

#[test]
fn a_container_name_in_use_is_reported_and_its_container_untouched() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let other = json!({"Image": IMAGE, "Cmd": ["/bin/sleep", "1000"]});
    fixture.engine.ask("POST", "/containers/create?name=mcp-test-taken", Some(&other));
    let docker = json!({"command": "/bin/fake-server", "containerName": "mcp-test-taken"});
    let message = fixture.failing("box", "stdio", &docker);
    assert!(message.contains("another container is named `mcp-test-taken`"), "{message}");
    assert!(message.contains("already in use"), "the engine's own words: {message}");
    assert!(
        message.contains(&format!("of image `{IMAGE}` has this name, and it is not running")),
        "who has it: {message}"
    );
    assert!(message.contains("containerName"), "a hint: {message}");
    fixture.engine.ask("DELETE", "/containers/mcp-test-taken", None);
    fixture.rest.order("/servers/box/enable");
    fixture.rest.wait_for_status("box", "connected");
    fixture.finish();
}

#[test]
fn a_port_in_use_is_reported_before_anything_starts() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("the loopback has ports");
    let port = taken.local_addr().expect("it is bound").port();
    let docker = json!({"command": "/bin/fake-http-server", "network": "host", "ports": [port]});
    let message = fixture.failing("web", "http", &docker);
    assert!(message.contains(&format!("port {port} is already in use")), "{message}");
    assert!(message.contains(&format!("process {} (`", std::process::id())), "who has it: {message}");
    fixture.finish();
}

#[test]
fn an_image_without_the_command_is_reported_by_both() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let message = fixture.failing("none", "stdio", &json!({}));
    assert!(message.contains(&format!("image `{IMAGE}` cannot run anything")), "{message}");
    let message = fixture.failing("wrong", "stdio", &json!({"command": "/bin/nothing"}));
    assert!(message.contains(&format!("image `{IMAGE}` cannot run `/bin/nothing`")), "{message}");
    fixture.finish();
}

#[test]
fn a_container_that_exits_immediately_is_reported_with_status_and_stderr() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let docker = json!({"command": "/bin/sh", "args": ["-c", "echo out of milk >&2; exit 4"]});
    fixture.register("box", "stdio", &docker);
    fixture.wait_for_history("box", "its container exited with status 4; it said: out of milk");
    let server = fixture.rest.wait_for_status("box", "disabled");
    assert_eq!(server["auto_disabled"], true);
    fixture.finish();
}

#[test]
fn an_exit_of_the_server_itself_has_no_outside_cause() {
    let Some(fixture) = ContainerFixture::start() else { return };
    for (name, script, message) in [
        ("minus-one", "exit 255", "its container exited with status 255"),
        ("crash", "kill -SEGV $$", "its server was terminated by signal 11 (SIGSEGV)"),
        ("no-helper", "/bin/no-such-helper; exit 127", "its container exited with status 127; it said: "),
    ] {
        fixture.register(name, "stdio", &json!({"command": "/bin/sh", "args": ["-c", script]}));
        fixture.wait_for_history(name, message);
    }
    fixture.finish();
}

#[test]
fn a_missing_folder_is_reported_and_not_created() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let misspelt = folder.path().join("ntoes");
    let volume = format!("{}:/notes", misspelt.display());
    let message = fixture.failing("box", "stdio", &json!({"command": "/bin/fake-server", "volumes": [volume]}));
    assert!(message.contains("ntoes") && message.contains("create that folder first"), "{message}");
    assert!(!misspelt.exists(), "nothing was made on this machine");
    std::fs::create_dir(&misspelt).expect("a folder can be made");
    fixture.rest.order("/servers/box/enable");
    fixture.rest.wait_for_status("box", "connected");
    fixture.finish();
}

#[test]
fn a_server_whose_child_ran_out_of_memory_is_reported_with_its_own_exit() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let script = "(more=xxxxxxxx; while :; do more=$more$more; done); exec /bin/fake-server";
    fixture.register("box", "stdio", &json!({"memory": "48m", "command": "/bin/sh", "args": ["-c", script]}));
    fixture.rest.wait_for_status("box", "connected");
    let answer = fixture.rest.call("box.crash", &json!({"code": 3}));
    assert!(
        answer.body.contains("its container exited with status 3, after a process in it had run out"),
        "{answer:?}"
    );
    fixture.finish();
}

#[test]
fn a_crash_is_reported_and_the_server_gets_a_new_container() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let container = fixture.connected("box", &json!({}))["container"].clone();
    let answer = fixture.rest.call("box.crash", &json!({"code": 3}));
    assert!(answer.body.contains("its container exited with status 3"), "{answer:?}");
    fixture.wait_for_another("box", &container);
    assert_eq!(fixture.containers().len(), 1);
    fixture.finish();
}

#[test]
fn a_server_that_runs_out_of_memory_is_reported_with_its_limit() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let container = fixture.connected("greedy", &json!({"memory": "48m"}))["container"].clone();
    let answer = fixture.rest.call("greedy.blob", &json!({"bytes": 400_000_000}));
    assert!(answer.body.contains("ran out of memory; the limit is 48 MB"), "{:.500}", answer.body);
    fixture.wait_for_another("greedy", &container);
    fixture.finish();
}
