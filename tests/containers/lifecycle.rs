//! Containers are started, called, shown, stopped and removed; many at once; over HTTP.

use std::net::TcpListener;

use serde_json::{Value, json};
use testkit::engine::{IMAGE, ImageRegistry, Relay};
use testkit::http_client::HttpRequest;
use testkit::{Config, Engine, Launch, ServerEntry, wait_until};

use super::{ContainerFixture, on};
use crate::rest::expect;

#[test]
fn a_server_in_a_container_is_called_and_shown_and_leaves_nothing_behind() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let server = fixture.connected("box", &json!({"env": {"TOKEN": "swordfish"}, "args": ["--junk"]}));
    assert_eq!(server["deployment_type"], "managed");
    let answer = fixture.rest.call("box.echo", &json!({"text": "hello"}));
    assert!(answer.body.contains("hello"), "{answer:?}");
    let reported = fixture.rest.call("box.env", &json!({"name": "TOKEN"}));
    assert!(reported.body.contains("swordfish"), "{reported:?}");

    let shown = fixture.rest.get("/servers/box");
    assert!(!shown.body.contains("swordfish"), "{shown:?}");
    let container = shown.json()["container"].clone();
    assert_eq!(container["image"], IMAGE);
    assert!(container["image_digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{container}");
    assert!(container["memory_bytes"].as_f64().is_some_and(|bytes| bytes > 0.0), "{container}");
    assert!(container["cpu_percent"].is_number(), "{container}");

    let [seen] = <[Value; 1]>::try_from(fixture.containers()).expect("it has one container");
    assert_eq!(seen["Id"], container["id"]);
    expect(200, &fixture.rest.order("/servers/box/disconnect"));
    assert_eq!(fixture.containers(), Vec::<Value>::new());
    assert_eq!(fixture.rest.get("/servers/box").json()["container"], Value::Null);

    expect(200, &fixture.rest.order("/servers/box/connect"));
    assert_eq!(fixture.containers().len(), 1);
    expect(200, &fixture.rest.order("/servers/box/disable"));
    assert_eq!(fixture.containers(), Vec::<Value>::new());
    expect(200, &fixture.rest.order("/servers/box/enable"));
    fixture.rest.wait_for_status("box", "connected");
    expect(204, &fixture.rest.delete("/servers/box"));
    assert_eq!(fixture.containers(), Vec::<Value>::new());
    fixture.finish();
}

#[test]
fn a_container_has_few_privileges_by_default() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let settings = |name: &str| {
        let id = fixture.rest.get(&format!("/servers/{name}")).json()["container"]["id"].clone();
        fixture.engine.ask("GET", &format!("/containers/{}/json", id.as_str().unwrap_or_default()), None)
    };
    fixture.connected("plain", &json!({}));
    let host = settings("plain")["HostConfig"].clone();
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["CapDrop"], json!(["ALL"]));
    assert_eq!(host["SecurityOpt"], json!(["no-new-privileges"]));
    assert_eq!((&host["Memory"], &host["PidsLimit"], &host["Init"]), (&json!(1 << 30), &json!(512), &json!(true)));
    assert_eq!((&host["Privileged"], &host["ReadonlyRootfs"]), (&json!(false), &json!(false)));

    let docker = json!({"containerName": "mcp-test-asked-for", "network": "host", "memory": "256m", "cpus": 0.5,
        "user": "1000:1000", "readOnly": true, "volumes": ["/tmp:/here:ro"]});
    fixture.connected("asked", &docker);
    let seen = settings("asked");
    let host = &seen["HostConfig"];
    assert_eq!((&seen["Name"], &seen["Config"]["User"]), (&json!("/mcp-test-asked-for"), &json!("1000:1000")));
    assert_eq!((&host["NetworkMode"], &host["ReadonlyRootfs"]), (&json!("host"), &json!(true)));
    assert_eq!((&host["Memory"], &host["NanoCpus"]), (&json!(256 << 20), &json!(500_000_000)));
    let mount = &host["Mounts"][0];
    assert_eq!((&mount["Source"], &mount["Target"]), (&json!("/tmp"), &json!("/here")));
    assert_eq!((&mount["Type"], &mount["ReadOnly"]), (&json!("bind"), &json!(true)), "one that is there");

    // A concurrent connection test has its own container, which cannot have the same name.
    let tried = expect(200, &fixture.rest.order("/servers/asked/test"));
    assert_eq!(tried["success"], true, "{tried}");
    assert_eq!(fixture.containers().len(), 2);
    fixture.finish();
}

