//! Clients over TLS and HTTP/2, with real clients: curl, h2load and sslscan.

mod bad_files;
mod certificates;
mod client_certificates;
mod clients;
mod proxies;
mod renewal;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::{Launch, Serve, program, wait_until};

use certificates::Certificates;

/// A program of the distribution, or `None`, which is printed.
pub(crate) fn tool(name: &str) -> Option<Command> {
    if Command::new(name).arg("--version").output().is_ok() {
        return Some(Command::new(name));
    }
    let message = format!("SKIPPED: a test with {name}: it was not found; run scripts/test, which installs it");
    assert!(std::env::var_os("CI").is_none(), "{message}");
    eprintln!("\n**********\n{message}\n**********\n");
    None
}

/// What a command printed. It must succeed.
#[track_caller]
fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A service with TLS and one server, `fake`, which is connected.
fn serving(certificates: &Certificates, adjust: impl FnOnce(Launch) -> Launch) -> Serve {
    let config = testkit::Config::new().server("fake", testkit::fake());
    let serve = Serve::start_as(&config, |launch| {
        let launch = launch.env_remove("MCP_AGGREGATOR_TOKEN");
        adjust(launch.arg("--tls-cert").arg(certificates.certificate()).arg("--tls-key").arg(certificates.key()))
    });
    wait_until("the server is connected", || {
        (state(&serve.folder().join("data"), &[])["connected_servers"] == 1).then_some(())
    });
    serve
}

/// What `mcp-aggregator status` says of the service of this data directory.
fn state(data: &Path, more: &[&str]) -> Value {
    let mut command = Command::new(program("mcp-aggregator"));
    command.args(["status", "--json", "--data-dir"]).arg(data).args(more).env_remove("MCP_AGGREGATOR_TOKEN");
    // It exits with 1 if something is wrong, and prints all the same.
    let output = command.output().expect("it can be started");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}
