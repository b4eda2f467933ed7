//! The command line with servers in containers.

use std::time::Duration;

use testkit::Engine;
use testkit::engine::{IMAGE, ImageRegistry};

use super::on;
use crate::service_cli::{Home, row};

#[test]
fn list_show_and_status_print_the_container_and_its_usage() {
    let Some(engine) = Engine::shared() else { return };
    let home = Home::new();
    let _serve = home.serve_as(|launch| on(&engine, launch));
    let output = home.run(&["add", "box", "--docker", IMAGE, "--json", &entry()]);
    assert_eq!(output.status.code(), Some(2), "an image stands in one place only: {}", output.stderr);
    home.ok(&["add", "box", "--json", &entry()]);
    let server = home.json(&["show", "box", "--json"]);
    let (id, digest) = (&server["container"]["id"], &server["container"]["image_digest"]);
    let short =
        |value: &serde_json::Value| value.as_str().expect("a text").trim_start_matches("sha256:")[..12].to_owned();
    let (id, digest) = (short(id), short(digest));

    for verb in [&["list"][..], &["show", "box"], &["status"]] {
        let output = home.ok(verb);
        for part in [id.as_str(), digest.as_str(), "cpu", "%", "memory", " MB of 1024 MB"] {
            assert!(output.contains(part), "{verb:?} tells `{part}`: {output}");
        }
    }
    assert_eq!(row(&home.ok(&["list"]), "box")[1], "connected");
    let status = home.json(&["status", "--json"]);
    assert_eq!(status["containers"][0]["server"], "box");
    assert!(status["containers"][0]["memory_bytes"].is_number(), "{status}");
    home.ok(&["remove", "box"]);
    assert_eq!(home.json(&["status", "--json"])["containers"], serde_json::json!([]));
}

#[test]
fn waiting_for_an_image_displays_its_progress() {
    let Some(engine) = Engine::shared() else { return };
    let image_registry = ImageRegistry::open_slow("/bin/fake-server", Duration::from_millis(2500));
    let home = Home::new();
    let _serve = home.serve_as(|launch| on(&engine, launch));
    let added = home.run(&["add", "box", "--docker", &image_registry.image()]);
    assert_eq!(added.status.code(), Some(0), "{}", added.stderr);
    assert!(added.stderr.contains(&format!("pulling {}", image_registry.image())), "{}", added.stderr);
    home.ok(&["disconnect", "box"]);
    engine.ask("DELETE", &format!("/images/{}?force=1", image_registry.image()), None);
    let connected = home.run(&["connect", "box"]);
    assert_eq!(connected.status.code(), Some(0), "{}", connected.stderr);
    assert!(connected.stderr.contains(&format!("pulling {}", image_registry.image())), "{}", connected.stderr);
    home.ok(&["remove", "box"]);
    engine.ask("DELETE", &format!("/images/{}?force=1", image_registry.image()), None);
}

fn entry() -> String {
    serde_json::json!({"docker": {"image": IMAGE, "pull": "never", "command": "/bin/fake-server"}}).to_string()
}
