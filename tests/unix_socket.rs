//! `serve --listen unix:FILE`: who may connect, what clients and commands get, and the file of the socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testkit::run::run_command;
use testkit::{Driver, Launch, Output, Signal, program};

use crate::tls::tool;

/// A service on a Unix socket, and its folder.
struct SocketService {
    driver: Driver,
    folder: TempDir,
}

impl SocketService {
    #[track_caller]
    fn start(adjust: impl FnOnce(Launch) -> Launch) -> Self {
        Self::start_in(TempDir::with_prefix("socket-").expect("a temporary folder can be made"), adjust)
    }

    #[track_caller]
    fn start_in(folder: TempDir, adjust: impl FnOnce(Launch) -> Launch) -> Self {
        let driver = adjust(launch(folder.path())).start();
        driver.wait_for_stderr("listening on unix:");
        driver.wait_for_stderr("localhost/health");
        Self { driver, folder }
    }

    fn socket(&self) -> PathBuf {
        socket_in(self.folder.path())
    }

    /// The HTTP version and the status of a request by curl, and the body.
    #[track_caller]
    fn fetch(&self, path: &str, more: &[&str]) -> Option<(String, String)> {
        let mut curl = tool("curl")?;
        curl.args(["--silent", "--show-error", "--write-out", "\n%{http_version} %{http_code}", "--unix-socket"]);
        let output = curl.arg(self.socket()).args(more).arg(format!("http://localhost{path}")).output();
        let output = output.expect("curl can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("it is text");
        let (body, report) = text.rsplit_once('\n').expect("the report is on a line of its own");
        Some((report.to_owned(), body.to_owned()))
    }

    /// Runs a command that finds the data directory of the service by itself.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(program("mcp-aggregator"));
        command.args(arguments).env_remove("MCP_AGGREGATOR_TOKEN").env("HOME", self.folder.path());
        command.env("XDG_DATA_HOME", self.folder.path());
        run_command(&mut command)
    }

    #[track_caller]
    fn end(mut self, signal: Signal) -> TempDir {
        self.driver.signal(signal);
        self.driver.wait_exit();
        self.folder
    }
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("mcp.sock")
}

fn data_in(folder: &Path) -> PathBuf {
    folder.join("mcp-aggregator")
}

fn launch(folder: &Path) -> Launch {
    let launch = Launch::program(program("mcp-aggregator")).env_remove("MCP_AGGREGATOR_TOKEN");
    let listen = format!("unix:{}", socket_in(folder).display());
    launch.args(["serve", "--listen", &listen, "--data-dir"]).arg(data_in(folder))
}

