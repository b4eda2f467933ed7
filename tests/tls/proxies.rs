//! Proxies in front: whose word about a client counts.

use std::fs;
use std::process::Command;

use tempfile::TempDir;
use testkit::http_client::HttpRequest;
use testkit::{Serve, program};

const TOKEN: &str = "a-token-of-decent-length";

fn serving(folder: &TempDir, more: &[&str]) -> Serve {
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, format!("ann:{TOKEN}\n")).expect("it is ours");
    Serve::in_folder(&folder.path().join("data"), |launch| {
        let launch = launch.env_remove("MCP_AGGREGATOR_TOKEN").arg("--token-file").arg(&tokens);
        launch.args(["--limit", "wrong-tokens-per-minute=2"]).args(more)
    })
}

/// The status of a request with a wrong token that was forwarded for this address.
fn guess(serve: &Serve, client: &str) -> u16 {
    let request = HttpRequest::new("GET", "/mcp").header("Authorization", "Bearer wrong");
    serve.fetch(&request.header("X-Forwarded-For", client)).status
}

#[test]
fn guesses_count_for_the_client_behind_a_trusted_proxy() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let serve = serving(&folder, &["--trusted-proxy", "127.0.0.0/8"]);
    assert_eq!([guess(&serve, "203.0.113.1"), guess(&serve, "203.0.113.1")], [401, 401]);
    assert_eq!(guess(&serve, "203.0.113.1"), 429);
    assert_eq!(guess(&serve, "203.0.113.2"), 401, "another client of the same proxy");
    assert_eq!(guess(&serve, "203.0.113.2, 203.0.113.1"), 429, "what a client claims does not count");
}

#[test]
fn nobody_else_can_claim_to_be_another_client() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let serve = serving(&folder, &["--trusted-proxy", "10.0.0.1"]);
    assert_eq!([guess(&serve, "203.0.113.1"), guess(&serve, "203.0.113.2")], [401, 401]);
    assert_eq!(guess(&serve, "203.0.113.3"), 429);
}

#[test]
fn the_cookie_of_the_console_is_secure_if_a_trusted_proxy_has_tls() {
    for (proxy, is_secure) in [("127.0.0.1", true), ("10.0.0.1", false)] {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let serve = serving(&folder, &["--trusted-proxy", proxy]);
        let page = serve.fetch(&HttpRequest::new("GET", "/login").header("X-Forwarded-Proto", "https"));
        assert_eq!(page.headers["set-cookie"].contains("; Secure"), is_secure, "{proxy}: {page:?}");
    }
}

#[test]
fn a_proxy_without_tokens_is_refused() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let mut command = Command::new(program("mcp-aggregator"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--trusted-proxy", "127.0.0.1", "--data-dir"]).arg(folder.path());
    let output = command.env_remove("MCP_AGGREGATOR_TOKEN").output().expect("it can be started");
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("--trusted-proxy needs tokens") && message.contains("--token-file"), "{message}");
}
