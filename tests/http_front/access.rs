//! Access without tokens: the same user and root, by their connection; if the user is unknown, by the local token.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testkit::http_client::HttpRequest;
use testkit::other_user::{ANN, BEN, SharedPrograms, can_be_others, skipped};
use testkit::run::run_command;
use testkit::{Launch, Serve, program, wait_until};

use super::{PING, initialize};

const SERVERS: &str = "/api/v1/aggregator/servers";

/// The bytes of a request by a client that closes the connection afterwards.
fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}");
    format!("{head}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Every public endpoint of a service, and what an authenticated client reads there.
fn everything() -> Vec<(Vec<u8>, &'static str)> {
    let initialize = initialize("2025-11-25");
    vec![
        (request("POST", "/mcp", "", &initialize), "HTTP/1.1 200"),
        (request("GET", SERVERS, "", ""), "HTTP/1.1 200"),
        (request("GET", "/metrics", "", ""), "HTTP/1.1 200"),
        (request("GET", "/", "", ""), "HTTP/1.1 200"),
        (request("GET", "/settings", "", ""), "HTTP/1.1 200"),
        (request("GET", "/login", "", ""), "HTTP/1.1 303"),
        (request("GET", "/api/docs", "", ""), "HTTP/1.1 200"),
        (request("POST", "/message?sessionId=x", "", PING), "HTTP/1.1 404"),
    ]
}

/// A service that runs as that user, with its own data directory.
fn serve_as(shared: &SharedPrograms, uid: u32, listen: &str) -> Serve {
    let launch = Launch::program(shared.program("mcp-aggregator"))
        .args(["serve", "--listen", listen, "--data-dir"])
        .arg(data_of(shared, uid));
    Serve::of(plain(launch, shared.home_of(uid)).user(uid))
}

fn data_of(shared: &SharedPrograms, uid: u32) -> PathBuf {
    shared.home_of(uid).join("data")
}

/// Without environment variables that name tokens or folders of another user.
fn plain(launch: Launch, home: impl AsRef<Path>) -> Launch {
    let home = home.as_ref();
    launch.cwd(home).env("HOME", home).env_remove("XDG_DATA_HOME").env_remove("MCP_AGGREGATOR_TOKEN")
}

fn local_token(data: &Path) -> String {
    fs::read_to_string(data.join("local.token")).expect("it was made at the start").trim().to_owned()
}

#[test]
fn without_tokens_only_the_same_user_and_root_are_served() {
    if !can_be_others("who is served without tokens") {
        return;
    }
    let shared = SharedPrograms::new();
    for listen in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        let serve = serve_as(&shared, ANN, listen);
        let at = serve.address();
        serve.wait_for_stderr(&format!("reachable by: the user with uid {ANN} and root on this machine; no tokens"));
        for (request, expected) in everything() {
            for uid in [ANN, 0] {
                let answer = shared.send_as(uid, at, &request);
                assert!(answer.starts_with(expected), "{listen} as {uid}: {answer}");
            }
            let answer = shared.send_as(BEN, at, &request);
            assert!(answer.starts_with("HTTP/1.1 403"), "{listen}: {}: {answer}", String::from_utf8_lossy(&request));
            assert!(answer.contains("--token-file") && answer.contains(&ANN.to_string()), "{answer}");
        }
        assert!(shared.send_as(BEN, at, &request("GET", "/health", "", "")).starts_with("HTTP/1.1 200"));
        let token = local_token(&data_of(&shared, ANN));
        let with = |token: &str| request("GET", SERVERS, &format!("Authorization: Bearer {token}\r\n"), "");
        assert!(shared.send_as(BEN, at, &with(&token)).starts_with("HTTP/1.1 200"), "who has the token is let in");
        assert!(shared.send_as(BEN, at, &with("wrong")).starts_with("HTTP/1.1 401"));
        for path in ["/", "/login", "/assets/console.css"] {
            let guess = request("GET", path, "Authorization: Bearer wrong\r\n", "");
            let answer = shared.send_as(BEN, at, &guess);
            assert!(answer.starts_with("HTTP/1.1 401"), "a wrong token opens nothing: {answer}");
            let basic = request("GET", path, "Authorization: Basic wrong\r\n", "");
            assert!(shared.send_as(BEN, at, &basic).starts_with("HTTP/1.1 403"));
        }
        let log = serve.stderr_text();
        assert!(log.contains("refused a request: authentication failed") && log.contains("other_user"), "{log}");
        assert!(!log.contains(&token), "{log}");
    }
    let file = data_of(&shared, ANN).join("local.token");
    let mode = fs::metadata(file).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_service_of_root_serves_root_alone() {
    if !can_be_others("a service of root") {
        return;
    }
    let (shared, folder) = (SharedPrograms::new(), TempDir::new().expect("a temporary folder can be made"));
    let serve = Serve::in_folder(&folder.path().join("data"), |launch| launch.env_remove("MCP_AGGREGATOR_TOKEN"));
    serve.wait_for_stderr("reachable by: root (uid 0) on this machine; no tokens are set");
    for (request, expected) in everything() {
        assert!(shared.send_as(0, serve.address(), &request).starts_with(expected));
        assert!(shared.send_as(ANN, serve.address(), &request).starts_with("HTTP/1.1 403"));
    }
}

#[test]
fn a_closed_connection_is_not_mistaken_for_root() {
    if !can_be_others("connections that are closed early") {
        return;
    }
    let shared = SharedPrograms::new();
    let serve = serve_as(&shared, ANN, "127.0.0.1:0");
    let register = |name: &str| {
        let body = format!(
            r#"{{"name":"{name}","transport_type":"stdio","connection_config":{{"command":"/bin/true"}},"enabled":false}}"#
        );
        request("POST", SERVERS, "", &body)
    };
    for _ in 0..30 {
        shared.abandon_as(BEN, serve.address(), &register("of-ben"));
    }
    let answer = shared.send_as(ANN, serve.address(), &register("of-ann"));
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let listed = shared.send_as(ANN, serve.address(), &request("GET", SERVERS, "", ""));
    assert!(listed.contains("of-ann") && !listed.contains("of-ben"), "{listed}");
}

#[test]
fn commands_of_the_same_user_and_root_are_accepted_and_others_refused_with_the_reason() {
    if !can_be_others("commands of other users") {
        return;
    }
    let shared = SharedPrograms::new();
    let serve = serve_as(&shared, ANN, "127.0.0.1:0");
    let url = format!("http://{}", serve.address());
    let run = |uid: u32, arguments: &[&str]| {
        let mut command = Command::new(shared.program("mcp-aggregator"));
        let home = shared.home_of(uid);
        command.args(arguments).current_dir(&home).env("HOME", &home).env_remove("MCP_AGGREGATOR_TOKEN");
        command.env_remove("XDG_DATA_HOME");
        run_command(std::os::unix::process::CommandExt::gid(
            std::os::unix::process::CommandExt::uid(&mut command, uid),
            uid,
        ))
    };
    let data = data_of(&shared, ANN);
    let data = data.to_str().expect("our folders are UTF-8");
    for uid in [ANN, 0] {
        for target in [["--data-dir", data], ["--url", &url]] {
            let output = run(uid, &["list", target[0], target[1]]);
            assert!(output.status.success(), "{uid} {target:?}: {output:?}");
        }
    }
    let refused = run(BEN, &["list", "--url", &url]);
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("accepts only connections of its own user"), "{}", refused.stderr);
}

