//! Invalid configs of servers in containers.

use serde_json::{Value, json};

use crate::rest::{Rest, expect, expect_problems};

#[test]
fn every_mistake_is_reported_with_its_field() {
    let rest = Rest::start();
    let docker = |block: Value| json!({"docker": block});
    for (transport, deployment, config, place) in [
        ("stdio", Some("managed"), json!({"url": "http://x"}), "connection_config.docker"),
        ("http", Some("managed"), json!({"url": "http://x"}), "connection_config.docker"),
        ("sse", Some("external"), json!({"command": "x"}), "connection_config.url"),
        ("sse", Some("external"), docker(json!({"image": "a", "ports": [1]})), "deployment_type"),
        ("stdio", Some("external"), json!({"command": "x"}), "deployment_type"),
        ("stdio", None, docker(json!({})), "connection_config.docker.image"),
        ("stdio", None, docker(json!({"image": "a", "memory": "much"})), "connection_config.docker.memory"),
        ("stdio", None, docker(json!({"image": "a", "readonly": true})), "connection_config.docker.readonly"),
        ("http", None, docker(json!({"image": "a"})), "connection_config.docker.ports"),
        ("stdio", None, docker(json!({"image": "UPPER/a"})), "connection_config.docker.image"),
        ("stdio", None, docker(json!({"image": "a", "volumes": ["./a:/b"]})), "connection_config.docker.volumes.0"),
        ("http", None, docker(json!({"image": "a", "ports": {"80": 90, "81": 90}})), "connection_config.docker.ports"),
        ("http", None, docker(json!({"image": "a", "ports": {"80": 70000}})), "connection_config.docker.ports.80"),
    ] {
        let mut body = json!({"name": "box", "transport_type": transport, "connection_config": config});
        if let Some(deployment) = deployment {
            body["deployment_type"] = deployment.into();
        }
        let problems = expect_problems(&rest.post("/servers", &body));
        let places: Vec<&str> = problems.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, [format!("body.{place}")], "{body}");
    }
}

#[test]
fn the_deployment_of_a_server_follows_from_its_connection() {
    let rest = Rest::start_as(|launch| launch.env("DOCKER_HOST", "unix:///nowhere/engine.sock"));
    let register = |name: &str, transport: &str, config: Value| {
        let body = json!({"name": name, "transport_type": transport, "connection_config": config, "enabled": false});
        expect(201, &rest.post("/servers", &body))["deployment_type"].clone()
    };
    assert_eq!(register("box", "http", json!({"docker": {"image": "a", "ports": [80]}})), "managed");
    assert_eq!(register("web", "http", json!({"url": "http://127.0.0.1:1"})), "external");
    assert_eq!(register("program", "stdio", json!({"command": "x"})), "managed");
    let config = json!({"docker": {"image": "a", "ports": [80]}});
    let changed = expect(200, &rest.patch("/servers/web", &json!({"connection_config": config})));
    assert_eq!(changed["deployment_type"], "managed");
    let problems = expect_problems(&rest.patch("/servers/web", &json!({"deployment_type": "external"})));
    assert_eq!(problems[0].0, "body.deployment_type");
}
