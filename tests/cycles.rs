//! Aggregators behind aggregators: fine, unless one would start itself.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use testkit::{Config, Driver, Launch, ServerEntry, fake, program};

use crate::setting::{initialized, text_of};

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