#[test]
fn output_of_a_server_in_a_container_arrives_byte_for_byte() {
    let Some(fixture) = ContainerFixture::start() else { return };
    fixture.connected("box", &json!({"args": ["--flood-stderr", "200000"]}));
    let odd = r#"{"content":[],"n":1.0,"big":1e400,"z":"\ud800","a":  12345678901234567890123}"#;
    let answer = fixture.rest.call("box.raw", &json!({"result": odd}));
    assert!(answer.body.contains(r#""n":1.0,"big":1e400,"z":"\ud800","a":  12345678901234567890123"#), "{answer:?}");
    let large = 5_000_000;
    let answer = fixture.rest.call("box.blob", &json!({"bytes": large}));
    assert!(answer.body.contains(&"x".repeat(large)), "{} bytes came", answer.body.len());
    let text = "é\u{0}\n".repeat(500_000);
    let answer = fixture.rest.call("box.size", &json!({"text": text}));
    assert_eq!(answer.status, 200);
    fixture.finish();
}

#[test]
fn twenty_containers_at_once() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let names: Vec<String> = (0..20).map(|number| format!("box-{number}")).collect();
    for name in &names {
        let config = json!({"docker": {"image": IMAGE, "pull": "never", "command": "/bin/fake-server"}});
        let body = json!({"name": name, "transport_type": "stdio", "connection_config": config, "auto_connect": false});
        expect(201, &fixture.rest.post("/servers", &body));
    }
    let asked_at_once = |asks: Vec<HttpRequest>| {
        let mut connections: Vec<_> = asks.iter().map(|_| fixture.rest.serve.connect()).collect();
        for (connection, ask) in connections.iter_mut().zip(&asks) {
            connection.send(ask);
        }
        let bodies = connections.iter_mut().map(|connection| {
            let mut answer = connection.answer();
            assert_eq!(answer.status, 200);
            String::from_utf8_lossy(&answer.bytes()).into_owned()
        });
        bodies.collect::<Vec<String>>()
    };
    let connect = |name: &String| HttpRequest::post(&format!("/api/v1/aggregator/servers/{name}/connect"), "");
    asked_at_once(names.iter().map(connect).collect());
    assert_eq!(fixture.containers().len(), 20);
    let call = |name: &String| {
        let body = json!({"name": format!("{name}.echo"), "arguments": {"text": format!("I am {name}.")}});
        HttpRequest::post("/api/v1/aggregator/execute", body.to_string())
    };
    for (name, answer) in names.iter().zip(asked_at_once(names.iter().map(call).collect())) {
        assert!(answer.contains(&format!("I am {name}.")), "{answer}");
    }
    fixture.finish();
}

#[test]
fn a_server_over_http_is_reached_in_the_network_of_the_machine() {
    let Some(fixture) = ContainerFixture::start() else { return };
    for (name, transport) in [("web", "http"), ("older", "sse")] {
        let server = fixture.connected_over_http(name, transport, None, &json!({}));
        assert_eq!(server["deployment_type"], "managed");
        let answer = fixture.rest.call(&format!("{name}.echo"), &json!({"text": "hello"}));
        assert!(answer.body.contains("hello"), "{answer:?}");
    }
    fixture.finish();
}

#[test]
fn a_server_over_http_is_reached_at_a_free_port_of_this_machine_only() {
    let Some(engine) = Engine::shared() else { return };
    let network = engine.network("mcp-test-published");
    let fixture = ContainerFixture::start_on(&engine);
    let args = json!(["--until-killed", "--everywhere", "--port", "8080", "--streamable"]);
    let docker = json!({"command": "/bin/fake-http-server", "args": args, "network": "mcp-test-published", "ports": [8080],
        "path": "/mcp"});
    fixture.register("web", "http", &docker);
    fixture.rest.wait_for_status("web", "connected");
    let answer = fixture.rest.call("web.echo", &json!({"text": "hello"}));
    assert!(answer.body.contains("hello"), "{answer:?}");
    let [seen] = <[Value; 1]>::try_from(fixture.containers()).expect("it has one container");
    assert_eq!(seen["Ports"][0]["IP"], "127.0.0.1", "{seen}");

    let taken = TcpListener::bind("127.0.0.1:0").expect("the loopback has ports");
    let port = taken.local_addr().expect("it is bound").port();
    let docker = json!({"command": "/bin/fake-http-server", "network": "mcp-test-published", "ports": {"8080": port}});
    let message = fixture.failing("late", "http", &docker);
    assert!(message.contains(&format!("port {port} is already in use")), "{message}");
    fixture.finish();
    drop(network);
}

#[test]
fn a_config_file_may_have_containers_too() {
    let Some(engine) = Engine::shared() else { return };
    let block =
        json!({"image": IMAGE, "pull": "never", "command": ["/bin/fake-server"], "args": ["--stderr-line", "hi"]});
    let entry = ServerEntry::new("unused").field("docker", block);
    let config = Config::new().server("box", entry);
    let mut client = on(&engine, Launch::service(&config)).start();
    client.initialize();
    let answer = client.call("box.echo", json!({"text": "hello"}));
    assert_eq!(answer["result"]["content"][0]["text"], "hello");
    let path = client.config_folder().expect("it has a config").canonicalize().expect("it is there");
    let mine = || {
        let all = engine.containers("io.mcp-aggregator.instance").into_iter();
        let of_config = |seen: &Value| seen["Labels"].to_string().contains(&path.display().to_string());
        all.filter(of_config).count()
    };
    assert_eq!(mine(), 1);
    client.close_stdin();
    client.wait_exit();
    assert_eq!(mine(), 0);
}

#[test]
fn an_engine_may_be_reached_over_tcp() {
    let Some(engine) = Engine::shared() else { return };
    let relay = Relay::to(&engine);
    let fixture = ContainerFixture::start_at(&engine, &relay.host());
    fixture.connected("box", &json!({}));
    let answer = fixture.rest.call("box.echo", &json!({"text": "hello"}));
    assert!(answer.body.contains("hello"), "{answer:?}");
    fixture.finish();
}

#[test]
fn a_server_that_ignores_the_end_of_its_input_is_ended_all_the_same() {
    let Some(fixture) = ContainerFixture::start() else { return };
    fixture.connected("deaf", &json!({"args": ["--ignore-eof", "--ignore-term"]}));
    expect(200, &fixture.rest.order("/servers/deaf/disconnect"));
    wait_until("nothing is left", || fixture.containers().is_empty().then_some(()));
    fixture.finish();
}

#[test]
fn a_missing_image_is_pulled_with_progress_for_all_waiting_clients() {
    let Some(fixture) = ContainerFixture::start() else { return };
    let image_registry = ImageRegistry::open("/bin/fake-server");
    let mut connection = fixture.rest.serve.connect();
    let mut stream = connection.ask(&HttpRequest::stream("/api/v1/aggregator/events"));
    fixture.register("box", "stdio", &json!({"image": image_registry.image(), "pull": "missing"}));
    fixture.rest.wait_for_status("box", "connected");
    let mut reported: Vec<String> = Vec::new();
    while !reported.iter().any(|message| message == &format!("pulled {}", image_registry.image())) {
        let event = stream.next_message().expect("the stream goes on");
        if event.kind.as_deref() == Some("server.progress") {
            reported.push(event.json()["message"].as_str().expect("a sentence").to_owned());
        }
    }
    assert_eq!(reported[0], format!("pulling {}", image_registry.image()));
    fixture.engine.ask("DELETE", &format!("/images/{}?force=1", image_registry.image()), None);
    fixture.finish();
}
