//! `serve` with sockets that systemd has opened.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;
use testkit::{Launch, program, wait_until};

/// Runs the service as systemd does: with the socket as descriptor 3, and with variables that say so.
const PASS: &str = r#"exec 3<&0 </dev/null; exec env LISTEN_PID=$$ LISTEN_FDS=1 "$@""#;

/// `serve` with a socket. The shell becomes the service.
fn command(socket: impl Into<OwnedFd>, data: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", PASS, "sh"]).arg(program("mcp-aggregator")).args(["serve", "--data-dir"]).arg(data);
    command.args(more).env_remove("MCP_AGGREGATOR_TOKEN").stdin(Stdio::from(socket.into()));
    command
}

/// A service that was passed a socket. Killed on drop.
struct Service {
    child: Child,
    stderr: NamedTempFile,
}

impl Service {
    #[track_caller]
    fn start(mut command: Command) -> Self {
        let stderr = NamedTempFile::new().expect("a temporary file can be made");
        let child = command.stdout(Stdio::null()).stderr(stderr.reopen().expect("it is there")).spawn();
        Self { child: child.expect("a shell can be started"), stderr }
    }

    #[track_caller]
    fn wait_for_stderr(&self, text: &str) {
        wait_until(&format!("`{text}` on stderr"), || {
            fs::read_to_string(self.stderr.path()).expect("it is text").contains(text).then_some(())
        });
    }

    #[track_caller]
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {:?}", fs::read_to_string(self.stderr.path()));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What the service says when it refuses to start.
#[track_caller]
fn refused(socket: impl Into<OwnedFd>, more: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let output = command(socket, folder.path(), more).output();
    let Output { status, stderr, .. } = output.expect("a shell can be started");
    assert!(!status.success());
    String::from_utf8_lossy(&stderr).into_owned()
}

#[test]
fn a_socket_that_is_passed_is_used_and_clients_that_came_early_are_served() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = socket.local_addr().expect("it has an address");
    // Before the service runs, and between two lives of it, clients connect and wait.
    for _ in 0..2 {
        let mut early = TcpStream::connect(address).expect("the socket listens");
        early.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it is open");
        let copy = socket.try_clone().expect("it can be passed again");
        // What is also asked for with --listen is not opened.
        let service = Service::start(command(copy, folder.path(), &["--listen", "127.0.0.1:1"]));
        service.wait_for_stderr(&format!("listening on http://{address}"));
        let mut response = String::new();
        early.read_to_string(&mut response).expect("it is text");
        assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
        // Servers neither get the socket nor believe that they were passed one.
        let mut add = Command::new(program("mcp-aggregator"));
        let server = r#"ls -l /proc/$$/fd >"$0"; env >>"$0"; exec cat"#;
        let seen = folder.path().join("seen");
        add.args(["add", "nosy", "--data-dir"]).arg(folder.path()).args(["--", "/bin/sh", "-c", server]);
        add.arg(&seen).env_remove("MCP_AGGREGATOR_TOKEN").output().expect("it can be started");
        let seen = wait_until("the server has looked", || {
            fs::read_to_string(&seen).ok().filter(|text| text.contains("PATH="))
        });
        assert!(!seen.contains("LISTEN_") && seen.matches("socket:").count() == 0, "{seen}");
        service.end();
    }
}

#[test]
fn a_unix_socket_that_is_passed_is_used_and_stays() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("mcp.sock");
    let socket = UnixListener::bind(&path).expect("it can be made");
    let service = Service::start(command(socket, &folder.path().join("data"), &[]));
    service.wait_for_stderr(&format!("listening on unix:{}", path.display()));
    let mut list = Command::new(program("mcp-aggregator"));
    list.args(["status", "--data-dir"]).arg(folder.path().join("data")).env_remove("MCP_AGGREGATOR_TOKEN");
    let listed = list.output().expect("it can be started");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    service.end();
    assert!(path.exists(), "the file is systemd's");
}

#[test]
fn sockets_for_others_are_ignored_and_unusable_ones_are_refused() {
    let socket = || TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let message = refused(socket(), &["--socket-mode", "660"]);
    assert!(message.contains("--socket-mode") && message.contains("SocketMode="), "{message}");
    let open = TcpListener::bind("0.0.0.0:0").expect("a port is free");
    let message = refused(open, &[]);
    assert!(message.contains("refusing to listen on 0.0.0.0:") && message.contains("without tokens"), "{message}");
    let listening = socket();
    let connection = TcpStream::connect(listening.local_addr().expect("it has one")).expect("it listens");
    let message = refused(connection, &[]);
    assert!(message.contains("socket 1 of LISTEN_FDS") && message.contains("Accept=no"), "{message}");
    let file = fs::File::open("/dev/null").expect("it is there");
    let message = refused(file, &[]);
    assert!(message.contains("neither a TCP socket nor a Unix stream socket"), "{message}");
    // Variables that a parent has left behind are for that parent.
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut service = Launch::program(program("mcp-aggregator"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.path())
        .env("LISTEN_PID", "1")
        .env("LISTEN_FDS", "1")
        .env_remove("MCP_AGGREGATOR_TOKEN")
        .start();
    service.wait_for_stderr("listening on http://127.0.0.1:");
    service.signal(Signal::TERM);
    assert!(service.wait_exit().success());
}
