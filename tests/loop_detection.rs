//! Aggregators behind aggregators work, unless one would start itself.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use testkit::{ClientSession, Config, Driver, Launch, Serve, ServerEntry, fake, program};

use crate::fixture::{initialized, text_of};
use crate::rest::{Rest, expect};

/// A server that is an aggregator with this config.
fn aggregator(config: &Path) -> ServerEntry {
    ServerEntry::new(program("mcp-simple-aggregator")).arg("--config").arg(config.to_str().expect("a plain path"))
}

fn small() -> ServerEntry {
    fake().args(["--only-generated", "--tools", "1"])
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.path().canonicalize().expect("the folder is there").join(name)
    }

    fn write(&self, name: &str, config: &Config) {
        fs::write(self.file(name), config.text()).expect("a temporary folder can be written");
    }

    fn serve(&self, name: &str) -> Driver {
        let launch = Launch::program(program("mcp-simple-aggregator")).arg("--config").arg(self.file(name));
        initialized(launch.arg("--debug"))
    }
}

#[test]
fn an_aggregator_that_would_start_itself_is_refused_and_the_others_go_on() {
    let folder = Folder::new();
    let path = folder.file("loop.json");
    folder.write("loop.json", &Config::new().server("myself", aggregator(&path)).server("one", small()));
    let launch = Launch::program(program("mcp-simple-aggregator")).arg("--config").arg(&path);
    let mut client = initialized(launch);
    assert_eq!(client.tool_names(), ["one:tool_0"]);
    client.wait_for_stderr("server `myself` failed");
    let shown = path.display();
    client.wait_for_stderr(&format!("this aggregator would start itself: {shown} → {shown}"));
    let refused = client.call("myself:one:tool_0", json!({}));
    assert_eq!(refused["error"]["data"]["reason"], "server_failed");
}

#[test]
fn a_cycle_through_another_config_is_shown_whole() {
    let folder = Folder::new();
    let (a, b) = (folder.file("a.json"), folder.file("b.json"));
    folder.write("a.json", &Config::new().server("b", aggregator(&b)).server("one", small()));
    folder.write("b.json", &Config::new().server("a", aggregator(&a)).server("two", small()));
    let mut client = folder.serve("a.json");
    assert_eq!(client.tool_names(), ["b:two:tool_0", "one:tool_0"]);
    let cycle = format!("{} → {} → {}", a.display(), b.display(), a.display());
    client.wait_for_stderr(&format!("this aggregator would start itself: {cycle}"));
}

#[test]
fn a_config_is_recognised_under_another_path() {
    let folder = Folder::new();
    let (path, link) = (folder.file("config.json"), folder.file("link.json"));
    folder.write("config.json", &Config::new().server("myself", aggregator(&link)));
    symlink(&path, &link).unwrap();
    let mut client = folder.serve("config.json");
    client.wait_for_stderr("this aggregator would start itself");
    assert!(client.tool_names().is_empty());
}

#[test]
fn a_harmless_nesting_works() {
    let folder = Folder::new();
    let b = folder.file("b.json");
    folder.write("b.json", &Config::new().server("x", small()).server("y", fake()));
    folder.write("a.json", &Config::new().server("b", aggregator(&b)).server("again", aggregator(&b)));
    let mut client = folder.serve("a.json");
    let names = client.tool_names();
    assert_eq!(names[0], "b:x:tool_0");
    assert!(names.contains(&"again:y:echo".to_owned()), "{names:?}");
    assert_eq!(text_of(&client.call("b:x:tool_0", json!({"text": "deep"}))), "deep");
    assert_eq!(text_of(&client.call("again:y:echo", json!({"text": "deeper"}))), "deeper");
    let unknown = client.call("b:z:echo", json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

/// The body that registers an address as a server.
fn at(name: &str, serve: &Serve, transport: &str, path: &str) -> serde_json::Value {
    let config = json!({"url": format!("http://{}{path}", serve.address())});
    json!({"name": name, "transport_type": transport, "connection_config": config})
}

#[test]
fn a_service_cannot_be_added_to_itself() {
    let rest = Rest::start();
    rest.register("one", &["--only-generated", "--tools", "1"]);
    for (transport, path) in [("http", "/mcp"), ("sse", "/sse"), ("http", "/mcp/one")] {
        let selfie = at("selfie", &rest.serve, transport, path);
        let mut unnamed = selfie.clone();
        unnamed.as_object_mut().expect("an object").remove("name");
        let report = expect(200, &rest.post("/servers/test", &unnamed));
        assert_eq!(report["success"], false, "{report}");
        let why = "it is this aggregator itself";
        assert!(report["error"].as_str().expect("a reason").contains(why), "{report}");

        expect(201, &rest.post("/servers", &selfie));
        let server = rest.wait_for_status("selfie", "error");
        assert!(server["error_message"].as_str().expect("a reason").contains(why), "{server}");
        assert_eq!(server["next_retry_at"], serde_json::Value::Null, "trying again would not help");
        assert_eq!(rest.serve.session("/mcp").ids("tools/list"), ["one.tool_0"]);
        rest.delete("/servers/selfie");
    }
}

#[test]
fn a_connection_that_would_close_a_loop_is_refused_and_older_ones_stay() {
    let first = Rest::start();
    first.register("one", &["--only-generated", "--tools", "1"]);
    let second = Rest::start();
    expect(201, &second.post("/servers", &at("first", &first.serve, "http", "/mcp")));
    second.wait_for_status("first", "connected");
    let third = Rest::start();
    expect(201, &third.post("/servers", &at("second", &second.serve, "http", "/mcp")));
    third.wait_for_status("second", "connected");

    // The first learns with its next request that the third uses it.
    expect(200, &third.call("second.first.one.tool_0", &json!({})));
    for (name, link) in [("second", &second), ("third", &third)] {
        expect(201, &first.post("/servers", &at(name, &link.serve, "http", "/mcp")));
        let server = first.wait_for_status(name, "error");
        assert!(server["error_message"].as_str().expect("a reason").contains("that would be a loop"), "{server}");
    }
    assert_eq!(first.serve.session("/mcp").ids("tools/list"), ["one.tool_0"]);
    assert_eq!(third.serve.session("/mcp").ids("tools/list"), ["second.first.one.tool_0"]);
}

#[test]
fn a_circle_through_a_program_that_a_service_starts_is_not_closed() {
    let rest = Rest::start();
    rest.register("one", &["--only-generated", "--tools", "1"]);
    let folder = Folder::new();
    folder.write(
        "back.json",
        &Config::new()
            .raw(json!({"mcpServers": {"back": {"url": format!("http://{}/mcp", rest.serve.address())}}}).to_string()),
    );
    let config = json!({"command": program("mcp-aggregator"), "args": ["stdio", "--config", folder.file("back.json")]});
    expect(
        201,
        &rest.post("/servers", &json!({"name": "through", "transport_type": "stdio", "connection_config": config})),
    );
    rest.wait_for_status("through", "connected");
    assert_eq!(rest.serve.session("/mcp").ids("tools/list"), ["one.tool_0"]);
}
