//! The shipped examples work.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::{ClientSession, Config, Launch, ModernHttp, Serve, fake, program};

use crate::fixture::{initialized, text_of};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the repository").join("examples")
}

fn configs() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).expect("the examples are there");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_example_config_is_valid() {
    let configs = configs();
    assert!(configs.len() >= 2, "{configs:?}");
    for path in configs {
        let bytes = fs::read(&path).unwrap();
        // Set to an arbitrary value: no example may depend on it.
        let config = catalog::Config::parse(&bytes, catalog::Accepted::All, |name| Some(format!("value-of-{name}")));
        let config = config.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!config.servers.is_empty(), "{} starts nothing", path.display());
    }
}

#[test]
fn every_example_config_is_named_in_the_readme() {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    for path in configs() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(readme.contains(&format!("`{name}`")), "{name} is not in examples/README.md");
    }
}

#[test]
fn the_example_token_file_lets_clients_in_once_it_has_tokens_and_not_before() {
    let text = fs::read_to_string(folder().join("tokens.txt")).unwrap();
    let config = Config::new().server("s", fake()).write();
    let unchanged = Launch::program(program("mcp-aggregator"))
        .args(["serve", "--listen", "127.0.0.1:0", "--token-file"])
        .arg(folder().join("tokens.txt"))
        .arg("--config")
        .arg(config.path())
        .arg("--data-dir")
        .arg(config.folder().join("data"))
        .start();
    unchanged.wait_for_stderr("tokens.txt cannot be used: line ");

    let tokens = tempfile::NamedTempFile::new().unwrap();
    fs::write(tokens.path(), text.replace("<a token>", "secret-1").replace("<another token>", "secret-2")).unwrap();
    let serve =
        Serve::start_as(&Config::new().server("s", fake()), |launch| launch.arg("--token-file").arg(tokens.path()));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(serve.fetch(&HttpRequest::post("/mcp", ping)).status, 401);
    for token in ["secret-1", "secret-2"] {
        let mut client = ModernHttp::new(serve.address(), "/mcp").with_token(token);
        assert!(client.ask("tools/list", json!({}))["result"]["tools"].is_array(), "{token}");
    }
}

#[test]
fn the_quickstart_runs_with_nothing_installed() {
    let home = tempfile::tempdir().unwrap();
    let bin = program("example-notes");
    let launch = Launch::program(program("mcp-simple-aggregator"))
        .arg("--config")
        .arg(folder().join("quickstart.json"))
        .env("MCP_EXAMPLES_BIN", bin.parent().unwrap())
        .env("XDG_DATA_HOME", home.path())
        .env("HOME", home.path());
    let mut client = initialized(launch);
    let names = client.tool_names();
    for name in
        ["notes:add", "notes:list", "notes:read", "notes:search", "notes:delete", "calc:evaluate", "calc:convert"]
    {
        assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
    }
    let sum = client.call("calc:evaluate", json!({"expression": "0.1 + 0.2"}));
    assert!(text_of(&sum).contains("0.3"), "{sum}");
    assert!(!text_of(&sum).contains("0.30000000000000004"), "{sum}");
    let list = client.call("notes:list", json!({}));
    assert_ne!(list["result"]["isError"], true, "{list}");
    assert_eq!(client.stderr_text(), "");
}