#[test]
fn clients_are_served_by_http1_and_http2_and_commands_find_the_service() {
    let service = SocketService::start(|launch| launch);
    assert_eq!(fs::metadata(service.socket()).expect("it is there").permissions().mode() & 0o777, 0o600);
    for (more, version) in [(&[][..], "1.1 200"), (&["--http2-prior-knowledge"], "2 200")] {
        let Some((report, health)) = service.fetch("/health", more) else { return };
        assert_eq!(report, version);
        assert!(health.contains(r#""status":"ok""#), "{health}");
        let (report, servers) = service.fetch("/api/v1/aggregator/servers", more).expect("curl was there");
        assert_eq!((report.as_str(), servers.as_str()), (version, "[]"));
    }
    let fake = program("fake-server").display().to_string();
    let added = service.run(&["add", "one", "--", &fake]);
    assert!(added.status.success(), "{}", added.stderr);
    testkit::wait_until("its tools are there", || service.run(&["tools"]).stdout.contains("one.echo").then_some(()));
    let called = service.run(&["call", "one.echo", "text=hi"]);
    assert!(called.status.success() && called.stdout.contains("hi"), "{} {}", called.stdout, called.stderr);
    let url = format!("unix:{}", service.socket().display());
    let status = service.run(&["status", "--url", &url, "--json"]);
    let status: Value = serde_json::from_str(&status.stdout).expect("it is JSON");
    assert_eq!(status["connected_servers"], 1, "{status}");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}"#;
    let headers = ["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream"];
    let (report, answer) = service.fetch("/mcp", &[&headers[..], &["-d", call]].concat()).expect("curl was there");
    assert!(report == "1.1 200" && answer.contains("serverInfo"), "{report} {answer}");
    let refused = service.run(&["client", "add", "cursor"]);
    assert!(!refused.status.success() && refused.stderr.contains("--public-url"), "{}", refused.stderr);
    let folder = service.end(Signal::TERM);
    assert!(!socket_in(folder.path()).exists(), "the socket goes with the service");
}

#[test]
fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
    let folder = SocketService::start(|launch| launch).end(Signal::KILL);
    assert!(socket_in(folder.path()).exists());
    let service = SocketService::start_in(folder, |launch| launch);
    let other = TempDir::with_prefix("other-").expect("a temporary folder can be made");
    let listen = format!("unix:{}", service.socket().display());
    let data = data_in(other.path()).display().to_string();
    let mut second = Command::new(program("mcp-aggregator"));
    let refused = run_command(second.args(["serve", "--listen", &listen, "--data-dir", &data]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("another program listens there"), "{}", refused.stderr);
    let Some((report, _)) = service.fetch("/health", &[]) else { return };
    assert_eq!(report, "1.1 200", "it still listens");
}

#[test]
fn what_does_not_go_with_a_socket_is_refused() {
    let refused = |arguments: &[&str]| {
        let mut serve = Command::new(program("mcp-aggregator"));
        let output = run_command(serve.arg("serve").args(arguments));
        assert_eq!(output.status.code(), Some(2), "{}", output.stderr);
        output.stderr
    };
    let tls = ["--listen", "unix:/tmp/x.sock", "--tls-cert", "a", "--tls-key", "b"];
    assert!(refused(&tls).contains("--tls-cert is not for Unix sockets"));
    assert!(refused(&["--socket-mode", "660"]).contains("--socket-mode is for Unix sockets only"));
    assert!(refused(&["--listen", "unix:"]).contains("path of a socket"));
}

#[test]
fn the_user_of_a_connection_decides_unless_there_are_tokens() {
    if !testkit::other_user::can_be_others("users of a Unix socket") {
        return;
    }
    let as_other = |service: &SocketService, more: &[&str]| {
        fs::set_permissions(service.folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut curl = tool("curl")?;
        std::os::unix::process::CommandExt::uid(&mut curl, testkit::other_user::ANN);
        curl.args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--unix-socket"]);
        let url = "http://localhost/api/v1/aggregator/state";
        let output = curl.arg(service.socket()).args(more).arg(url).output().expect("curl can be started");
        Some(String::from_utf8(output.stdout).expect("it is text"))
    };
    let service = SocketService::start(|launch| launch);
    let Some(status) = as_other(&service, &[]) else { return };
    assert_eq!(status, "000", "others cannot connect at all");
    let service = SocketService::start(|launch| launch.args(["--socket-mode", "666"]));
    assert_eq!(as_other(&service, &[]).as_deref(), Some("403"));
    let own = service.fetch("/api/v1/aggregator/state", &[]).expect("curl was there").0;
    assert_eq!(own, "1.1 200");
    let tokens =
        |launch: Launch| launch.args(["--socket-mode", "666"]).env("MCP_AGGREGATOR_TOKEN", "a-secret-token-of-ann");
    let service = SocketService::start(tokens);
    let own = service.fetch("/api/v1/aggregator/state", &[]).expect("curl was there").0;
    assert_eq!(own, "1.1 401", "a token is needed by everybody");
    let header = ["-H", "Authorization: Bearer a-secret-token-of-ann"];
    assert_eq!(as_other(&service, &header).as_deref(), Some("200"));
}