/// A service in a user namespace with only one user.
#[test]
fn a_user_that_has_no_number_here_needs_the_local_token() {
    if !can_be_others("users of another namespace") {
        return;
    }
    let shared = SharedPrograms::new();
    let unshare = Command::new("unshare").args(["--user", "--map-root-user", "true"]).status();
    if !unshare.is_ok_and(|status| status.success()) {
        return skipped("users of another namespace: `unshare --user` is not allowed here");
    }
    let data = data_of(&shared, ANN);
    let launch = Launch::program("unshare")
        .args(["--user", "--map-root-user"])
        .arg(shared.program("mcp-aggregator"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data);
    let serve = Serve::of(plain(launch, shared.home_of(ANN)).user(ANN));
    let at = serve.address();
    let list = request("GET", SERVERS, "", "");
    assert!(shared.send_as(ANN, at, &list).starts_with("HTTP/1.1 200"));
    for uid in [0, BEN] {
        for (request, _) in everything().iter().take(3) {
            let answer = shared.send_as(uid, at, request);
            assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("local.token"), "{uid}: {answer}");
        }
    }
    let header = format!("Authorization: Bearer {}\r\n", local_token(&data));
    assert!(shared.send_as(0, at, &request("GET", SERVERS, &header, "")).starts_with("HTTP/1.1 200"));
    // Root reads the file, and so do its commands.
    let mut list = Command::new(program("mcp-aggregator"));
    list.args(["list", "--data-dir"]).arg(&data).env_remove("MCP_AGGREGATOR_TOKEN");
    let output = run_command(&mut list);
    assert!(output.status.success(), "{output:?}");
}

