//! Containers of a server with an instance for each session.

use serde_json::{Value, json};
use testkit::engine::IMAGE;
use testkit::{ClientSession as _, HttpSession, wait_until};

use super::ContainerFixture;
use crate::rest::expect;

/// What `{instance}` stands for in the container of a session.
fn instance_of(session: &mut HttpSession) -> String {
    let answer = session.ask("tools/call", json!({"name": "box.env", "arguments": {"name": "WHO"}}));
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("who-"), "{answer}");
    text
}

#[test]
fn each_session_has_a_container_of_its_own_which_ends_with_it() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let docker =
        json!({"image": IMAGE, "pull": "never", "command": "/bin/fake-server", "env": {"WHO": "who-{instance}"}});
    let config = json!({"docker": docker, "share": "session", "max_instances": 2});
    let body = json!({"name": "box", "transport_type": "stdio", "connection_config": config});
    expect(201, &fixture.rest.post("/servers", &body));
    fixture.rest.wait_for_status("box", "connected");
    assert_eq!(fixture.containers().len(), 1, "that of the catalog");

    let [mut first, mut second] = [(); 2].map(|()| fixture.rest.serve.session("/mcp"));
    let (of_first, of_second) = (instance_of(&mut first), instance_of(&mut second));
    assert_ne!(of_first, of_second);
    assert_eq!(instance_of(&mut first), of_first);
    assert_eq!(fixture.containers().len(), 3);
    let shown = fixture.rest.get("/servers/box").json()["instances"].clone();
    assert_eq!(shown.as_array().map(Vec::len), Some(2), "{shown}");
    let refused = fixture.rest.serve.session("/mcp").ask("tools/call", json!({"name": "box.env", "arguments": {}}));
    assert_eq!(refused["error"]["data"]["reason"], "too_many_instances", "{refused}");

    assert!([200, 204].contains(&first.delete()));
    wait_until("its container is gone", || (fixture.containers().len() == 2).then_some(()));
    assert_eq!(instance_of(&mut second), of_second, "the other one stays");
    expect(204, &fixture.rest.delete("/servers/box"));
    wait_until("all containers are gone", || (fixture.containers() == Vec::<Value>::new()).then_some(()));
    fixture.finish();
}
