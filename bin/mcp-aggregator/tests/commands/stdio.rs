//! `stdio`: the engine is tested as `mcp-simple-aggregator`; here only what differs.

use serde_json::json;
use testkit::{Config, Launch, fake};

use crate::{PROGRAM, one};

#[test]
fn it_uses_a_dot_as_separator_and_its_own_name() {
    let config = one();
    let mut client = Launch::program(PROGRAM).arg("stdio").arg("--config").arg(config.path()).start();
    let info = client.initialize()["result"]["serverInfo"].clone();
    assert_eq!(info, json!({"name": "mcp-aggregator", "version": env!("CARGO_PKG_VERSION")}));
    assert!(client.tool_names().contains(&"one.echo".to_owned()));
    let answer = client.call("one.echo", json!({"text": "hello"}));
    assert_eq!(answer["result"]["content"][0]["text"], "hello");
    client.close_stdin();
    assert!(client.wait_exit().success());
    assert_eq!(client.stderr_text(), "");
}

#[test]
fn its_options_reach_the_engine() {
    let config = Config::new().server("one", fake().args(["--only-generated", "--tools", "1"])).write();
    let log = config.folder().join("log");
    let mut client = Launch::program(PROGRAM)
        .args(["stdio", "--separator", "/", "--names", "canonical", "--name", "mine", "--debug", "--log-file"])
        .arg(&log)
        .arg("--config")
        .arg(config.path())
        .start();
    assert_eq!(client.initialize_as("claude-ai", "2025-06-18")["result"]["serverInfo"]["name"], "mine");
    assert_eq!(client.tool_names(), ["one/tool_0"]);
    client.close_stdin();
    assert!(client.wait_exit().success());
    assert_eq!(client.stderr_text(), "");
    assert!(std::fs::read_to_string(log).unwrap().contains("server is running"));
}

#[test]
fn a_variable_that_is_not_set_fails_only_the_server_that_needs_it() {
    let needy = fake().env("KEY", "${MCP_TEST_NEVER_SET}");
    let config = Config::new().server("needy", needy).server("one", fake()).write();
    let mut client = Launch::program(PROGRAM).arg("stdio").arg("--config").arg(config.path()).start();
    client.initialize();
    let answer = client.call("one.echo", json!({"text": "hello"}));
    assert_eq!(answer["result"]["content"][0]["text"], "hello");
    let answer = client.call("needy.echo", json!({}));
    let message = answer["error"].to_string();
    assert!(message.contains("MCP_TEST_NEVER_SET is not set"), "{message}");
    client.close_stdin();
    assert!(client.wait_exit().success());
    let message = client.stderr_text();
    assert!(message.contains("server `needy`") && message.contains("MCP_TEST_NEVER_SET is not set"), "{message}");
    assert!(message.contains("${NAME:-default}"), "a hint: {message}");
}