/// A service that cannot ask the kernel for users, in its own home; `None` if that is not possible here.
fn without_netlink(home: &Path, arguments: &[&str]) -> Option<Serve> {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        skipped("a service that may not ask the kernel: there is no python3");
        return None;
    }
    let launch = Launch::program("python3")
        .args(["-c", include_str!("deny_netlink.py")])
        .arg(program("mcp-aggregator"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(arguments);
    Some(Serve::of(plain(launch, home)))
}

#[test]
fn on_systems_without_connection_users_a_token_is_needed_and_our_commands_send_it() {
    let home = TempDir::with_prefix("home-").expect("a temporary folder can be made");
    let data = home.path().join(".local/share/mcp-aggregator");
    let Some(serve) = without_netlink(home.path(), &[]) else { return };
    serve.wait_for_stderr("reachable by: anyone on this machine with the token in ");
    let token = local_token(&data);
    assert!(!serve.stderr_text().contains(&token), "it is told where it is, and not what it is");
    for path in [SERVERS, "/metrics"] {
        let refused = serve.fetch(&HttpRequest::new("GET", path));
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(refused.body.contains("local.token"), "{refused:?}");
        let bearer = format!("Bearer {token}");
        assert_eq!(serve.fetch(&HttpRequest::new("GET", path).header("Authorization", &bearer)).status, 200);
    }
    let hello = || HttpRequest::post("/mcp", initialize("2025-11-25"));
    assert_eq!(serve.fetch(&hello()).status, 401, "tools act for the user, too");
    assert_eq!(serve.fetch(&hello().header("Authorization", &format!("Bearer {token}"))).status, 200);
    assert_eq!(serve.fetch(&HttpRequest::new("GET", "/health")).status, 200);

    let url = format!("http://{}", serve.address());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program("mcp-aggregator"));
        command.args(arguments).current_dir(home.path()).env("HOME", home.path());
        command.env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME").env_remove("MCP_AGGREGATOR_TOKEN");
        run_command(&mut command)
    };
    for arguments in [&["list"][..], &["list", "--url", &url], &["connect", "cursor"]] {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let written = fs::read_to_string(home.path().join(".cursor/mcp.json")).expect("cursor is connected");
    let written: Value = serde_json::from_str(&written).expect("it is JSON");
    let entry = written["mcpServers"].as_object().and_then(|servers| servers.values().next()).expect("an entry");
    assert_eq!(entry["headers"]["Authorization"], format!("Bearer {token}"));
}

#[test]
fn on_systems_with_connection_users_connect_writes_no_token() {
    let home = TempDir::with_prefix("home-").expect("a temporary folder can be made");
    let launch = Launch::program(program("mcp-aggregator")).args(["serve", "--listen", "127.0.0.1:0"]);
    let _serve = Serve::of(plain(launch, home.path()));
    let mut connect = Command::new(program("mcp-aggregator"));
    connect.args(["connect", "cursor"]).current_dir(home.path()).env("HOME", home.path());
    connect.env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME").env_remove("MCP_AGGREGATOR_TOKEN");
    let output = run_command(&mut connect);
    assert!(output.status.success(), "{output:?}");
    let written = fs::read_to_string(home.path().join(".cursor/mcp.json")).expect("cursor is connected");
    assert!(!written.contains("Authorization"), "{written}");
}

#[test]
fn the_link_that_serve_prints_signs_in_to_the_console_once() {
    let home = TempDir::with_prefix("home-").expect("a temporary folder can be made");
    let Some(serve) = without_netlink(home.path(), &[]) else { return };
    let at_the_door = serve.fetch(&HttpRequest::new("GET", "/"));
    assert_eq!((at_the_door.status, at_the_door.headers["location"].as_str()), (303, "/login?next=%2F"));
    let door = serve.fetch(&HttpRequest::new("GET", "/login"));
    assert!(door.body.contains("local.token"), "{}", door.body);
    let code = wait_until("the link", || {
        let said = serve.stderr_text();
        let (_, rest) = said.split_once("/login?code=")?;
        rest.split_once(' ').map(|(code, _)| code.to_owned())
    });
    let link = HttpRequest::new("GET", &format!("/login?code={code}"));
    let signed_in = serve.fetch(&link);
    assert_eq!(signed_in.status, 303, "{signed_in:?}");
    let cookie = signed_in.headers["set-cookie"].split(';').next().expect("a cookie").to_owned();
    let overview = serve.fetch(&HttpRequest::new("GET", "/").header("Cookie", &cookie));
    assert_eq!(overview.status, 200);
    let state = HttpRequest::new("GET", "/api/v1/aggregator/state").header("Cookie", &cookie);
    assert_eq!(serve.fetch(&state).status, 200, "its pages may ask for what they show");
    assert_eq!(serve.fetch(&link).status, 401, "it opens once");
}

#[test]
fn with_tokens_their_number_is_printed_and_no_local_token_is_created() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, "ann:0123456789abcdef0\nben:0123456789abcdef1\nzoe:0123456789abcdef2\n").expect("it is ours");
    let serve = Serve::in_folder(&folder.path().join("data"), |launch| {
        launch.env_remove("MCP_AGGREGATOR_TOKEN").arg("--token-file").arg(&tokens)
    });
    serve.wait_for_stderr("reachable by: anyone with one of 3 tokens");
    assert!(!folder.path().join("data/local.token").exists());
}
